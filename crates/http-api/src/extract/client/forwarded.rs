//! Reads the headers that proxies add: `X-Forwarded-For`, `-Proto` and `-Host`, or `Forwarded` (RFC 7239).
//!
//! Pure. A proxy appends what it saw at the right end; everything to the left may be forged. A chain is therefore read
//! from the right, as long as the machine that wrote an entry is trusted.

use std::net::{IpAddr, SocketAddr};

/// Maximum number of entries of a chain that are read, from the right; more than any real chain of proxies.
const MAX_HOPS: usize = 32;
/// Longest host that is accepted: a DNS name with a port.
const MAX_HOST_BYTES: usize = 261;

/// One entry: the client of a proxy, and the URL that it requested.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Hop {
    /// `None`: hidden or unreadable.
    pub(super) address: Option<IpAddr>,
    pub(super) is_https: Option<bool>,
    pub(super) host: Option<String>,
}

/// The hops of `X-Forwarded-*`, the nearest one first.
pub(super) fn x_forwarded_hops<'a>(
    addresses: impl DoubleEndedIterator<Item = &'a str>,
    scheme: Option<&str>,
    host: Option<&str>,
) -> Vec<Hop> {
    let entries = addresses.rev().flat_map(|line| line.rsplit(','));
    // Proxies pass on or set one scheme and one host; the nearest proxy wrote the last one.
    let scheme = scheme.and_then(last).and_then(is_https);
    let host = host.and_then(last).and_then(plain_host);
    let hop = |entry: &str| Hop {
        address: address(entry.trim()),
        is_https: scheme,
        host: host.clone(),
    };
    entries.take(MAX_HOPS).map(hop).collect()
}

/// The hops of `Forwarded`, the nearest one first.
pub(super) fn forwarded_hops<'a>(lines: impl DoubleEndedIterator<Item = &'a str>) -> Vec<Hop> {
    let mut hops = Vec::new();
    for line in lines.rev() {
        for element in split(line, ',').into_iter().rev() {
            if hops.len() == MAX_HOPS {
                return hops;
            }
            hops.push(element_of(element));
        }
    }
    hops
}

/// The client of a request from `peer`, a trusted machine: the right-most hop that is not trusted, or the farthest one
/// if all are trusted. An unreadable entry ends the chain at the machine that wrote it.
pub(super) fn client(
    peer: IpAddr,
    hops: Vec<Hop>,
    is_trusted: impl Fn(IpAddr) -> bool,
) -> (IpAddr, Hop) {
    let mut found = (peer, Hop::default());
    for hop in hops {
        let Some(address) = hop.address else {
            break;
        };
        found = (address, hop);
        if !is_trusted(address) {
            break;
        }
    }
    found
}

fn element_of(element: &str) -> Hop {
    let mut hop = Hop::default();
    for pair in split(element, ';') {
        let Some((name, value)) = pair.split_once('=') else {
            continue;
        };
        let value = value.trim();
        let value = value
            .strip_prefix('"')
            .and_then(|rest| rest.strip_suffix('"'))
            .unwrap_or(value);
        match name.trim().to_ascii_lowercase().as_str() {
            "for" => hop.address = address(value),
            "proto" => hop.is_https = is_https(value),
            "host" => hop.host = plain_host(value),
            _ => {}
        }
    }
    hop
}

/// Splits at a separator outside of quotes. Addresses, schemes and hosts contain no quotes, so escapes are not decoded:
/// a value with one is unreadable.
fn split(text: &str, separator: char) -> Vec<&str> {
    let (mut parts, mut from, mut is_quoted, mut is_escaped) = (Vec::new(), 0, false, false);
    for (at, letter) in text.char_indices() {
        if is_escaped {
            is_escaped = false;
        } else if is_quoted && letter == '\\' {
            is_escaped = true;
        } else if letter == '"' {
            is_quoted = !is_quoted;
        } else if letter == separator && !is_quoted {
            parts.push(&text[from..at]);
            from = at + letter.len_utf8();
        }
    }
    parts.push(&text[from..]);
    parts
}

/// An address with or without a port: `192.0.2.1`, `192.0.2.1:80`, `::1`, `[::1]`, `[::1]:80`.
fn address(text: &str) -> Option<IpAddr> {
    let bare = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let address = bare
        .unwrap_or(text)
        .parse()
        .or_else(|_| text.parse().map(|address: SocketAddr| address.ip()))
        .ok()?;
    Some(address.to_canonical())
}

fn last(list: &str) -> Option<&str> {
    list.rsplit(',').next().map(str::trim)
}

fn is_https(scheme: &str) -> Option<bool> {
    if scheme.eq_ignore_ascii_case("https") || scheme.eq_ignore_ascii_case("wss") {
        Some(true)
    } else if scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("ws") {
        Some(false)
    } else {
        None
    }
}

