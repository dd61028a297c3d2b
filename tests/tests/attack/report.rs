//! The results of each attack, and the bounds for them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use acceptance::figures::megabytes;

use crate::samples::Samples;

/// Bounds of the p99 of normal users during an attack: as a multiple of that without attackers, and absolute.
const MAX_P99_RATIO: f64 = 3.0;
const MAX_P99_MS: f64 = 100.0;
/// Bound of the resident memory of the service during an attack, in MB.
const MAX_RESIDENT_MB: f64 = 400.0;
/// Bound of the resident memory at the end, as a multiple of that before the attacks.
const MAX_RESIDENT_RATIO: f64 = 1.5;

/// One attack.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) title: String,
    /// Whether several attacks ran at the same time. Together they may use all processor time, so the times have no bound.
    pub(crate) is_mixed: bool,
    pub(crate) alone: Samples,
    pub(crate) beside: Samples,
    pub(crate) peak_bytes: u64,
    /// Resident memory when the normal users were alone again.
    pub(crate) after_bytes: u64,
    /// Growth of the data directory.
    pub(crate) disk_bytes: u64,
    pub(crate) quota: Result<(), String>,
    /// Number of responses to the attackers, by status.
    pub(crate) statuses: BTreeMap<u16, u64>,
    /// Time until the service was back after each kill.
    pub(crate) recoveries: Vec<Duration>,
}

impl Row {
    /// Descriptions of the broken bounds.
    pub(crate) fn broken_bounds(&self) -> Vec<String> {
        let mut broken = Vec::new();
        let (alone, beside) = (self.alone.percentile(99), self.beside.percentile(99));
        if self.beside.count() == 0 {
            broken.push("no response".to_owned());
        }
        if !self.is_mixed && beside > MAX_P99_RATIO * alone {
            broken.push(format!("p99 {:.1} times that alone", beside / alone));
        }
        if !self.is_mixed && beside > MAX_P99_MS {
            broken.push(format!("p99 over {MAX_P99_MS:.0} ms"));
        }
        if self.beside.error_count > 0 {
            broken.push(format!("{} errors", self.beside.error_count));
        }
        if megabytes(self.peak_bytes) > MAX_RESIDENT_MB {
            broken.push(format!("memory over {MAX_RESIDENT_MB:.0} MB"));
        }
        if let Err(quota) = &self.quota {
            broken.push(format!("quota: {quota}"));
        }
        broken
    }

    fn line(&self) -> String {
        let times = |samples: &Samples| {
            let (median, tail) = (samples.percentile(50), samples.percentile(99));
            format!("{median:.1} / {tail:.1}")
        };
        let ratio = self.beside.percentile(99) / self.alone.percentile(99).max(0.001);
        let statuses = self
            .statuses
            .iter()
            .fold(String::new(), |mut text, (status, count)| {
                // Writing to a String cannot fail.
                let _ = write!(text, "{status}×{count} ");
                text
            });
        let broken = self.broken_bounds();
        let verdict = if broken.is_empty() {
            "held".to_owned()
        } else {
            broken.join("; ")
        };
        let recoveries: Vec<String> = self
            .recoveries
            .iter()
            .map(|it| format!("{:.1} s", it.as_secs_f64()))
            .collect();
        [
            self.title.clone(),
            format!("{} / {}", self.alone.count(), self.beside.count()),
            times(&self.alone),
            times(&self.beside),
            format!("{ratio:.1}"),
            self.beside.error_count.to_string(),
            format!("{:.0}", megabytes(self.peak_bytes)),
            format!("{:.0}", megabytes(self.after_bytes)),
            format!("{:.0}", megabytes(self.disk_bytes)),
            statuses.trim_end().to_owned(),
            recoveries.join(", "),
            verdict,
        ]
        .join(" | ")
    }
}

/// The memory before the attacks, and at the end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) before_bytes: u64,
    pub(crate) end_bytes: u64,
}

impl Memory {
    /// Whether the memory is back.
    pub(crate) fn is_back(self) -> bool {
        megabytes(self.end_bytes) <= MAX_RESIDENT_RATIO * megabytes(self.before_bytes)
    }
}

/// Renders the results as a Markdown table.
pub(crate) fn table(rows: &[Row], memory: Memory) -> String {
    const COLUMNS: [&str; 12] = [
        "attack",
        "normal requests alone / during the attack",
        "p50 / p99 alone (ms)",
        "p50 / p99 during the attack (ms)",
        "p99 ratio",
        "errors",
        "peak memory (MB)",
        "memory after (MB)",
        "disk (MB)",
        "attackers' responses",
        "back after kills",
        "verdict",
    ];
    let mut text = format!(
        "| {} |\n|{}\n",
        COLUMNS.join(" | "),
        "---|".repeat(COLUMNS.len())
    );
    for row in rows {
        let _ = writeln!(text, "| {} |", row.line());
    }
    let (before, end) = (megabytes(memory.before_bytes), megabytes(memory.end_bytes));
    let verdict = if memory.is_back() { "back" } else { "not back" };
    let _ = writeln!(
        text,
        "resident memory before all attacks {before:.0} MB, at the end {end:.0} MB: {verdict}"
    );
    for row in rows {
        for error in &row.beside.errors {
            let _ = writeln!(text, "{}: {error}", row.title);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::Recorder;

    fn samples(ms: u64) -> Samples {
        let recorder = Recorder::default();
        recorder.record_response("a list", Duration::from_millis(ms));
        recorder.take()
    }

    fn row(alone: u64, beside: u64) -> Row {
        Row {
            title: "t".to_owned(),
            is_mixed: false,
            alone: samples(alone),
            beside: samples(beside),
            peak_bytes: 399_000_000,
            after_bytes: 0,
            disk_bytes: 0,
            quota: Ok(()),
            statuses: BTreeMap::new(),
            recoveries: Vec::new(),
        }
    }

    #[test]
    fn each_bound_can_be_broken() {
        assert_eq!(row(30, 89).broken_bounds(), [""; 0]);
        assert_eq!(row(10, 40).broken_bounds(), ["p99 4.0 times that alone"]);
        assert_eq!(row(50, 120).broken_bounds(), ["p99 over 100 ms"]);
        let mut bad = row(30, 80);
        bad.beside.error_count = 2;
        bad.peak_bytes = 401_000_000;
        bad.quota = Err("too much".to_owned());
        assert_eq!(
            bad.broken_bounds(),
            ["2 errors", "memory over 400 MB", "quota: too much"]
        );
        bad = row(10, 400);
        bad.is_mixed = true;
        assert_eq!(bad.broken_bounds(), [""; 0]);
        bad = row(30, 80);
        bad.beside = Samples::default();
        assert_eq!(bad.broken_bounds(), ["no response"]);
        let memory = |end_bytes| Memory {
            before_bytes: 100_000_000,
            end_bytes,
        };
        assert!(memory(150_000_000).is_back() && !memory(151_000_000).is_back());
    }
}
