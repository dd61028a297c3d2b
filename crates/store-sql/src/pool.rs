//! Blocking diesel, called from async code, bounded and fair.
//!
//! A caller waits for a *slot* of a partition, with a deadline, and only then costs a thread and a connection: any number of
//! requests can wait without one thread each. Slots are shared fairly among users and sandboxes (`fair_queue`): while others
//! wait, none has more than half of them. The slot moves into the job, so a request that goes away cannot leak a connection.
//! Jobs run on the runtime whose handle was given at open, not on the caller's: actix workers are small runtimes of their own
//! with pools of their own.
//!
//! Reads whose cost grows with what is stored, rather than with what is answered, have a partition of their own (`scan`), so
//! that they never keep the others waiting.
//!
//! A job that has begun cannot be ended from here. Postgres ends what takes too long; if it says nothing at all (frozen
//! behind a kernel that acknowledges), the caller is answered after a deadline, and the job is receiver to be stuck.

mod attempt;
mod fair_queue;
mod job_queue;
mod partition;
mod running_jobs;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use diesel::r2d2::{HandleError, Pool, PooledConnection};
use domain::error::{StoreError, chain};
use domain::id::{SandboxId, UserId};
use domain::scope::Scope;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::RecvError;
use tokio::time::timeout_at;

use self::attempt::{JobAttempt, AttemptOutcome};
use self::job_queue::{Job, Tenant};
use self::partition::PoolPartition;
use self::running_jobs::RunningJobs;
use crate::circuit::CircuitBreaker;
use crate::connection::{self, AnyConnection, Intent, Manager, Target};
use crate::error::{TransactionError, unavailable};
use crate::store::StoreConfig;

/// How often whoever waits for a connection looks whether that is of any use.
const AVAILABILITY_CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// How long the server lets a statement of a job take that began just before its deadline (`statement_timeout`).
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(30);

/// Slots for scans: one for so many connections for reads.
const READS_PER_SCAN: u32 = 4;

/// Which connections a job uses. On Postgres each kind of work has some of its own, so that none can starve another.
#[derive(Debug, Clone, Copy)]
enum Workload {
    /// A request of a user.
    Requests,
    /// What a sandbox reports.
    Intake,
    /// Start workers, the reconciler, housekeeping.
    Background,
}

/// How a job is run.
#[derive(Debug, Clone, Copy)]
struct JobMode {
    intent: Intent,
    /// What it costs grows with what is stored.
    is_scan: bool,
    /// Its answer may be large: its slot is held until the caller has the answer.
    is_large: bool,
}

impl From<Intent> for JobMode {
    fn from(intent: Intent) -> Self {
        Self {
            intent,
            is_scan: false,
            is_large: false,
        }
    }
}

/// Pools of one database.
pub(crate) struct Db {
    read: PoolPartition,
    /// Reads whose cost grows with what is stored. Its connections are spare ones of the pool of `read`.
    scan: PoolPartition,
    write: PoolPartition,
    /// `None`: intake and background work share the others. `SQLite` has one writer at a time in any case; the queue is
    /// fair, so neither events nor users starve, and with one connection nobody spins on a locked file.
    dedicated: Option<DedicatedPartitions>,
    wait: Duration,
    deadline: Duration,
    jobs: Arc<RunningJobs>,
}

/// Partitions with_shared_pool those of the users' requests, for reads and writes alike.
struct DedicatedPartitions {
    intake: PoolPartition,
    background: PoolPartition,
}

