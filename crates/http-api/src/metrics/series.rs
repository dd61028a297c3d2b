//! The series of the page, in its order.

use std::time::Duration;

use application::App;
use broker::{CallCounts, EgressCounts, EgressProxy, GitBroker, ModelBroker, ModelCallCounts};
use domain::metrics::PoolStats;
use gateway::GatewayCounts;

use super::RequestMetrics;
use super::exposition::{MetricsPage, by, one};
use crate::HttpState;
use crate::process_stats::ProcessSample;

/// Writes series: type, name, help text and values.
macro_rules! write_series {
    ($page:ident { $($kind:ident $name:literal $help:literal = $values:expr;)+ }) => {
        $($page.$kind($name, $help, $values);)+
    };
}

pub(crate) fn page(state: &HttpState, app: &App, process: &ProcessSample) -> String {
    let mut page = MetricsPage::new();
    write_series!(page {
        gauge "build_info" "Always 1; the label says which release runs."
            = by("version", [(env!("CARGO_PKG_VERSION"), 1)]);
    });
    write_requests(&mut page, state.http_metrics.requests());
    write_pools(&mut page, &state.http_metrics.pools());
    write_application(&mut page, app);
    write_gateway(&mut page, state.gateway.meter().counts());
    let models = state.models.as_deref().map(ModelBroker::counts);
    write_model_calls(&mut page, models.unwrap_or_default());
    let git = state.git.as_ref().map(GitBroker::counts);
    write_git_calls(&mut page, git.unwrap_or_default());
    let egress = state.egress.as_deref().map(EgressProxy::counts);
    write_egress(&mut page, egress.unwrap_or_default());
    write_series!(page {
        counter "rate_limited_requests_total"
            "Requests that were answered 429: too many requests, or too many wrong keys before."
            = by("reason", state.rate.refusals());
    });
    write_warm(&mut page, app);
    page.with_standard_names(|page| write_process(page, process));
    page.finish()
}

fn write_requests(page: &mut MetricsPage, requests: &RequestMetrics) {
    let routes = requests.routes();
    let answers = routes.iter().flat_map(|(method, route, counted)| {
        let answers = counted.answers();
        answers.map(|(class, count)| {
            let labels = [("method", *method), ("route", *route), ("status", class)];
            (labels, count)
        })
    });
    let durations = routes.iter().map(|(method, route, counted)| {
        let labels = [("method", *method), ("route", *route)];
        (labels, counted.durations.snapshot())
    });
    write_series!(page {
        counter "http_requests_total" "Requests that were answered." = answers;
        histogram "http_request_duration_seconds"
            "Time from the head of a request to the head of its response." = durations;
        gauge "http_requests_in_flight" "Requests in progress." = one(requests.in_flight.get());
    });
}

fn write_pools(page: &mut MetricsPage, pools: &[PoolStats]) {
    let of = |value: fn(&PoolStats) -> u64| {
        let values = pools.iter().map(move |pool| (pool.name, value(pool)));
        by("pool", values)
    };
    let waits = pools.iter().map(|pool| (pool.name, pool.waits));
    write_series!(page {
        gauge "db_connections_max" "Connections that the pool may have." = of(|pool| pool.max_connections.into());
        gauge "db_connections_open" "Connections that the pool has." = of(|pool| pool.open.into());
        gauge "db_connections_idle" "Connections that are idle." = of(|pool| pool.idle.into());
        gauge "db_calls_running" "Calls that use the pool." = of(|pool| pool.in_use);
        gauge "db_calls_waiting" "Calls that wait for their turn at the pool." = of(|pool| pool.waiting);
        histogram "db_wait_seconds" "Time that calls waited for their turn at the pool." = by("pool", waits);
        counter "db_wait_timeouts_total" "Calls that timed out waiting for their turn." = of(|pool| pool.timeouts);
    });
}

fn write_application(page: &mut MetricsPage, app: &App) {
    let counted = app.metrics();
    write_series!(page {
        histogram "start_step_seconds" "Time that starts of conversations spent in a step." = by("step", counted.steps);
        gauge "starts_running" "Starts of conversations under way." = one(counted.starts_running);
        counter "starts_total" "Starts that ended in this process; `left`: another process continues it."
            = by("outcome", counted.starts_ended);
        gauge "start_queue" "Unfinished starts of this host, as of the last check." = by("state", counted.start_queue);
        gauge "sandboxes" "Sandboxes of this host, as of the last comparison with its backend."
            = by("status", counted.sandboxes);
        counter "webhook_batches_total" "Batches of events that agent servers sent." = by("outcome", counted.reports);
        counter "webhook_events_total" "Events in batches that the service accepted." = one(counted.events);
        histogram "webhook_lag_seconds"
            "Time from an event to its commit, of the oldest new event in each batch."
            = one(counted.report_lag);
        gauge "event_streams" "Streams of events that are open." = one(counted.event_streams);
        gauge "sandbox_log_readers" "Logs of sandboxes that are being read." = one(counted.log_readers);
        counter "quota_refusals_total" "Requests of users that were refused because a quota is used up."
            = by("quota", counted.quotas.refusals);
        gauge "quota_users"
            "Users active in the last 30 s: `near` use four fifths of a quota or more, `exceeded` use all of one."
            = by("state", counted.quotas.users);
        counter "webhook_slowed_batches_total"
            "Batches of events that were refused because of the rate of their sandbox."
            = one(counted.quotas.rate_limited_reports);
        counter "shortened_events_total" "Events whose long texts were cut because a quota is used up."
            = one(counted.quotas.shortened_events);
        counter "discarded_events_total" "Events that were not stored because a quota is used up."
            = one(counted.quotas.discarded_events);
    });
}

