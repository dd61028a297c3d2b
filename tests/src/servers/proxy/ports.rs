//! Listening sockets of this machine, from `/proc` and by connecting to ports.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

/// A listening socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    /// Its port.
    pub port: u16,
    /// Whether it listens on a loopback address.
    pub is_loopback: bool,
    inode: String,
}

/// All listening sockets of this machine.
#[must_use]
pub fn listeners() -> Vec<Listener> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(fs::read_to_string);
    let tables: Vec<String> = tables.into_iter().filter_map(Result::ok).collect();
    let lines = tables.iter().flat_map(|table| table.lines().skip(1));
    lines.filter_map(parse_listener).collect()
}

/// Parses a line of `/proc/net/tcp`; `None` for other states.
fn parse_listener(line: &str) -> Option<Listener> {
    /// The kernel's number of the state LISTEN.
    const LISTEN_STATE: &str = "0A";
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (address, port) = fields.get(1)?.split_once(':')?;
    // Groups of four bytes, in the machine's byte order.
    let is_loopback = match address.len() {
        8 => address.ends_with("7F"),
        _ => {
            address == "00000000000000000000000001000000"
                || address.starts_with("0000000000000000FFFF0000") && address.ends_with("7F")
        }
    };
    (*fields.get(3)? == LISTEN_STATE).then_some(Listener {
        port: u16::from_str_radix(port, 16).ok()?,
        is_loopback,
        inode: (*fields.get(9)?).to_owned(),
    })
}

/// The listening sockets of these processes.
#[must_use]
pub fn listeners_of(pids: &[u32]) -> Vec<Listener> {
    let files = pids
        .iter()
        .map(|pid| fs::read_dir(format!("/proc/{pid}/fd")));
    let links = files.flatten().flatten().flatten();
    let links = links.filter_map(|entry| fs::read_link(entry.path()).ok());
    let open: BTreeSet<String> = links.map(|link| link.display().to_string()).collect();
    let mut all = listeners();
    all.retain(|it| open.contains(&format!("socket:[{}]", it.inode)));
    all
}

/// The address of this machine in its network. Without a network, another loopback address, where a socket on 0.0.0.0 accepts
/// connections and one on 127.0.0.1 does not.
#[must_use]
pub fn outer_address() -> IpAddr {
    // Connecting a UDP socket sends nothing; the kernel only chooses the local address.
    let route = UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
        socket.connect("192.0.2.1:9")?;
        socket.local_addr()
    });
    let outer = route
        .ok()
        .map(|route| route.ip())
        .filter(|it| !it.is_loopback());
    outer.unwrap_or(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)))
}

/// Every open port at an address of this machine. Blocks for a few seconds.
#[must_use]
pub fn scan(address: IpAddr) -> BTreeSet<u16> {
    // On the same machine a closed port refuses at once.
    const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
    let is_open = |port: &u16| {
        TcpStream::connect_timeout(&SocketAddr::new(address, *port), CONNECT_TIMEOUT).is_ok()
    };
    (1..=u16::MAX).filter(is_open).collect()
}