impl Db {
    /// Builds the pools; connections are made as they are needed.
    pub(crate) fn new(target: &Target, config: &StoreConfig, runtime: &Handle) -> Self {
        let (connections, wait) = (config.connections.max(1), config.wait);
        let circuit = CircuitBreaker::new(target, runtime.clone());
        let build = |slots: u32, spare: u32| {
            PoolPartition::build(target, (slots, spare), wait, &circuit, runtime)
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
        let scans = (connections / READS_PER_SCAN).max(1);
        let read = build(connections, scans);
        Self {
            scan: read.with_shared_pool(scans, runtime),
            read,
            write,
            dedicated,
            wait,
            // With its slot, a job may still wait for a connection.
            deadline: wait + config.deadline,
            jobs: Arc::default(),
        }
    }

    /// Whether a call is under way that should have ended long ago.
    pub(crate) fn is_stuck(&self) -> bool {
        self.jobs.oldest().is_some_and(|age| age > self.deadline)
    }

    /// From asking for a slot to a commit that the server still takes.
    pub(crate) fn max_write_duration(&self) -> Duration {
        self.wait + self.deadline + STATEMENT_TIMEOUT
    }

    /// ScopedCalls in this scope: calls without a user are background work.
    pub(crate) fn for_scope(&self, scope: &Scope) -> ScopedCalls<'_> {
        match scope {
            Scope::User(user) => self.for_user(user),
            Scope::System => self.single(Workload::Background),
        }
    }

    /// ScopedCalls for a request of this user.
    pub(crate) fn for_user(&self, user: &UserId) -> ScopedCalls<'_> {
        self.calls(Workload::Requests, Tenant::User(user.clone()))
    }

    /// ScopedCalls for what a sandbox or a start asks of this user's, with_shared_pool the user's own requests.
    pub(crate) fn for_intake_of(&self, user: &UserId) -> ScopedCalls<'_> {
        self.calls(Workload::Intake, Tenant::User(user.clone()))
    }

    /// ScopedCalls for what this sandbox reports.
    pub(crate) fn for_sandbox(&self, sandbox: &SandboxId) -> ScopedCalls<'_> {
        self.calls(Workload::Intake, Tenant::Sandbox(sandbox.clone()))
    }

    /// What a single statement sees, for a request whose user is not known.
    pub(crate) async fn query<T: Send + 'static>(
        &self,
        job: impl FnMut(&mut AnyConnection) -> Result<T, TransactionError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.single(Workload::Requests).look(job).await
    }

    /// The same, to do with what a sandbox reports.
    pub(crate) async fn query_intake<T: Send + 'static>(
        &self,
        job: impl FnMut(&mut AnyConnection) -> Result<T, TransactionError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.single(Workload::Intake).look(job).await
    }

    /// One consistent view, for a request whose user is not known.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        job: impl FnMut(&mut AnyConnection) -> Result<T, TransactionError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.single(Workload::Requests).read(job).await
    }

    /// One transaction, as if alone, for a request whose user is not known. The job runs again if it lost a race, so it must
    /// not give away what it owns.
    pub(crate) async fn write<T: Send + 'static>(
        &self,
        job: impl FnMut(&mut AnyConnection) -> Result<T, TransactionError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.single(Workload::Requests).write(job).await
    }

    /// The same, of a job that takes one row that nobody else has locked (`warm::claim`).
    pub(crate) async fn write_locked<T: Send + 'static>(
        &self,
        job: impl FnMut(&mut AnyConnection) -> Result<T, TransactionError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let calls = self.single(Workload::Requests);
        calls.run(Intent::WriteLocked, job).await
    }

    /// A read whose cost grows with what is stored, for a request whose user is not known.
    pub(crate) async fn scan<T: Send + 'static>(
        &self,
        job: impl FnMut(&mut AnyConnection) -> Result<T, TransactionError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.single(Workload::Requests).scan(job).await
    }

    /// What a single statement sees, for background work.
    pub(crate) async fn query_background<T: Send + 'static>(
        &self,
        job: impl FnMut(&mut AnyConnection) -> Result<T, TransactionError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.single(Workload::Background).look(job).await
    }

    /// A read that only background work asks for.
    pub(crate) async fn read_background<T: Send + 'static>(
        &self,
        job: impl FnMut(&mut AnyConnection) -> Result<T, TransactionError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.single(Workload::Background).read(job).await
    }

    /// A write that only background work does.
    pub(crate) async fn write_background<T: Send + 'static>(
        &self,
        job: impl FnMut(&mut AnyConnection) -> Result<T, TransactionError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.single(Workload::Background).write(job).await
    }

    /// ScopedCalls of which each stands for itself.
    fn single(&self, workload: Workload) -> ScopedCalls<'_> {
        self.calls(workload, Tenant::Single(self.jobs.number()))
    }

    const fn calls(&self, workload: Workload, tenant: Tenant) -> ScopedCalls<'_> {
        ScopedCalls {
            db: self,
            workload,
            tenant,
        }
    }

    fn partition(&self, workload: Workload, mode: JobMode) -> &PoolPartition {
        match (workload, &self.dedicated) {
            (Workload::Intake, Some(dedicated)) => &dedicated.intake,
            (Workload::Background, Some(dedicated)) => &dedicated.background,
            _ if !mode.intent.only_reads() => &self.write,
            (Workload::Requests, _) if mode.is_scan => &self.scan,
            _ => &self.read,
        }
    }
}

