//! Connections of containers to other machines through the service's forward proxy.

use crate::support;

use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;

use async_trait::async_trait;
use domain::error::BoxError;
use domain::id::SandboxId;
use domain::sandbox::{BackendState, SandboxEndpoints, SandboxLaunch, SandboxLifecycle};
use sandbox_docker::DockerSandboxes;
use sandbox_provider::{EgressGateway, EgressPolicy, EgressSlot};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use support::{DockerFixture, SPEC, container_name, launch, spec, wait_until};

/// Answers every request with the id of the sandbox that it comes from.
#[derive(Debug)]
struct Echo;

#[async_trait]
impl EgressGateway for Echo {
    async fn serve(&self, sandbox: &SandboxId, mut stream: TcpStream) {
        let mut head = [0; 4096];
        let read = stream.read(&mut head).await.unwrap_or_default();
        if read > 0 {
            let (id, length) = (sandbox.as_str(), sandbox.as_str().len());
            let response = format!("HTTP/1.0 200 OK\r\nContent-Length: {length}\r\n\r\n{id}");
            let _ = stream.write_all(response.as_bytes()).await;
        }
    }

    fn authority(&self, sandbox: &SandboxId) -> Result<Option<String>, BoxError> {
        Ok(Some(format!("authority of {sandbox}\n")))
    }
}

fn slot() -> EgressSlot {
    let gateway: Arc<dyn EgressGateway> = Arc::new(Echo);
    let slot = EgressSlot::default();
    slot.set(gateway).expect("it is new");
    slot
}

fn with_proxy(fixture: &DockerFixture, port: u16) -> DockerSandboxes {
    fixture.backend_with(|config| {
        config.egress = Some(slot());
        config.proxy_port = port;
        let mut direct = spec("direct");
        direct.env.insert("https_proxy".into(), "http://x:1".into());
        config.specs.push(direct);
    })
}

async fn start(backend: &DockerSandboxes, launch: &SandboxLaunch) -> SandboxEndpoints {
    backend.start(launch).await.expect("it starts")
}

/// What a program of the sandbox gets from a machine that does not exist.
async fn request(fixture: &DockerFixture, id: &SandboxId) -> String {
    let command = ["wget", "-q", "-O", "-", "http://machine.test/"];
    fixture.exec(id, &command).await.1
}

async fn proxy_of(fixture: &DockerFixture, id: &SandboxId) -> Option<SocketAddr> {
    let labels = fixture.container(id).await.config.unwrap().labels.unwrap();
    let address = labels.get("agent-workspace.proxy")?;
    Some(address.parse().expect("an address"))
}

#[tokio::test]
async fn the_proxy_knows_which_container_connects_also_after_a_restart_of_the_service() {
    let fixture = DockerFixture::new().await;
    let backend = with_proxy(&fixture, 13_128);
    let launches = [launch(SPEC), launch(SPEC)];
    for launch in &launches {
        assert!(start(&backend, launch).await.has_proxy);
        let file = ["tail", "-n", "1", "/workspace/.certificates.pem"];
        let (_, last) = fixture.exec(&launch.id, &file).await;
        assert_eq!(last, format!("authority of {}\n", launch.id));
        let (_, variables) = fixture.exec(&launch.id, &["env"]).await;
        assert!(
            variables.contains("\nSSL_CERT_FILE=/workspace/.certificates.pem\n"),
            "{variables}"
        );
    }
    for launch in &launches {
        assert_eq!(request(&fixture, &launch.id).await, launch.id.as_str());
    }
    // The host itself is no sandbox.
    let address = proxy_of(&fixture, &launches[0].id).await.unwrap();
    let mut stream = TcpStream::connect(address).await.unwrap();
    let _ = stream
        .write_all(b"GET http://machine.test/ HTTP/1.1\r\n\r\n")
        .await;
    let mut response = Vec::new();
    let _ = stream.read_to_end(&mut response).await;
    assert_eq!(response, b"");

    drop(backend);
    let backend = with_proxy(&fixture, 13_128);
    let id = &launches[1].id;
    wait_until("the listener is restored", async || {
        request(&fixture, id).await == id.as_str()
    })
    .await;
    let state = backend.inspect(id).await.unwrap();
    let Some(BackendState::Running(endpoints)) = state else {
        panic!("{state:?}")
    };
    assert!(endpoints.has_proxy);
    // It stays as it was created.
    let files = [
        "/workspace/.certificates.pem",
        "/workspace/.certificates.jks",
    ];
    for file in files {
        let (code, _) = fixture.exec(id, &["rm", file]).await;
        assert_eq!(code, 0, "{file} is there");
    }
    backend.stop(id).await.unwrap();
    assert!(start(&backend, &launches[1]).await.has_proxy);
    for file in files {
        let (code, _) = fixture.exec(id, &["test", "-s", file]).await;
        assert_eq!(code, 0, "{file} is written again");
    }
    assert_eq!(request(&fixture, id).await, id.as_str());
}

