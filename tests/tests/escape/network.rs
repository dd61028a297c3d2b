//! A network of the suite's own: the service's machine, and another machine with private and public addresses behind it.

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use acceptance::agent_server::variable_of;
use tempfile::TempDir;

use crate::world::Walls;

/// Set in the process that runs in the network.
const INSIDE_VARIABLE: &str = "ESCAPE_NETWORK";
const LISTENERS: &str = include_str!("attempts/listeners.py");
/// Of the service's machine.
pub(crate) const HOST_ADDRESS: &str = "10.78.0.1";
pub(crate) const HOST_PUBLIC_ADDRESS: &str = "45.33.32.1";
pub(crate) const HOST_IPV6: &str = "fd78::1";
/// Of the other machine; the last one is public, and must be reached.
const OUTSIDE_ADDRESSES: [&str; 10] = [
    "169.254.169.254/32",
    "169.254.77.1/32",
    "10.77.0.1/32",
    "172.31.77.1/32",
    "192.168.77.1/32",
    "100.64.77.1/32",
    "198.18.77.1/32",
    "240.0.77.1/32",
    "fd77::1/128",
    "8.8.77.1/32",
];
pub(crate) const INTERNET_ADDRESS: &str = "8.8.77.1";
pub(crate) const OUTSIDE_PORT: u16 = 8077;

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Runs a test in a network namespace of its own as root, which takes another process, and here as an ordinary user. As root
/// temporary files are below `/var/lib`, because sandboxes have a `/tmp` of their own.
pub(crate) fn run_inside<F: Future<Output = ()>>(test: &str, work: impl FnOnce() -> F) {
    let is_inside = variable_of(INSIDE_VARIABLE).is_some();
    if is_inside || !is_root() {
        if is_inside {
            ip("link set lo up");
        }
        let runtime = tokio::runtime::Runtime::new().expect("a runtime can be built");
        return runtime.block_on(work());
    }
    let files = tempfile::Builder::new()
        .prefix("escape-")
        .tempdir_in("/var/lib");
    let files = files.expect("cannot write to /var/lib");
    let own_program = std::env::current_exe().expect("the test has no program");
    let status = Command::new("unshare")
        .arg("--net")
        .arg(own_program)
        .args([test, "--exact", "--nocapture"])
        .env(INSIDE_VARIABLE, "yes")
        .env("TMPDIR", files.path())
        .status();
    let status = status.expect("cannot run `unshare`, a program of util-linux");
    assert!(status.success(), "{test}: {status}");
}

/// Programs that listen where a sandbox must not come.
pub(crate) struct HostNetwork {
    /// The port of the host's listener at all its addresses, TCP and UDP.
    pub(crate) host_port: u16,
    /// What they answer.
    pub(crate) host_secret: String,
    pub(crate) outside_secret: String,
    listeners: Vec<Child>,
    _scripts: TempDir,
}

impl HostNetwork {
    /// `sockets`: Unix sockets of the host; those with `@` have no path.
    pub(crate) fn start(walls: Walls, secret: &str, sockets: &[String]) -> Self {
        let scripts = tempfile::tempdir().expect("cannot create a temporary directory");
        let script = scripts.path().join("listeners.py");
        std::fs::write(&script, LISTENERS).expect("cannot write the script");
        let free = TcpListener::bind(("127.0.0.1", 0)).and_then(|it| it.local_addr());
        let host_port = free.expect("no port is free").port();
        let (host_secret, outside_secret) = (format!("host-{secret}"), format!("outside-{secret}"));
        let mut network = Self {
            host_port,
            host_secret,
            outside_secret,
            listeners: Vec::new(),
            _scripts: scripts,
        };
        if is_root() {
            network.connect(&script, walls);
        }
        let mut host = Command::new("python3");
        host.arg(&script)
            .args([&network.host_secret, &host_port.to_string()])
            .args(sockets);
        network.add(&mut host);
        network.listeners.iter_mut().for_each(wait_until_ready);
        network
    }

    fn add(&mut self, command: &mut Command) -> u32 {
        let child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("cannot start a listener");
        let pid = child.id();
        self.listeners.push(child);
        pid
    }

    /// Gives this namespace an interface and the other machine behind it.
    fn connect(&mut self, script: &Path, walls: Walls) {
        ip("link add inside type veth peer name outside");
        ip(&format!("addr add {HOST_ADDRESS}/24 dev inside"));
        ip(&format!("-6 addr add {HOST_IPV6}/64 dev inside nodad"));
        ip(&format!("addr add {HOST_PUBLIC_ADDRESS}/32 dev lo"));
        ip("link set inside up");
        if walls == Walls::None {
            // Names of the host that only a network with walls has.
            ip("addr add 10.0.2.2/32 dev lo");
            ip("addr add 10.0.2.3/32 dev lo");
        }
        let mut other = Command::new("unshare");
        other
            .args(["--net", "python3"])
            .arg(script)
            .args(["--interface", "outside"])
            .args([&self.outside_secret, &OUTSIDE_PORT.to_string()])
            .args(OUTSIDE_ADDRESSES);
        let pid = self.add(&mut other);
        wait_for_namespace(pid);
        ip(&format!("link set outside netns {pid}"));
        ip("route add default via 10.78.0.2");
        ip("-6 route add default via fd78::2");
    }
}

impl Drop for HostNetwork {
    fn drop(&mut self) {
        for child in &mut self.listeners {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Runs a command of `ip`, which must succeed.
fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status();
    let status = status.expect("cannot run `ip`, a program of the package iproute2");
    assert!(status.success(), "ip {arguments}: {status}");
}

/// Until `unshare` has made the namespace.
fn wait_for_namespace(pid: u32) {
    let namespace = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/net")).ok();
    let own = namespace("self");
    while namespace(&pid.to_string()) == own {
        std::thread::yield_now();
    }
}

fn wait_until_ready(child: &mut Child) {
    let output = child.stdout.take().expect("its output is a pipe");
    let mut line = String::new();
    let _ = BufReader::new(output).read_line(&mut line);
    assert_eq!(line.trim(), "ready", "a listener did not start");
}