/// ScopedCalls of the database, and for whom they are.
pub(crate) struct ScopedCalls<'a> {
    db: &'a Db,
    workload: Workload,
    tenant: Tenant,
}

impl ScopedCalls<'_> {
    /// What a single statement sees.
    pub(crate) async fn query<T: Send + 'static>(
        self,
        job: impl FnMut(&mut AnyConnection) -> Result<T, TransactionError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.run(Intent::SingleStatement, job).await
    }

    /// One consistent view.
    pub(crate) async fn read<T: Send + 'static>(
        self,
        job: impl FnMut(&mut AnyConnection) -> Result<T, TransactionError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.run(Intent::Read, job).await
    }

    /// One consistent view, of documents that may be large: no more answers wait for their callers than there are slots.
    pub(crate) async fn read_documents<T: Send + 'static>(
        self,
        job: impl FnMut(&mut AnyConnection) -> Result<T, TransactionError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let mode = JobMode {
            is_large: true,
            ..Intent::Read.into()
        };
        self.run(mode, job).await
    }

    /// What a single statement sees, of documents that may be large: as [`ScopedCalls::read_documents`].
    pub(crate) async fn query_documents<T: Send + 'static>(
        self,
        job: impl FnMut(&mut AnyConnection) -> Result<T, TransactionError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let mode = JobMode {
            is_large: true,
            ..Intent::SingleStatement.into()
        };
        self.run(mode, job).await
    }

    /// One consistent view, whose cost grows with what is stored and not with what is answered.
    pub(crate) async fn scan<T: Send + 'static>(
        self,
        job: impl FnMut(&mut AnyConnection) -> Result<T, TransactionError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let mode = JobMode {
            is_scan: true,
            ..Intent::Read.into()
        };
        self.run(mode, job).await
    }

    /// One transaction, as if alone. The job runs again if it lost a race, so it must not give away what it owns.
    pub(crate) async fn write<T: Send + 'static>(
        self,
        job: impl FnMut(&mut AnyConnection) -> Result<T, TransactionError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.run(Intent::Write, job).await
    }

    /// A write of what a sandbox reports about a conversation, whose row the job locks before all else
    /// (`conversation_rows::reported_by`). Events come in such numbers that on Postgres each would lose races to others with
    /// which it has nothing in common but a page of an index.
    pub(crate) async fn report<T: Send + 'static>(
        self,
        job: impl FnMut(&mut AnyConnection) -> Result<T, TransactionError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.run(Intent::WriteLocked, job).await
    }

    async fn run<T: Send + 'static>(
        self,
        mode: impl Into<JobMode>,
        job: impl FnMut(&mut AnyConnection) -> Result<T, TransactionError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (db, mode) = (self.db, mode.into());
        let partition = db.partition(self.workload, mode);
        let attempt = JobAttempt::new(partition.context.clone(), mode.intent, mode.is_large, job);
        let (sender, mut receiver) = oneshot::channel();
        let (jobs, timer) = (Arc::clone(&db.jobs), partition.waits.begin());
        let first: Job = Box::new(move |slot| {
            timer.end();
            if sender.is_closed() {
                // Its caller was receiver that it is not done, or is stopped_error.
                return Some(slot);
            }
            attempt.run(jobs.begin(), slot, sender)
        });
        let mut outcome_while_queued = partition.admit(self.tenant, first, &mut receiver).await?;
        let deadline = tokio::time::Instant::now() + db.deadline;
        let mut lost = 0;
        loop {
            let AttemptOutcome {
                answer,
                again,
                slot: _held_until_the_answer_is_returned,
            } = match outcome_while_queued.take() {
                Some(outcome) => outcome,
                None => timeout_at(deadline, &mut receiver)
                    .await
                    .map_err(|elapsed| unavailable("an answer of the database", elapsed))?
                    .map_err(stopped_error)?,
            };
            let may_repeat = || tokio::time::Instant::now() < deadline;
            match answer {
                Err(fault) if lost < fault.attempts() && may_repeat() => {
                    let Some((attempt, under_way, slot)) = again else {
                        return Err(fault.into_store());
                    };
                    lost += 1;
                    tokio::time::sleep(retry_backoff(lost)).await;
                    let (sender, next) = oneshot::channel();
                    receiver = next;
                    slot.run(Box::new(move |slot| attempt.run(under_way, slot, sender)));
                }
                done => return done.map_err(TransactionError::into_store),
            }
        }
    }
}