/// A name or an address with or without a port, without characters that have a meaning in a URL or a log.
fn plain_host(host: &str) -> Option<String> {
    let is_plain = (1..=MAX_HOST_BYTES).contains(&host.len())
        && host
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-._:[]".contains(&b));
    is_plain.then(|| host.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn is_ours(address: IpAddr) -> bool {
        address.is_loopback() || address == ip("10.0.0.2") || address == ip("10.0.0.1")
    }

    fn x(lines: &[&str]) -> IpAddr {
        let hops = x_forwarded_hops(lines.iter().copied(), None, None);
        client(ip("127.0.0.1"), hops, is_ours).0
    }

    #[test]
    fn the_client_is_the_right_most_untrusted_hop() {
        for (lines, expected) in [
            (&[][..], "127.0.0.1"),
            (&["203.0.113.9"], "203.0.113.9"),
            (&["198.51.100.1, 203.0.113.9"], "203.0.113.9"),
            (&["198.51.100.1, 203.0.113.9, 10.0.0.2"], "203.0.113.9"),
            (&["198.51.100.1", "203.0.113.9", "10.0.0.2"], "203.0.113.9"),
            // All trusted: the farthest.
            (&["10.0.0.1, 10.0.0.2"], "10.0.0.1"),
            // An entry that a trusted proxy could not fill is not taken from others.
            (&["203.0.113.9, unknown, 10.0.0.2"], "10.0.0.2"),
            (&["203.0.113.9, _hidden"], "127.0.0.1"),
            (&["203.0.113.9,"], "127.0.0.1"),
            (&["[2001:db8::1]:4711"], "2001:db8::1"),
            (&["::ffff:203.0.113.9"], "203.0.113.9"),
            (&["203.0.113.9:4711"], "203.0.113.9"),
        ] {
            assert_eq!(x(lines), ip(expected), "{lines:?}");
        }
    }

    #[test]
    fn forwarded_elements_are_parsed_per_hop() {
        let line = r#"for=192.0.2.7;host=inner, For="[2001:db8::1]:80";proto=HTTPS;host="Agents.Example:443";by=x, for=10.0.0.2;proto=http"#;
        let (address, hop) = client(ip("127.0.0.1"), forwarded_hops([line].into_iter()), is_ours);
        assert_eq!(address, ip("2001:db8::1"));
        assert_eq!(hop.is_https, Some(true));
        assert_eq!(hop.host.as_deref(), Some("agents.example:443"));
        let quoted = r#"for="1,2;proto=https";proto=http"#;
        let hops = forwarded_hops([quoted].into_iter());
        assert_eq!(hops.len(), 1, "a comma in quotes ends nothing");
        assert_eq!(hops[0].is_https, Some(false));
    }

    #[test]
    fn schemes_and_hosts_are_those_of_the_nearest_proxy() {
        let hops = x_forwarded_hops(
            ["192.0.2.7"].into_iter(),
            Some("http, https"),
            Some("a, b.c:8"),
        );
        assert_eq!(hops[0].is_https, Some(true));
        assert_eq!(hops[0].host.as_deref(), Some("b.c:8"));
        for bad in ["", "a b", "a/b", "u@h", "a\nb", &"a".repeat(262)] {
            assert_eq!(plain_host(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn entries_left_of_a_trusted_one_are_ignored(
            noise in ".{0,80}", client_v4 in any::<[u8; 4]>(),
        ) {
            let address = IpAddr::from(client_v4);
            prop_assume!(!is_ours(address));
            let written = format!("{noise},{address}");
            prop_assert_eq!(x(&[&written]), address);
            prop_assert_eq!(x(&[&noise, &address.to_string()]), address);
        }

        #[test]
        fn arbitrary_headers_do_not_panic(text in any::<String>(), scheme in any::<String>()) {
            let hops = forwarded_hops([text.as_str()].into_iter());
            prop_assert!(hops.len() <= MAX_HOPS);
            let hops = x_forwarded_hops([text.as_str()].into_iter(), Some(&scheme), Some(&text));
            prop_assert!(hops.len() <= MAX_HOPS);
        }

        #[test]
        fn an_element_appended_to_forwarded_is_parsed(
            noise in "[^\"\\\\]{0,80}", client_v6 in any::<[u16; 8]>(),
        ) {
            let address = IpAddr::from(client_v6).to_canonical();
            prop_assume!(!is_ours(address));
            let line = format!("{noise}, for=\"[{}]\"", std::net::Ipv6Addr::from(client_v6));
            let (found, _) = client(ip("127.0.0.1"), forwarded_hops([line.as_str()].into_iter()), is_ours);
            prop_assert_eq!(found, address);
        }
    }
}
