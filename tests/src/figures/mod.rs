//! What suites and benchmarks share: requests as cheap as they can be, and events.

pub mod wire;

use serde_json::{Value, json};

/// The one in the middle, or 0 of none.
#[must_use]
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// Bytes in units of 1,000,000, as the targets are given.
#[must_use]
pub fn megabytes(bytes: u64) -> f64 {
    let kilobytes = u32::try_from(bytes / 1000).unwrap_or(u32::MAX);
    f64::from(kilobytes) / 1000.0
}

/// An event of 1.2 KB as agent servers report it.
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

/// Whether the numbers are to be small: the program is called with `--short` to see that it works.
///
/// # Errors
/// When it is called with anything else.
pub fn is_short() -> anyhow::Result<bool> {
    match std::env::args().skip(1).collect::<Vec<_>>().as_slice() {
        [] => Ok(false),
        [only] if only == "--short" => Ok(true),
        other => anyhow::bail!("unknown arguments {other:?}; there is --short"),
    }
}
