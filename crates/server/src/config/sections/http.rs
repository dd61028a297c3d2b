//! Section `http`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use domain::network::Network;
use http_api::{GatewayLimits, RequestLimits};
use sandbox_provider::is_loopback;
use settings::SettingReader;
use url::Url;

#[derive(Debug, Clone)]
pub(crate) struct HttpSettings {
    /// The address to listen on; port 0 takes any port.
    pub(crate) bind: SocketAddr,
    /// The public URL, if it differs from the address.
    configured_url: Option<Url>,
    /// The public URL of ports that sandboxes expose, if it differs.
    pub(crate) sandbox_url: Option<Url>,
    /// Networks whose forwarding headers are trusted.
    pub(crate) trusted_proxies: Vec<Network>,
    pub(crate) cors_origins: Vec<String>,
    pub(crate) limits: RequestLimits,
    pub(crate) gateway: GatewayLimits,
    pub(crate) max_connections: usize,
    /// Connections per address; 0: unlimited.
    pub(crate) max_connections_per_address: usize,
    /// Longest time in which a client reads nothing of its response.
    pub(crate) send_timeout: Duration,
    pub(crate) workers: usize,
    /// Time after SIGTERM in which requests are still accepted, while `/ready` already fails.
    pub(crate) drain_delay: Duration,
    /// Time for requests in progress after that.
    pub(crate) drain: Duration,
}

impl HttpSettings {
    pub(in crate::config) fn read(reader: &SettingReader<'_>) -> Self {
        let send_timeout = reader.deadline("http.send_timeout");
        let workers: usize = reader.number("http.workers", 0..=64);
        let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        Self {
            bind: reader.parsed(
                "http.bind",
                "an address and a port, e.g. 127.0.0.1:3000",
                address,
            ),
            configured_url: public_url(reader, "http.public_url"),
            sandbox_url: public_url(reader, "http.sandbox_url"),
            trusted_proxies: reader.parsed_list(
                "http.trusted_proxies",
                "networks or addresses, such as 127.0.0.1 or 10.0.0.0/8",
                |text| text.trim().parse().ok(),
            ),
            cors_origins: reader.parsed_list(
                "http.cors_origins",
                "origins such as https://app.example.org (no path), or http://localhost:*",
                origin,
            ),
            limits: RequestLimits {
                body: reader.number("http.max_body_bytes", 1024..=1 << 30),
                webhook_body: reader.number("http.max_webhook_body_bytes", 1024..=1 << 30),
                requests_per_second: reader.number("http.requests_per_second", 0..=1_000_000),
                wrong_keys_per_second: reader.number("http.wrong_keys_per_second", 0..=1_000_000),
                ..RequestLimits::default()
            },
            gateway: GatewayLimits {
                max_upload_bytes: reader.count_limit("http.max_upload_bytes", 1 << 50),
                upload_timeout: send_timeout,
                ..GatewayLimits::default()
            },
            max_connections: reader.number("http.max_connections", 16..=1_000_000),
            max_connections_per_address: reader
                .number("http.max_connections_per_address", 0..=1_000_000),
            send_timeout,
            workers: if workers == 0 {
                cores.clamp(2, 4)
            } else {
                workers
            },
            drain_delay: reader.limit("http.drain_delay").unwrap_or(Duration::ZERO),
            drain: reader.duration("http.drain"),
        }
    }

    pub(crate) fn is_url_configured(&self) -> bool {
        self.configured_url.is_some()
    }

    pub(crate) fn warning(&self) -> Option<String> {
        let url = self.configured_url.as_ref()?;
        if is_loopback(url) && !self.bind.ip().is_loopback() {
            return Some(format!(
                "the public URL {url} works on this machine only, but the service listens for others ({}): clients elsewhere get \
                     URLs that they cannot reach. Set WORKSPACE_HTTP__PUBLIC_URL to the URL that they use",
                self.bind
            ));
        }
        (url.scheme() == "https" && self.trusted_proxies.is_empty()).then(|| {
            format!(
                "a proxy terminates TLS of {url}, and no proxy is trusted: logs and records show its address in place of \
                     the clients'. Add it to WORKSPACE_HTTP__TRUSTED_PROXIES, e.g. 127.0.0.1"
            )
        })
    }

