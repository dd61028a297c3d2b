//! What a confined sandbox reaches, and what reaches it.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use domain::error::Classify as _;
use domain::sandbox::{SandboxBackend, SandboxLifecycle};
use endpoint_guard::{EndpointGuard, GuardError};
use ipnet::Ipv4Net;
use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_bind, mount_change, unmount};
use sandbox_process::{AgentServerSource, NetworkPolicy, ProcessConfig, ProcessSandboxes};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::timeout;

use super::support::{IDLE, ProcessFixture, WAIT_TIMEOUT, launch, wait_for_listener, wait_until};

#[tokio::test]
async fn only_the_service_reaches_the_agent_server() {
    let fixture = ProcessFixture::new();
    fixture.listening_script();
    let backend = fixture.backend().await;
    let (first, second) = (launch("s1"), launch("s2"));
    let endpoints = backend.start(&first).await.unwrap();
    let other = backend.start(&second).await.unwrap();
    let port = endpoints.agent_url.port().unwrap();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    wait_for_listener(&backend, &first.id, address).await;
    assert_ne!(other.agent_url.port(), Some(port));
    // Nothing listens on the machine, and the other sandbox has no such port.
    let direct = tokio::net::TcpStream::connect(address).await;
    assert!(direct.is_err(), "{direct:?}");
    let port_of_other = SocketAddr::from((Ipv4Addr::LOCALHOST, other.agent_url.port().unwrap()));
    wait_for_listener(&backend, &second.id, port_of_other).await;
    let refused = backend.connect("s2", address).await;
    assert!(
        matches!(refused, Err(GuardError::NotListening(_))),
        "{refused:?}"
    );
    let mut stream = backend.connect("s1", address).await.unwrap().unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    assert!(text.starts_with("HTTP/1.1 200 OK"), "{text}");
    // The next service connects to an adopted sandbox.
    drop(backend);
    let next = fixture.backend().await;
    wait_for_listener(&next, &first.id, address).await;
    next.remove(&first.id).await.unwrap();
    next.remove(&second.id).await.unwrap();
}

/// Sends one callback and writes the response.
const CALLBACK: &str = "
exec 3<>/dev/tcp/127.0.0.2/26229 || exit 1
printf 'POST /x HTTP/1.0\\r\\n\\r\\n' >&3
cat <&3 > workspace/response.new && mv workspace/response.new workspace/response
sleep 600 & wait";

const REQUEST: &[u8; 20] = b"POST /x HTTP/1.0\r\n\r\n";

#[tokio::test]
async fn callbacks_reach_the_listener_of_the_service_also_after_an_adoption() {
    let fixture = ProcessFixture::new();
    fixture.set_agent_script(&format!(
        "until bash -c '{}'; do sleep 0.02; done",
        CALLBACK.replace('\'', "\"")
    ));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let launch = launch("s1");
    let response = fixture.root(&launch.id).join("workspace/response");
    for _service in 0..2 {
        let config = fixture.config();
        let callbacks = config.confinement.clone().unwrap().callbacks;
        callbacks.set(listener.local_addr().unwrap()).unwrap();
        let backend = ProcessSandboxes::new(config).await.unwrap();
        backend.start(&launch).await.unwrap();
        let accepted = timeout(WAIT_TIMEOUT, listener.accept()).await.unwrap();
        let (mut stream, _) = accepted.unwrap();
        // The whole request: what is left unread would reset the connection, and could cost the response.
        let mut request = [0; REQUEST.len()];
        stream.read_exact(&mut request).await.unwrap();
        assert_eq!(&request, REQUEST);
        stream.write_all(b"accepted").await.unwrap();
        drop(stream);
        wait_until("the response arrives", || response.exists()).await;
        assert_eq!(fs::read(&response).unwrap(), b"accepted");
        fs::remove_file(&response).unwrap();
        backend.stop(&launch.id).await.unwrap();
    }
    fixture.backend().await.remove(&launch.id).await.unwrap();
}

/// What an agent tries. Each line is a name and what it prints if the attempt succeeds.
const ATTEMPTS: &str = r#"
try() { name=$1; shift; if "$@" > /dev/null 2>&1; then echo "$name: succeeded"; else echo "$name: refused"; fi; }
cd workspace
{
try identity test "$(id -u)" = 1000
try capabilities grep -q "CapEff:.*[1-9a-f]" /proc/self/status
try "bounding set" grep -q "CapBnd:.*[1-9a-f]" /proc/self/status
try state cat ../process.json
try neighbours ls ../../
try "service data" ls OUTSIDE
try processes test "$(ls -d /proc/[0-9]* | wc -l)" -gt 12
try init cat /proc/1/environ
try mount mount -t tmpfs none /tmp
try namespace unshare -Ur true
try host bash -c 'exec 3<>/dev/tcp/10.0.2.2/HOSTPORT'
try loopback bash -c 'exec 3<>/dev/tcp/127.0.0.1/HOSTPORT'
try private bash -c 'exec 3<>/dev/tcp/192.168.0.1/80'
try metadata bash -c 'exec 3<>/dev/tcp/169.254.169.254/80'
try root touch ../x
try system touch /usr/x
try write touch own
try tmp touch /tmp/own
} > results.new 2>&1
mv results.new results
sleep 600 & wait"#;

