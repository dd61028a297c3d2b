//! A real engine, an image built without a registry, and helpers that use the engine's API directly.

pub(crate) mod image;

use std::collections::HashMap;
use std::time::Duration;

use bollard::Docker;
use bollard::models::ContainerInspectResponse;
use bollard::query_parameters::{
    InspectContainerOptions, KillContainerOptions, ListContainersOptionsBuilder,
    ListNetworksOptionsBuilder, ListVolumesOptionsBuilder, RemoveContainerOptionsBuilder,
    RemoveVolumeOptions,
};
use domain::id::{HostId, OwnerId, SandboxId, SpecId};
use domain::sandbox::{BackendFact, BackendState, PrepareProgress, SandboxLaunch};
use futures::StreamExt;
use futures::stream::BoxStream;
use sandbox_docker::{DockerConfig, DockerSandboxes, DockerSpec};
use secrecy::SecretString;
use url::Url;

pub(crate) use image::IMAGE;

/// Name of the one template of [`DockerFixture::config`].
pub(crate) const SPEC: &str = "busybox";

/// Deadline of everything that a test waits for: far longer than a busy machine needs.
pub(crate) const WAIT_TIMEOUT: Duration = Duration::from_secs(120);

/// The engine that the tests use.
pub(crate) fn engine() -> Docker {
    Docker::connect_with_unix_defaults().expect(
        "no Docker engine: install one (apt-get install docker.io) and start dockerd; its socket must be /var/run/docker.sock",
    )
}

/// A unique text for ids.
#[expect(
    clippy::disallowed_methods,
    reason = "tests on a shared engine need unused names"
)]
pub(crate) fn unique_name(prefix: &str) -> String {
    format!("{prefix}{}", uuid::Uuid::new_v4().simple())
}

/// An installation on an engine. Its resources are removed at the end, also when the test fails.
pub(crate) struct DockerFixture {
    pub(crate) docker: Docker,
    pub(crate) instance: HostId,
    /// `None`: the usual engine.
    pub(crate) socket: Option<String>,
}

impl DockerFixture {
    /// On the usual engine, with the image.
    pub(crate) async fn new() -> Self {
        Self::on(engine(), None).await
    }

    /// On another engine.
    pub(crate) async fn on(docker: Docker, socket: Option<String>) -> Self {
        image::ensure_image(&docker).await;
        Self {
            docker,
            instance: HostId::parse(unique_name("test-")).unwrap(),
            socket,
        }
    }

    /// Another installation on the same engine.
    pub(crate) async fn neighbour(&self) -> Self {
        Self::on(self.docker.clone(), self.socket.clone()).await
    }

    /// One template: busybox serving HTTP, with small limits. Tests change it as needed.
    pub(crate) fn config(&self) -> DockerConfig {
        let mut config = DockerConfig::new(self.instance.clone(), vec![spec(SPEC)]);
        config.socket.clone_from(&self.socket);
        config.grace = Duration::from_secs(2);
        config
    }

    pub(crate) fn backend(&self) -> DockerSandboxes {
        self.backend_with(|_| ())
    }

    pub(crate) fn backend_with(&self, change: impl FnOnce(&mut DockerConfig)) -> DockerSandboxes {
        let mut config = self.config();
        change(&mut config);
        DockerSandboxes::new(config).unwrap()
    }

    fn filters(&self) -> HashMap<String, Vec<String>> {
        let label = format!("agent-workspace.instance={}", self.instance);
        HashMap::from([("label".to_owned(), vec![label])])
    }

    /// Names of the containers of this installation.
    pub(crate) async fn containers(&self) -> Vec<String> {
        let options = ListContainersOptionsBuilder::new()
            .all(true)
            .filters(&self.filters())
            .build();
        let listed = self.docker.list_containers(Some(options)).await.unwrap();
        let names = listed
            .into_iter()
            .filter_map(|container| container.names?.into_iter().next());
        names
            .map(|name| name.trim_start_matches('/').to_owned())
            .collect()
    }

    /// Names of the volumes of this installation.
    pub(crate) async fn volumes(&self) -> Vec<String> {
        let options = ListVolumesOptionsBuilder::new()
            .filters(&self.filters())
            .build();
        let listed = self.docker.list_volumes(Some(options)).await.unwrap();
        let volumes = listed.volumes.unwrap_or_default().into_iter();
        volumes.map(|volume| volume.name).collect()
    }

