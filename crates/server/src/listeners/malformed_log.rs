//! Logs connections that do not speak HTTP. Any client can open one, so the log is limited to a few lines per second
//! (level `debug`).

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use actix_http::error::DispatchError;
use domain::error::chain;

/// Maximum number of lines per second, for all connections of a listener.
const MAX_LINES_PER_SECOND: u32 = 3;

#[derive(Debug)]
pub(crate) struct MalformedLog {
    started_at: Instant,
    budget: Mutex<LineBudget>,
}

#[derive(Debug, Default)]
struct LineBudget {
    second: u64,
    lines: u32,
    suppressed: u64,
}

impl MalformedLog {
    pub(crate) fn new() -> Self {
        Self {
            started_at: Instant::now(),
            budget: Mutex::default(),
        }
    }

    /// Logs why the connection of this peer was closed.
    pub(crate) fn note(&self, peer: Option<SocketAddr>, error: &DispatchError) {
        if !tracing::enabled!(tracing::Level::DEBUG) {
            return;
        }
        let mut budget = self.budget.lock().unwrap_or_else(PoisonError::into_inner);
        let suppressed = budget.take(self.started_at.elapsed());
        drop(budget);
        let Some(suppressed) = suppressed else { return };
        let peer = peer.map(|peer| peer.ip().to_canonical());
        tracing::debug!(
            client.address = peer.map(tracing::field::display),
            error = %chain(error),
            left_out = suppressed,
            "closed a connection that did not speak HTTP"
        );
    }
}

impl LineBudget {
    /// Takes a line of the budget. Returns how many lines were suppressed before it; `None` if this one is suppressed
    /// too.
    fn take(&mut self, now: Duration) -> Option<u64> {
        if self.second != now.as_secs() {
            (self.second, self.lines) = (now.as_secs(), 0);
        }
        if self.lines >= MAX_LINES_PER_SECOND {
            self.suppressed += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_per_second_are_limited_and_the_next_line_counts_the_suppressed() {
        let mut budget = LineBudget::default();
        let mut at = |millis| budget.take(Duration::from_millis(millis));
        for _ in 0..MAX_LINES_PER_SECOND {
            assert_eq!(at(10), Some(0));
        }
        for _ in 0..1_000 {
            assert_eq!(at(999), None);
        }
        assert_eq!(at(1_000), Some(1_000));
        assert_eq!(at(1_001), Some(0));
    }
}
