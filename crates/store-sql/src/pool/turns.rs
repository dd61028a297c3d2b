//! Waiting for one's turn at a pool, and what is counted of it.

use std::sync::Arc;
use std::time::Instant;

use domain::error::StoreError;
use domain::measure::{self, Count, Durations, Level};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{sleep, timeout};

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

impl Lane {
    /// Waits for one's turn, but not for a database that is away.
    pub(super) async fn turn(&self) -> Result<OwnedSemaphorePermit, StoreError> {
        let began = Instant::now();
        let permit = if let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() {
            Ok(permit)
        } else {
            let _waiting = self.turns.waiting.enter();
            self.wait().await
        };
        match &permit {
            Ok(_) => self.turns.waits.note(began.elapsed()),
            Err(_) => self.turns.refused.add(1),
        }
        permit
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