    /// Ids of the networks of this installation.
    pub(crate) async fn networks(&self) -> Vec<String> {
        let options = ListNetworksOptionsBuilder::new()
            .filters(&self.filters())
            .build();
        let listed = self.docker.list_networks(Some(options)).await.unwrap();
        listed
            .into_iter()
            .filter_map(|network| network.id)
            .collect()
    }

    /// The container of a sandbox, as the engine sees it.
    pub(crate) async fn container(&self, id: &SandboxId) -> ContainerInspectResponse {
        let none = None::<InspectContainerOptions>;
        self.docker
            .inspect_container(&container_name(id), none)
            .await
            .unwrap()
    }

    /// `running`, `exited`, …
    pub(crate) async fn status(&self, id: &SandboxId) -> String {
        let state = self.container(id).await.state.unwrap();
        state.status.unwrap().to_string()
    }

    /// `docker kill` by another client.
    pub(crate) async fn kill(&self, id: &SandboxId) {
        let none = None::<KillContainerOptions>;
        self.docker
            .kill_container(&container_name(id), none)
            .await
            .unwrap();
    }

    /// `docker rm -f` by another client.
    pub(crate) async fn remove_container(&self, id: &SandboxId) {
        let force = RemoveContainerOptionsBuilder::new().force(true).build();
        self.docker
            .remove_container(&container_name(id), Some(force))
            .await
            .unwrap();
    }

    /// Runs a program in the sandbox: its exit code and what it wrote.
    pub(crate) async fn exec(&self, id: &SandboxId, command: &[&str]) -> (i64, String) {
        exec(&self.docker, &container_name(id), command).await
    }

    async fn clear(&self) {
        for name in self.containers().await {
            let force = RemoveContainerOptionsBuilder::new()
                .force(true)
                .v(true)
                .build();
            let _ = self.docker.remove_container(&name, Some(force)).await;
        }
        for name in self.volumes().await {
            let _ = self
                .docker
                .remove_volume(&name, None::<RemoveVolumeOptions>)
                .await;
        }
        for id in self.networks().await {
            let _ = self.docker.remove_network(&id).await;
        }
    }
}

/// Removes all resources, also when a test fails. Operations that the test did not await may still create some, so the
/// removal runs twice.
impl Drop for DockerFixture {
    fn drop(&mut self) {
        let fixture = Self {
            docker: self.docker.clone(),
            instance: self.instance.clone(),
            socket: None,
        };
        let fixture = std::mem::ManuallyDrop::new(fixture);
        let cleaner = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.expect("a runtime").block_on(async {
                fixture.clear().await;
                fixture.clear().await;
            });
        });
        let outcome = cleaner.join();
        remove_rules(self.instance.as_str());
        assert!(
            outcome.is_ok() || std::thread::panicking(),
            "the resources of the test were not removed"
        );
    }
}

/// Removes the packet filter's rules of an installation. The backend does so itself only some time after its last sandbox.
fn remove_rules(instance: &str) {
    let script = format!(
        "iptables -w 10 -S DOCKER-USER 2>/dev/null | grep -F '{instance}' | sed 's/^-A/-D/' | \
         while read -r rule; do eval \"iptables -w 10 $rule\"; done
         chain=aw-$(printf %s '{instance}' | sha256sum | cut -c 1-12)
         for from in DOCKER-USER INPUT; do iptables -w 10 -D $from -i $chain -j $chain; done
         iptables -w 10 -F $chain && iptables -w 10 -X $chain"
    );
    // Without permission there are no rules.
    let _ = std::process::Command::new("sh")
        .args(["-c", &script])
        .output();
}

/// Name of the container and of the volume of a sandbox.
pub(crate) fn container_name(id: &SandboxId) -> String {
    format!("agent-workspace-{id}")
}

/// A template of the test image: its own command, one published port, small limits, nothing to watch on the disk.
pub(crate) fn spec(id: &str) -> DockerSpec {
    let mut spec = DockerSpec::new(SpecId::parse(id).unwrap(), IMAGE);
    spec.command = None;
    spec.resources.memory = Some(64 << 20);
    spec.resources.cpus = Some(1.0);
    spec.resources.pids = Some(64);
    spec.resources.disk = None;
    spec
}

/// A template that runs this shell script.
pub(crate) fn script(id: &str, text: &str) -> DockerSpec {
    let mut spec = spec(id);
    spec.entrypoint = Some(["sh", "-c"].map(str::to_owned).into());
    spec.command = Some(vec![text.to_owned()]);
    spec
}

