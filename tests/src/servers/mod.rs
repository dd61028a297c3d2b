//! Real servers beside the service: container engines, Postgres, and proxies.

pub mod cluster;
pub mod engine;
pub mod postgres;
pub mod proxy;

use std::net::{IpAddr, Ipv4Addr, UdpSocket};

/// An address of this machine that is not a loopback address: confined sandboxes reach servers of tests there.
///
/// # Panics
/// When the machine has no IPv4 route.
#[must_use]
pub fn machine_address() -> Ipv4Addr {
    // Sends nothing: the kernel chooses the address that it would send from.
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a UDP socket");
    let connected = socket.connect((Ipv4Addr::new(198, 51, 100, 1), 9));
    connected.expect("this machine has no IPv4 network beside the loopback interface");
    match socket.local_addr().map(|address| address.ip()) {
        Ok(IpAddr::V4(address)) => address,
        other => unreachable!("the socket is an IPv4 socket: {other:?}"),
    }
}
