//! What a sandbox cannot do, seen from inside one on a real rootful engine.
#![expect(
    clippy::unwrap_used,
    reason = "a helper that fails is a test that fails"
)]

use crate::support;

use std::net::SocketAddr;
use std::time::Duration;

use domain::error::Classify;
use domain::id::SandboxId;
use domain::sandbox::{BackendState, SandboxBackend, SandboxEndpoints, SandboxError};
use sandbox_docker::{DockerSandboxes, DockerSpec, MetadataBlocking};
use tokio::net::TcpStream;

use support::{DockerFixture, SPEC};

/// A backend whose one template is changed like this.
fn backend(lab: &DockerFixture, change: impl FnOnce(&mut DockerSpec)) -> DockerSandboxes {
    lab.backend_with(|config| change(&mut config.specs[0]))
}

async fn start(backend: &DockerSandboxes) -> (SandboxId, SandboxEndpoints) {
    let launch = support::launch(SPEC);
    let endpoints = backend.start(&launch).await.unwrap();
    (launch.id, endpoints)
}

/// Runs a shell script in the sandbox: its exit code and what it wrote.
async fn sh(lab: &DockerFixture, id: &SandboxId, script: &str) -> (i64, String) {
    lab.exec(id, &["sh", "-c", script]).await
}

/// A script that must fail, for a reason with this word in it.
async fn refused(lab: &DockerFixture, id: &SandboxId, script: &str, word: &str) {
    let (code, said) = sh(lab, id, script).await;
    assert_ne!(code, 0, "{script}: {said}");
    assert!(said.contains(word), "{script}: {said}");
}

/// A script that must succeed, for what it says.
async fn says(lab: &DockerFixture, id: &SandboxId, script: &str) -> String {
    let (code, said) = sh(lab, id, script).await;
    assert_eq!(code, 0, "{script}: {said}");
    said.trim().to_owned()
}

/// A script that fetches from there and fails; it says "404" if there is a web server. (`wget -T` of Debian's static
/// busybox crashes.)
fn fetch(server: &str) -> String {
    format!("busybox timeout 4 wget -q -O /dev/null http://{server}/")
}

async fn can_connect(address: SocketAddr) -> bool {
    let connected = tokio::time::timeout(Duration::from_secs(5), TcpStream::connect(address));
    matches!(connected.await, Ok(Ok(_)))
}

/// Its address in the network of the sandboxes.
async fn address(lab: &DockerFixture, id: &SandboxId) -> String {
    let settings = lab.container(id).await.network_settings.unwrap();
    let networks = settings.networks.unwrap();
    assert_eq!(networks.len(), 1, "a sandbox is in one network");
    let address = networks.into_values().next().unwrap().ip_address;
    address.unwrap()
}

