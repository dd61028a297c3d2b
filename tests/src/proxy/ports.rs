//! Who listens where: as the kernel tells it, and as a neighbour finds out.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

/// A place where somebody listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    /// Its port.
    pub port: u16,
    /// Whether nobody from outside reaches it.
    pub is_loopback: bool,
    inode: String,
}

/// All of this machine.
#[must_use]
pub fn listeners() -> Vec<Listener> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(fs::read_to_string);
    let tables: Vec<String> = tables.into_iter().filter_map(Result::ok).collect();
    let lines = tables.iter().flat_map(|table| table.lines().skip(1));
    lines.filter_map(listener).collect()
}

/// Of one line, if somebody listens there.
fn listener(line: &str) -> Option<Listener> {
    /// The kernel's number of that state.
    const LISTENS: &str = "0A";
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (address, port) = fields.get(1)?.split_once(':')?;
    // Words of four bytes, in the machine's order.
    let is_loopback = match address.len() {
        8 => address.ends_with("7F"),
        _ => {
            address == "00000000000000000000000001000000"
                || address.starts_with("0000000000000000FFFF0000") && address.ends_with("7F")
        }
    };
    (*fields.get(3)? == LISTENS).then_some(Listener {
        port: u16::from_str_radix(port, 16).ok()?,
        is_loopback,
        inode: (*fields.get(9)?).to_owned(),
    })
}

/// Those of these processes.
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

/// Under which address others reach this machine. Without a network a further one of its own: who listens everywhere
/// answers there, and who listens on 127.0.0.1 does not.
#[must_use]
pub fn outer_address() -> IpAddr {
    // Nothing is sent: the kernel only says which way it would go.
    let way = UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
        socket.connect("192.0.2.1:9")?;
        socket.local_addr()
    });
    let outer = way.ok().map(|way| way.ip()).filter(|it| !it.is_loopback());
    outer.unwrap_or(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)))
}

/// Every port that takes a connection at an address of this machine. Blocks, for a few seconds.
#[must_use]
pub fn scan(address: IpAddr) -> BTreeSet<u16> {
    // On one machine a port that nobody has refuses at once.
    const WAIT_TIMEOUT: Duration = Duration::from_millis(500);
    let is_open = |port: &u16| {
        TcpStream::connect_timeout(&SocketAddr::new(address, *port), WAIT_TIMEOUT).is_ok()
    };
    (1..=u16::MAX).filter(is_open).collect()
}
