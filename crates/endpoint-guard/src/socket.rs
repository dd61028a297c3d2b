//! Finds the socket that listens at an address.
//!
//! Knows: the request for one socket of `NETLINK_SOCK_DIAG` (`linux/inet_diag.h`), and `/proc/net/tcp`, which is read where the
//! kernel does not have the former. The request costs microseconds; the file takes milliseconds, because the kernel walks through
//! the table of all connections.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::LazyLock;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};

/// A listening TCP socket of this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListeningSocket {
    /// Names the socket: a process that has it open has `socket:[inode]` among the links in `/proc/<pid>/fd`.
    pub inode: u32,
    /// User id of the socket's creator.
    pub uid: u32,
}

/// The socket that a connection to this address of this machine goes to, if there is one.
///
/// # Errors
/// If the kernel does not answer.
pub async fn look_up(address: SocketAddr) -> io::Result<Option<ListeningSocket>> {
    if *HAS_SOCK_DIAG {
        return by_sock_diag(address);
    }
    tokio::task::spawn_blocking(move || by_table(address)).await?
}

/// As [`look_up`], for callers that may block.
///
/// # Errors
/// As [`look_up`].
pub fn listener(address: SocketAddr) -> io::Result<Option<ListeningSocket>> {
    if *HAS_SOCK_DIAG {
        by_sock_diag(address)
    } else {
        by_table(address)
    }
}

/// Whether an address is one of this machine. Nothing is sent.
pub fn is_local(ip: IpAddr) -> bool {
    let own = || {
        let unspecified = match ip {
            IpAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            IpAddr::V6(_) => SocketAddr::from((std::net::Ipv6Addr::UNSPECIFIED, 0)),
        };
        let socket = UdpSocket::bind(unspecified)?;
        // A connection to a local address has the same address as its source. The port does not matter.
        socket.connect((ip, 9))?;
        io::Result::Ok(socket.local_addr()?.ip() == ip)
    };
    ip.is_loopback() || own().unwrap_or(false)
}

/// Whether the kernel answers for a listener that is there: it says "not found" as well where it cannot be asked.
static HAS_SOCK_DIAG: LazyLock<bool> = LazyLock::new(|| {
    let known = || {
        let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        by_sock_diag(socket.local_addr()?)
    };
    matches!(known(), Ok(Some(_)))
});

/// `SOCK_DIAG_BY_FAMILY`, of requests and answers.
const BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const NLMSG_ERROR: u16 = 2;
const NLMSG_HEADER_BYTES: usize = 16;
/// `struct inet_diag_req_v2`.
const REQUEST_BYTES: usize = NLMSG_HEADER_BYTES + 56;
const TCP_LISTEN: u8 = 10;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const IPPROTO_TCP: u8 = 6;

fn by_sock_diag(address: SocketAddr) -> io::Result<Option<ListeningSocket>> {
    let netlink = socket_with(
        AddressFamily::NETLINK,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        Some(netlink::SOCK_DIAG),
    )?;
    send(&netlink, &request(address), SendFlags::empty())?;
    let mut reply = [0_u8; 512];
    // The kernel has answered before `send` returned.
    let (read, _) = recv(&netlink, &mut reply, RecvFlags::DONTWAIT)?;
    parse(&reply[..read.min(512)])
}

/// Asks for the socket that the kernel itself would choose for a connection to this address.
fn request(address: SocketAddr) -> Vec<u8> {
    let mut octets = [0_u8; 16];
    let family = match address.ip() {
        IpAddr::V4(ip) => {
            octets[..4].copy_from_slice(&ip.octets());
            AF_INET
        }
        IpAddr::V6(ip) => {
            octets = ip.octets();
            AF_INET6
        }
    };
    let mut request = Vec::with_capacity(REQUEST_BYTES);
    request.extend_from_slice(&72_u32.to_ne_bytes());
    request.extend_from_slice(&BY_FAMILY.to_ne_bytes());
    request.extend_from_slice(&NLM_F_REQUEST.to_ne_bytes());
    // Number and sender of the request.
    request.extend_from_slice(&[0; 8]);
    request.extend_from_slice(&[family, IPPROTO_TCP, 0, 0]);
    // Sockets in any state. The state tells whether the socket listens.
    request.extend_from_slice(&u32::MAX.to_ne_bytes());
    request.extend_from_slice(&address.port().to_be_bytes());
    // No port of the other side: no connection matches, but a listener does.
    request.extend_from_slice(&[0; 2]);
    request.extend_from_slice(&octets);
    // The address of the other side, and the interface.
    request.extend_from_slice(&[0; 20]);
    // No cookie.
    request.extend_from_slice(&[0xff; 8]);
    request
}