#[tokio::test]
async fn privileges_are_dropped() {
    let lab = DockerFixture::new().await;
    let backend = backend(&lab, |spec| {
        // CHOWN is bit 0, SETUID bit 7.
        spec.capabilities = ["CHOWN", "SETUID"].map(str::to_owned).into();
    });
    let (id, _) = start(&backend).await;
    for process in ["self", "1"] {
        let status = says(&lab, &id, &format!("cat /proc/{process}/status")).await;
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
async fn the_usual_template_keeps_five_capabilities() {
    let lab = DockerFixture::new().await;
    let (id, _) = start(&lab.backend()).await;
    let effective = says(&lab, &id, "grep CapEff /proc/self/status").await;
    // CHOWN 0, DAC_OVERRIDE 1, FOWNER 3, SETGID 6, SETUID 7.
    assert_eq!(effective, "CapEff:\t00000000000000cb");
}

#[tokio::test]
async fn the_kernel_is_out_of_reach() {
    let lab = DockerFixture::new().await;
    let (id, _) = start(&lab.backend()).await;
    let none = "Operation not permitted";
    refused(&lab, &id, "busybox arping -c 1 -I eth0 127.0.0.1", none).await;
    refused(&lab, &id, "busybox mknod /tmp/disk b 8 0", none).await;
    refused(&lab, &id, "busybox unshare -r true", none).await;
    refused(&lab, &id, "hostname elsewhere", none).await;
    refused(&lab, &id, "ip link set lo down", none).await;
    refused(&lab, &id, "mount -t tmpfs none /tmp", "ermi").await;
    let read_only = "Read-only file system";
    refused(&lab, &id, "echo 1 > /proc/sys/kernel/panic", read_only).await;
    let group = "cd /sys/fs/cgroup; [ -e cgroup.controllers ] || cd pids; mkdir x";
    refused(&lab, &id, group, read_only).await;
}

#[tokio::test]
async fn the_engine_and_the_hosts_files_are_not_inside() {
    let lab = DockerFixture::new().await;
    let (id, _) = start(&lab.backend()).await;
    let (_, found) = sh(&lab, &id, "busybox find / -xdev -name '*.sock'").await;
    assert_eq!(found, "");
    refused(&lab, &id, "ls /var/run/docker.sock", "No such file").await;
    let mounts = lab.container(&id).await.mounts.unwrap();
    let mounts: Vec<_> = mounts.into_iter().filter_map(|mount| mount.name).collect();
    assert_eq!(mounts, [support::name(&id)]);
}

#[tokio::test]
async fn a_fork_bomb_stays_in_its_sandbox() {
    let lab = DockerFixture::new().await;
    let backend = backend(&lab, |spec| spec.resources.pids = Some(32));
    let ((bomb, _), (other, _)) = (start(&backend).await, start(&backend).await);

    let script = "i=0; while [ $i -lt 100 ]; do sleep 600 & i=$((i+1)); done";
    refused(&lab, &bomb, script, "can't fork").await;

    says(&lab, &other, "for i in 1 2 3 4; do sleep 0.1 & done; wait").await;
    assert_eq!(lab.status(&bomb).await, "running");
}

#[tokio::test]
async fn memory_ends_at_the_limit_and_the_cause_is_told() {
    let lab = DockerFixture::new().await;
    let backend = lab.backend_with(|config| {
        // The program is killed by the kernel; the pause lets the test listen first.
        config.specs = vec![support::script(
            SPEC,
            "sleep 1; tail -c 1000000000 /dev/zero",
        )];
        config.specs[0].resources.memory = Some(32 << 20);
    });
    let mut facts = backend.watch();
    let (id, _) = start(&backend).await;

    let state = support::told(&mut facts, &id).await;
    let BackendState::Exited { detail } = state else {
        panic!("{state:?}");
    };

    assert!(detail.contains("memory"), "{detail}");
}

#[tokio::test]
async fn processor_and_memory_limits_reach_the_kernel() {
    let lab = DockerFixture::new().await;
    let backend = backend(&lab, |spec| {
        spec.resources.cpus = Some(0.5);
        spec.resources.memory = Some(48 << 20);
    });
    let (id, _) = start(&backend).await;
    // Version 2 of control groups in one file, version 1 in several.
    let script = "cd /sys/fs/cgroup; if [ -e cpu.max ]; then cat cpu.max memory.max memory.swap.max; \
        else cat cpu/cpu.cfs_quota_us cpu/cpu.cfs_period_us memory/memory.limit_in_bytes; fi";
    let limits = says(&lab, &id, script).await;
    let limits: Vec<_> = limits.split_whitespace().collect();
    let memory = (48 << 20).to_string();
    assert_eq!(limits[..3], ["50000", "100000", &memory]);
    // Version 1 counts swap only where the kernel was told to, and then together with the memory.
    let swap = "cat /sys/fs/cgroup/memory/memory.memsw.limit_in_bytes 2>/dev/null || true";
    match (limits.get(3), says(&lab, &id, swap).await.as_str()) {
        (Some(swap), _) => assert_eq!(*swap, "0"),
        (None, "") => {}
        (None, both) => assert_eq!(both, memory),
    }
    let host = lab.container(&id).await.host_config.unwrap();
    assert_eq!(host.memory_swap, host.memory);
}

#[tokio::test]
async fn sandboxes_do_not_reach_each_other_and_the_host_reaches_both() {
    let lab = DockerFixture::new().await;
    let neighbour = lab.neighbour().await;
    let (ours, theirs) = (lab.backend(), neighbour.backend());
    let (a, _) = start(&ours).await;
    let (b, endpoints) = start(&ours).await;
    let (c, _) = start(&theirs).await;
    let fetch = |address: &str| fetch(&format!("{address}:8000"));

    // The program and the service work: each reaches itself, though there is nothing at `/`.
    let itself = format!("{} 2>&1 || true", fetch(&address(&lab, &a).await));
    let said = says(&lab, &a, &itself).await;
    assert!(said.contains("404"), "{said}");

    for (home, other) in [(&lab, &b), (&neighbour, &c)] {
        let address = address(home, other).await;
        let mut outcome = sh(&lab, &a, &fetch(&address)).await;
        // While another test has a network made, this engine takes its rules out for a moment, to put them in front again.
        for _ in 0..3 {
            if outcome.1.contains("404") {
                outcome = sh(&lab, &a, &fetch(&address)).await;
            }
        }
        let (code, said) = outcome;
        assert_ne!(code, 0, "{said}");
        assert!(!said.contains("404"), "{said}");
    }
    let port = endpoints.agent_url.port().unwrap();
    assert!(can_connect(SocketAddr::from(([127, 0, 0, 1], port))).await);
}

#[tokio::test]
async fn ports_are_published_on_the_loopback_only() {
    let lab = DockerFixture::new().await;
    let backend = lab.backend();
    let (id, endpoints) = start(&backend).await;
    let (other, _) = start(&backend).await;
    let settings = lab.container(&id).await.network_settings.unwrap();
    let bindings = settings.ports.unwrap().into_values().flatten().flatten();
    let addresses: Vec<_> = bindings.filter_map(|it| it.host_ip).collect();
    assert!(!addresses.is_empty());
    assert!(
        addresses.iter().all(|it| it == "127.0.0.1"),
        "{addresses:?}"
    );

    let port = endpoints.agent_url.port().unwrap();
    let gateway = support::gateway(&lab.docker).await;
    assert!(!can_connect(SocketAddr::new(gateway, port)).await);
    // Nor is that a way around from another sandbox.
    let script = fetch(&format!("{gateway}:{port}"));
    let (code, said) = sh(&lab, &other, &script).await;
    assert_ne!(code, 0, "{said}");
    assert!(!said.contains("404"), "{said}");
}

#[tokio::test]
async fn the_metadata_address_is_refused() {
    let lab = DockerFixture::new().await;
    let (id, _) = start(&lab.backend()).await;
    for address in ["169.254.169.254", "169.254.170.2"] {
        // Refused at once by the rule; without it the answer would be another, or none.
        refused(&lab, &id, &fetch(address), "refused").await;
    }
    let rules = rules(&lab).await;
    assert_eq!(rules.len(), 2, "{rules:?}");
    assert!(
        rules.iter().all(|rule| rule.contains("-j REJECT")),
        "{rules:?}"
    );
}

#[tokio::test]
async fn rules_for_the_metadata_address_are_set_once_or_not_at_all() {
    let lab = DockerFixture::new().await;
    start(&lab.backend()).await;
    start(&lab.backend_with(|config| config.metadata = MetadataBlocking::Required)).await;
    assert_eq!(rules(&lab).await.len(), 2);

    let neighbour = lab.neighbour().await;
    start(&neighbour.backend_with(|config| config.metadata = MetadataBlocking::Off)).await;
    assert_eq!(rules(&neighbour).await, [""; 0]);
}

/// Rules of this installation in the packet filter.
async fn rules(lab: &DockerFixture) -> Vec<String> {
    let mut command = tokio::process::Command::new("iptables");
    let output = command
        .args(["-w", "10", "-S", "DOCKER-USER"])
        .output()
        .await;
    let output = output.expect("no iptables: apt-get install iptables");
    assert!(output.status.success(), "run the tests as root: {output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let ours = text
        .lines()
        .filter(|line| line.contains(lab.instance.as_str()));
    ours.map(str::to_owned).collect()
}

#[tokio::test]
async fn a_read_only_image_leaves_room_for_temporary_files_and_work() {
    let lab = DockerFixture::new().await;
    let backend = backend(&lab, |spec| spec.read_only = true);
    let (id, _) = start(&backend).await;
    for place in ["/", "/bin", "/etc", "/www"] {
        let script = format!("touch {place}/x");
        refused(&lab, &id, &script, "Read-only file system").await;
    }
    says(
        &lab,
        &id,
        "touch /tmp/x /run/x /workspace/x /workspace/project/x",
    )
    .await;
    // Temporary files are in memory, which has a limit.
    let script = "dd if=/dev/zero of=/tmp/x bs=1M count=200";
    let (code, said) = sh(&lab, &id, script).await;
    assert_ne!(code, 0, "{said}");
}

#[tokio::test]
async fn labels_say_whose_it_is() {
    let lab = DockerFixture::new().await;
    let (id, _) = start(&lab.backend()).await;
    let labels = lab.container(&id).await.config.unwrap().labels.unwrap();
    for (name, value) in [
        ("agent-workspace.instance", lab.instance.as_str()),
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
async fn a_runtime_that_the_engine_does_not_have_is_a_cause() {
    let lab = DockerFixture::new().await;
    let backend = lab.backend_with(|config| config.runtime = Some("no-such-runtime".to_owned()));
    let error = backend.start(&support::launch(SPEC)).await.unwrap_err();
    assert!(
        matches!(error, SandboxError::StartFailed { .. }),
        "{error:?}"
    );
    let cause = error.public();
    assert!(cause.contains("no-such-runtime"), "{cause}");
}
