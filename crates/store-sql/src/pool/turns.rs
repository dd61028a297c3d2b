//! Waiting for one's turn at a pool, and what is counted of it.

use std::sync::Arc;
use std::time::Instant;

use domain::error::StoreError;
use domain::measure::{self, Count, Durations, Level};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::{sleep, timeout};

use super::line::{Job, Line};
use super::{Db, Lane};
use crate::circuit::{Circuit, GRACE};
use crate::error::unavailable;

/// What is counted at one pool.
#[derive(Default)]
pub(super) struct Turns {
    waits: Durations,
    waiting: Level,
    refused: Count,
}

/// When a job came, to be counted when its turn does.
pub(super) struct Noted(Arc<Turns>, Instant);

impl Turns {
    pub(super) fn begin(self: &Arc<Self>) -> Noted {
        Noted(Arc::clone(self), Instant::now())
    }
}

impl Noted {
    pub(super) fn end(&self) {
        self.0.waits.note(self.1.elapsed());
    }
}

impl Lane {
    /// Waits until it is the job's turn, but not for a database that is away; an error: the job does not run. Where others are
    /// before it, the job may have been done when this returns, and then what it told is returned.
    pub(super) async fn in_turn<T>(
        &self,
        job: Job,
        runtime: &Handle,
        told: &mut oneshot::Receiver<T>,
    ) -> Result<Option<T>, StoreError> {
        if let Ok(turn) = Arc::clone(&self.permits).try_acquire_owned() {
            self.serve(runtime, job, turn);
            return Ok(None);
        }
        let place = self.line.enter(job);
        let _waiting = self.turns.waiting.enter();
        let turn = tokio::select! {
            biased;
            Ok(ended) = told => return Ok(Some(ended)),
            turn = self.wait() => turn,
        };
        match (place.leave(), turn) {
            (Some(job), Ok(turn)) => self.serve(runtime, job, turn),
            (Some(_never_run), Err(error)) => {
                self.turns.refused.add(1);
                return Err(error);
            }
            // It is under way: a turn that came after all is the next one's.
            (None, _) => {}
        }
        Ok(None)
    }

    /// Runs a job on a thread, and then those in line.
    pub(super) fn serve(&self, runtime: &Handle, job: Job, turn: OwnedSemaphorePermit) {
        serve(Arc::clone(&self.line), runtime, job, turn);
    }

    async fn wait(&self) -> Result<OwnedSemaphorePermit, StoreError> {
        let permit = timeout(self.access.wait, Arc::clone(&self.permits).acquire_owned());
        let circuit = &self.access.circuit;
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

    fn measured(&self, name: &'static str) -> measure::Pool {
        let pool = &self.access.pool;
        let now = pool.state();
        // There are as many permits as connections.
        let free = self.permits.available_permits() as u64;
        measure::Pool {
            name,
            most: pool.max_size(),
            open: now.connections,
            idle: now.idle_connections,
            in_use: u64::from(pool.max_size()).saturating_sub(free),
            waiting: self.turns.waiting.get(),
            waits: self.turns.waits.measured(),
            timeouts: self.turns.refused.get(),
        }
    }
}

fn serve(line: Arc<Line>, runtime: &Handle, job: Job, turn: OwnedSemaphorePermit) {
    let threads = runtime.clone();
    runtime.spawn_blocking(move || {
        if let Some((job, turn)) = line.serve(job, turn) {
            serve(line, &threads, job, turn);
        }
    });
}

impl Db {
    /// What the pools are doing.
    pub(crate) fn measured(&self) -> Vec<measure::Pool> {
        let mut pools = vec![self.read.measured("read"), self.write.measured("write")];
        if let Some(apart) = &self.apart {
            pools.push(apart.intake.measured("intake"));
            pools.push(apart.background.measured("background"));
        }
        pools
    }
}
