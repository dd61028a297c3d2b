//! The isolation of sandboxes, tested from inside on a real rootful engine.
#![expect(clippy::unwrap_used, reason = "a failed helper fails its test")]

use crate::support;

use std::net::SocketAddr;
use std::time::Duration;

use domain::error::Classify;
use domain::id::SandboxId;
use domain::sandbox::{BackendState, SandboxEndpoints, SandboxError, SandboxLifecycle};
use sandbox_docker::{DockerSandboxes, DockerSpec, MetadataBlocking};
use tokio::net::TcpStream;

use support::{DockerFixture, SPEC};

/// A backend whose one template is changed like this.
fn backend(fixture: &DockerFixture, change: impl FnOnce(&mut DockerSpec)) -> DockerSandboxes {
    fixture.backend_with(|config| change(&mut config.specs[0]))
}

async fn start(backend: &DockerSandboxes) -> (SandboxId, SandboxEndpoints) {
    let launch = support::launch(SPEC);
    let endpoints = backend.start(&launch).await.unwrap();
    (launch.id, endpoints)
}

/// Runs a shell script in the sandbox: its exit code and what it wrote.
async fn sh(fixture: &DockerFixture, id: &SandboxId, script: &str) -> (i64, String) {
    fixture.exec(id, &["sh", "-c", script]).await
}

/// Runs a script that must fail with this text in its output.
async fn assert_refused(fixture: &DockerFixture, id: &SandboxId, script: &str, word: &str) {
    let (code, output) = sh(fixture, id, script).await;
    assert_ne!(code, 0, "{script}: {output}");
    assert!(output.contains(word), "{script}: {output}");
}

/// Runs a script that must succeed. Returns its output.
async fn output_of(fixture: &DockerFixture, id: &SandboxId, script: &str) -> String {
    let (code, output) = sh(fixture, id, script).await;
    assert_eq!(code, 0, "{script}: {output}");
    output.trim().to_owned()
}

/// A script that fetches from there and fails; it says "404" if there is a web server. (`wget -T` of Debian's static
/// busybox crashes.)
fn fetch_script(server: &str) -> String {
    format!("busybox timeout 4 wget -q -O /dev/null http://{server}/")
}

async fn can_connect(address: SocketAddr) -> bool {
    let connected = tokio::time::timeout(Duration::from_secs(5), TcpStream::connect(address));
    matches!(connected.await, Ok(Ok(_)))
}

/// A sandbox's address in the network of the sandboxes.
async fn address(fixture: &DockerFixture, id: &SandboxId) -> String {
    let settings = fixture.container(id).await.network_settings.unwrap();
    let networks = settings.networks.unwrap();
    assert_eq!(networks.len(), 1, "a sandbox is in one network");
    let address = networks.into_values().next().unwrap().ip_address;
    address.unwrap()
}

#[tokio::test]
async fn privileges_are_dropped() {
    let fixture = DockerFixture::new().await;
    let backend = backend(&fixture, |spec| {
        // CHOWN is bit 0, SETUID bit 7.
        spec.capabilities = ["CHOWN", "SETUID"].map(str::to_owned).into();
    });
    let (id, _) = start(&backend).await;
    for process in ["self", "1"] {
        let status = output_of(&fixture, &id, &format!("cat /proc/{process}/status")).await;
        let field = |name: &str| {
            let mut lines = status.lines();
            let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            value.expect("a field of the status").trim().to_owned()
        };
        for set in ["CapEff", "CapPrm", "CapBnd"] {
            assert_eq!(field(set), "0000000000000081", "{process}: {set}");
        }
        assert_eq!(field("CapInh").trim_matches('0'), "", "{process}");
        assert_eq!(field("NoNewPrivs"), "1", "{process}");
        // With a filter.
        assert_eq!(field("Seccomp"), "2", "{process}");
    }
}

