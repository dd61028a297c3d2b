//! The report of `doctor`.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use domain::clock::Timestamp;
use rustix::fs::statvfs;
use serde::Serialize;
use serde_json::json;

/// Less free space is a problem or a warning, in bytes.
const MIN_FREE_BYTES: u64 = 200 << 20;
const RECOMMENDED_FREE_BYTES: u64 = 2 << 30;
/// The same for free inodes.
const MIN_FREE_INODES: u64 = 1_000;
const RECOMMENDED_FREE_INODES: u64 = 50_000;

/// A process judges the leases of others by its own clock. Leases last six seconds at least.
const WARNING_SKEW: Duration = Duration::from_secs(2);
const PROBLEM_SKEW: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum FindingLevel {
    Ok,
    /// Works, but should be improved.
    Warning,
    /// The service cannot run, or not fully.
    Problem,
}

impl FindingLevel {
    fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}

#[derive(Debug, Serialize)]
struct DoctorFinding {
    #[serde(rename = "check")]
    what: String,
    level: FindingLevel,
    text: String,
}

/// Findings, one per line.
#[derive(Debug, Default)]
pub struct DoctorReport(Vec<DoctorFinding>);

impl DoctorReport {
    /// Renders the report for standard output.
    pub fn render(&self, as_json: bool) -> String {
        if as_json {
            let report = json!({"healthy": self.is_healthy(), "checks": self.0});
            return format!("{report:#}\n");
        }
        let mut text = String::new();
        for finding in &self.0 {
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "{:7}  {}: {}",
                finding.level.name(),
                finding.what,
                finding.text
            );
        }
        text
    }

    /// Whether the service can run.
    pub fn is_healthy(&self) -> bool {
        self.0
            .iter()
            .all(|finding| finding.level != FindingLevel::Problem)
    }

    /// Adds a passed check.
    pub fn ok(&mut self, what: &str, text: impl Into<String>) {
        self.push(FindingLevel::Ok, what, text.into());
    }

    /// Adds a warning with advice.
    pub fn warn(&mut self, what: &str, text: impl Into<String>) {
        self.push(FindingLevel::Warning, what, text.into());
    }

    /// Adds a problem with its cause and advice.
    pub fn problem(&mut self, what: &str, text: impl Into<String>) {
        self.push(FindingLevel::Problem, what, text.into());
    }

    /// Adds the result of a check.
    pub fn add<T>(
        &mut self,
        what: &str,
        result: anyhow::Result<T>,
        note: impl FnOnce(&T) -> String,
    ) -> Option<T> {
        match result {
            Ok(value) => {
                self.ok(what, note(&value));
                Some(value)
            }
            Err(error) => {
                self.problem(what, format!("{error:#}"));
                None
            }
        }
    }

    /// Checks the free space of a file system.
    pub fn free_space(&mut self, what: &str, directory: &Path, advice: &str) {
        let stat = match statvfs(directory) {
            Ok(stat) => stat,
            Err(error) => {
                return self.warn(
                    what,
                    format!(
                        "cannot read the free space of {} ({error})",
                        directory.display()
                    ),
                );
            }
        };
        let free = stat.f_bavail.saturating_mul(stat.f_frsize);
        // Some file systems (btrfs) allocate inodes dynamically and report 0 of 0.
        let inodes = (stat.f_files > 0).then_some(stat.f_favail);
        let megabytes = free >> 20;
        let text = match inodes {
            Some(inodes) => format!("{megabytes} MiB and {inodes} inodes free"),
            None => format!("{megabytes} MiB free"),
        };
        let free_inodes = inodes.unwrap_or(u64::MAX);
        let advice = format!(
            "{text} on the file system of {}: {advice}",
            directory.display()
        );
        if free < MIN_FREE_BYTES || free_inodes < MIN_FREE_INODES {
            self.problem(what, advice);
        } else if free < RECOMMENDED_FREE_BYTES || free_inodes < RECOMMENDED_FREE_INODES {
            self.warn(what, advice);
        } else {
            self.ok(what, text);
        }
    }

    /// Compares two clocks.
    pub fn skew(&mut self, what: &str, theirs: Timestamp, ours: Timestamp) {
        let difference = theirs.since(ours).max(ours.since(theirs));
        let text = format!(
            "{:.1} s apart from this machine's",
            difference.as_secs_f64()
        );
        let advice =
            "synchronize both machines by NTP: leases and expiry times depend on the clock";
        if difference > PROBLEM_SKEW {
            self.problem(what, format!("{text}: {advice}"));
        } else if difference > WARNING_SKEW {
            self.warn(what, format!("{text}: {advice}"));
        } else {
            self.ok(what, text);
        }
    }

    fn push(&mut self, level: FindingLevel, what: &str, text: String) {
        let what = what.to_owned();
        self.0.push(DoctorFinding { what, level, text });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_problems_make_a_report_unhealthy() {
        let mut report = DoctorReport::default();
        report.ok("a", "fine");
        report.warn("b", "could be better");
        assert!(report.is_healthy());
        assert_eq!(
            report.render(false),
            "ok       a: fine\nwarning  b: could be better\n"
        );
        report.add("c", Err::<(), _>(anyhow::anyhow!("broken")), |()| {
            String::new()
        });
        assert!(!report.is_healthy());
        let document: serde_json::Value = serde_json::from_str(&report.render(true)).unwrap();
        assert_eq!(document["healthy"], false);
        let last = json!({"check": "c", "level": "problem", "text": "broken"});
        assert_eq!(document["checks"][2], last);
    }
}