    /// The URL for clients, once the port is known.
    pub(crate) fn public_url(&self, bound: SocketAddr) -> Url {
        self.configured_url
            .clone()
            .unwrap_or_else(|| reachable(bound))
    }
}

/// A URL of this address on this machine: a wildcard address is reached by loopback.
pub(crate) fn reachable(bound: SocketAddr) -> Url {
    let ip = match bound.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    let address = SocketAddr::new(ip, bound.port());
    format!("http://{address}")
        .parse()
        .expect("an address and a port make a URL")
}

pub(in crate::config) fn address(text: &str) -> Option<SocketAddr> {
    match text.strip_prefix("localhost:") {
        Some(port) => Some((Ipv4Addr::LOCALHOST, port.parse().ok()?).into()),
        None => text.parse().ok(),
    }
}

/// First path segments of the service: a prefix that starts with one would be ambiguous.
const RESERVED_PATH_SEGMENTS: [&str; 17] = [
    "alive",
    "api",
    "console",
    "docs",
    "health",
    "login",
    "logout",
    "mcp",
    "metrics",
    "openapi.json",
    "password",
    "ready",
    "s",
    "server_info",
    "sockets",
    "v1",
    "vscode",
];

/// A public URL, with an optional path.
fn public_url(reader: &SettingReader<'_>, key: &str) -> Option<Url> {
    let url = reader.optional_url(key)?;
    let first = url.path().split('/').nth(1).unwrap_or_default();
    if RESERVED_PATH_SEGMENTS.contains(&first) {
        reader.problem(
            key,
            &format!("must not have a path that begins with /{first}, as paths of the service do"),
        );
    } else if url.path().contains("//") || url.path().contains('%') {
        reader.problem(key, "must have a plain path, without % and empty segments");
    }
    Some(url)
}

/// The form that browsers send; `*` may replace the port. There is no "all origins": with a browser's credentials every web
/// page would get the rights of its reader.
fn origin(text: &str) -> Option<String> {
    let (text, suffix) = match text.strip_suffix(":*") {
        Some(without_port) => (without_port, ":*"),
        None => (text, ""),
    };
    let url = Url::parse(text).ok()?;
    let is_bare = url.path() == "/" && url.query().is_none() && url.fragment().is_none();
    let is_plain = is_bare && url.username().is_empty() && url.password().is_none();
    let is_portless = suffix.is_empty() || url.port().is_none();
    (is_plain && is_portless && url.origin().is_tuple())
        .then(|| format!("{}{suffix}", url.origin().ascii_serialization()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compose::BACKENDS;
    use crate::config::Config;

    #[test]
    fn the_request_limits_of_the_crate_and_of_the_configuration_agree() {
        let variables = [("HOME".into(), "/home/someone".into())];
        let config = Config::load(BACKENDS, None, &variables).unwrap();
        assert_eq!(config.http.limits, RequestLimits::default());
    }

    #[test]
    fn wildcard_addresses_are_reached_by_loopback() {
        for (bound, url) in [
            ("0.0.0.0:3000", "http://127.0.0.1:3000/"),
            ("[::]:80", "http://[::1]/"),
            ("192.168.1.2:3000", "http://192.168.1.2:3000/"),
        ] {
            assert_eq!(reachable(bound.parse().unwrap()).as_str(), url);
        }
        assert_eq!(address("localhost:1"), Some("127.0.0.1:1".parse().unwrap()));
        assert_eq!(address("example.org:1"), None);
    }

    #[test]
    fn origins_are_normalized_as_browsers_send_them() {
        assert_eq!(
            origin("HTTPS://App.Example.org:443/").unwrap(),
            "https://app.example.org"
        );
        assert_eq!(
            origin("http://localhost:3001").unwrap(),
            "http://localhost:3001"
        );
        assert_eq!(origin("http://localhost:*").unwrap(), "http://localhost:*");
        for text in [
            "",
            "*",
            "app.example.org",
            "https://a/b",
            "https://u@a",
            "file:///x",
            "https://a?b",
            "http://a:1:*",
            "a:*",
        ] {
            assert_eq!(origin(text), None, "{text}");
        }
    }
}
