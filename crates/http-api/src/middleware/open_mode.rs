//! Requests that a service in open mode refuses. It treats every request as the local user's, so a page of a foreign origin
//! in a browser on this machine must not be able to send one: neither across origins, nor through a host name that its
//! owner resolves to this address (DNS rebinding). A page that holds a sandbox's key may use that sandbox: such requests pass
//! as far as the layer `forwarding`, which accepts no user for them.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use actix_web::http::header::{HOST, HeaderMap, HeaderValue};
use url::Url;

use super::cors::{Cors, origin_of};
use crate::addresses::Addresses;
use crate::problem::Problem;

/// Origins whose refusal is logged; further ones are not.
const MAX_LOGGED_ORIGINS: usize = 32;
/// Longest origin in the log; others are cut.
const MAX_ORIGIN_CHARS: usize = 200;

/// Marks a request that only a sandbox's key can open.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ForeignPage;

/// The origins whose refusal was logged.
#[derive(Debug, Default)]
pub(crate) struct RefusalLog(Mutex<BTreeSet<String>>);

impl RefusalLog {
    /// Logs the refusal of a request, once for each origin.
    pub(super) fn warn(&self, headers: &HeaderMap) {
        let text = |value: Option<&HeaderValue>| {
            let text = value.and_then(|value| value.to_str().ok());
            let text = text.unwrap_or("(none)").chars();
            text.take(MAX_ORIGIN_CHARS).collect::<String>()
        };
        let (origin, host) = (text(origin_of(headers)), text(headers.get(HOST)));
        if self.is_first(format!("{origin} {host}")) {
            tracing::warn!(
                %origin,
                %host,
                "refused a page of another origin, because open mode would let it act as the local user; if the page is yours, \
                 add its origin to WORKSPACE_HTTP__CORS_ORIGINS (logged once for each origin)"
            );
        }
    }

    fn is_first(&self, origin: String) -> bool {
        let mut logged = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        logged.len() < MAX_LOGGED_ORIGINS && logged.insert(origin)
    }
}

/// The refusal of a request of a foreign page.
pub(super) fn refusal() -> Problem {
    Problem::forbidden(
        "Pages of this origin may not call a service in open mode; add the origin to http.cors_origins",
    )
}

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
    use actix_web::http::header::ORIGIN;

    use super::*;
    use crate::AddressConfig;

    #[test]
    fn refusals_are_logged_once_for_each_origin_up_to_a_limit() {
        let log = RefusalLog::default();
        assert!(log.is_first("http://a".to_owned()));
        assert!(!log.is_first("http://a".to_owned()));
        let logged = (0..1_000).filter(|n| log.is_first(format!("http://{n}")));
        assert_eq!(logged.count(), MAX_LOGGED_ORIGINS - 1);
    }

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
