//! Decides which addresses may be called: public ones, and those that the operator allows.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

/// Addresses beside public ones that the operator allows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum PrivateHosts {
    /// No private addresses.
    #[default]
    Refused,
    /// Loopback, private, shared (CGNAT), unique local, documentation and benchmark addresses, regardless of their owner, and `http://`. Never link-local
    /// addresses: a cloud's metadata service is there.
    Allowed,
    /// Only the listed hosts and networks.
    Listed(Vec<AllowedHost>),
}

/// An entry of `git.allow_private_hosts`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AllowedHost {
    /// A host name in lower case: what [`PrivateHosts::Allowed`] allows, for this name alone.
    Name(String),
    /// All addresses of a network, whatever kind they are.
    Network(IpNet),
}

impl std::str::FromStr for AllowedHost {
    type Err = &'static str;

    /// Parses `10.0.0.0/8`, `fd00::/8`, an address, or a host name.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address = address.trim_start_matches('[').trim_end_matches(']');
        let Ok(address) = address.parse::<IpAddr>() else {
            let is_name = prefix.is_none()
                && !text.is_empty()
                && text.len() <= 253
                && text.split('.').all(is_label);
            return if is_name {
                Ok(Self::Name(text.to_ascii_lowercase()))
            } else {
                Err("is neither a host name nor a network such as 10.0.0.0/8")
            };
        };
        let address = unmapped(address);
        match prefix {
            None => Ok(Self::Network(IpNet::from(address))),
            Some(text) => text
                .parse()
                .ok()
                .and_then(|prefix| IpNet::new(address, prefix).ok())
                .map(Self::Network)
                .ok_or("has an invalid prefix length"),
        }
    }
}

fn is_label(label: &str) -> bool {
    (1..=63).contains(&label.len())
        && label
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
}

/// Extracts the IPv4 address that an IPv6 address contains: mapped (`::ffff:0:0/96`), compatible (deprecated), translated
/// (NAT64) and 6to4 addresses all reach an IPv4 host.
fn unmapped(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else {
        return address;
    };
    let embedded = |high: u16, low: u16| {
        IpAddr::V4(Ipv4Addr::from_bits(
            (u32::from(high) << 16) | u32::from(low),
        ))
    };
    match v6.segments() {
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            embedded(high, low)
        }
        // `::` (unspecified) and `::1` (loopback) contain no IPv4 address.
        [0, 0, 0, 0, 0, 0, high, low] if (high, low) > (0, 1) => embedded(high, low),
        [0x2002, high, low, ..] => embedded(high, low),
        _ => address,
    }
}

/// The kind of network that an address belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AddressKind {
    Public,
    /// Networks that an operator may own.
    Private,
    /// Link-local (metadata services), multicast, unspecified, reserved.
    Reserved,
}

fn address_kind(address: IpAddr) -> AddressKind {
    match unmapped(address) {
        IpAddr::V4(v4) => kind_v4(v4),
        IpAddr::V6(v6) => kind_v6(v6),
    }
}

fn kind_v4(address: Ipv4Addr) -> AddressKind {
    // The metadata service of Alibaba Cloud is inside the shared address space.
    if address.octets() == [100, 100, 100, 200] {
        return AddressKind::Reserved;
    }
    match address.octets() {
        // Loopback; RFC 1918; shared address space of carriers (RFC 6598); benchmarks and documentation, which laboratories, and
        // programs that give every name an address of their own, use.
        [127 | 10, ..]
        | [192, 168, ..]
        | [172, 16..=31, ..]
        | [100, 64..=127, ..]
        | [198, 18 | 19, ..]
        | [192, 0, 2, _]
        | [198, 51, 100, _]
        | [203, 0, 113, _] => AddressKind::Private,
        // "This network", link-local, protocol assignments, 6to4 relays, multicast, reserved.
        [0 | 224..=255, ..] | [169, 254, ..] | [192, 0, 0, _] | [192, 88, 99, _] => {
            AddressKind::Reserved
        }
        _ => AddressKind::Public,
    }
}

