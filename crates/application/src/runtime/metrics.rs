//! Metrics of this process. They decide nothing, and name no user, id or address.

use std::time::Duration;

use domain::metrics::{Counter, DurationHistogram, Gauge, GaugeGuard, HistogramSnapshot};
use domain::sandbox::SandboxStatus;
use domain::start_task::{StartQueueCounts, StartStatus};

use crate::quotas::QuotaCounts;
use crate::{App, AppError};

#[derive(Debug, Default)]
pub(crate) struct MetricsRecorder {
    /// Time that starts spent in each status.
    steps: [DurationHistogram; StartStatus::ALL.len()],
    running: Gauge,
    ready: Counter,
    failed: Counter,
    abandoned: Counter,
    batches: [Counter; 2],
    events: Counter,
    lag: DurationHistogram,
    queue: [Gauge; 2],
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum StartOutcome {
    Ready,
    Failed,
    /// Another worker continues or has ended the start.
    Abandoned,
}

impl MetricsRecorder {
    pub(crate) fn record_step(&self, status: StartStatus, took: Duration) {
        self.steps[status as usize].record(took);
    }

    /// Counts a running start until the returned guard is dropped.
    pub(crate) fn track_start(&self) -> GaugeGuard<'_> {
        self.running.enter()
    }

    pub(crate) fn count_ended(&self, how: StartOutcome) {
        let count = match how {
            StartOutcome::Ready => &self.ready,
            StartOutcome::Failed => &self.failed,
            StartOutcome::Abandoned => &self.abandoned,
        };
        count.add(1);
    }

    /// Records the lag of a batch: from its oldest event to the commit.
    pub(crate) fn record_lag(&self, took: Duration) {
        self.lag.record(took);
    }

    pub(crate) fn set_queue(&self, now: StartQueueCounts) {
        self.queue[0].set(now.waiting);
        self.queue[1].set(now.leased);
    }

    pub(crate) fn count_report(&self, events: usize, outcome: &Result<(), AppError>) {
        self.batches[usize::from(outcome.is_err())].add(1);
        if outcome.is_ok() {
            self.events.add(events as u64);
        }
    }
}

/// Metrics of the use-cases since the start of this process.
#[derive(Debug, Clone)]
pub struct ApplicationMetrics {
    /// Time that starts spent in each status they have left.
    pub steps: Vec<(&'static str, HistogramSnapshot)>,
    pub starts_running: u64,
    pub starts_ended: [(&'static str, u64); 3],
    /// Unfinished starts of this host, waiting and leased, as of the last count.
    pub start_queue: [(&'static str, u64); 2],
    /// Time from an event to its commit, for the oldest of each batch with new events.
    pub report_lag: HistogramSnapshot,
    /// Sandboxes of this host by status, as of the last relist.
    pub sandboxes: Vec<(&'static str, u64)>,
    /// Webhook reports by whether they were accepted.
    pub reports: [(&'static str, u64); 2],
    /// Events of accepted reports, known ones included.
    pub events: u64,
    pub event_streams: u64,
    pub log_readers: u64,
    pub quotas: QuotaCounts,
}

impl App {
    /// The metrics of this process. Cheap: it reads no port.
    pub fn metrics(&self) -> ApplicationMetrics {
        let metrics = &self.recorder;
        let steps = StartStatus::ALL.iter().filter(|(_, it)| !it.is_terminal());
        let [taken, refused] = &metrics.batches;
        let seen = self.loops.reconciler.statuses();
        let sandboxes = SandboxStatus::ALL.iter();
        ApplicationMetrics {
            steps: steps
                .map(|(name, it)| (*name, metrics.steps[*it as usize].snapshot()))
                .collect(),
            starts_running: metrics.running.get(),
            starts_ended: [
                ("ready", metrics.ready.get()),
                ("failed", metrics.failed.get()),
                ("left", metrics.abandoned.get()),
            ],
            start_queue: [
                ("waiting", metrics.queue[0].get()),
                ("leased", metrics.queue[1].get()),
            ],
            report_lag: metrics.lag.snapshot(),
            sandboxes: sandboxes
                .map(|(name, it)| (*name, seen[*it as usize].get()))
                .collect(),
            reports: [("taken", taken.get()), ("refused", refused.get())],
            events: metrics.events.get(),
            event_streams: self.event_streams.streams.count() as u64,
            log_readers: self.sandbox_logs.reader_count() as u64,
            quotas: self.quotas.counts(),
        }
    }
}
