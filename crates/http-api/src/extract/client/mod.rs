//! The address of a client: the machine that connected, or the one that trusted proxies name.

mod forwarded;

use std::net::IpAddr;

use actix_web::dev::ServiceRequest;
use actix_web::http::header::{FORWARDED, HeaderMap, HeaderName, X_FORWARDED_FOR};
use actix_web::{HttpMessage as _, HttpRequest};
use domain::network::Network;

use forwarded::Hop;

const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// The origin of a request. `address` is for logs, records and limits; it never decides about access.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientAddress {
    /// The client's address; IPv4 even if an IPv6 socket accepted the connection. `None`: the request used no network (tests in
    /// memory).
    pub address: Option<IpAddr>,
    /// Whether the client used TLS. False without a trusted proxy, because the service itself has no TLS.
    pub is_https: bool,
    /// The host and port that the client requested, in lower case, if a trusted proxy forwarded them.
    pub host: Option<String>,
    /// Whether a machine that is not trusted sent forwarding headers. They were ignored.
    pub has_untrusted_headers: bool,
}

impl ClientAddress {
    /// The address of a request that has passed `middleware::edge`, as every request that a handler sees.
    pub fn of(req: &HttpRequest) -> Self {
        let found = req.extensions().get::<Self>().cloned();
        found.unwrap_or_else(|| Self::read(peer(req.peer_addr()), req.headers(), &[]))
    }

    /// Reads the address once and stores it in the request's extensions.
    pub(crate) fn resolve(req: &ServiceRequest, trusted: &[Network]) -> Self {
        let client = Self::read(peer(req.peer_addr()), req.headers(), trusted);
        req.extensions_mut().insert(client.clone());
        client
    }

    fn read(peer: Option<IpAddr>, headers: &HeaderMap, trusted: &[Network]) -> Self {
        let is_trusted = |address| trusted.iter().any(|network| network.contains(address));
        let has_forwarded =
            headers.contains_key(X_FORWARDED_FOR) || headers.contains_key(FORWARDED);
        let Some(peer) = peer.filter(|peer| is_trusted(*peer)) else {
            return Self {
                address: peer,
                is_https: false,
                host: None,
                has_untrusted_headers: has_forwarded,
            };
        };
        let (address, hop) = forwarded::client(peer, hops(headers), is_trusted);
        Self {
            address: Some(address),
            is_https: hop.is_https.unwrap_or(false),
            host: hop.host,
            has_untrusted_headers: false,
        }
    }
}

/// The hops of a request. `X-Forwarded-For` takes precedence, because most proxies write it and pass on a client's
/// `Forwarded`. A proxy that writes `Forwarded` must remove `X-Forwarded-*` (`docs/how-to/run-behind-a-proxy.md`).
fn hops(headers: &HeaderMap) -> Vec<Hop> {
    let lines = |name| -> Vec<&str> {
        // A line that is not text counts as an unreadable hop.
        let values = headers.get_all(name);
        values.map(|value| value.to_str().unwrap_or("?")).collect()
    };
    let addresses = lines(X_FORWARDED_FOR);
    if addresses.is_empty() {
        return forwarded::forwarded_hops(lines(FORWARDED).into_iter());
    }
    let (schemes, hosts) = (lines(X_FORWARDED_PROTO), lines(X_FORWARDED_HOST));
    let (scheme, host) = (schemes.last().copied(), hosts.last().copied());
    forwarded::x_forwarded_hops(addresses.into_iter(), scheme, host)
}

fn peer(address: Option<std::net::SocketAddr>) -> Option<IpAddr> {
    address.map(|address| address.ip().to_canonical())
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::HeaderValue;

    use super::*;

    fn read(peer: &str, headers: &[(&'static str, &'static str)]) -> ClientAddress {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name = HeaderName::from_static(name);
            map.append(name, HeaderValue::from_static(value));
        }
        let trusted = ["127.0.0.1/32".parse().unwrap()];
        ClientAddress::read(Some(peer.parse().unwrap()), &map, &trusted)
    }

    #[test]
    fn only_trusted_machines_are_believed() {
        let headers = [
            ("host", "Inner:3000"),
            ("x-forwarded-for", "203.0.113.9"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-host", "agents.example"),
            ("forwarded", "for=192.0.2.1;proto=http;host=evil.example"),
        ];
        let through = ClientAddress {
            address: "203.0.113.9".parse().ok(),
            is_https: true,
            host: Some("agents.example".into()),
            has_untrusted_headers: false,
        };
        assert_eq!(read("127.0.0.1", &headers), through);
        let stranger = ClientAddress {
            address: "127.0.0.2".parse().ok(),
            is_https: false,
            host: None,
            has_untrusted_headers: true,
        };
        assert_eq!(read("127.0.0.2", &headers), stranger);
        assert_eq!(
            read("127.0.0.1", &headers[4..]).address,
            "192.0.2.1".parse().ok()
        );
        let plain = read("127.0.0.1", &headers[..1]);
        assert_eq!(
            (plain.address, plain.has_untrusted_headers),
            ("127.0.0.1".parse().ok(), false)
        );
    }
}