#[tokio::test]
async fn an_agent_has_its_own_files_and_nothing_else() {
    let fixture = ProcessFixture::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let outside = fixture.dir.path().join("sandboxes");
    let script = ATTEMPTS.replace("HOSTPORT", &port);
    fixture.set_agent_script(&script.replace("OUTSIDE", &outside.join("s2").to_string_lossy()));
    let backend = fixture.backend().await;
    let (neighbour, agent) = (launch("s2"), launch("s1"));
    backend.start(&neighbour).await.unwrap();
    backend.start(&agent).await.unwrap();
    let results = fixture.root(&agent.id).join("workspace/results");
    wait_until("the attempts are done", || results.exists()).await;
    let text = fs::read_to_string(results).unwrap();
    for line in text.lines() {
        let expected = match line.split_once(':').unwrap().0 {
            "identity" | "write" | "tmp" => "succeeded",
            // A directory of mount points in memory, which belongs to the service's account.
            "root" if !rustix::process::geteuid().is_root() => continue,
            "neighbours" => continue,
            _ => "refused",
        };
        assert!(line.ends_with(expected), "{text}");
    }
    backend.remove(&neighbour.id).await.unwrap();
    backend.remove(&agent.id).await.unwrap();
}

/// Connects to the service at `ADDRESS`.
const CONNECT: &str = "
if bash -c 'exec 3<>/dev/tcp/ADDRESS'; then result=reached; else result=refused; fi
echo $result > workspace/result.new && mv workspace/result.new workspace/result
sleep 600 & wait";

#[tokio::test]
async fn listed_networks_are_reached() {
    let fixture = ProcessFixture::new();
    let address = machine_address();
    let listener = TcpListener::bind((address, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    fixture.set_agent_script(&CONNECT.replace("ADDRESS", &format!("{address}/{port}")));
    let network_of_address = Ipv4Net::new(address, 24).unwrap();
    for (id, network, expected) in [
        ("s1", None, "refused"),
        ("s2", Some(address.into()), "reached"),
        // Its own route is more specific.
        ("s3", Some(network_of_address), "refused"),
    ] {
        let mut config = fixture.config();
        let confinement = config.confinement.as_mut().unwrap();
        confinement.reachable_networks = network.into_iter().collect();
        let backend = ProcessSandboxes::new(config).await.unwrap();
        backend.start(&launch(id)).await.unwrap();
        let result = fixture.root(&launch(id).id).join("workspace/result");
        wait_until("the connection is tried", || result.exists()).await;
        assert_eq!(fs::read_to_string(result).unwrap().trim(), expected, "{id}");
        backend.remove(&launch(id).id).await.unwrap();
    }
}

#[tokio::test]
async fn sandboxes_share_the_directories_that_are_listed_and_nothing_beside_them() {
    use std::os::unix::fs::PermissionsExt;
    let fixture = ProcessFixture::new();
    let (shared, secret) = (
        fixture.dir.path().join("shared"),
        fixture.dir.path().join("secret"),
    );
    fs::create_dir(&shared).unwrap();
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o777)).unwrap();
    fs::write(&secret, "").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o644)).unwrap();
    let script = "
cat SECRET && exit 1
if test -e SHARED/first; then cp SHARED/first SHARED/second; else echo text > SHARED/first; fi
touch workspace/ready
sleep 600 & wait";
    let script = script.replace("SECRET", secret.to_str().unwrap());
    fixture.set_agent_script(&script.replace("SHARED", shared.to_str().unwrap()));
    let mut config = fixture.config();
    // The shell is two levels below `/`, which has a folder `lib` with a Python.
    let agent = fixture.agent().into_os_string();
    config.agent_server = AgentServerSource::Command(vec!["/bin/sh".into(), agent]);
    let confinement = config.confinement.as_mut().unwrap();
    confinement.writable_paths = vec![shared.clone()];
    let backend = ProcessSandboxes::new(config).await.unwrap();
    for id in ["s1", "s2"] {
        backend.start(&launch(id)).await.unwrap();
        fixture.ready(&launch(id).id).await;
    }
    assert_eq!(fs::read_to_string(shared.join("second")).unwrap(), "text\n");
    for id in ["s1", "s2"] {
        backend.remove(&launch(id).id).await.unwrap();
    }
}

/// An address of this machine that is not a loopback address.
fn machine_address() -> Ipv4Addr {
    // Sends nothing: the kernel chooses the address that it would send from.
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect("198.51.100.1:9").unwrap();
    match socket.local_addr().unwrap().ip() {
        IpAddr::V4(address) => address,
        IpAddr::V6(_) => unreachable!("the socket is an IPv4 socket"),
    }
}