fn kind_v6(address: Ipv6Addr) -> AddressKind {
    // Metadata services that have a unique local address.
    const METADATA: [Ipv6Addr; 2] = [
        Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
        Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
    ];
    if METADATA.contains(&address) {
        return AddressKind::Reserved;
    }
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 1] | [0xfc00..=0xfdff, ..] => AddressKind::Private,
        // Documentation and Teredo (2001::/32), and local-use translation; then all that is not global unicast (2000::/3).
        [0x2001, 0xdb8 | 0, ..] | [0x3fff, 0..=0x0fff, ..] => AddressKind::Reserved,
        [0x2000..=0x3fff, ..] => AddressKind::Public,
        _ => AddressKind::Reserved,
    }
}

impl PrivateHosts {
    /// Whether the address, reached by this host name, may be called.
    pub fn permits(&self, name: &str, address: IpAddr) -> bool {
        match address_kind(address) {
            AddressKind::Public => true,
            AddressKind::Private => self.names(name) || self.contains(address),
            AddressKind::Reserved => self.contains(address),
        }
    }

    /// Whether a token may go over plain `http://` to this host, as written in its URL.
    pub(crate) fn permits_plain(&self, host: &str) -> bool {
        let literal = host.trim_start_matches('[').trim_end_matches(']');
        self.names(host) || literal.parse().is_ok_and(|address| self.contains(address))
    }

    fn names(&self, host: &str) -> bool {
        match self {
            Self::Refused => false,
            Self::Allowed => true,
            Self::Listed(list) => list.iter().any(
                |entry| matches!(entry, AllowedHost::Name(name) if name.eq_ignore_ascii_case(host)),
            ),
        }
    }

    /// Whether a listed network contains the address.
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        let Self::Listed(list) = self else {
            return false;
        };
        let address = unmapped(address);
        list.iter().any(
            |entry| matches!(entry, AllowedHost::Network(network) if network.contains(&address)),
        )
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn listed(entries: &[&str]) -> PrivateHosts {
        PrivateHosts::Listed(entries.iter().map(|e| e.parse().unwrap()).collect())
    }

    #[test]
    fn addresses_have_their_kind() {
        for (text, expected) in [
            ("140.82.121.4", AddressKind::Public),
            ("2606:50c0:8000::153", AddressKind::Public),
            ("172.32.0.1", AddressKind::Public),
            ("100.128.0.1", AddressKind::Public),
            ("127.0.0.1", AddressKind::Private),
            ("127.255.255.254", AddressKind::Private),
            ("10.1.2.3", AddressKind::Private),
            ("172.31.255.255", AddressKind::Private),
            ("192.168.0.1", AddressKind::Private),
            ("100.64.0.1", AddressKind::Private),
            ("198.19.0.1", AddressKind::Private),
            ("203.0.113.80", AddressKind::Private),
            ("192.0.0.192", AddressKind::Reserved),
            ("::1", AddressKind::Private),
            ("fd12::1", AddressKind::Private),
            ("::ffff:127.0.0.1", AddressKind::Private),
            ("::127.0.0.1", AddressKind::Private),
            ("64:ff9b::10.0.0.1", AddressKind::Private),
            ("2002:a00:1::", AddressKind::Private),
            ("::ffff:169.254.169.254", AddressKind::Reserved),
            ("64:ff9b::169.254.169.254", AddressKind::Reserved),
            ("169.254.169.254", AddressKind::Reserved),
            ("100.100.100.200", AddressKind::Reserved),
            ("fd00:ec2::254", AddressKind::Reserved),
            ("fe80::1", AddressKind::Reserved),
            ("fec0::1", AddressKind::Reserved),
            ("ff02::1", AddressKind::Reserved),
            ("::", AddressKind::Reserved),
            ("0.0.0.0", AddressKind::Reserved),
            ("0.1.2.3", AddressKind::Reserved),
            ("224.0.0.1", AddressKind::Reserved),
            ("255.255.255.255", AddressKind::Reserved),
            ("2001:db8::1", AddressKind::Reserved),
            ("2001:0:1::", AddressKind::Reserved),
            ("64:ff9b:1::1", AddressKind::Reserved),
        ] {
            assert_eq!(address_kind(text.parse().unwrap()), expected, "{text}");
        }
    }

