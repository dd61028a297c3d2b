//! The page `/metrics`: the service's own series, those of its parts, and the standard ones of a process.
//!
//! Rendering queries no store or container engine: a page costs some additions and reads of `/proc`. No label is free text,
//! and none names a user, an object or an address. `docs/reference/metrics.md` lists all series; a test compares.

mod exposition;
mod requests;
mod service_series;

use std::sync::OnceLock;
use std::time::Duration;

use application::App;
use domain::metrics::PoolStats;
use domain::user::identity::KeyHash;
use secrecy::{ExposeSecret, SecretString};

use crate::openapi::Operations;
use crate::process_stats::ProcessSample;
use crate::{HttpState, Listener};
pub(crate) use exposition::CONTENT_TYPE;
use exposition::{MetricLabels, MetricsPage};
pub(crate) use requests::RequestMetrics;

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
const UNDOCUMENTED: [(&str, &str); 7] = [
    ("get", "/openapi.json"),
    ("get", "/docs"),
    ("get", "/docs/{file}"),
    ("get", "/console"),
    ("get", "/console/{file}"),
    ("head", "/console"),
    ("head", "/console/{file}"),
];

/// Renders the page.
pub(crate) fn page(state: &HttpState, app: &App, process: &ProcessSample) -> String {
    let mut page = MetricsPage::new();
    let build: MetricLabels<'_> = &[("version", env!("CARGO_PKG_VERSION"))];
    page.gauge(
        "build_info",
        "Always 1; the label says which release runs.",
        [(build, 1)],
    );
    write_requests(&mut page, state.http_metrics.requests());
    write_pools(&mut page, &state.http_metrics.pools());
    write_starts(&mut page, app);
    write_reports(&mut page, app);
    service_series::write_gateway(&mut page, state.gateway().meter().counts());
    service_series::write_refusals(&mut page, state.rate.refusals());
    write_warm(&mut page, app);
    page.with_standard_names(|page| write_process(page, process));
    page.finish()
}

fn one<'a>(value: u64) -> [(MetricLabels<'a>, u64); 1] {
    [(&[], value)]
}

