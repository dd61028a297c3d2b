//! Requests that a service in open mode refuses. It treats every request as the local user's, so a page of a foreign origin
//! in a browser on this machine must not be able to send one: neither across origins, nor through a host name that its
//! owner resolves to this address (DNS rebinding).

use std::net::IpAddr;

use actix_web::http::header::{HOST, HeaderMap};
use url::Url;

use super::cors::{Cors, origin_of};
use crate::addresses::Addresses;

/// Names by which containers of any engine reach their host, also containers that are not sandboxes.
pub const CONTAINER_HOST_NAMES: [&str; 2] = ["host.docker.internal", "host.containers.internal"];

/// Whether to refuse a request to an open service.
pub(super) fn is_refused(headers: &HeaderMap, cors: &Cors, addresses: &Addresses) -> bool {
    let Some(host) = headers.get(HOST).and_then(|host| host.to_str().ok()) else {
        // Every browser sends it.
        return headers.contains_key(HOST) || is_foreign_origin(headers, "", cors);
    };
    !is_service_host(host, addresses) || is_foreign_origin(headers, host, cors)
}

/// Whether a browser sent this for a page that is neither the service's own nor configured. Without `Origin` it comes from
/// a program, or from a page of the service.
fn is_foreign_origin(headers: &HeaderMap, host: &str, cors: &Cors) -> bool {
    let Some(origin) = origin_of(headers) else {
        return false;
    };
    let own = origin
        .to_str()
        .ok()
        .and_then(|origin| origin.split_once("://"));
    own.is_none_or(|(_, authority)| !authority.eq_ignore_ascii_case(host)) && !cors.admits(origin)
}

/// Whether an attacker cannot control this host name: an address, or a known name. Other names without a dot are not
/// safe: some networks look them up under a domain in which others may register names.
pub(crate) fn is_service_host(host: &str, addresses: &Addresses) -> bool {
    let Ok(url) = Url::parse(&format!("http://{host}/")) else {
        return false;
    };
    let Some(name) = url.host_str() else {
        return false;
    };
    let address = name.trim_start_matches('[').trim_end_matches(']');
    name == "localhost"
        || address.parse::<IpAddr>().is_ok()
        || name.ends_with(".localhost")
        || CONTAINER_HOST_NAMES.contains(&name)
        || addresses.has_host(name)
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::{HeaderValue, ORIGIN};

    use super::*;
    use crate::AddressConfig;

    #[test]
    fn foreign_origins_and_hosts_are_refused() {
        let cors = Cors::new(&["http://localhost:*".into()]);
        let config = AddressConfig {
            public_url: Url::parse("https://agents.example/").ok(),
            sandbox_url: Url::parse("https://boxes.example/").ok(),
            direct: true,
            callback_host: Some("host.sandbox.internal".to_owned()),
        };
        let fingerprints = keyring::InstallationKey::generate().unwrap();
        let addresses = Addresses::new(&config, std::sync::Arc::new(fingerprints));
        let table = [
            (Some("127.0.0.1:3000"), None, false),
            (Some("127.0.0.1:3000"), Some("http://127.0.0.1:3000"), false),
            (Some("127.0.0.1:3000"), Some("http://localhost:9"), false),
            (Some("127.0.0.1:3000"), Some("http://evil.example"), true),
            (Some("127.0.0.1:3000"), Some("http://127.0.0.1:4000"), true),
            (Some("127.0.0.1:3000"), Some("null"), true),
            (Some("[::1]:3000"), None, false),
            (Some("localhost:3000"), Some("http://localhost:3000"), false),
            (Some("workspace:3000"), None, true),
            (Some("com"), None, true),
            (Some("LocalHost:3000"), None, false),
            (Some("a.localhost:3000"), None, false),
            (Some("a-localhost:3000"), None, true),
            (Some("host.containers.internal"), None, false),
            (Some("host.docker.internal:3000"), None, false),
            (Some("host.sandbox.internal:3000"), None, false),
            (
                Some("agents.example"),
                Some("https://agents.example"),
                false,
            ),
            (Some("boxes.example"), None, false),
            // Rebinding: the page's own host name, resolved to this address.
            (
                Some("evil.example:3000"),
                Some("http://evil.example:3000"),
                true,
            ),
            (Some("evil.example:3000"), None, true),
            (Some("127.0.0.1.evil.example"), None, true),
            (Some("a b"), None, true),
            (None, None, false),
            (None, Some("http://evil.example"), true),
        ];
        for (host, origin, refused) in table {
            let mut headers = HeaderMap::new();
            for (name, value) in [(HOST, host), (ORIGIN, origin)] {
                if let Some(value) = value {
                    headers.insert(name, HeaderValue::from_str(value).unwrap());
                }
            }
            assert_eq!(
                is_refused(&headers, &cors, &addresses),
                refused,
                "{host:?} {origin:?}"
            );
        }
    }
}