#[tokio::test]
async fn the_default_template_keeps_five_capabilities() {
    let fixture = DockerFixture::new().await;
    let (id, _) = start(&fixture.backend()).await;
    let effective = output_of(&fixture, &id, "grep CapEff /proc/self/status").await;
    // CHOWN 0, DAC_OVERRIDE 1, FOWNER 3, SETGID 6, SETUID 7.
    assert_eq!(effective, "CapEff:\t00000000000000cb");
}

#[tokio::test]
async fn privileged_operations_of_the_kernel_are_refused() {
    let fixture = DockerFixture::new().await;
    let (id, _) = start(&fixture.backend()).await;
    let none = "Operation not permitted";
    assert_refused(&fixture, &id, "busybox arping -c 1 -I eth0 127.0.0.1", none).await;
    assert_refused(&fixture, &id, "busybox mknod /tmp/disk b 8 0", none).await;
    assert_refused(&fixture, &id, "busybox unshare -r true", none).await;
    assert_refused(&fixture, &id, "hostname elsewhere", none).await;
    assert_refused(&fixture, &id, "ip link set lo down", none).await;
    assert_refused(&fixture, &id, "mount -t tmpfs none /tmp", "ermi").await;
    let read_only = "Read-only file system";
    assert_refused(&fixture, &id, "echo 1 > /proc/sys/kernel/panic", read_only).await;
    let group = "cd /sys/fs/cgroup; [ -e cgroup.controllers ] || cd pids; mkdir x";
    assert_refused(&fixture, &id, group, read_only).await;
}

#[tokio::test]
async fn sandboxes_see_neither_the_engine_nor_files_of_the_host() {
    let fixture = DockerFixture::new().await;
    let (id, _) = start(&fixture.backend()).await;
    let (_, found) = sh(&fixture, &id, "busybox find / -xdev -name '*.sock'").await;
    assert_eq!(found, "");
    assert_refused(&fixture, &id, "ls /var/run/docker.sock", "No such file").await;
    let mounts = fixture.container(&id).await.mounts.unwrap();
    let mounts: Vec<_> = mounts.into_iter().filter_map(|mount| mount.name).collect();
    assert_eq!(mounts, [support::container_name(&id)]);
}

#[tokio::test]
async fn a_fork_bomb_affects_only_its_sandbox() {
    let fixture = DockerFixture::new().await;
    let backend = backend(&fixture, |spec| spec.resources.pids = Some(32));
    let ((bomb, _), (other, _)) = (start(&backend).await, start(&backend).await);

    let script = "i=0; while [ $i -lt 100 ]; do sleep 600 & i=$((i+1)); done";
    assert_refused(&fixture, &bomb, script, "can't fork").await;

    output_of(
        &fixture,
        &other,
        "for i in 1 2 3 4; do sleep 0.1 & done; wait",
    )
    .await;
    assert_eq!(fixture.status(&bomb).await, "running");
}

#[tokio::test]
async fn exceeding_the_memory_limit_is_reported_as_the_cause() {
    let fixture = DockerFixture::new().await;
    let backend = fixture.backend_with(|config| {
        // The program uses memory when the test creates the file, so `start` does not see the exit.
        let script =
            "while ! test -e /workspace/go; do sleep 0.05; done; tail -c 1000000000 /dev/zero";
        config.specs = vec![support::script(SPEC, script)];
        config.specs[0].resources.memory = Some(32 << 20);
    });
    let mut facts = backend.watch();
    let (id, _) = start(&backend).await;
    fixture.exec(&id, &["touch", "/workspace/go"]).await;

    let state = support::next_state(&mut facts, &id).await;
    let BackendState::Exited { detail } = state else {
        panic!("{state:?}");
    };

    assert!(detail.contains("memory"), "{detail}");
}

