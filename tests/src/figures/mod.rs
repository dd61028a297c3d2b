//! What suites and benchmarks share: requests as cheap as they can be, and events.

pub mod wire;

use std::time::Duration;

use serde_json::{Value, json};

/// Sorted times.
#[derive(Debug)]
pub struct SortedTimes(Vec<Duration>);

impl SortedTimes {
    /// Sorts times.
    #[must_use]
    pub fn new(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        Self(times)
    }

    /// A percentile, in milliseconds.
    #[must_use]
    pub fn percentile(&self, percent: usize) -> f64 {
        let index = (self.0.len() * percent / 100).min(self.0.len().saturating_sub(1));
        let time = self.0.get(index);
        time.map_or(0.0, |time| time.as_secs_f64() * 1000.0)
    }

    /// The number of times.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

/// The median, or 0 without values.
#[must_use]
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// Bytes in units of 1,000,000, like the targets.
#[must_use]
pub fn megabytes(bytes: u64) -> f64 {
    let kilobytes = u32::try_from(bytes / 1000).unwrap_or(u32::MAX);
    f64::from(kilobytes) / 1000.0
}

/// An event of 1.2 KB, as agent servers report them.
#[must_use]
pub fn event(id: &str, happened_at: &str) -> Value {
    json!({
        "kind": "ObservationEvent",
        "id": id,
        "timestamp": happened_at,
        "source": "environment",
        "tool_name": "terminal",
        "tool_call_id": "call_1",
        "observation": {"kind": "TerminalObservation", "content": [{"type": "text", "text": "x".repeat(1_000)}]},
    })
}

/// Whether the program was called with `--short`, which only checks that it works.
///
/// # Errors
/// When it was called with other arguments.
pub fn is_short() -> anyhow::Result<bool> {
    match std::env::args().skip(1).collect::<Vec<_>>().as_slice() {
        [] => Ok(false),
        [only] if only == "--short" => Ok(true),
        other => anyhow::bail!("unknown arguments {other:?}; there is --short"),
    }
}