#[tokio::test]
async fn containers_without_a_proxy_say_so() {
    let fixture = DockerFixture::new().await;
    let backend = with_proxy(&fixture, 13_128);
    let direct = launch("direct");
    assert!(!start(&backend, &direct).await.has_proxy);
    assert_eq!(proxy_of(&fixture, &direct.id).await, None);
    // A container of a service without a proxy has none later either.
    let without = fixture.backend_with(|config| config.has_proxy = false);
    let old = launch(SPEC);
    assert!(!start(&without, &old).await.has_proxy);
    assert!(!start(&backend, &old).await.has_proxy);
    // A port that another program uses.
    let new = launch(SPEC);
    assert!(start(&backend, &new).await.has_proxy);
    let address = proxy_of(&fixture, &new.id).await.unwrap();
    let other = SocketAddr::new(address.ip(), 13_129);
    let _other = std::net::TcpListener::bind(other).unwrap();
    let blocked = with_proxy(&fixture, 13_129);
    assert!(!start(&blocked, &launch(SPEC)).await.has_proxy);
}

/// A rule of the host's packet filter, until it is dropped.
struct Rule(Vec<String>);

impl Rule {
    fn new(rule: &[&str]) -> Self {
        let rule = Self(rule.iter().map(|word| (*word).to_owned()).collect());
        assert!(rule.run("-I"), "iptables works");
        rule
    }

    fn run(&self, action: &str) -> bool {
        let mut command = Command::new("iptables");
        command.args(["-w", "10", action, "INPUT"]).args(&self.0);
        command.status().is_ok_and(|status| status.success())
    }
}

impl Drop for Rule {
    fn drop(&mut self) {
        self.run("-D");
    }
}

#[tokio::test]
async fn containers_that_cannot_reach_the_proxy_are_made_without_it() {
    let fixture = DockerFixture::new().await;
    let backend = with_proxy(&fixture, 13_130);
    // Makes the network.
    start(&backend, &launch("direct")).await;
    let network = fixture.networks().await.remove(0);
    let none = None::<bollard::query_parameters::InspectNetworkOptions>;
    let network = fixture.docker.inspect_network(&network, none).await;
    let options = network.unwrap().options.unwrap();
    let device = &options["com.docker.network.bridge.name"];
    let rule = [
        "-i", device, "-p", "tcp", "--dport", "13130", "-j", "REJECT",
    ];
    let rule = Rule::new(&rule);
    for _ in 0..2 {
        let launch = launch(SPEC);
        assert!(!start(&backend, &launch).await.has_proxy);
        assert_eq!(proxy_of(&fixture, &launch.id).await, None);
        assert_eq!(fixture.status(&launch.id).await, "running");
        let (_, variables) = fixture.exec(&launch.id, &["env"]).await;
        assert!(!variables.contains("http_proxy"), "{variables}");
    }
    let all = fixture.containers().await;
    assert_eq!(all.len(), 3, "{all:?}");
    // Of a service that tries again.
    drop(rule);
    let backend = with_proxy(&fixture, 13_130);
    let launch = launch(SPEC);
    assert!(start(&backend, &launch).await.has_proxy);
    assert!(
        fixture
            .containers()
            .await
            .contains(&container_name(&launch.id))
    );
}

