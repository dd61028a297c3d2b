//! Options and results of `bench-start`.

pub(crate) mod bare;
pub(crate) mod footprint;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Duration;

use anyhow::{Context as _, bail};
use benchmarks::median;

/// Numbers of measurements.
pub(crate) struct StartOptions {
    /// Warm starts of each kind.
    pub(crate) warm: usize,
    /// Pairs of cold starts and bare boots.
    pub(crate) cold: usize,
    /// Concurrent starts of each burst.
    pub(crate) bursts: &'static [usize],
    /// Whether only cold starts are measured.
    pub(crate) is_cold_only: bool,
    /// Another server to compare with; its key in `BENCH_KEY`.
    pub(crate) url: Option<String>,
}

impl StartOptions {
    /// Parses the arguments of the program.
    pub(crate) fn from_arguments() -> anyhow::Result<Self> {
        let (mut rounds, mut is_cold_only, mut url) = (20, false, None);
        let mut bursts: &'static [usize] = &[20, 50];
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--short" => (rounds, bursts) = (1, &[3]),
                "--cold" => is_cold_only = true,
                "--rounds" => {
                    let number = arguments.next().context("--rounds takes a number")?;
                    rounds = number.parse().context("--rounds takes a number")?;
                }
                "--url" => url = Some(arguments.next().context("--url takes a URL")?),
                other => bail!(
                    "unknown argument {other}; there are --short, --cold, --rounds N and --url URL"
                ),
            }
        }
        Ok(Self {
            warm: rounds,
            cold: if is_cold_only {
                rounds
            } else {
                rounds.div_ceil(2)
            },
            bursts,
            is_cold_only,
            url,
        })
    }
}

/// Times of one kind.
#[derive(Default)]
pub(crate) struct Percentiles(Vec<f64>);

impl Percentiles {
    pub(crate) fn push(&mut self, took: Duration) {
        self.0.push(took.as_secs_f64() * 1000.0);
        self.0.sort_by(f64::total_cmp);
    }

    pub(crate) fn percentile(&self, percent: usize) -> f64 {
        // The nearest rank: of 20 the 19th is the 95th percentile.
        let rank = (self.0.len() * percent).div_ceil(100).max(1);
        self.0.get(rank - 1).copied().unwrap_or_default()
    }

    /// As a cell of a table.
    pub(crate) fn row(&self) -> String {
        format!(
            "p50 {:.0} ms, p95 {:.0} ms (n={})",
            self.percentile(50),
            self.percentile(95),
            self.0.len()
        )
    }
}

/// Timings of steps, by kind of start.
#[derive(Default)]
pub(crate) struct StepTimings(BTreeMap<String, BTreeMap<String, Vec<f64>>>);

impl StepTimings {
    pub(crate) fn record(&mut self, kind: &str, timings: &BTreeMap<String, u64>) {
        let steps = self.0.entry(kind.to_owned()).or_default();
        for (step, took) in timings {
            let took = u32::try_from(*took).unwrap_or(u32::MAX);
            steps.entry(step.clone()).or_default().push(took.into());
        }
    }

    /// Prints the medians, the longest first.
    pub(crate) fn print(self) -> std::io::Result<()> {
        let mut text = String::from("\n| start | steps, medians in ms |\n|---|---|\n");
        for (kind, steps) in self.0 {
            let steps = steps.into_iter().map(|(step, took)| (median(took), step));
            let mut steps: Vec<(f64, String)> = steps.collect();
            steps.sort_by(|one, other| other.0.total_cmp(&one.0));
            let steps = steps.iter().map(|(took, step)| format!("{step} {took:.0}"));
            let steps = steps.collect::<Vec<_>>().join(", ");
            let _ = writeln!(text, "| {kind} | {steps} |");
        }
        write!(std::io::stdout(), "{text}")
    }
}
