//! Series of the gateway, the rate limits and the quotas.

use application::quotas::QuotaCounts;
use gateway::GatewayCounts;

use super::exposition::{MetricLabels, MetricsPage};
use super::one;

pub(super) fn write_gateway(page: &mut MetricsPage, numbers: GatewayCounts) {
    page.gauge(
        "gateway_requests_in_flight",
        "Requests that are being forwarded, until their answers have been sent.",
        one(numbers.requests_open),
    );
    page.gauge(
        "gateway_tunnels",
        "Tunnels (web sockets) that are open.",
        one(numbers.tunnels_open),
    );
    let ended = [
        ([("outcome", "answered")], numbers.answered),
        ([("outcome", "upgraded")], numbers.upgraded),
        ([("outcome", "refused")], numbers.refused),
        ([("outcome", "failed")], numbers.failed),
    ];
    page.counter(
        "gateway_requests_total",
        "Requests to sandboxes by outcome: the service refused it, the sandbox answered it or failed.",
        ended
            .iter()
            .map(|(labels, count)| (labels as MetricLabels<'_>, *count)),
    );
    let bytes = [
        ([("direction", "up")], numbers.bytes_up),
        ([("direction", "down")], numbers.bytes_down),
    ];
    page.counter(
        "gateway_bytes_total",
        "Bytes of bodies and tunnels, towards sandboxes (`up`) and clients (`down`).",
        bytes
            .iter()
            .map(|(labels, count)| (labels as MetricLabels<'_>, *count)),
    );
}

pub(super) fn write_refusals(page: &mut MetricsPage, refused: [(&'static str, u64); 2]) {
    let refused = refused.map(|(why, count)| ([("reason", why)], count));
    page.counter(
        "rate_limited_requests_total",
        "Requests that were answered 429: too many, or too many wrong keys before it.",
        refused
            .iter()
            .map(|(labels, count)| (labels as MetricLabels<'_>, *count)),
    );
}

/// Writes what quotas have refused.
pub(super) fn write_quotas(page: &mut MetricsPage, counted: &QuotaCounts) {
    let refused = counted
        .refusals
        .map(|(name, count)| ([("quota", name)], count));
    page.counter(
        "quota_refusals_total",
        "Requests of users that were refused because a quota is used up.",
        refused
            .iter()
            .map(|(labels, count)| (labels as MetricLabels<'_>, *count)),
    );
    let users = counted
        .users
        .map(|(state, count)| ([("state", state)], count));
    page.gauge(
        "quota_users",
        "Users of the last 30 s who use four fifths of a quota or more, and those who use all of one.",
        users
            .iter()
            .map(|(labels, count)| (labels as MetricLabels<'_>, *count)),
    );
    for (name, help, count) in [
        (
            "webhook_slowed_batches_total",
            "Batches of events that were refused because of the rate of their sandbox.",
            counted.slowed_reports,
        ),
        (
            "shortened_events_total",
            "Events whose long texts were cut because a quota is used up.",
            counted.shortened_events,
        ),
        (
            "discarded_events_total",
            "Events that were not stored because a quota is used up.",
            counted.discarded_events,
        ),
    ] {
        page.counter(name, help, [(&[] as MetricLabels<'_>, count)]);
    }
}
