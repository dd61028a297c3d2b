//! Blocking diesel, called from async code, bounded.
//!
//! A caller waits for a *permit* (a semaphore as large as the pool, first come first served, with a deadline) and only
//! then costs a thread and a connection: any number of requests can wait without one thread each. The permit moves into
//! the job, so a request that goes away cannot leak a connection. Jobs run on the runtime whose handle was given at
//! open, not on the caller's: actix workers are small runtimes of their own with pools of their own.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use diesel::r2d2::{HandleError, Pool};
use domain::error::StoreError;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::JoinError;
use tracing::Span;

use crate::connection::{AnyConnection, Intent, Manager, Target, transact};
use crate::error::{Fault, unavailable};

/// How often a Postgres transaction that lost a race is tried again: a second or two in all.
const ATTEMPTS: u32 = 50;

/// A pool and the queue in front of it.
struct Lane {
    pool: Pool<Manager>,
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
    wait: Duration,
}

/// Lanes beside those of the users' requests, for reads and writes alike.
struct Apart {
    intake: Lane,
    background: Lane,
}

impl Db {
    /// Builds the pools. Blocking.
    pub(crate) fn connect(
        target: &Target,
        connections: u32,
        wait: Duration,
        runtime: Handle,
    ) -> Result<Self, StoreError> {
        let lane = |size: u32| Lane::build(target, size.max(1), wait);
        let (write, apart) = match target {
            Target::Sqlite(_) => (lane(1)?, None),
            #[cfg(feature = "postgres")]
            Target::Postgres(_) => {
                let apart = Apart {
                    intake: lane(connections.div_ceil(2))?,
                    background: lane(connections.div_ceil(2))?,
                };
                (lane(connections)?, Some(apart))
            }
        };
        Ok(Self {
            read: lane(connections)?,
            write,
            apart,
            runtime,
            wait,
        })
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

    /// A read that has to do with what a sandbox reports.
    pub(crate) async fn intake_read<T: Send + 'static>(
        &self,
        job: impl FnMut(&mut AnyConnection) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.run(Behalf::Intake, Intent::Read, job).await
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
            (_, Intent::Read, _) => &self.read,
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
        let permit = tokio::time::timeout(self.wait, Arc::clone(&lane.permits).acquire_owned())
            .await
            .map_err(|elapsed| unavailable("a free connection", elapsed))?
            .map_err(|closed| unavailable("a free connection", closed))?;
        let (mut held, mut lost) = ((job, permit), 0);
        loop {
            let (pool, span) = (lane.pool.clone(), Span::current());
            let turn = self.runtime.spawn_blocking(move || {
                let answer = span.in_scope(|| perform(&pool, intent, &mut held.0));
                (answer, held)
            });
            let (answer, back) = turn.await.map_err(gone)?;
            match answer {
                Err(fault) if fault.is_lost_race() && lost < ATTEMPTS => lost += 1,
                done => return done.map_err(Fault::into_store),
            }
            held = back;
            tokio::time::sleep(pause(lost)).await;
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

fn perform<T>(
    pool: &Pool<Manager>,
    intent: Intent,
    job: impl FnMut(&mut AnyConnection) -> Result<T, Fault>,
) -> Result<T, Fault> {
    let mut conn = pool
        .get()
        .map_err(|error| unavailable("a connection", error))?;
    transact(&mut conn, intent, job)
}

impl Lane {
    fn build(target: &Target, size: u32, wait: Duration) -> Result<Self, StoreError> {
        let builder = Pool::builder()
            .max_size(size)
            .min_idle(Some(1))
            .connection_timeout(wait)
            .error_handler(Box::new(Report));
        let builder = match target {
            // A file does not go away: no check before each use, and connections keep their prepared statements.
            Target::Sqlite(_) => builder
                .test_on_check_out(false)
                .max_lifetime(None)
                .idle_timeout(None),
            #[cfg(feature = "postgres")]
            Target::Postgres(_) => builder.test_on_check_out(true),
        };
        let pool = builder
            .build(Manager::new(target.clone()))
            .map_err(|error| unavailable("a connection", error))?;
        Ok(Self {
            pool,
            permits: Arc::new(Semaphore::new(usize::try_from(size).unwrap_or(1))),
        })
    }
}

/// Failures of the pool's own threads go to our log.
#[derive(Debug)]
struct Report;

impl HandleError<diesel::r2d2::Error> for Report {
    fn handle_error(&self, error: diesel::r2d2::Error) {
        tracing::warn!(%error, "database connection failed");
    }
}