fn parse(reply: &[u8]) -> io::Result<Option<ListeningSocket>> {
    let short = || io::Error::new(io::ErrorKind::UnexpectedEof, "the kernel's answer is short");
    let word = |at: usize| {
        let bytes = reply.get(at..at + 4).ok_or_else(short)?;
        io::Result::Ok(u32::from_ne_bytes(bytes.try_into().unwrap_or_default()))
    };
    let kind = reply.get(4..6).ok_or_else(short)?;
    let body = NLMSG_HEADER_BYTES;
    match u16::from_ne_bytes(kind.try_into().unwrap_or_default()) {
        BY_FAMILY => {
            let state = *reply.get(body + 1).ok_or_else(short)?;
            let listener = ListeningSocket {
                uid: word(body + 64)?,
                inode: word(body + 68)?,
            };
            Ok((state == TCP_LISTEN).then_some(listener))
        }
        NLMSG_ERROR => {
            let code = word(body)?.cast_signed().saturating_neg();
            if code == Errno::NOENT.raw_os_error() {
                Ok(None)
            } else {
                Err(io::Error::from_raw_os_error(code))
            }
        }
        _ => Err(io::Error::other("the kernel answers something else")),
    }
}

/// The same, from the kernel's table as text. Several sockets may listen on a port at different addresses; the most exact one
/// gets the connection.
fn by_table(address: SocketAddr) -> io::Result<Option<ListeningSocket>> {
    let mut found = None;
    for file in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let text = match fs::read_to_string(file) {
            Ok(text) => text,
            // The kernel has no IPv6.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        for (at, listener) in text.lines().skip(1).filter_map(row) {
            if at == address {
                return Ok(Some(listener));
            }
            if at.port() == address.port() && at.ip().is_unspecified() {
                found = Some(listener);
            }
        }
    }
    Ok(found)
}

/// `sl local_address rem_address st queues timer retransmits uid timeout inode …`, if it is a listener.
fn row(line: &str) -> Option<(SocketAddr, ListeningSocket)> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    if *fields.get(3)? != "0A" {
        return None;
    }
    let (ip, port) = fields.get(1)?.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let words =
        (0..ip.len() / 8).map(|at| u32::from_str_radix(ip.get(at * 8..at * 8 + 8)?, 16).ok());
    let octets: Vec<u8> = words
        .collect::<Option<Vec<u32>>>()?
        .into_iter()
        .flat_map(u32::to_ne_bytes)
        .collect();
    let ip = match octets.len() {
        4 => IpAddr::from(<[u8; 4]>::try_from(octets).ok()?),
        _ => IpAddr::from(<[u8; 16]>::try_from(octets).ok()?).to_canonical(),
    };
    let listener = ListeningSocket {
        uid: fields.get(7)?.parse().ok()?,
        inode: fields.get(9)?.parse().ok()?,
    };
    Some((SocketAddr::new(ip, port), listener))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::os::unix::fs::MetadataExt;

    use super::*;

    type LookUp = fn(SocketAddr) -> io::Result<Option<ListeningSocket>>;

    const BOTH: [LookUp; 2] = [by_sock_diag, by_table];

    fn named(socket: &TcpListener) -> ListeningSocket {
        let file = File::from(socket.as_fd().try_clone_to_owned().unwrap());
        let meta = file.metadata().unwrap();
        ListeningSocket {
            inode: u32::try_from(meta.ino()).unwrap(),
            uid: meta.uid(),
        }
    }

    #[test]
    fn the_socket_that_gets_the_connection_is_found() {
        for (bound, asked) in [
            ("127.0.0.1:0", "127.0.0.1"),
            ("0.0.0.0:0", "127.0.0.1"),
            ("0.0.0.0:0", "127.0.0.9"),
            ("[::]:0", "127.0.0.1"),
            ("[::]:0", "::1"),
            ("[::1]:0", "::1"),
        ] {
            let socket = TcpListener::bind(bound).unwrap();
            let port = socket.local_addr().unwrap().port();
            let address = SocketAddr::new(asked.parse().unwrap(), port);
            for look_up in BOTH {
                let found = look_up(address).unwrap();
                assert_eq!(found, Some(named(&socket)), "{bound} {asked}");
            }
            drop(socket);
            for look_up in BOTH {
                assert_eq!(look_up(address).unwrap(), None, "{bound} {asked}");
            }
        }
    }

    #[test]
    fn a_connection_is_no_listener() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let client = std::net::TcpStream::connect(address).unwrap();
        let _accepted = socket.accept().unwrap();
        for look_up in BOTH {
            assert_eq!(look_up(address).unwrap(), Some(named(&socket)));
            assert_eq!(look_up(client.local_addr().unwrap()).unwrap(), None);
        }
        drop(socket);
        for look_up in BOTH {
            assert_eq!(look_up(address).unwrap(), None);
        }
        assert_eq!(listener(address).unwrap(), None);
    }

    #[test]
    fn addresses_of_this_machine() {
        for local in ["127.0.0.1", "127.0.0.9", "::1"] {
            assert!(is_local(local.parse().unwrap()), "{local}");
        }
        // Of a block that is never used (RFC 5737).
        assert!(!is_local("192.0.2.1".parse().unwrap()));
    }

    #[test]
    fn a_senseless_answer_is_an_error() {
        for reply in [&[][..], &[0; 5], &[0; 20], &[0; 400]] {
            assert!(parse(reply).is_err(), "{reply:?}");
        }
    }
}
