//! What one side of a comparison takes.

use std::time::Duration;

use acceptance::processes::processor_time;
use anyhow::Context as _;
use benchmarks::load::LoadTarget;
use benchmarks::median;

/// Connections of all loads, as when the earlier figures were taken.
pub(crate) const CONNECTIONS: usize = 32;

/// How a side fares as fast as it can: answers a second, their p99 in milliseconds, and, where its process is known, processor
/// time of each in microseconds.
#[derive(Default)]
pub(crate) struct Sample {
    rates: Vec<f64>,
    latencies: Vec<f64>,
    costs: Vec<f64>,
}

impl Sample {
    /// One turn, against the server and perhaps its process.
    pub(crate) async fn turn(
        &mut self,
        (aim, pid): (&LoadTarget, Option<u32>),
        lasting: Duration,
    ) -> anyhow::Result<()> {
        let used = || pid.map(|pid| processor_time(pid).context("it runs"));
        let before = used().transpose()?;
        let load = aim.closed(CONNECTIONS, lasting).await?;
        if let (Some(before), Some(after)) = (before, used().transpose()?) {
            let spent = after.saturating_sub(before).as_secs_f64();
            self.costs.push(spent * 1e6 / f64::from(load.count()));
        }
        self.rates.push(load.per_second());
        self.latencies.push(load.at(99.0));
        Ok(())
    }

    /// Answers a second, the median of turns.
    pub(crate) fn rate(&self) -> f64 {
        median(self.rates.iter().copied())
    }

    /// In milliseconds, the median of turns.
    pub(crate) fn p99(&self) -> f64 {
        median(self.latencies.iter().copied())
    }

    /// As a cell of a table.
    pub(crate) fn summary(&self) -> String {
        let cost = median(self.costs.iter().copied());
        format!(
            "{:.0} requests/s, {cost:.1} µs of processor each",
            self.rate()
        )
    }
}
