//! A partition of the connections, its queue, and its metrics.

use std::sync::Arc;
use std::time::Duration;

use diesel::r2d2::Pool;
use domain::error::StoreError;
use domain::metrics::{self, Counter, DurationHistogram, Gauge};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::sleep;

use super::job_queue::{Job, JobQueue, Tenant};
use super::{Database, JobContext, PoolErrorHandler};
use crate::database::circuit_breaker::{CircuitBreaker, OUTAGE_GRACE};
use crate::database::connection::{ConnectionManager, Target};
use crate::error::unavailable;

/// Idle time after which connections to an `SQLite` file are closed. The pool opens one again, in about a millisecond.
const SQLITE_IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// A pool of connections and the queue of jobs for it.
pub(super) struct PoolPartition {
    pub(super) context: JobContext,
    queue: Arc<JobQueue>,
    /// From a job's arrival to its slot.
    pub(super) waits: Arc<DurationHistogram>,
    waiting: Gauge,
    refused: Counter,
}

impl PoolPartition {
    /// Builds a partition whose pool has a connection per slot, and `spare` ones for another partition.
    pub(super) fn build(
        target: &Target,
        (slots, spare): (u32, u32),
        slot_timeout: Duration,
        circuit: &Arc<CircuitBreaker>,
        runtime: &Handle,
    ) -> Self {
        let builder = Pool::builder()
            .max_size(slots + spare)
            .min_idle(Some(1))
            // Jobs wait in the queue of this partition. The pool derives its backoff after a failure from this timeout: at most half of it.
            .connection_timeout(OUTAGE_GRACE)
            .error_handler(Box::new(PoolErrorHandler(Arc::clone(circuit))));
        let builder = match target {
            // A file stays available, so connections need no check. Idle ones give their page caches back.
            Target::Sqlite(_) => builder
                .test_on_check_out(false)
                .max_lifetime(None)
                .idle_timeout(Some(SQLITE_IDLE_TIMEOUT)),
            #[cfg(feature = "postgres")]
            Target::Postgres(_) => builder.test_on_check_out(true),
        };
        let context = JobContext {
            pool: builder.build_unchecked(ConnectionManager(target.clone())),
            circuit: Arc::clone(circuit),
            slot_timeout,
        };
        Self::with_context(context, slots, runtime)
    }

    /// Builds a partition with its own slots, for example for the spare connections of another partition's pool.
    pub(super) fn with_context(context: JobContext, slots: u32, runtime: &Handle) -> Self {
        let slots = usize::try_from(slots).unwrap_or(1);
        Self {
            context,
            queue: Arc::new(JobQueue::new(slots, runtime.clone())),
            waits: Arc::default(),
            waiting: Gauge::default(),
            refused: Counter::default(),
        }
    }

    /// Waits until the job has its slot. Returns an error, and never runs the job, when the wait times out or the database is
    /// unavailable. Returns the outcome if a queued job has already finished.
    pub(super) async fn admit<T>(
        &self,
        tenant: Tenant,
        job: Job,
        receiver: &mut oneshot::Receiver<T>,
    ) -> Result<Option<T>, StoreError> {
        let Some(queued) = self.queue.enqueue(tenant, job) else {
            return Ok(None);
        };
        let _waiting = self.waiting.enter();
        let refusal = tokio::select! {
            biased;
            Ok(outcome) = receiver => return Ok(Some(outcome)),
            refusal = self.wait_for_refusal() => refusal,
        };
        match queued.withdraw() {
            Some(_never_run) => {
                self.refused.add(1);
                Err(refusal)
            }
            // The job has started in the meantime.
            None => Ok(None),
        }
    }

    /// Returns the error for a queued job once waiting is useless.
    async fn wait_for_refusal(&self) -> StoreError {
        let circuit = &self.context.circuit;
        let outage = async {
            if !circuit.is_unavailable() {
                sleep(OUTAGE_GRACE).await;
                if circuit.time_since_response() >= OUTAGE_GRACE {
                    circuit.start_probing();
                }
            }
            circuit.wait_until_unavailable().await;
        };
        tokio::select! {
            () = sleep(self.context.slot_timeout) => {
                unavailable(
                    "no database connection was available in time",
                    "all connections are busy; raise `storage.connections` if this repeats",
                )
            }
            () = outage => CircuitBreaker::unavailable_error(),
        }
    }

    /// `shared` is the number of this pool's connections that another partition uses.
    fn stats(&self, name: &'static str, shared: u32) -> metrics::PoolStats {
        let pool = self.context.pool.state();
        let (slots, _) = self.queue.slots();
        metrics::PoolStats {
            name,
            max_connections: u32::try_from(slots).unwrap_or(u32::MAX),
            open: pool.connections.saturating_sub(shared),
            idle: pool.idle_connections,
            in_use: u64::from(self.in_use()),
            waiting: self.waiting.get(),
            waits: self.waits.snapshot(),
            timeouts: self.refused.get(),
        }
    }

    fn in_use(&self) -> u32 {
        let (slots, free) = self.queue.slots();
        u32::try_from(slots - free).unwrap_or(u32::MAX)
    }
}

impl Database {
    /// Statistics of all partitions.
    pub(crate) fn stats(&self) -> Vec<metrics::PoolStats> {
        let scans = self.scan.in_use();
        let scan = metrics::PoolStats {
            open: scans,
            idle: 0,
            ..self.scan.stats("scan", 0)
        };
        let read = self.read.stats("read", scans);
        let mut pools = vec![read, scan, self.write.stats("write", 0)];
        if let Some(dedicated) = &self.dedicated {
            pools.push(dedicated.intake.stats("intake", 0));
            pools.push(dedicated.background.stats("background", 0));
        }
        pools
    }
}
