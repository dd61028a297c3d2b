//! Blocking diesel, called from async code, bounded and fair.
//!
//! A caller waits for a *slot* of a partition, with a deadline. Only a job with a slot uses a thread and a connection, so
//! waiting requests cost no threads. `fair_queue` shares the slots among users and sandboxes: while others wait, no tenant
//! holds more than half of them. The slot moves into the job, so a cancelled request cannot leak a connection.
//! Jobs run on the runtime that `open` received, because each actix worker is a small runtime with its own threads.
//!
//! Reads whose cost grows with the stored data, rather than with the result, have their own partition (`scan`). They never
//! delay other reads.
//!
//! The pool cannot cancel a job that runs. Postgres cancels statements that take too long. If Postgres is silent (frozen
//! behind a kernel that acknowledges packets), the caller gets an error at its deadline, and `is_stuck` reports the job.

mod fair_queue;
mod job_queue;
mod partition;
mod running_jobs;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use diesel::r2d2::{HandleError, Pool, PooledConnection};
use domain::error::{StoreError, chain};
use domain::id::{OrganizationId, OwnerId, SandboxId};
use domain::user::scope::Scope;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tracing::Span;

use self::job_queue::{Job, Tenant};
use self::partition::PoolPartition;
use self::running_jobs::RunningJobs;
use crate::database::circuit_breaker::CircuitBreaker;
use crate::database::config::StoreConfig;
pub(crate) use crate::database::connection::JobMode;
use crate::database::connection::{self, AnyConnection, ConnectionManager, Target};
use crate::error::{TransactionError, unavailable};

/// Interval at which a job that waits for a connection checks whether the database is available.
const AVAILABILITY_CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// Postgres' `statement_timeout`: a statement that begins just before the job's deadline may run for this long.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(30);

/// Read connections per slot for scans.
const CONNECTIONS_PER_SCAN_SLOT: u32 = 4;

/// Selects the connections of a job. On Postgres each workload has its own, so that none can starve another.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Workload {
    /// Requests of users, also before authentication.
    Requests,
    /// Reports and look-ups of sandboxes.
    Intake,
    /// Start workers, the reconciler, housekeeping.
    Background,
}

pub(crate) struct Database {
    read: PoolPartition,
    /// Reads whose cost grows with the stored data. They use the spare connections of the pool of `read`.
    scan: PoolPartition,
    write: PoolPartition,
    /// `None`: intake and background work share the other partitions. `SQLite` has one writer at a time, and the queue is
    /// fair. With a single write connection no job busy-waits on the locked file.
    dedicated: Option<DedicatedPartitions>,
    slot_timeout: Duration,
    job_timeout: Duration,
    jobs: Arc<RunningJobs>,
}

/// Postgres partitions for other workloads than requests. Each serves reads and writes.
struct DedicatedPartitions {
    intake: PoolPartition,
    background: PoolPartition,
}

impl Database {
    /// Builds the pools, which open connections on demand.
    pub(crate) fn new(target: &Target, config: &StoreConfig, runtime: &Handle) -> Self {
        let (connections, slot_timeout) = (config.connections.max(1), config.slot_timeout);
        let circuit = CircuitBreaker::new(target, runtime.clone());
        let build = |slots: u32, spare: u32| {
            PoolPartition::build(target, (slots, spare), slot_timeout, &circuit, runtime)
        };
        let (write, dedicated) = match target {
            Target::Sqlite(_) => (build(1, 0), None),
            #[cfg(feature = "postgres")]
            Target::Postgres(_) => {
                let dedicated = DedicatedPartitions {
                    intake: build(connections.div_ceil(2), 0),
                    background: build(connections.div_ceil(2), 0),
                };
                (build(connections, 0), Some(dedicated))
            }
        };
        let scans = (connections / CONNECTIONS_PER_SCAN_SLOT).max(1);
        let read = build(connections, scans);
        Self {
            scan: PoolPartition::with_context(read.context.clone(), scans, runtime),
            read,
            write,
            dedicated,
            slot_timeout,
            // A job that has a slot may still wait for a connection.
            job_timeout: slot_timeout + config.job_timeout,
            jobs: Arc::default(),
        }
    }

    /// Whether a job has been running for longer than its deadline.
    pub(crate) fn is_stuck(&self) -> bool {
        self.jobs.oldest().is_some_and(|age| age > self.job_timeout)
    }