fn write_requests(page: &mut MetricsPage, requests: &RequestMetrics) {
    let routes = requests.routes();
    let labels: Vec<_> = routes
        .iter()
        .flat_map(|(method, route, counted)| {
            let answers = counted.answers();
            answers.map(|(class, count)| {
                (
                    [("method", *method), ("route", *route), ("status", class)],
                    count,
                )
            })
        })
        .collect();
    page.counter(
        "http_requests_total",
        "Requests that were answered.",
        labels
            .iter()
            .map(|(labels, count)| (labels as MetricLabels<'_>, *count)),
    );
    let labels: Vec<_> = routes
        .iter()
        .map(|(method, route, counted)| {
            (
                [("method", *method), ("route", *route)],
                counted.durations.snapshot(),
            )
        })
        .collect();
    page.histogram(
        "http_request_duration_seconds",
        "From the head of a request to the head of its answer.",
        labels
            .iter()
            .map(|(labels, measured)| (labels as MetricLabels<'_>, *measured)),
    );
    page.gauge(
        "http_requests_in_flight",
        "Requests that have no answer yet.",
        one(requests.in_flight.get()),
    );
}

/// A gauge of every pool: name, help text and value.
type PoolGauge = (&'static str, &'static str, fn(&PoolStats) -> u64);

fn write_pools(page: &mut MetricsPage, pools: &[PoolStats]) {
    let names: Vec<_> = pools.iter().map(|pool| [("pool", pool.name)]).collect();
    let of = |value: fn(&PoolStats) -> u64| {
        let values = pools.iter().map(value);
        names
            .iter()
            .map(|name| name as MetricLabels<'_>)
            .zip(values)
    };
    let gauges: [PoolGauge; 5] = [
        (
            "db_connections_max",
            "Connections that the pool may have.",
            |pool| pool.max_connections.into(),
        ),
        (
            "db_connections_open",
            "Connections that the pool has.",
            |pool| pool.open.into(),
        ),
        (
            "db_connections_idle",
            "Connections that are idle.",
            |pool| pool.idle.into(),
        ),
        ("db_calls_running", "Calls that use the pool.", |pool| {
            pool.in_use
        }),
        (
            "db_calls_waiting",
            "Calls that wait for their turn at the pool.",
            |pool| pool.waiting,
        ),
    ];
    for (name, help, value) in gauges {
        page.gauge(name, help, of(value));
    }
    let waits = pools.iter().map(|pool| pool.waits);
    page.histogram(
        "db_wait_seconds",
        "Time that calls waited for their turn at the pool.",
        names.iter().map(|name| name as MetricLabels<'_>).zip(waits),
    );
    page.counter(
        "db_wait_timeouts_total",
        "Calls that timed out waiting for their turn.",
        of(|pool| pool.timeouts),
    );
}

fn write_starts(page: &mut MetricsPage, app: &App) {
    let counted = app.metrics();
    let steps: Vec<_> = counted
        .steps
        .iter()
        .map(|(step, it)| ([("step", *step)], *it))
        .collect();
    page.histogram(
        "start_step_seconds",
        "Time that starts of conversations spent in a step.",
        steps
            .iter()
            .map(|(labels, it)| (labels as MetricLabels<'_>, *it)),
    );
    page.gauge(
        "starts_running",
        "Starts of conversations under way.",
        one(counted.starts_running),
    );
    let ended = counted
        .starts_ended
        .map(|(how, count)| ([("outcome", how)], count));
    page.counter(
        "starts_total",
        "Starts that ended in this process; `left`: another process went on.",
        ended
            .iter()
            .map(|(labels, count)| (labels as MetricLabels<'_>, *count)),
    );
    let queue = counted
        .start_queue
        .map(|(state, count)| ([("state", state)], count));
    page.gauge(
        "start_queue",
        "Unfinished starts of this host, as of the last check.",
        queue
            .iter()
            .map(|(labels, count)| (labels as MetricLabels<'_>, *count)),
    );
    let states: Vec<_> = counted
        .sandboxes
        .iter()
        .map(|(state, it)| ([("status", *state)], *it))
        .collect();
    page.gauge(
        "sandboxes",
        "Sandboxes of this host, as of the last comparison with its backend.",
        states
            .iter()
            .map(|(labels, count)| (labels as MetricLabels<'_>, *count)),
    );
}

fn write_reports(page: &mut MetricsPage, app: &App) {
    let counted = app.metrics();
    let reports = counted
        .reports
        .map(|(outcome, count)| ([("outcome", outcome)], count));
    page.counter(
        "webhook_batches_total",
        "Batches of events that agent servers sent.",
        reports
            .iter()
            .map(|(labels, count)| (labels as MetricLabels<'_>, *count)),
    );
    page.counter(
        "webhook_events_total",
        "Events in batches that the service accepted.",
        one(counted.events),
    );
    page.histogram(
        "webhook_lag_seconds",
        "From an event until its commit, for the oldest of each batch with something new.",
        [(&[] as MetricLabels<'_>, counted.report_lag)],
    );
    page.gauge(
        "event_streams",
        "Streams of events that are open.",
        one(counted.event_streams),
    );
    page.gauge(
        "sandbox_log_readers",
        "Logs of sandboxes that are being read.",
        one(counted.log_readers),
    );
    service_series::write_quotas(page, &counted.quotas);
}

fn write_warm(page: &mut MetricsPage, app: &App) {
    let warm = app.warm_counts();
    page.gauge(
        "warm_sandboxes_target",
        "Target number of warm sandboxes.",
        one(warm.target.into()),
    );
    let states: [([(&str, &str); 1], u64); 3] = [
        ([("state", "ready")], warm.ready.into()),
        ([("state", "booting")], warm.booting.into()),
        ([("state", "claimed")], warm.claimed.into()),
    ];
    page.gauge(
        "warm_sandboxes",
        "Warm sandboxes of this host, as of the last check.",
        states
            .iter()
            .map(|(labels, count)| (labels as MetricLabels<'_>, *count)),
    );
    let claims: [([(&str, &str); 1], u64); 2] = [
        ([("outcome", "hit")], warm.hits),
        ([("outcome", "miss")], warm.misses),
    ];
    page.counter(
        "warm_claims_total",
        "Starts that found a warm sandbox (`hit`) or none (`miss`).",
        claims
            .iter()
            .map(|(labels, count)| (labels as MetricLabels<'_>, *count)),
    );
    page.counter(
        "warm_boot_failures_total",
        "Boots of warm sandboxes that failed.",
        one(warm.failed_boots),
    );
    page.counter(
        "warm_ended_total",
        "Warm sandboxes that were deleted unused.",
        one(warm.ended),
    );
}

/// Names and meanings follow the conventions of Prometheus client libraries.
fn write_process(page: &mut MetricsPage, process: &ProcessSample) {
    page.seconds(
        "process_cpu_seconds_total",
        "counter",
        "Processor time.",
        process.cpu,
    );
    page.seconds(
        "process_start_time_seconds",
        "gauge",
        "Start time of the process, since 1970.",
        Duration::from_micros(u64::try_from(process.started.micros()).unwrap_or_default()),
    );
    let gauges = [
        (
            "process_resident_memory_bytes",
            "Memory in use.",
            process.resident,
        ),
        (
            "process_virtual_memory_bytes",
            "Address space in use.",
            process.virtual_,
        ),
        (
            "process_open_fds",
            "Files, sockets and pipes that are open.",
            process.open_files,
        ),
        (
            "process_max_fds",
            "Maximum number of open files.",
            process.max_files,
        ),
        ("process_threads", "Threads.", process.threads),
    ];
    for (name, help, value) in gauges {
        page.gauge(name, help, one(value));
    }
}

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