    #[test]
    fn private_addresses_need_an_entry() {
        let table = [
            (PrivateHosts::Refused, "h", "10.0.0.1", false),
            (PrivateHosts::Refused, "h", "8.8.8.8", true),
            (PrivateHosts::Allowed, "h", "10.0.0.1", true),
            (PrivateHosts::Allowed, "h", "::1", true),
            (PrivateHosts::Allowed, "h", "169.254.169.254", false),
            (listed(&["Git.corp"]), "git.CORP", "10.0.0.1", true),
            (listed(&["git.corp"]), "git.corp", "169.254.169.254", false),
            (listed(&["git.corp"]), "evil.corp", "10.0.0.1", false),
            (listed(&["10.0.0.0/8"]), "h", "10.255.0.1", true),
            (listed(&["10.0.0.0/8"]), "h", "::ffff:10.255.0.1", true),
            (listed(&["10.0.0.0/8"]), "h", "11.0.0.1", true),
            (listed(&["10.0.0.0/8"]), "h", "192.168.0.1", false),
            (listed(&["169.254.0.0/16"]), "h", "169.254.1.1", true),
            (listed(&["fd00::/8"]), "h", "fd00::1", true),
            (listed(&["0.0.0.0/0"]), "h", "127.0.0.1", true),
            (listed(&["0.0.0.0/0"]), "h", "::1", false),
            (listed(&["::1"]), "h", "::1", true),
        ];
        for (hosts, name, address, expected) in table {
            let permitted = hosts.permits(name, address.parse().unwrap());
            assert_eq!(permitted, expected, "{hosts:?} {name} {address}");
        }
    }

    #[test]
    fn plain_http_needs_the_name_or_a_listed_address() {
        assert!(!PrivateHosts::Refused.permits_plain("h"));
        assert!(PrivateHosts::Allowed.permits_plain("h"));
        let hosts = listed(&["git.corp", "10.0.0.0/8"]);
        assert!(hosts.permits_plain("git.corp") && hosts.permits_plain("10.1.1.1"));
        assert!(!hosts.permits_plain("other.corp") && !hosts.permits_plain("[::1]"));
    }

    #[test]
    fn invalid_entries_are_refused() {
        for bad in [
            "",
            "a b",
            "10.0.0.0/33",
            "10.0.0.0/x",
            "h/8",
            "http://h",
            "::/129",
            "a..b",
        ] {
            assert!(bad.parse::<AllowedHost>().is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn an_embedded_ipv4_address_keeps_its_kind(raw: u32) {
            let v4 = Ipv4Addr::from_bits(raw);
            let expected = address_kind(IpAddr::V4(v4));
            prop_assert_eq!(address_kind(IpAddr::V6(v4.to_ipv6_mapped())), expected);
            let [_, _, _, _, _, _, a, b] = v4.to_ipv6_mapped().segments();
            prop_assert_eq!(address_kind(IpAddr::V6(Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, a, b))), expected);
            prop_assert_eq!(address_kind(IpAddr::V6(Ipv6Addr::new(0x2002, a, b, 7, 0, 0, 0, 9))), expected);
        }

        /// The standard library's classification is the reference.
        #[test]
        fn local_addresses_are_never_public(raw: u32, high: u128) {
            let v4 = Ipv4Addr::from_bits(raw);
            let local = v4.is_private() || v4.is_loopback() || v4.is_link_local() || v4.is_multicast()
                || v4.is_unspecified() || v4.is_broadcast() || v4.is_documentation();
            prop_assert!(!local || address_kind(IpAddr::V4(v4)) != AddressKind::Public);
            let v6 = Ipv6Addr::from_bits(high);
            let local = v6.is_unique_local() || v6.is_unicast_link_local() || v6.is_multicast();
            prop_assert!(!local || address_kind(IpAddr::V6(v6)) != AddressKind::Public);
        }

        #[test]
        fn a_network_contains_exactly_the_addresses_with_its_prefix(address: u32, other: u32, prefix in 0u32..=32) {
            let network = format!("{}/{prefix}", Ipv4Addr::from_bits(address));
            let hosts = listed(&[&network]);
            let shares = prefix == 0 || address >> (32 - prefix) == other >> (32 - prefix);
            prop_assert_eq!(hosts.contains(IpAddr::V4(Ipv4Addr::from_bits(other))), shares);
        }
    }
}