#[tokio::test]
async fn processor_and_memory_limits_are_set_in_the_kernel() {
    let fixture = DockerFixture::new().await;
    let backend = backend(&fixture, |spec| {
        spec.resources.cpus = Some(0.5);
        spec.resources.memory = Some(48 << 20);
    });
    let (id, _) = start(&backend).await;
    // Version 2 of control groups in one file, version 1 in several.
    let script = "cd /sys/fs/cgroup; if [ -e cpu.max ]; then cat cpu.max memory.max memory.swap.max; \
        else cat cpu/cpu.cfs_quota_us cpu/cpu.cfs_period_us memory/memory.limit_in_bytes; fi";
    let limits = output_of(&fixture, &id, script).await;
    let limits: Vec<_> = limits.split_whitespace().collect();
    let memory = (48 << 20).to_string();
    assert_eq!(limits[..3], ["50000", "100000", &memory]);
    // Version 1 counts swap only if the kernel is configured so, and then together with the memory.
    let swap = "cat /sys/fs/cgroup/memory/memory.memsw.limit_in_bytes 2>/dev/null || true";
    match (limits.get(3), output_of(&fixture, &id, swap).await.as_str()) {
        (Some(swap), _) => assert_eq!(*swap, "0"),
        (None, "") => {}
        (None, both) => assert_eq!(both, memory),
    }
    let host = fixture.container(&id).await.host_config.unwrap();
    assert_eq!(host.memory_swap, host.memory);
}

#[tokio::test]
async fn sandboxes_cannot_reach_each_other_and_the_host_can_reach_them() {
    let fixture = DockerFixture::new().await;
    let neighbour = fixture.neighbour().await;
    let (ours, theirs) = (fixture.backend(), neighbour.backend());
    let (a, _) = start(&ours).await;
    let (b, endpoints) = start(&ours).await;
    let (c, _) = start(&theirs).await;
    let fetch_script = |address: &str| fetch_script(&format!("{address}:8000"));

    // The method works: a sandbox reaches its own server, which has no page at `/`.
    let own = format!(
        "{} 2>&1 || true",
        fetch_script(&address(&fixture, &a).await)
    );
    let output = output_of(&fixture, &a, &own).await;
    assert!(output.contains("404"), "{output}");

    for (home, other) in [(&fixture, &b), (&neighbour, &c)] {
        let address = address(home, other).await;
        let mut outcome = sh(&fixture, &a, &fetch_script(&address)).await;
        // While the engine creates a network for another test, it removes its rules for a moment: try again then.
        for _ in 0..3 {
            if outcome.1.contains("404") {
                outcome = sh(&fixture, &a, &fetch_script(&address)).await;
            }
        }
        let (code, output) = outcome;
        assert_ne!(code, 0, "{output}");
        assert!(!output.contains("404"), "{output}");
    }
    let port = endpoints.agent_url.port().unwrap();
    assert!(can_connect(SocketAddr::from(([127, 0, 0, 1], port))).await);
}

#[tokio::test]
async fn ports_are_published_only_on_loopback() {
    let fixture = DockerFixture::new().await;
    let backend = fixture.backend();
    let (id, endpoints) = start(&backend).await;
    let (other, _) = start(&backend).await;
    let settings = fixture.container(&id).await.network_settings.unwrap();
    let bindings = settings.ports.unwrap().into_values().flatten().flatten();
    let addresses: Vec<_> = bindings.filter_map(|binding| binding.host_ip).collect();
    assert!(!addresses.is_empty());
    assert!(
        addresses.iter().all(|address| address == "127.0.0.1"),
        "{addresses:?}"
    );

    let port = endpoints.agent_url.port().unwrap();
    let gateway = support::host_gateway_address(&fixture.docker).await;
    assert!(!can_connect(SocketAddr::new(gateway, port)).await);
    // Other sandboxes cannot reach the port by the gateway either.
    let script = fetch_script(&format!("{gateway}:{port}"));
    let (code, output) = sh(&fixture, &other, &script).await;
    assert_ne!(code, 0, "{output}");
    assert!(!output.contains("404"), "{output}");
}

