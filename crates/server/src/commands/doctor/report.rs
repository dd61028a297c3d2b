//! The report of `doctor`.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::json;

/// The severity of a finding.
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
pub(crate) struct DoctorReport(Vec<DoctorFinding>);

impl DoctorReport {
    /// Renders the report for standard output.
    pub(crate) fn render(&self, as_json: bool) -> String {
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
    pub(crate) fn is_healthy(&self) -> bool {
        self.0
            .iter()
            .all(|finding| finding.level != FindingLevel::Problem)
    }

    /// Adds a passed check.
    pub(super) fn ok(&mut self, what: &str, text: impl Into<String>) {
        self.push(FindingLevel::Ok, what, text.into());
    }

    /// Adds a warning with advice.
    pub(super) fn warn(&mut self, what: &str, text: impl Into<String>) {
        self.push(FindingLevel::Warning, what, text.into());
    }

    /// Adds a problem with its cause and advice.
    pub(super) fn problem(&mut self, what: &str, text: impl Into<String>) {
        self.push(FindingLevel::Problem, what, text.into());
    }

    /// Adds the result of a check.
    pub(super) fn add<T>(
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