    /// Longest time from the request for a slot to a commit that the server accepts.
    pub(crate) fn max_write_duration(&self) -> Duration {
        self.slot_timeout + self.job_timeout + STATEMENT_TIMEOUT
    }

    /// Selects the user of this scope as the tenant. The scope of the service is background work.
    pub(crate) fn for_scope(&self, scope: &Scope) -> TenantJobs<'_> {
        match scope {
            Scope::Owner(owner) => self.for_owner(owner),
            Scope::System => self.for_workload(Workload::Background),
        }
    }

    /// Selects the user of this owner as the tenant of a request.
    pub(crate) fn for_owner(&self, owner: &OwnerId) -> TenantJobs<'_> {
        self.tenant_jobs(Workload::Requests, Tenant::User(owner.user()))
    }

    /// Selects all members of this organization as the tenant of a request.
    pub(crate) fn for_organization(&self, id: OrganizationId) -> TenantJobs<'_> {
        self.tenant_jobs(Workload::Requests, Tenant::Organization(id))
    }

    /// Selects the user of this owner as the tenant of reads by a sandbox or a start, apart from the user's own requests.
    pub(crate) fn for_intake_of(&self, owner: &OwnerId) -> TenantJobs<'_> {
        self.tenant_jobs(Workload::Intake, Tenant::User(owner.user()))
    }

    /// Selects this sandbox as the tenant of its reports.
    pub(crate) fn for_sandbox(&self, sandbox: &SandboxId) -> TenantJobs<'_> {
        self.tenant_jobs(Workload::Intake, Tenant::Sandbox(sandbox.clone()))
    }

    /// Selects a workload without a user or sandbox. Each call is its own tenant.
    pub(crate) fn for_workload(&self, workload: Workload) -> TenantJobs<'_> {
        self.tenant_jobs(workload, Tenant::Single(self.jobs.number()))
    }

    const fn tenant_jobs(&self, workload: Workload, tenant: Tenant) -> TenantJobs<'_> {
        TenantJobs {
            db: self,
            workload,
            tenant,
        }
    }

    fn partition(&self, workload: Workload, mode: JobMode) -> &PoolPartition {
        match (workload, &self.dedicated) {
            (Workload::Intake, Some(dedicated)) => &dedicated.intake,
            (Workload::Background, Some(dedicated)) => &dedicated.background,
            _ if !mode.is_read_only() => &self.write,
            (Workload::Requests, _) if mode == JobMode::Scan => &self.scan,
            _ => &self.read,
        }
    }
}

/// Runs jobs of one workload on behalf of one tenant.
pub(crate) struct TenantJobs<'a> {
    db: &'a Database,
    workload: Workload,
    tenant: Tenant,
}

impl TenantJobs<'_> {
    pub(crate) async fn run<T: Send + 'static>(
        self,
        mode: JobMode,
        job: impl FnMut(&mut AnyConnection) -> Result<T, TransactionError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let db = self.db;
        let partition = db.partition(self.workload, mode);
        let (context, job_timeout) = (partition.context.clone(), db.job_timeout);
        let (sender, mut receiver) = oneshot::channel();
        let (jobs, waits) = (Arc::clone(&db.jobs), Arc::clone(&partition.waits));
        let (arrived, span) = (Instant::now(), Span::current());
        let job: Job = Box::new(move |slot| {
            waits.record(arrived.elapsed());
            if sender.is_closed() {
                // The caller has received an error or has gone away.
                return;
            }
            let running = jobs.begin();
            let retry_until = Instant::now() + job_timeout;
            let perform = || {
                let may_retry = || Instant::now() < retry_until && !sender.is_closed();
                span.in_scope(|| context.perform_with_retries(mode, may_retry, job))
            };
            // The panic hook has logged the panic. The pool discards the connection.
            let result = catch_unwind(AssertUnwindSafe(perform)).unwrap_or_else(|_| {
                let panicked = "a database job panicked; the log has the panic's message";
                Err(StoreError::Other(panicked.into()).into())
            });
            // A large result keeps its slot until the caller has received it. Otherwise the next job starts now.
            let held = mode.is_large().then_some(slot);
            // The caller continues after the end of the job and of its span.
            drop((running, span));
            let _ = sender.send((result, held));
        });
        let early_outcome = partition.admit(self.tenant, job, &mut receiver).await?;
        let (result, _held_until_the_result_is_returned) = match early_outcome {
            Some(outcome) => outcome,
            None => timeout(job_timeout, receiver)
                .await
                .map_err(|elapsed| unavailable("the database did not respond in time", elapsed))?
                // The runtime shut down before the job ran.
                .map_err(|error| unavailable("the service is stopping", error))?,
        };
        result.map_err(TransactionError::into_store)
    }
}