#[tokio::test]
async fn the_metadata_address_is_refused() {
    let fixture = DockerFixture::new().await;
    let (id, _) = start(&fixture.backend()).await;
    for address in ["169.254.169.254", "169.254.170.2"] {
        // The rule rejects the connection; without it there would be another error or a time-out. An engine of version 20.10
        // drops its jump to the rules for some milliseconds when another test makes a network.
        let script = fetch_script(address);
        support::wait_until(address, || async {
            sh(&fixture, &id, &script).await.1.contains("refused")
        })
        .await;
    }
    let rules = rules(&fixture).await;
    assert_eq!(rules.len(), 2, "{rules:?}");
    assert!(
        rules.iter().all(|rule| rule.contains("-j REJECT")),
        "{rules:?}"
    );
}

#[tokio::test]
async fn rules_for_the_metadata_address_are_set_once_unless_disabled() {
    let fixture = DockerFixture::new().await;
    start(&fixture.backend()).await;
    start(&fixture.backend_with(|config| config.metadata = MetadataBlocking::Required)).await;
    assert_eq!(rules(&fixture).await.len(), 2);

    let neighbour = fixture.neighbour().await;
    start(&neighbour.backend_with(|config| config.metadata = MetadataBlocking::Off)).await;
    assert_eq!(rules(&neighbour).await, [""; 0]);
}

/// Rules of this installation in the packet filter.
async fn rules(fixture: &DockerFixture) -> Vec<String> {
    let mut command = tokio::process::Command::new("iptables");
    let output = command
        .args(["-w", "10", "-S", "DOCKER-USER"])
        .output()
        .await;
    let output = output.expect("cannot run iptables: apt-get install iptables");
    assert!(output.status.success(), "run the tests as root: {output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let ours = text
        .lines()
        .filter(|line| line.contains(fixture.instance.as_str()));
    ours.map(str::to_owned).collect()
}

#[tokio::test]
async fn a_read_only_image_has_writable_temporary_and_work_directories() {
    let fixture = DockerFixture::new().await;
    let backend = backend(&fixture, |spec| spec.read_only = true);
    let (id, _) = start(&backend).await;
    for directory in ["/", "/bin", "/etc", "/www"] {
        let script = format!("touch {directory}/x");
        assert_refused(&fixture, &id, &script, "Read-only file system").await;
    }
    output_of(
        &fixture,
        &id,
        "touch /tmp/x /run/x /workspace/x /workspace/project/x",
    )
    .await;
    // Temporary files are in memory, which is limited.
    let script = "dd if=/dev/zero of=/tmp/x bs=1M count=200";
    let (code, output) = sh(&fixture, &id, script).await;
    assert_ne!(code, 0, "{output}");
}

#[tokio::test]
async fn labels_name_the_owner_and_contain_no_key() {
    let fixture = DockerFixture::new().await;
    let (id, _) = start(&fixture.backend()).await;
    let labels = fixture.container(&id).await.config.unwrap().labels.unwrap();
    for (name, value) in [
        ("agent-workspace.instance", fixture.instance.as_str()),
        ("agent-workspace.sandbox", id.as_str()),
        ("agent-workspace.owner", "alice"),
        ("agent-workspace.spec", SPEC),
    ] {
        assert_eq!(labels.get(name).map(String::as_str), Some(value), "{name}");
    }
    let canary = labels.values().find(|value| value.contains("canary"));
    assert_eq!(canary, None, "a key is in a label");
}

#[tokio::test]
async fn a_missing_runtime_fails_the_start_with_its_cause() {
    let fixture = DockerFixture::new().await;
    let backend =
        fixture.backend_with(|config| config.runtime = Some("no-such-runtime".to_owned()));
    let error = backend.start(&support::launch(SPEC)).await.unwrap_err();
    assert!(
        matches!(error, SandboxError::StartFailed { .. }),
        "{error:?}"
    );
    let cause = error.public();
    assert!(cause.contains("no-such-runtime"), "{cause}");
}