#[tokio::test]
async fn files_keep_their_owner_and_a_sandbox_its_id() {
    use std::os::unix::fs::MetadataExt;
    let fixture = ProcessFixture::new();
    let launch = launch("s1");
    let workspace = fixture.root(&launch.id).join("workspace");
    // A sandbox of a service without confinement.
    let unconfined = ProcessConfig {
        confinement: None,
        ..fixture.config()
    };
    let backend = ProcessSandboxes::new(unconfined).await.unwrap();
    backend.start(&launch).await.unwrap();
    fixture.ready(&launch.id).await;
    fs::write(workspace.join("file"), "").unwrap();
    let shared = fixture.dir.path().join("shared");
    fs::write(&shared, "").unwrap();
    fs::hard_link(&shared, workspace.join("link")).unwrap();
    drop(backend);
    fixture.set_agent_script(IDLE);
    let backend = fixture.backend().await;
    let mut owners = Vec::new();
    for _ in 0..2 {
        // The first start replaces the process without walls.
        backend.start(&launch).await.unwrap();
        fixture.ready(&launch.id).await;
        owners.push(fs::metadata(workspace.join("file")).unwrap().uid());
        backend.stop(&launch.id).await.unwrap();
    }
    assert_eq!(owners[0], owners[1]);
    assert_eq!(fs::metadata(&workspace).unwrap().uid(), owners[0]);
    let is_root = rustix::process::geteuid().is_root();
    assert_eq!(owners[0] >= 1_879_048_192, is_root, "{owners:?}");
    if is_root {
        assert_eq!(fs::metadata(&shared).unwrap().uid(), 0);
    }
    backend.remove(&launch.id).await.unwrap();
}

#[tokio::test]
async fn mounts_of_the_machine_stay() {
    if !rustix::process::geteuid().is_root() {
        // Another account changes mounts only in its own namespaces.
        return;
    }
    let fixture = ProcessFixture::new();
    fixture.set_agent_script(IDLE);
    let mounts = SharedMount::new(&fixture.dir.path().join("mounts"));
    let backend = fixture.backend().await;
    let launch = launch("s1");
    backend.start(&launch).await.unwrap();
    fixture.ready(&launch.id).await;
    assert!(mounts.inner.join("file").exists(), "unmounted by the start");
    backend.remove(&launch.id).await.unwrap();
    assert!(mounts.inner.join("file").exists(), "unmounted by the end");
}

/// A mount on a shared mount, as Docker has them for its containers.
struct SharedMount {
    outer: PathBuf,
    inner: PathBuf,
}

impl SharedMount {
    fn new(outer: &Path) -> Self {
        let inner = outer.join("inner");
        fs::create_dir(outer).unwrap();
        mount_bind(outer, outer).unwrap();
        mount_change(outer, MountPropagationFlags::SHARED).unwrap();
        let source = outer.join("source");
        fs::create_dir(&source).unwrap();
        fs::write(source.join("file"), "").unwrap();
        fs::create_dir(&inner).unwrap();
        mount_bind(&source, &inner).unwrap();
        Self {
            outer: outer.to_owned(),
            inner,
        }
    }
}

impl Drop for SharedMount {
    fn drop(&mut self) {
        for path in [&self.inner, &self.outer] {
            // It may be gone.
            let _ = unmount(path, UnmountFlags::DETACH);
        }
    }
}

#[tokio::test]
async fn sandboxes_are_refused_with_the_cause_and_the_remedy() {
    let fixture = ProcessFixture::new();
    let mut config = fixture.config();
    config.confinement.as_mut().unwrap().search_path = "/nowhere".into();
    let backend = ProcessSandboxes::new(config).await.unwrap();
    let refused = backend.start(&launch("s1")).await.unwrap_err();
    let text = refused.public();
    assert!(
        text.contains("bubblewrap: is not installed")
            && text.contains("apt-get install bubblewrap"),
        "{text}"
    );
    assert!(backend.check().await.is_err());
    assert_eq!(backend.list().await.unwrap(), []);
}

#[tokio::test]
async fn without_a_network_sandboxes_need_bubblewrap_only() {
    let fixture = ProcessFixture::new();
    fixture.set_agent_script(IDLE);
    let mut config = fixture.config();
    let programs = fixture.dir.path().join("programs");
    fs::create_dir(&programs).unwrap();
    std::os::unix::fs::symlink("/usr/bin/bwrap", programs.join("bwrap")).unwrap();
    let confinement = config.confinement.as_mut().unwrap();
    confinement.search_path = programs.to_str().unwrap().into();
    confinement.network = NetworkPolicy::None;
    let backend = ProcessSandboxes::new(config).await.unwrap();
    let launch = launch("s1");
    backend.start(&launch).await.unwrap();
    fixture.ready(&launch.id).await;
    backend.remove(&launch.id).await.unwrap();
}
