//! The page `/metrics`: the service's own series, those of its parts, and the standard ones of a process.
//!
//! Rendering queries no store or container engine: a page costs some additions and reads of `/proc`. No label is free text,
//! and none names a user, an object or an address. `docs/reference/metrics.md` lists all series; a test compares.

mod exposition;
mod requests;
mod series;

use std::sync::OnceLock;

use domain::metrics::PoolStats;
use domain::user::identity::KeyHash;
use secrecy::{ExposeSecret, SecretString};

use crate::Listener;
use crate::openapi::Operations;
pub(crate) use exposition::CONTENT_TYPE;
pub(crate) use requests::RequestMetrics;
pub(crate) use series::page;

/// Returns the figures of the store's connection pools. Cheap; never waits.
pub type PoolStatsSource = Box<dyn Fn() -> Vec<PoolStats> + Send + Sync>;

/// The metrics of requests, and the access to the page.
#[derive(Default)]
pub(crate) struct HttpMetrics {
    requests: OnceLock<RequestMetrics>,
    pools: OnceLock<PoolStatsSource>,
    key: Option<KeyHash>,
    has_metrics_listener: bool,
}

/// The access of a request to the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MetricsAccess {
    Allowed,
    NeedsKey,
    /// Served on the metrics listener only.
    NotServed,
}

impl HttpMetrics {
    /// `key` is required on the public listener. With a metrics listener and no key, the public one does not serve the page.
    pub(crate) fn new(key: Option<&SecretString>, has_metrics_listener: bool) -> Self {
        Self {
            key: key.map(|key| KeyHash::of(key.expose_secret())),
            has_metrics_listener,
            ..Self::default()
        }
    }

    /// Sets the routes of the whole surface. Later calls have no effect.
    pub(crate) fn set_routes(&self, operations: impl FnOnce() -> Operations) {
        self.requests.get_or_init(|| {
            let operations = operations();
            let documented = operations.iter().flat_map(|(path, methods)| {
                let methods = methods.iter();
                methods.map(move |method| (method.as_str(), path.as_str()))
            });
            RequestMetrics::of(documented.chain(UNDOCUMENTED))
        });
    }

    pub(crate) fn requests(&self) -> &RequestMetrics {
        self.requests.get_or_init(RequestMetrics::default)
    }

    pub(crate) fn set_pools(&self, pools: PoolStatsSource) {
        // The first call wins.
        let _ = self.pools.set(pools);
    }

    fn pools(&self) -> Vec<PoolStats> {
        self.pools.get().map_or_else(Vec::new, |pools| pools())
    }

    /// The access with this key on this listener. Compares hashes, so that the time does not depend on a matching prefix.
    pub(crate) fn access(
        &self,
        listener: Listener,
        key: impl FnOnce() -> Option<SecretString>,
    ) -> MetricsAccess {
        match &self.key {
            _ if listener == Listener::Metrics => MetricsAccess::Allowed,
            None if self.has_metrics_listener => MetricsAccess::NotServed,
            None => MetricsAccess::Allowed,
            needed => {
                let given = key().map(|key| KeyHash::of(key.expose_secret()));
                if *needed == given {
                    MetricsAccess::Allowed
                } else {
                    MetricsAccess::NeedsKey
                }
            }
        }
    }
}

/// Routes that are not in the document.
const UNDOCUMENTED: [(&str, &str); 11] = [
    ("get", "/openapi.json"),
    ("get", "/docs"),
    ("get", "/docs/{file}"),
    ("get", "/console"),
    ("get", "/console/{file}"),
    ("head", "/console"),
    ("head", "/console/{file}"),
    ("get", "/settings"),
    ("head", "/settings"),
    ("get", "/settings/skills"),
    ("head", "/settings/skills"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_requires_the_configured_key() {
        use MetricsAccess::{Allowed, NeedsKey, NotServed};
        const KEY: &str = "metrics-key";
        // By configured key and metrics listener: the access without a key, with the right one, with another.
        for (key, has_metrics_listener, [none, right, wrong]) in [
            (None, false, [Allowed; 3]),
            (None, true, [NotServed; 3]),
            (Some(KEY), false, [NeedsKey, Allowed, NeedsKey]),
            (Some(KEY), true, [NeedsKey, Allowed, NeedsKey]),
        ] {
            let http_metrics =
                HttpMetrics::new(key.map(SecretString::from).as_ref(), has_metrics_listener);
            for (given, expected) in [
                (None, none),
                (Some(KEY), right),
                (Some("metrics-kez"), wrong),
            ] {
                let at = |listener| http_metrics.access(listener, || given.map(SecretString::from));
                assert_eq!(
                    at(Listener::Public),
                    expected,
                    "{key:?} {has_metrics_listener} {given:?}"
                );
                assert_eq!(
                    at(Listener::Metrics),
                    Allowed,
                    "{key:?} {has_metrics_listener} {given:?}"
                );
            }
        }
    }
}
