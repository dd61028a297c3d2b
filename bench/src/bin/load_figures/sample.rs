//! Measurements of one side of a comparison.

use std::time::Duration;

use acceptance::processes::processor_time;
use anyhow::Context as _;
use benchmarks::load::LoadTarget;
use benchmarks::median;

/// As many as for the earlier results.
pub(crate) const CONNECTIONS: usize = 32;

/// Rounds of a closed loop: responses per second, p99 in milliseconds, and, if the process is known, processor time of a request
/// in microseconds.
#[derive(Default)]
pub(crate) struct Sample {
    rates: Vec<f64>,
    latencies: Vec<f64>,
    costs: Vec<f64>,
}

impl Sample {
    /// Measures one round.
    pub(crate) async fn measure(
        &mut self,
        (target, pid): (&LoadTarget, Option<u32>),
        duration: Duration,
    ) -> anyhow::Result<()> {
        let used = || pid.map(|pid| processor_time(pid).context("the server does not run"));
        let before = used().transpose()?;
        let load = target.run_closed_loop(CONNECTIONS, duration).await?;
        if let (Some(before), Some(after)) = (before, used().transpose()?) {
            let spent = after.saturating_sub(before).as_secs_f64();
            self.costs.push(spent * 1e6 / f64::from(load.count()));
        }
        self.rates.push(load.per_second());
        self.latencies.push(load.percentile(99.0));
        Ok(())
    }

    /// Responses per second, the median of rounds.
    pub(crate) fn rate(&self) -> f64 {
        median(self.rates.iter().copied())
    }

    /// In milliseconds, the median of rounds.
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
