//! Blocking diesel, called from async code, bounded.
//!
//! A caller waits for a *permit* (a semaphore as large as the pool, first come first served, with a deadline) and only
//! then costs a thread and a connection: any number of requests can wait without one thread each. The permit moves into
//! the job, so a request that goes away cannot leak a connection. Jobs run on the runtime whose handle was given at
//! open, not on the caller's: actix workers are small runtimes of their own with pools of their own.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use diesel::r2d2::{HandleError, Pool, PooledConnection};
use domain::error::StoreError;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinError;
use tokio::time::{sleep, timeout};
use tracing::Span;

use crate::circuit::{Circuit, GRACE};
use crate::connection::{self, AnyConnection, Intent, Manager, Target};
use crate::error::{Fault, unavailable};

/// How often whoever waits for a connection looks whether that is of any use.
const LOOK: Duration = Duration::from_millis(50);

/// A pool and the queue in front of it.
struct Lane {
    access: Access,
    permits: Arc<Semaphore>,
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
}

/// Lanes beside those of the users' requests, for reads and writes alike.
struct Apart {
    intake: Lane,
    background: Lane,
}

impl Db {
    /// Builds the pools; connections are made as they are needed.
    pub(crate) fn new(target: &Target, connections: u32, wait: Duration, runtime: Handle) -> Self {
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
        }
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
        let permit = self.turn(lane).await?;
        let (mut held, mut lost) = ((job, permit), 0);
        loop {
            let (access, span) = (lane.access.clone(), Span::current());
            let turn = self.runtime.spawn_blocking(move || {
                let answer = span.in_scope(|| access.perform(intent, &mut held.0));
                (answer, held)
            });
            let (answer, back) = turn.await.map_err(gone)?;
            match answer {
                Err(fault) if fault.is_lost_race() && lost < fault.attempts() => lost += 1,
                done => return done.map_err(Fault::into_store),
            }
            held = back;
            tokio::time::sleep(pause(lost)).await;
        }
    }

    /// Waits for one's turn, but not for a database that is away.
    async fn turn(&self, lane: &Lane) -> Result<OwnedSemaphorePermit, StoreError> {
        if let Ok(permit) = Arc::clone(&lane.permits).try_acquire_owned() {
            return Ok(permit);
        }
        let permit = timeout(lane.access.wait, Arc::clone(&lane.permits).acquire_owned());
        let circuit = &lane.access.circuit;
        let no_use = async {
            if !circuit.is_away() {
                sleep(GRACE).await;
                if circuit.silence() >= GRACE {
                    circuit.suspect();
                }
            }
            circuit.until_away().await;
        };
        tokio::select! {
            permit = permit => permit
                .map_err(|elapsed| unavailable("a free connection", elapsed))?
                .map_err(|closed| unavailable("a free connection", closed)),
            () = no_use => Err(Circuit::refusal()),
        }
    }
}

fn gone(error: JoinError) -> StoreError {
    if error.is_panic() {
        StoreError::Other(error.into())
    } else {
        // The runtime went down before the job began.
        unavailable("the service is stopping", error)
    }
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
            let (now, is_away) = (Instant::now(), self.circuit.is_away());
            let part = if is_away { Duration::ZERO } else { LOOK };
            match self.pool.get_timeout(part) {
                Ok(live) => return Ok(live),
                Err(_) if is_away => return Err(Circuit::refusal()),
                Err(error) if now >= deadline => return Err(unavailable("a connection", error)),
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
        tracing::debug!(%error, "database connection failed");
        self.0.suspect();
    }
}