/// A server of this machine that answers every connection until the process ends. Returns its port.
fn server() -> u16 {
    use std::io::{Read as _, Write as _};
    let listener = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(b"HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\nhost");
        }
    });
    port
}

/// What a program without the variables of the proxy gets: its exit code and output. It is linked statically, and looks up no
/// names.
async fn fetch(fixture: &DockerFixture, id: &SandboxId, url: &str) -> (i64, String) {
    let words = ["env", "-u", "http_proxy", "wget", "-q", "-O", "-"];
    fixture.exec(id, &[&words[..], &[url]].concat()).await
}

fn with_policy(fixture: &DockerFixture, policy: EgressPolicy) -> DockerSandboxes {
    fixture.backend_with(|config| {
        config.policy = policy;
        config.has_proxy = policy != EgressPolicy::None;
        config.egress = config.has_proxy.then(slot);
    })
}

/// A sandbox that reports to this port of this machine.
fn reporting_to(service: u16) -> SandboxLaunch {
    let mut launch = launch(SPEC);
    let url = format!("http://host.docker.internal:{service}/");
    launch.webhook_url = url.parse().unwrap();
    launch
}

/// A URL of this machine as containers reach it.
async fn host_url(backend: &DockerSandboxes, port: u16) -> String {
    let gateway = backend.gateway().await.unwrap();
    format!("http://{gateway}:{port}/")
}

#[tokio::test]
async fn with_an_allow_list_containers_reach_the_proxy_and_the_service_only() {
    let fixture = DockerFixture::new().await;
    let (service, other) = (server(), server());
    let launch = reporting_to(service);
    let id = &launch.id;
    let backend = with_policy(&fixture, EgressPolicy::AllowList);
    let endpoints = start(&backend, &launch).await;
    assert!(endpoints.has_proxy);
    assert_eq!(request(&fixture, id).await, id.as_str());
    let at_service = fetch(&fixture, id, &host_url(&backend, service).await).await;
    assert_eq!(at_service, (0, "host".to_owned()));
    let gateway = proxy_of(&fixture, id).await.unwrap().ip();
    for url in [
        host_url(&backend, other).await,
        format!("http://{gateway}:{other}/"),
        "http://192.0.2.1/".to_owned(),
    ] {
        let (code, text) = fetch(&fixture, id, &url).await;
        assert!(code != 0 && text != "host", "{url}: {text}");
    }
    // A second process of the installation does not take the first one's port away.
    let (second, theirs) = (server(), with_policy(&fixture, EgressPolicy::AllowList));
    start(&theirs, &reporting_to(second)).await;
    for port in [service, second] {
        let reached = fetch(&fixture, id, &host_url(&backend, port).await).await;
        assert_eq!(reached, (0, "host".to_owned()), "{port}");
    }
    // Names are not looked up by the engine, which is outside.
    let host = fixture.container(id).await.host_config.unwrap();
    assert_eq!(host.dns.unwrap(), ["127.0.0.1"]);
    // The service reaches the agent server.
    let port = endpoints.agent_url.port().unwrap();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await.unwrap();
    let mut head = [0; 5];
    stream.read_exact(&mut head).await.unwrap();
    assert_eq!(&head, b"HTTP/");
}

#[tokio::test]
async fn a_new_policy_holds_for_running_containers() {
    let fixture = DockerFixture::new().await;
    let (service, other) = (server(), server());
    let launch = reporting_to(service);
    let id = &launch.id;
    let reaches = async |backend: &DockerSandboxes, port: u16| {
        fetch(&fixture, id, &host_url(backend, port).await).await.0 == 0
    };
    for (policy, expected) in [
        (EgressPolicy::Open, true),
        (EgressPolicy::None, false),
        (EgressPolicy::AllowList, false),
        (EgressPolicy::Open, true),
    ] {
        let backend = with_policy(&fixture, policy);
        start(&backend, &launch).await;
        wait_until("the rules are those of the policy", async || {
            reaches(&backend, other).await == expected
        })
        .await;
        assert!(reaches(&backend, service).await, "{policy:?}");
        assert_eq!(
            request(&fixture, id).await == id.as_str(),
            policy != EgressPolicy::None
        );
    }
}
