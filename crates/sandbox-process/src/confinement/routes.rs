//! Routes of a sandbox's network: private networks and the machine itself are unreachable, but for what the operator lists.
//!
//! Knows: route messages of `NETLINK_ROUTE` (`linux/rtnetlink.h`).

use std::collections::BTreeSet;
use std::io;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

/// Networks that are not the public internet, among them the metadata service of clouds (169.254.169.254). The sandbox's
/// own network 10.0.2.0/24 is more specific than 10.0.0.0/8 and stays reachable: it contains only slirp4netns.
const REFUSED: [(Ipv4Addr, u8); 10] = [
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(224, 0, 0, 0), 4),
    (Ipv4Addr::new(240, 0, 0, 0), 4),
    (Ipv4Addr::new(168, 63, 129, 16), 32),
];

const RTM_NEWADDR: u16 = 20;
const RTM_GETADDR: u16 = 22;
const RTM_NEWROUTE: u16 = 24;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_DUMP: u16 = 0x300;
const NLM_F_CREATE: u16 = 0x400;
const HEADER_BYTES: usize = 16;
const IFADDRMSG_BYTES: usize = 8;
const AF_INET: u8 = 2;
const IFA_LOCAL: u16 = 2;
const RTA_DST: u16 = 1;
const RTA_GATEWAY: u16 = 5;
const RT_TABLE_MAIN: u8 = 254;
const RTPROT_STATIC: u8 = 4;
const RT_SCOPE_UNIVERSE: u8 = 0;
const RTN_UNICAST: u8 = 1;
const RTN_UNREACHABLE: u8 = 7;

/// slirp4netns, which forwards everything.
const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 2);

/// The IPv4 addresses of this machine.
pub(crate) fn own_addresses() -> io::Result<Vec<Ipv4Addr>> {
    let netlink = open()?;
    let body = [AF_INET, 0, 0, 0, 0, 0, 0, 0];
    let message = message(RTM_GETADDR, NLM_F_REQUEST | NLM_F_DUMP, &body);
    send(&netlink, &message, SendFlags::empty())?;
    let mut addresses = Vec::new();
    loop {
        let mut reply = vec![0_u8; 32 * 1024];
        let (read, _) = recv(&netlink, &mut reply, RecvFlags::empty())?;
        for (kind, body) in messages(&reply[..read.min(reply.len())]) {
            match kind {
                RTM_NEWADDR => addresses.extend(local_address(body)),
                NLMSG_DONE => return Ok(addresses),
                NLMSG_ERROR => acknowledged(body)?,
                _ => {}
            }
        }
    }
}

/// Makes private networks and these addresses unreachable, except `reachable`. The most specific route counts: an own address
/// inside a reachable network stays unreachable unless it is listed itself. Needs `CAP_NET_ADMIN` in the current network.
pub(crate) fn set(own_addresses: &[Ipv4Addr], reachable: &[Ipv4Net]) -> io::Result<()> {
    let netlink = open()?;
    let own = own_addresses.iter().filter(|ip| !ip.is_loopback());
    let own = own.map(|address| (*address, 32));
    let reachable: BTreeSet<_> = reachable
        .iter()
        .map(|net| (net.network(), net.prefix_len()))
        .collect();
    let refused = REFUSED
        .into_iter()
        .chain(own)
        .filter(|net| !reachable.contains(net))
        .map(|net| route(net, None));
    let routes = refused.chain(reachable.iter().map(|net| route(*net, Some(GATEWAY))));
    for route in routes {
        let flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE;
        let message = message(RTM_NEWROUTE, flags, &route);
        send(&netlink, &message, SendFlags::empty())?;
        let mut reply = [0_u8; 1024];
        let (read, _) = recv(&netlink, &mut reply, RecvFlags::empty())?;
        for (kind, body) in messages(&reply[..read.min(1024)]) {
            if kind == NLMSG_ERROR {
                acknowledged(body)?;
            }
        }
    }
    Ok(())
}

fn open() -> io::Result<rustix::fd::OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    let kind = SocketType::RAW;
    // Protocol 0 is `NETLINK_ROUTE`.
    Ok(socket_with(AddressFamily::NETLINK, kind, flags, None)?)
}

/// `struct rtmsg` with the attributes `RTA_DST` and `RTA_GATEWAY`. Without a gateway the network is unreachable.
fn route((network, prefix): (Ipv4Addr, u8), gateway: Option<Ipv4Addr>) -> Vec<u8> {
    let mut body = vec![
        AF_INET,
        prefix,
        0,
        0,
        RT_TABLE_MAIN,
        RTPROT_STATIC,
        RT_SCOPE_UNIVERSE,
        gateway.map_or(RTN_UNREACHABLE, |_| RTN_UNICAST),
    ];
    body.extend([0; 4]);
    let attributes = [(RTA_DST, Some(network)), (RTA_GATEWAY, gateway)];
    for (kind, address) in attributes {
        let Some(address) = address else { continue };
        body.extend(8_u16.to_ne_bytes());
        body.extend(kind.to_ne_bytes());
        body.extend(address.octets());
    }
    body
}

fn message(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(HEADER_BYTES + body.len()).unwrap_or_default();
    let mut message = length.to_ne_bytes().to_vec();
    message.extend(kind.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    // Sequence number and port id.
    message.extend([0; 8]);
    message.extend(body);
    message
}

/// Types and bodies of the messages in a datagram.
fn messages(mut bytes: &[u8]) -> Vec<(u16, &[u8])> {
    let mut all = Vec::new();
    while let (Some(length), Some(kind)) = (word(bytes), half(bytes, 4)) {
        let length = length as usize;
        let Some(body) = bytes.get(HEADER_BYTES..length) else {
            break;
        };
        all.push((kind, body));
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    all
}

/// The result in the body of `NLMSG_ERROR`; 0 is success.
fn acknowledged(body: &[u8]) -> io::Result<()> {
    match word(body).unwrap_or_default().cast_signed() {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code.saturating_neg())),
    }
}

/// The attribute `IFA_LOCAL` behind `struct ifaddrmsg`.
fn local_address(body: &[u8]) -> Option<Ipv4Addr> {
    let mut attributes = body.get(IFADDRMSG_BYTES..)?;
    loop {
        let (length, kind) = (half(attributes, 0)?, half(attributes, 2)?);
        let length = usize::from(length).max(4);
        if kind == IFA_LOCAL {
            let octets: [u8; 4] = attributes.get(4..8)?.try_into().ok()?;
            return Some(octets.into());
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
}

fn word(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_addresses_of_the_machine_are_found() {
        assert!(own_addresses().unwrap().contains(&Ipv4Addr::LOCALHOST));
    }
}