/// A fresh sandbox of this template.
pub(crate) fn launch(spec: &str) -> SandboxLaunch {
    SandboxLaunch {
        id: SandboxId::parse(unique_name("s")).unwrap(),
        owner: OwnerId::parse("alice").unwrap(),
        spec: SpecId::parse(spec).unwrap(),
        session_key: SecretString::from("canary-session-key"),
        secret_key: SecretString::from("canary-secret-key"),
        webhook_url: Url::parse("http://host.docker.internal:1/api/v1/webhooks").unwrap(),
        cors_origins: vec!["https://app.test".into()],
        dormant: false,
        progress: PrepareProgress::silent(),
    }
}

/// Runs a program in a container: its exit code and what it wrote.
pub(crate) async fn exec(docker: &Docker, container: &str, command: &[&str]) -> (i64, String) {
    use bollard::exec::StartExecResults;
    use bollard::models::ExecConfig;
    let config = ExecConfig {
        cmd: Some(command.iter().map(|word| (*word).to_owned()).collect()),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        ..ExecConfig::default()
    };
    let exec = docker.create_exec(container, config).await.unwrap().id;
    let none = None::<bollard::exec::StartExecOptions>;
    let StartExecResults::Attached { mut output, .. } =
        docker.start_exec(&exec, none).await.unwrap()
    else {
        panic!("not attached");
    };
    let mut text = String::new();
    while let Some(Ok(part)) = output.next().await {
        text.push_str(&part.to_string());
    }
    let code = docker.inspect_exec(&exec).await.unwrap().exit_code;
    (code.unwrap_or(-1), text)
}

/// Polls a condition that has no event. Panics with its description after [`WAIT_TIMEOUT`].
pub(crate) async fn wait_until<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let deadline = tokio::time::Instant::now() + WAIT_TIMEOUT;
    while !holds().await {
        assert!(tokio::time::Instant::now() < deadline, "never true: {what}");
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
}

/// The next fact about this sandbox.
pub(crate) async fn next_state(
    facts: &mut BoxStream<'static, BackendFact>,
    id: &SandboxId,
) -> BackendState {
    let state = async {
        loop {
            let fact = facts
                .next()
                .await
                .expect("the stream of facts does not end");
            if fact.id == *id {
                return fact.state;
            }
        }
    };
    tokio::time::timeout(WAIT_TIMEOUT, state)
        .await
        .expect("a fact about the sandbox")
}

/// The detail of an exit.
pub(crate) fn exit_detail(state: Option<BackendState>) -> String {
    match state {
        Some(BackendState::Exited { detail }) => detail,
        other => panic!("not exited: {other:?}"),
    }
}

/// The host, as containers reach it by `host-gateway`.
pub(crate) async fn host_gateway_address(docker: &Docker) -> std::net::IpAddr {
    let none = None::<bollard::query_parameters::InspectNetworkOptions>;
    let bridge = docker.inspect_network("bridge", none).await.unwrap();
    let ranges = bridge.ipam.unwrap().config.unwrap();
    if let Some(gateway) = &ranges[0].gateway {
        return gateway.parse().unwrap();
    }
    // Engines omit a gateway that they chose themselves.
    let subnet = ranges[0].subnet.clone().unwrap();
    let network: std::net::Ipv4Addr = subnet.split('/').next().unwrap().parse().unwrap();
    std::net::Ipv4Addr::from(u32::from(network) + 1).into()
}

/// Whether a server answers HTTP on this port of loopback.
pub(crate) async fn serves_http(port: u16) -> bool {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let exchange = async {
        let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await?;
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await?;
        let mut start = [0; 5];
        stream.read_exact(&mut start).await?;
        std::io::Result::Ok(&start == b"HTTP/")
    };
    let exchange = tokio::time::timeout(Duration::from_secs(5), exchange);
    matches!(exchange.await, Ok(Ok(true)))
}

/// Waits until the backend is connected to its engine and has listed its resources.
pub(crate) async fn wait_until_connected(backend: &DockerSandboxes) {
    let mut reachability = domain::sandbox::SandboxBackend::watch_reachability(backend);
    let connected = async {
        while reachability.next().await != Some(domain::sandbox::BackendReachability::Reachable) {}
    };
    tokio::time::timeout(WAIT_TIMEOUT, connected)
        .await
        .expect("the backend connects to the engine");
}
