//! Blocking diesel, called from async code, bounded.
//!
//! A caller waits for a *permit* (a semaphore as large as the pool, first come first served, with a deadline) and only
//! then costs a thread and a connection: any number of requests can wait without one thread each. The permit moves into
//! the job, so a request that goes away cannot leak a connection. Jobs run on the runtime whose handle was given at
//! open, not on the caller's: actix workers are small runtimes of their own with pools of their own.
//!
//! A job that has begun cannot be ended from here. Postgres ends what takes too long; if it says nothing at all (frozen
//! behind a kernel that acknowledges), the caller is answered after a deadline, and the job is told to be stuck.

mod attempt;
mod line;
mod turns;

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use diesel::r2d2::{HandleError, Pool, PooledConnection};
use domain::error::{StoreError, chain};
use domain::scope::Scope;
use tokio::runtime::Handle;
use tokio::sync::oneshot::error::RecvError;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout_at;

use self::attempt::Attempt;
use self::line::{Job, Line};
use self::turns::Turns;
use crate::circuit::{Circuit, GRACE};
use crate::connection::{self, AnyConnection, Intent, Manager, Target};
use crate::error::{Fault, unavailable};
use crate::store::StoreConfig;

/// How often whoever waits for a connection looks whether that is of any use.
const LOOK: Duration = Duration::from_millis(50);
/// How long the server lets a statement of a job take that began just before its deadline (`statement_timeout`).
const LAST_STATEMENT: Duration = Duration::from_secs(30);

impl Behalf {
    const fn of(scope: &Scope) -> Self {
        match scope {
            Scope::User(_) => Self::Users,
            Scope::System => Self::Background,
        }
    }
}

/// A pool and the queue in front of it.
struct Lane {
    access: Access,
    permits: Arc<Semaphore>,
    line: Arc<Line>,
    turns: Arc<Turns>,
}

/// On whose behalf a call is made. Each has connections of its own on Postgres, so that none can starve another.
#[derive(Debug, Clone, Copy)]
enum Behalf {
    /// A request of a user.
    Users,
    /// What a sandbox reports.
    Intake,
    /// Start workers, the reconciler, housekeeping.
    Background,
}

/// Pools of one database.
pub(crate) struct Db {
    read: Lane,
    write: Lane,
    /// `None`: intake and background work share the two above. `SQLite` has one writer at a time in any case; the queue is
    /// fair, so neither events nor users starve, and with one connection nobody spins on a locked file.
    apart: Option<Apart>,
    runtime: Handle,
    wait: Duration,
    deadline: Duration,
    jobs: Arc<Jobs>,
}

/// When the jobs that are under way began: no more than there are permits.
#[derive(Default)]
struct Jobs {
    next: AtomicU64,
    begun: Mutex<BTreeMap<u64, Instant>>,
}

/// One of them; it is over when this is dropped.
struct UnderWay(Arc<Jobs>, u64);

impl Jobs {
    fn begin(self: &Arc<Self>) -> UnderWay {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        begun.insert(number, Instant::now());
        UnderWay(Arc::clone(self), number)
    }

    /// For how long the oldest one has been under way.
    fn oldest(&self) -> Option<Duration> {
        let begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        begun.values().map(Instant::elapsed).max()
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut begun = self.0.begun.lock().unwrap_or_else(PoisonError::into_inner);
        begun.remove(&self.1);
    }
}

/// Lanes beside those of the users' requests, for reads and writes alike.
struct Apart {
    intake: Lane,
    background: Lane,
}

impl Db {
    /// Builds the pools; connections are made as they are needed.
    pub(crate) fn new(target: &Target, config: &StoreConfig, runtime: Handle) -> Self {
        let (connections, wait) = (config.connections, config.wait);
        let circuit = Circuit::new(target, runtime.clone());
        let lane = |size: u32| Lane::build(target, size.max(1), wait, &circuit);
        let (write, apart) = match target {
            Target::Sqlite(_) => (lane(1), None),
            #[cfg(feature = "postgres")]
            Target::Postgres(_) => {
                let apart = Apart {
                    intake: lane(connections.div_ceil(2)),
                    background: lane(connections.div_ceil(2)),
                };
                (lane(connections), Some(apart))
            }
        };
        Self {
            read: lane(connections),
            write,
            apart,
            runtime,
            wait,
            // With its turn, a job may still wait for a connection.
            deadline: wait + config.deadline,
            jobs: Arc::default(),
        }
    }

    /// Whether a call is under way that should have ended long ago.
    pub(crate) fn is_stuck(&self) -> bool {
        self.jobs.oldest().is_some_and(|age| age > self.deadline)
    }

    /// From asking for a turn to a commit that the server still takes.
    pub(crate) fn longest_write(&self) -> Duration {
        self.wait + self.deadline + LAST_STATEMENT
    }

