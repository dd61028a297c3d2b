//! Finds the socket that listens at an address.
//!
//! It sends a request for one socket to `NETLINK_SOCK_DIAG` (`linux/inet_diag.h`), or reads `/proc/net/tcp` if the kernel lacks
//! that interface. The request takes microseconds. The file takes milliseconds, because the kernel lists all connections.

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
    /// Identifies the socket. A process that has it open has a link `socket:[inode]` in `/proc/<pid>/fd`.
    pub inode: u32,
    /// User id of the socket's creator.
    pub uid: u32,
}

/// Finds the socket that would accept a connection to this address of this machine.
///
/// # Errors
/// If the kernel refuses the request.
pub async fn look_up(address: SocketAddr) -> io::Result<Option<ListeningSocket>> {
    if *HAS_SOCK_DIAG {
        return look_up_by_sock_diag(address);
    }
    tokio::task::spawn_blocking(move || look_up_in_proc(address)).await?
}

/// Like [`look_up`], for callers that may block.
///
/// # Errors
/// Like [`look_up`].
pub fn listener(address: SocketAddr) -> io::Result<Option<ListeningSocket>> {
    if *HAS_SOCK_DIAG {
        look_up_by_sock_diag(address)
    } else {
        look_up_in_proc(address)
    }
}

/// Whether an address belongs to this machine. Sends nothing.
pub fn is_local(ip: IpAddr) -> bool {
    let is_own_address = || {
        let unspecified = match ip {
            IpAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            IpAddr::V6(_) => SocketAddr::from((std::net::Ipv6Addr::UNSPECIFIED, 0)),
        };
        let socket = UdpSocket::bind(unspecified)?;
        // A connection to a local address has the same address as its source. The port does not matter.
        socket.connect((ip, 9))?;
        io::Result::Ok(socket.local_addr()?.ip() == ip)
    };
    ip.is_loopback() || is_own_address().unwrap_or(false)
}

/// Whether the kernel finds an existing listener by `NETLINK_SOCK_DIAG`. A kernel without support also responds "not found".
static HAS_SOCK_DIAG: LazyLock<bool> = LazyLock::new(|| {
    let look_up_own_listener = || {
        let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        look_up_by_sock_diag(socket.local_addr()?)
    };
    matches!(look_up_own_listener(), Ok(Some(_)))
});

/// `SOCK_DIAG_BY_FAMILY`, the type of requests and responses.
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

fn look_up_by_sock_diag(address: SocketAddr) -> io::Result<Option<ListeningSocket>> {
    let netlink = socket_with(
        AddressFamily::NETLINK,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        Some(netlink::SOCK_DIAG),
    )?;
    send(&netlink, &request(address), SendFlags::empty())?;
    let mut reply = [0_u8; 512];
    // The kernel responds before `send` returns.
    let (read, _) = recv(&netlink, &mut reply, RecvFlags::DONTWAIT)?;
    parse(&reply[..read.min(512)])
}

/// The request for the socket that the kernel would choose for a connection to this address.
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
    // Sequence number and port id.
    request.extend_from_slice(&[0; 8]);
    request.extend_from_slice(&[family, IPPROTO_TCP, 0, 0]);
    // Sockets in any state. The response contains the state.
    request.extend_from_slice(&u32::MAX.to_ne_bytes());
    request.extend_from_slice(&address.port().to_be_bytes());
    // Remote port 0 matches listeners and no connection.
    request.extend_from_slice(&[0; 2]);
    request.extend_from_slice(&octets);
    // Remote address and interface.
    request.extend_from_slice(&[0; 20]);
    // No cookie.
    request.extend_from_slice(&[0xff; 8]);
    request
}

fn parse(reply: &[u8]) -> io::Result<Option<ListeningSocket>> {
    let short = || {
        let text = "the kernel's response to NETLINK_SOCK_DIAG is too short";
        io::Error::new(io::ErrorKind::UnexpectedEof, text)
    };
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
        other => Err(io::Error::other(format!(
            "the kernel's response to NETLINK_SOCK_DIAG has the unexpected type {other}"
        ))),
    }
}

/// Reads the kernel's tables in `/proc/net`. Several sockets may listen on one port at different addresses. The most specific one
/// accepts the connection.
fn look_up_in_proc(address: SocketAddr) -> io::Result<Option<ListeningSocket>> {
    let mut wildcard = None;
    for file in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let text = match fs::read_to_string(file) {
            Ok(text) => text,
            // The kernel has no IPv6.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        for (local, listener) in text.lines().skip(1).filter_map(parse_row) {
            if local == address {
                return Ok(Some(listener));
            }
            if local.port() == address.port() && local.ip().is_unspecified() {
                wildcard = Some(listener);
            }
        }
    }
    Ok(wildcard)
}

/// Parses `sl local_address rem_address st queues timer retransmits uid timeout inode …`. `None` unless it is a listener.
fn parse_row(line: &str) -> Option<(SocketAddr, ListeningSocket)> {
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

    const BOTH: [LookUp; 2] = [look_up_by_sock_diag, look_up_in_proc];

    fn listening_socket(socket: &TcpListener) -> ListeningSocket {
        let file = File::from(socket.as_fd().try_clone_to_owned().unwrap());
        let meta = file.metadata().unwrap();
        ListeningSocket {
            inode: u32::try_from(meta.ino()).unwrap(),
            uid: meta.uid(),
        }
    }

    #[test]
    fn the_most_specific_listener_is_found() {
        for (bound, requested) in [
            ("127.0.0.1:0", "127.0.0.1"),
            ("0.0.0.0:0", "127.0.0.1"),
            ("0.0.0.0:0", "127.0.0.9"),
            ("[::]:0", "127.0.0.1"),
            ("[::]:0", "::1"),
            ("[::1]:0", "::1"),
        ] {
            let socket = TcpListener::bind(bound).unwrap();
            let port = socket.local_addr().unwrap().port();
            let address = SocketAddr::new(requested.parse().unwrap(), port);
            for look_up in BOTH {
                let result = look_up(address).unwrap();
                assert_eq!(
                    result,
                    Some(listening_socket(&socket)),
                    "{bound} {requested}"
                );
            }
            drop(socket);
            for look_up in BOTH {
                assert_eq!(look_up(address).unwrap(), None, "{bound} {requested}");
            }
        }
    }

    #[test]
    fn connections_do_not_count_as_listeners() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let client = std::net::TcpStream::connect(address).unwrap();
        let _accepted = socket.accept().unwrap();
        for look_up in BOTH {
            assert_eq!(look_up(address).unwrap(), Some(listening_socket(&socket)));
            assert_eq!(look_up(client.local_addr().unwrap()).unwrap(), None);
        }
        drop(socket);
        for look_up in BOTH {
            assert_eq!(look_up(address).unwrap(), None);
        }
        assert_eq!(listener(address).unwrap(), None);
    }

    #[test]
    fn loopback_addresses_are_local() {
        for local in ["127.0.0.1", "127.0.0.9", "::1"] {
            assert!(is_local(local.parse().unwrap()), "{local}");
        }
        // A documentation address (RFC 5737).
        assert!(!is_local("192.0.2.1".parse().unwrap()));
    }

    #[test]
    fn malformed_responses_are_errors() {
        for reply in [&[][..], &[0; 5], &[0; 20], &[0; 400]] {
            assert!(parse(reply).is_err(), "{reply:?}");
        }
    }
}
