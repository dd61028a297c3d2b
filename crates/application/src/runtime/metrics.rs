//! What this process counts while it works. Nothing here decides anything; nothing names a user, an id or an address.

use std::time::Duration;

use domain::metrics::{Counter, DurationHistogram, GaugeGuard, Gauge, HistogramSnapshot};
use domain::sandbox::SandboxStatus;
use domain::start_task::{StartQueueCounts, StartStatus};

use crate::quotas::QuotaCounts;
use crate::{App, AppError};

/// Counted by the use-cases.
#[derive(Debug, Default)]
pub(crate) struct MetricsRecorder {
    /// By status: how long starts were in it.
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

/// How a start ended here.
#[derive(Debug, Clone, Copy)]
pub(crate) enum StartOutcome {
    Ready,
    Failed,
    /// Another worker goes on with it, or has ended it.
    Abandoned,
}

impl MetricsRecorder {
    /// A start was in this status for so long.
    pub(crate) fn step(&self, status: StartStatus, took: Duration) {
        self.steps[status as usize].record(took);
    }

    /// A start is under way until what is returned is dropped.
    pub(crate) fn start(&self) -> GaugeGuard<'_> {
        self.running.enter()
    }

    pub(crate) fn ended(&self, how: StartOutcome) {
        let count = match how {
            StartOutcome::Ready => &self.ready,
            StartOutcome::Failed => &self.failed,
            StartOutcome::Abandoned => &self.abandoned,
        };
        count.add(1);
    }

    /// The oldest event of a batch was committed so long after it had happened.
    pub(crate) fn lag(&self, took: Duration) {
        self.lag.record(took);
    }

    /// So many starts of this host are unfinished.
    pub(crate) fn queue(&self, now: StartQueueCounts) {
        self.queue[0].set(now.waiting);
        self.queue[1].set(now.leased);
    }

    /// An agent server reported so many events.
    pub(crate) fn reported(&self, events: usize, outcome: &Result<(), AppError>) {
        self.batches[usize::from(outcome.is_err())].add(1);
        if outcome.is_ok() {
            self.events.add(events as u64);
        }
    }
}

/// What the use-cases of this process have counted since it began.
#[derive(Debug, Clone)]
pub struct ApplicationMetrics {
    /// How long starts were in each status that they have left.
    pub steps: Vec<(&'static str, HistogramSnapshot)>,
    /// Starts under way.
    pub starts_running: u64,
    /// Starts that ended, by how.
    pub starts_ended: [(&'static str, u64); 3],
    /// Unfinished starts of this host: those that nobody works on, and those that some process does. As of the last look.
    pub start_queue: [(&'static str, u64); 2],
    /// From an event until its commit, for the oldest of each batch that brought something new.
    pub report_lag: HistogramSnapshot,
    /// Sandboxes of this host, by status, as of the last comparison with the backend.
    pub sandboxes: Vec<(&'static str, u64)>,
    /// Reports of agent servers, by whether they were taken in.
    pub reports: [(&'static str, u64); 2],
    /// Events that came with reports that were taken in, those included that were there already.
    pub events: u64,
    /// Streams of events that are open.
    pub event_streams: u64,
    /// Logs of sandboxes that are being read.
    pub log_readers: u64,
    /// What was refused, shortened and left out because of quotas.
    pub quotas: QuotaCounts,
}

impl App {
    /// What this process has counted. Cheap: nothing is asked of anybody.
    pub fn counted(&self) -> ApplicationMetrics {
        let (inner, measures) = (&self.inner, &self.inner.measures);
        let steps = StartStatus::ALL.iter().filter(|(_, it)| !it.is_terminal());
        let [taken, refused] = &measures.batches;
        let seen = inner.keeper.statuses();
        let sandboxes = SandboxStatus::ALL.iter();
        ApplicationMetrics {
            steps: steps
                .map(|(name, it)| (*name, measures.steps[*it as usize].snapshot()))
                .collect(),
            starts_running: measures.running.get(),
            starts_ended: [
                ("ready", measures.ready.get()),
                ("failed", measures.failed.get()),
                ("left", measures.abandoned.get()),
            ],
            start_queue: [
                ("waiting", measures.queue[0].get()),
                ("leased", measures.queue[1].get()),
            ],
            report_lag: measures.lag.snapshot(),
            sandboxes: sandboxes
                .map(|(name, it)| (*name, seen[*it as usize].get()))
                .collect(),
            reports: [("taken", taken.get()), ("refused", refused.get())],
            events: measures.events.get(),
            event_streams: inner.streams.count() as u64,
            log_readers: inner.log_readers.count() as u64,
            quotas: inner.quotas.counts(),
        }
    }
}