    /// What a single statement sees, for a user.
    pub(crate) async fn look<T: Send + 'static>(
        &self,
        job: impl FnMut(&mut AnyConnection) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.run(Behalf::Users, Intent::Look, job).await
    }

    /// The same, to do with what a sandbox reports.
    pub(crate) async fn intake_look<T: Send + 'static>(
        &self,
        job: impl FnMut(&mut AnyConnection) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.run(Behalf::Intake, Intent::Look, job).await
    }

    /// The same, for whoever's scope it is: what is asked for in nobody's name is background work.
    pub(crate) async fn look_for<T: Send + 'static>(
        &self,
        scope: &Scope,
        job: impl FnMut(&mut AnyConnection) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.run(Behalf::of(scope), Intent::Look, job).await
    }

    /// One consistent view, for whoever's scope it is.
    pub(crate) async fn read_for<T: Send + 'static>(
        &self,
        scope: &Scope,
        job: impl FnMut(&mut AnyConnection) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.run(Behalf::of(scope), Intent::Read, job).await
    }

    /// One consistent view, for a user.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        job: impl FnMut(&mut AnyConnection) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.run(Behalf::Users, Intent::Read, job).await
    }

    /// One transaction, as if alone, for a user. The job runs again if it lost a race, so it must not give away what it
    /// owns.
    pub(crate) async fn write<T: Send + 'static>(
        &self,
        job: impl FnMut(&mut AnyConnection) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.run(Behalf::Users, Intent::Write, job).await
    }

    /// The same, of a job that takes one row that nobody else has locked (`warm::claim`).
    pub(crate) async fn take<T: Send + 'static>(
        &self,
        job: impl FnMut(&mut AnyConnection) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.run(Behalf::Users, Intent::WriteLocked, job).await
    }

    /// A write of what a sandbox reports about a conversation, whose row the job locks before all else
    /// (`conversation_rows::reported_by`). Events come in such numbers that on Postgres each would lose races to others with
    /// which it has nothing in common but a page of an index.
    pub(crate) async fn report<T: Send + 'static>(
        &self,
        job: impl FnMut(&mut AnyConnection) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.run(Behalf::Intake, Intent::WriteLocked, job).await
    }

    /// A write of what else a sandbox sends.
    pub(crate) async fn intake<T: Send + 'static>(
        &self,
        job: impl FnMut(&mut AnyConnection) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.run(Behalf::Intake, Intent::Write, job).await
    }

    /// A read that only background work asks for.
    pub(crate) async fn background_read<T: Send + 'static>(
        &self,
        job: impl FnMut(&mut AnyConnection) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.run(Behalf::Background, Intent::Read, job).await
    }

    /// A write that only background work does.
    pub(crate) async fn background<T: Send + 'static>(
        &self,
        job: impl FnMut(&mut AnyConnection) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.run(Behalf::Background, Intent::Write, job).await
    }

    fn lane(&self, behalf: Behalf, intent: Intent) -> &Lane {
        match (behalf, intent, &self.apart) {
            (Behalf::Intake, _, Some(apart)) => &apart.intake,
            (Behalf::Background, _, Some(apart)) => &apart.background,
            (_, Intent::Look | Intent::Read, _) => &self.read,
            (_, Intent::Write | Intent::WriteLocked, _) => &self.write,
        }
    }

    async fn run<T: Send + 'static>(
        &self,
        behalf: Behalf,
        intent: Intent,
        job: impl FnMut(&mut AnyConnection) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, StoreError> {
        let lane = self.lane(behalf, intent);
        let attempt = Attempt::new(lane.access.clone(), intent, job);
        let (tell, mut told) = oneshot::channel();
        let (jobs, noted) = (Arc::clone(&self.jobs), lane.turns.begin());
        let first: Job = Box::new(move |turn| {
            noted.end();
            if tell.is_closed() {
                // Its caller was told that it is not done, or is gone.
                return Some(turn);
            }
            attempt.run(jobs.begin(), turn, tell)
        });
        let early = lane.in_turn(first, &self.runtime, &mut told).await?;
        let over = tokio::time::Instant::now() + self.deadline;
        let (mut ended, mut lost) = (early, 0);
        loop {
            let (answer, back) = match ended.take() {
                Some(ended) => ended,
                None => timeout_at(over, &mut told)
                    .await
                    .map_err(|elapsed| unavailable("an answer of the database", elapsed))?
                    .map_err(gone)?,
            };
            let may_repeat = || tokio::time::Instant::now() < over;
            match answer {
                Err(fault) if lost < fault.attempts() && may_repeat() => {
                    let Some((attempt, under_way, turn)) = back else {
                        return Err(fault.into_store());
                    };
                    lost += 1;
                    tokio::time::sleep(pause(lost)).await;
                    let (tell, next) = oneshot::channel();
                    told = next;
                    let again = move |turn| attempt.run(under_way, turn, tell);
                    lane.serve(&self.runtime, Box::new(again), turn);
                }
                done => return done.map_err(Fault::into_store),
            }
        }
    }
}

fn gone(error: RecvError) -> StoreError {
    // The runtime went down before the job began.
    unavailable("the service is stopping", error)
}

/// How long to keep away after so many lost races: at random, and longer each time, so that those who raced do not meet
/// again.
fn pause(lost: u32) -> Duration {
    let random = RandomState::new().build_hasher().finish();
    Duration::from_micros(random % (1000 << lost.min(6)))
}