fn stopped_error(error: RecvError) -> StoreError {
    // The runtime went down before the job began.
    unavailable("the service is stopping", error)
}

/// How long to keep away after so many lost races: at random, and longer each time, so that those who raced do not meet
/// again.
fn retry_backoff(lost: u32) -> Duration {
    let random = RandomState::new().build_hasher().finish();
    Duration::from_micros(random % (1000 << lost.min(6)))
}

/// What a job needs on its thread.
#[derive(Clone)]
struct JobContext {
    pool: Pool<Manager>,
    circuit: Arc<CircuitBreaker>,
    wait: Duration,
}

impl JobContext {
    /// Runs the job on a connection. One that turns out to be cut off is replaced before anything is done, and after
    /// something was only read.
    fn perform<T>(
        &self,
        intent: Intent,
        mut job: impl FnMut(&mut AnyConnection) -> Result<T, TransactionError>,
    ) -> Result<T, TransactionError> {
        let deadline = Instant::now() + self.wait;
        // Each connection of the pool may be cut off, and then there is a new one.
        let mut left = self.pool.max_size();
        loop {
            let mut live = self.connection(deadline)?;
            let begun = connection::begin(&mut live.conn, intent);
            let may_repeat = begun.is_err() || intent.only_reads();
            let done = begun.and_then(|()| connection::finish(&mut live.conn, intent, &mut job));
            match done {
                Err(fault) if live.is_lost(&fault) => {
                    if !may_repeat || left == 0 {
                        return Err(fault.of_cut());
                    }
                    left -= 1;
                }
                done => {
                    self.circuit.record_response();
                    return if live.speaks_english {
                        done
                    } else {
                        done.map_err(TransactionError::in_another_language)
                    };
                }
            }
        }
    }

    /// A free connection. WaitStats for one, unless the database is away.
    fn connection(&self, deadline: Instant) -> Result<PooledConnection<Manager>, StoreError> {
        loop {
            let is_unavailable = self.circuit.is_unavailable();
            let part = if is_unavailable { Duration::ZERO } else { AVAILABILITY_CHECK_INTERVAL };
            match self.pool.get_timeout(part) {
                Ok(live) => return Ok(live),
                Err(_) if is_unavailable => return Err(CircuitBreaker::unavailable_error()),
                Err(error) if Instant::now() >= deadline => {
                    return Err(unavailable("a connection", error));
                }
                Err(_) => {}
            }
        }
    }
}

/// Failures of the pool's own threads.
struct PoolErrorHandler(Arc<CircuitBreaker>);

impl std::fmt::Debug for PoolErrorHandler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PoolErrorHandler")
    }
}

impl HandleError<diesel::r2d2::Error> for PoolErrorHandler {
    fn handle_error(&self, error: diesel::r2d2::Error) {
        // The circuit tells the log once, and not for each try of each pool.
        tracing::debug!(error = %chain(&error), "database connection failed");
        self.0.start_probing();
    }
}

#[cfg(test)]
mod tests;