/// Random backoff, which grows with the number of retries, so that the same transactions do not collide again.
fn retry_backoff(retries: u32) -> Duration {
    let random = RandomState::new().build_hasher().finish();
    Duration::from_micros(random % (1000 << retries.min(6)))
}

/// Resources that a job uses on its thread.
#[derive(Clone)]
struct JobContext {
    pool: Pool<ConnectionManager>,
    circuit: Arc<CircuitBreaker>,
    slot_timeout: Duration,
}

impl JobContext {
    /// Repeats the job after lost races. Sleeps between the attempts.
    #[expect(
        clippy::disallowed_methods,
        reason = "jobs run on threads that may block"
    )]
    fn perform_with_retries<T>(
        &self,
        mode: JobMode,
        may_retry: impl Fn() -> bool,
        mut job: impl FnMut(&mut AnyConnection) -> Result<T, TransactionError>,
    ) -> Result<T, TransactionError> {
        let mut retries = 0;
        loop {
            match self.perform(mode, &mut job) {
                Err(error)
                    if error.is_retryable() && retries < error.max_retries() && may_retry() =>
                {
                    retries += 1;
                    std::thread::sleep(retry_backoff(retries));
                }
                result => return result,
            }
        }
    }

    /// Runs the job on a connection. Replaces a lost connection if the job has not begun or only reads.
    fn perform<T>(
        &self,
        mode: JobMode,
        mut job: impl FnMut(&mut AnyConnection) -> Result<T, TransactionError>,
    ) -> Result<T, TransactionError> {
        let deadline = Instant::now() + self.slot_timeout;
        // Each pooled connection may be lost once; the pool then opens a new one.
        let mut replacements = self.pool.max_size();
        loop {
            let mut connection = self.checkout(deadline)?;
            let begun = connection::begin(&mut connection.conn, mode);
            let may_repeat = begun.is_err() || mode.is_read_only();
            let result = begun
                .and_then(|()| connection::run_and_commit(&mut connection.conn, mode, &mut job));
            match result {
                Err(error) if connection.is_lost(&error) => {
                    if !may_repeat || replacements == 0 {
                        return Err(error.into_connection_lost());
                    }
                    replacements -= 1;
                }
                result => {
                    self.circuit.record_response();
                    return if connection.has_english_messages {
                        result
                    } else {
                        result.map_err(TransactionError::classify_untranslated)
                    };
                }
            }
        }
    }

    /// Waits for a free connection until the deadline, or until the database is known to be unavailable.
    fn checkout(
        &self,
        deadline: Instant,
    ) -> Result<PooledConnection<ConnectionManager>, StoreError> {
        loop {
            let is_unavailable = self.circuit.is_unavailable();
            let timeout = if is_unavailable {
                Duration::ZERO
            } else {
                AVAILABILITY_CHECK_INTERVAL
            };
            match self.pool.get_timeout(timeout) {
                Ok(connection) => return Ok(connection),
                Err(_) if is_unavailable => return Err(CircuitBreaker::unavailable_error()),
                Err(error) if Instant::now() >= deadline => {
                    return Err(unavailable(
                        "no database connection was available in time",
                        error,
                    ));
                }
                Err(_) => {}
            }
        }
    }
}

/// Receives connection failures of the pool's background threads.
struct PoolErrorHandler(Arc<CircuitBreaker>);

impl std::fmt::Debug for PoolErrorHandler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PoolErrorHandler")
    }
}

impl HandleError<diesel::r2d2::Error> for PoolErrorHandler {
    fn handle_error(&self, error: diesel::r2d2::Error) {
        // The circuit breaker logs an outage once; here each attempt of each pool would log it.
        tracing::debug!(error = %chain(&error), "database connection failed");
        self.0.start_probing();
    }
}

#[cfg(test)]
mod tests;