/// What a job needs on its thread.
#[derive(Clone)]
struct Access {
    pool: Pool<Manager>,
    circuit: Arc<Circuit>,
    wait: Duration,
}

impl Access {
    /// Runs the job on a connection. One that turns out to be cut off is replaced before anything is done, and after
    /// something was only read.
    fn perform<T>(
        &self,
        intent: Intent,
        mut job: impl FnMut(&mut AnyConnection) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
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
                    self.circuit.answered();
                    return if live.speaks_english {
                        done
                    } else {
                        done.map_err(Fault::in_another_language)
                    };
                }
            }
        }
    }

    /// A free connection. Waits for one, unless the database is away.
    fn connection(&self, deadline: Instant) -> Result<PooledConnection<Manager>, StoreError> {
        loop {
            let is_away = self.circuit.is_away();
            let part = if is_away { Duration::ZERO } else { LOOK };
            match self.pool.get_timeout(part) {
                Ok(live) => return Ok(live),
                Err(_) if is_away => return Err(Circuit::refusal()),
                Err(error) if Instant::now() >= deadline => {
                    return Err(unavailable("a connection", error));
                }
                Err(_) => {}
            }
        }
    }
}

impl Lane {
    fn build(target: &Target, size: u32, wait: Duration, circuit: &Arc<Circuit>) -> Self {
        let builder = Pool::builder()
            .max_size(size)
            .min_idle(Some(1))
            // We wait ourselves. By this the pool measures how long it keeps away after a failure: half of it at most.
            .connection_timeout(GRACE)
            .error_handler(Box::new(Report(Arc::clone(circuit))));
        let builder = match target {
            // A file does not go away: no check before use, and connections keep their prepared statements.
            Target::Sqlite(_) => builder
                .test_on_check_out(false)
                .max_lifetime(None)
                .idle_timeout(None),
            #[cfg(feature = "postgres")]
            Target::Postgres(_) => builder.test_on_check_out(true),
        };
        Self {
            access: Access {
                pool: builder.build_unchecked(Manager::new(target.clone())),
                circuit: Arc::clone(circuit),
                wait,
            },
            permits: Arc::new(Semaphore::new(usize::try_from(size).unwrap_or(1))),
            line: Arc::default(),
            turns: Arc::default(),
        }
    }
}

/// Failures of the pool's own threads.
struct Report(Arc<Circuit>);

impl std::fmt::Debug for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Report")
    }
}

impl HandleError<diesel::r2d2::Error> for Report {
    fn handle_error(&self, error: diesel::r2d2::Error) {
        // The circuit tells the log once, and not for each try of each pool.
        tracing::debug!(error = %chain(&error), "database connection failed");
        self.0.suspect();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use tokio::time::{sleep, timeout};

    use super::*;

    /// Neither a caller nor the readiness waits for a database that says nothing; once it does, all is well again.
    #[tokio::test]
    async fn a_job_that_does_not_end_is_not_waited_for_and_makes_the_store_unready() {
        let directory = tempfile::TempDir::new().unwrap();
        let config = StoreConfig {
            connections: 2,
            deadline: Duration::from_secs(2),
            ..StoreConfig::new("sqlite://unused")
        };
        let target = Target::Sqlite(directory.path().join("a.db"));
        let db = Db::new(&target, &config, Handle::current());
        let (end, ended) = mpsc::channel::<()>();
        let stuck = db.look(move |_| {
            let _ = ended.recv();
            Ok(())
        });
        let answer = timeout(Duration::from_secs(30), stuck).await;
        let answer = answer.expect("the caller is answered");
        assert!(
            matches!(answer, Err(StoreError::Unavailable { .. })),
            "{answer:?}"
        );
        // Its thread may have begun later than its caller.
        becomes(&db, true).await;
        assert!(db.look(|_| Ok(())).await.is_ok(), "others go on");
        drop(end);
        becomes(&db, false).await;
    }

    /// Also of a caller that went away before.
    #[tokio::test]
    async fn a_job_whose_caller_went_away_is_known_to_be_stuck() {
        let directory = tempfile::TempDir::new().unwrap();
        let config = StoreConfig {
            deadline: Duration::from_millis(200),
            ..StoreConfig::new("sqlite://unused")
        };
        let target = Target::Sqlite(directory.path().join("a.db"));
        let db = Db::new(&target, &config, Handle::current());
        let (end, ended) = mpsc::channel::<()>();
        let stuck = db.look(move |_| {
            let _ = ended.recv();
            Ok(())
        });
        assert!(timeout(Duration::from_millis(50), stuck).await.is_err());
        becomes(&db, true).await;
        drop(end);
    }

    async fn becomes(db: &Db, stuck: bool) {
        let give_up = Instant::now() + Duration::from_secs(30);
        while db.is_stuck() != stuck {
            assert!(Instant::now() < give_up, "never stuck: {stuck}");
            sleep(Duration::from_millis(10)).await;
        }
    }
}