fn write_gateway(page: &mut MetricsPage, counted: GatewayCounts) {
    let outcomes = [
        ("answered", counted.answered),
        ("upgraded", counted.upgraded),
        ("refused", counted.refused),
        ("failed", counted.failed),
    ];
    write_series!(page {
        gauge "gateway_requests_in_flight"
            "Requests that are being forwarded, until their answers have been sent." = one(counted.requests_open);
        gauge "gateway_tunnels" "Tunnels (web sockets) that are open." = one(counted.tunnels_open);
        counter "gateway_requests_total"
            "Requests to sandboxes: `refused` by the service, `answered` or `failed` by the sandbox, or `upgraded` to a tunnel."
            = by("outcome", outcomes);
        counter "gateway_bytes_total"
            "Bytes of bodies and tunnels, towards sandboxes (`up`) and clients (`down`)."
            = by("direction", [("up", counted.bytes_up), ("down", counted.bytes_down)]);
    });
}

fn write_model_calls(page: &mut MetricsPage, counted: ModelCallCounts) {
    let outcomes = [
        ("answered", counted.calls.answered),
        ("refused", counted.calls.refused),
        ("failed", counted.calls.failed),
    ];
    let tokens = [
        ("input", counted.tokens.input),
        ("cached_input", counted.tokens.cached_input),
        ("cache_write", counted.tokens.cache_write),
        ("output", counted.tokens.output),
    ];
    write_series!(page {
        gauge "model_calls_in_flight"
            "Model calls of sandboxes through the service, until their answers have been sent." = one(counted.calls.open);
        counter "model_calls_total"
            "Model calls of sandboxes: `refused` by the service, `answered` by the endpoint with any status, or `failed`."
            = by("outcome", outcomes);
        counter "model_tokens_total" "Tokens of model calls, as the providers report them or estimated." = by("kind", tokens);
        counter "model_cost_nanodollars_total" "Cost of model calls with known prices, in billionths of a US dollar."
            = one(counted.cost.nanos());
    });
}

fn write_git_calls(page: &mut MetricsPage, counted: CallCounts) {
    let outcomes = [
        ("refused", counted.refused),
        ("answered", counted.answered),
        ("failed", counted.failed),
    ];
    write_series!(page {
        gauge "git_calls_in_flight"
            "Requests of git in sandboxes through the service, until their answers have been sent." = one(counted.open);
        counter "git_calls_total"
            "Requests of git in sandboxes: `refused` by the service, `answered` by the host with any status, or `failed`."
            = by("outcome", outcomes);
    });
}

fn write_egress(page: &mut MetricsPage, counted: EgressCounts) {
    let outcomes = [
        ("allowed", counted.allowed),
        ("refused", counted.refused),
        ("failed", counted.failed),
    ];
    write_series!(page {
        counter "egress_requests_total"
            "Requests and tunnels of sandboxes to other machines through the service: `allowed`, `refused` by the policy, or `failed`."
            = by("outcome", outcomes);
    });
}

fn write_warm(page: &mut MetricsPage, app: &App) {
    let warm = app.warm_counts();
    let hosts = app.host_counts();
    let hosts = [
        ("available", hosts.available),
        ("draining", hosts.draining),
        ("lost", hosts.lost),
    ];
    let states = [
        ("ready", warm.ready.into()),
        ("booting", warm.booting.into()),
        ("claimed", warm.claimed.into()),
    ];
    write_series!(page {
        gauge "hosts" "Hosts of sandboxes that share the store, as of the last look: `available` for starts, `draining`, or `lost`." = by("state", hosts);
        gauge "warm_sandboxes_target" "Target number of warm sandboxes." = one(warm.target.into());
        gauge "warm_sandboxes" "Warm sandboxes of this host, as of the last check." = by("state", states);
        counter "warm_claims_total" "Starts that found a warm sandbox (`hit`) or none (`miss`)."
            = by("outcome", [("hit", warm.hits), ("miss", warm.misses)]);
        counter "warm_boot_failures_total" "Boots of warm sandboxes that failed." = one(warm.failed_boots);
        counter "warm_ended_total" "Warm sandboxes that were deleted unused." = one(warm.ended);
    });
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
    write_series!(page {
        gauge "process_resident_memory_bytes" "Memory in use." = one(process.resident);
        gauge "process_virtual_memory_bytes" "Address space in use." = one(process.virtual_);
        gauge "process_open_fds" "Files, sockets and pipes that are open." = one(process.open_files);
        gauge "process_max_fds" "Maximum number of open files." = one(process.max_files);
        gauge "process_threads" "Threads." = one(process.threads);
    });
}
