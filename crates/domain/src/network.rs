//! IP networks, as operators configure them.

use std::net::IpAddr;

/// A range of IP addresses with a common prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: u128,
    prefix: u32,
    is_v4: bool,
}

impl Network {
    /// The addresses whose first `prefix` bits are those of `address`. `None` if the prefix is longer than an address.
    pub fn new(address: IpAddr, prefix: u32) -> Option<Self> {
        let is_v4 = address.is_ipv4();
        let address = bits(address);
        (prefix <= width(is_v4)).then_some(Self {
            address,
            prefix,
            is_v4,
        })
    }

    /// Whether the network contains the address. An IPv6 network contains no IPv4 addresses: convert mapped addresses
    /// first.
    pub fn contains(self, address: IpAddr) -> bool {
        let differing = bits(address) ^ self.address;
        // A shift by the whole width overflows; /0 contains every address of the family.
        self.is_v4 == address.is_ipv4()
            && differing
                .checked_shr(width(self.is_v4) - self.prefix)
                .unwrap_or(0)
                == 0
    }
}

/// Bits of an address.
const fn width(is_v4: bool) -> u32 {
    if is_v4 { 32 } else { 128 }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(v4.to_bits()),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

impl std::str::FromStr for Network {
    type Err = &'static str;

    /// Parses `10.0.0.0/8`, `fd00::/8`, or one address.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let expected = "is not a network such as 10.0.0.0/8";
        let Some((address, prefix)) = text.split_once('/') else {
            let address: IpAddr = text.parse().map_err(|_| expected)?;
            let address = address.to_canonical();
            return Self::new(address, width(address.is_ipv4())).ok_or(expected);
        };
        let address = address.parse().map_err(|_| expected)?;
        let prefix = prefix.parse().ok();
        prefix
            .and_then(|prefix| Self::new(address, prefix))
            .ok_or("has an invalid prefix length")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_contains_the_addresses_with_its_prefix() {
        for (network, address, holds) in [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.1.2.3/8", "10.0.0.1", true),
            ("127.0.0.1", "127.0.0.1", true),
            ("127.0.0.1", "127.0.0.2", false),
            ("0.0.0.0/0", "203.0.113.9", true),
            ("0.0.0.0/0", "::1", false),
            ("::/0", "203.0.113.9", false),
            ("fd00::/8", "fd12::1", true),
            ("fd00::/8", "fe80::1", false),
            ("::ffff:192.0.2.1", "192.0.2.1", true),
        ] {
            let read: Network = network.parse().unwrap();
            assert_eq!(
                read.contains(address.parse().unwrap()),
                holds,
                "{network} {address}"
            );
        }
        for text in [
            "",
            "h",
            "10.0.0.0/33",
            "::/129",
            "10.0.0.0/",
            "/8",
            "10.0.0.0/-1",
        ] {
            assert!(text.parse::<Network>().is_err(), "{text}");
        }
    }
}
