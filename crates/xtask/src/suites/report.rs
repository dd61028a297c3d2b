//! The report of a run: the minutes of each stage, the tests and seconds of each suite.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use crate::run::{print, say};

/// The result of one test, as nextest prints it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct TestResult<'a> {
    pub(crate) suite: &'a str,
    pub(crate) test: &'a str,
    pub(crate) has_passed: bool,
    pub(crate) seconds: f64,
}

impl<'a> TestResult<'a> {
    /// `        PASS [   0.004s] (2195/2202) store-sql::postgres tls::a_certificate_is_checked`
    pub(crate) fn parse(line: &'a str) -> Option<Self> {
        let (status, rest) = line.trim_start().split_once(" [")?;
        let (time, rest) = rest.split_once("] ")?;
        let rest = match rest.strip_prefix('(') {
            Some(counted) => counted.split_once(") ")?.1,
            None => rest,
        };
        let (suite, test) = rest.split_once(' ')?;
        // `SLOW [> 60.000s]` comes before the end of a test.
        let seconds = time.trim().strip_suffix('s')?.parse().ok()?;
        let is_status = |text: &str| {
            let mut letters = text.chars();
            letters.all(|it| it.is_ascii_uppercase() || it.is_ascii_digit() || " -+".contains(it))
        };
        (!status.is_empty() && is_status(status)).then(|| Self {
            suite,
            test: test.trim_end(),
            has_passed: matches!(status, "PASS" | "LEAK"),
            seconds,
        })
    }
}

/// The tests of one suite.
#[derive(Debug, Clone, Copy, Default)]
struct SuiteTotals {
    tests: u64,
    failed: u64,
    seconds: f64,
}

/// One step of a run.
#[derive(Debug)]
struct StageTime {
    name: String,
    took: Duration,
    has_passed: bool,
}

/// The output of a failed test.
#[derive(Debug)]
struct FailedTest {
    name: String,
    lines: Vec<String>,
}

/// Lines of a failed test's output that are kept, and those that are printed again at the end.
const MAX_OUTPUT_LINES: usize = 2_000;
const MAX_EXCERPT_LINES: usize = 25;

impl FailedTest {
    /// The panic, or the end of the output without one.
    fn excerpt(&self) -> &[String] {
        let panic = self
            .lines
            .iter()
            .position(|line| line.contains("panicked at"));
        let start = panic.unwrap_or(self.lines.len().saturating_sub(MAX_EXCERPT_LINES));
        let excerpt = &self.lines[start..];
        &excerpt[..excerpt.len().min(MAX_EXCERPT_LINES)]
    }
}

/// Collects the times of stages and suites.
#[derive(Debug)]
pub(crate) struct RunReport {
    began: Instant,
    stages: Vec<StageTime>,
    suites: BTreeMap<String, SuiteTotals>,
    failures: Vec<FailedTest>,
    /// The last test failed, and its output follows.
    is_in_failure: bool,
}

impl RunReport {
    pub(crate) fn new() -> Self {
        Self {
            began: Instant::now(),
            stages: Vec::new(),
            suites: BTreeMap::new(),
            failures: Vec::new(),
            is_in_failure: false,
        }
    }

    /// Reads a line of nextest's output before its summary.
    pub(crate) fn read(&mut self, line: &str) {
        let Some(result) = TestResult::parse(line) else {
            let failure = self.failures.last_mut().filter(|_| self.is_in_failure);
            if let Some(failure) = failure.filter(|it| it.lines.len() < MAX_OUTPUT_LINES) {
                failure.lines.push(line.to_owned());
            }
            return;
        };
        self.is_in_failure = !result.has_passed;
        if !result.has_passed {
            self.failures.push(FailedTest {
                name: format!("{} {}", result.suite, result.test),
                lines: Vec::new(),
            });
        }
        self.add(result);
    }

    /// Runs a stage, and notes how long it took, also when it fails.
    pub(crate) fn stage<T>(
        &mut self,
        name: &str,
        work: impl FnOnce(&mut Self) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        self.timed(name, work, |_| true)
    }

    /// Runs suites as a stage. Returns whether all tests passed.
    pub(crate) fn suite_stage(
        &mut self,
        name: &str,
        work: impl FnOnce(&mut Self) -> anyhow::Result<bool>,
    ) -> anyhow::Result<bool> {
        self.timed(name, work, |has_passed| *has_passed)
    }

    fn timed<T>(
        &mut self,
        name: &str,
        work: impl FnOnce(&mut Self) -> anyhow::Result<T>,
        has_passed: impl FnOnce(&T) -> bool,
    ) -> anyhow::Result<T> {
        say(name);
        let began = Instant::now();
        let outcome = work(self);
        self.stages.push(StageTime {
            name: name.to_owned(),
            took: began.elapsed(),
            has_passed: outcome.as_ref().is_ok_and(has_passed),
        });
        outcome
    }

    fn add(&mut self, result: TestResult<'_>) {
        let name = result.suite.to_owned();
        let totals = self.suites.entry(name).or_default();
        totals.tests += 1;
        totals.failed += u64::from(!result.has_passed);
        totals.seconds += result.seconds;
    }

    /// Prints both tables, in the form of `bench/results`, after the causes of failed tests: these are far above by
    /// now.
    pub(crate) fn print(&self) {
        for failure in &self.failures {
            print(&format!("\nfailed: {}", failure.name));
            print(&failure.excerpt().join("\n"));
        }
        print(self.tables().trim_end());
    }

    fn tables(&self) -> String {
        let mut text = String::new();
        if !self.suites.is_empty() {
            text.push_str("\n| suite | tests | failed | seconds of work |\n|---|---|---|---|\n");
        }
        let mut suites: Vec<_> = self.suites.iter().collect();
        suites.sort_by(|a, b| b.1.seconds.total_cmp(&a.1.seconds));
        for (name, totals) in suites {
            let SuiteTotals {
                tests,
                failed,
                seconds,
            } = totals;
            // Writing to a String cannot fail.
            let _ = writeln!(text, "| {name} | {tests} | {failed} | {seconds:.1} |");
        }
        text.push_str("\n| stage | minutes | result |\n|---|---|---|\n");
        for StageTime {
            name,
            took,
            has_passed,
        } in &self.stages
        {
            let result = if *has_passed { "passed" } else { "**failed**" };
            let _ = writeln!(text, "| {name} | {} | {result} |", minutes(*took));
        }
        let _ = writeln!(text, "| in all | {} | |", minutes(self.began.elapsed()));
        text
    }
}

fn minutes(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64() / 60.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_nextest_is_a_result() {
        let line = "        PASS [   0.004s] (2195/2202) xtask::bin/xtask images::tests::parts";
        let passed = TestResult {
            suite: "xtask::bin/xtask",
            test: "images::tests::parts",
            has_passed: true,
            seconds: 0.004,
        };
        assert_eq!(TestResult::parse(line), Some(passed));
        let failed =
            TestResult::parse("     TIMEOUT [ 600.010s] (  65/2202) acceptance::hostile x");
        assert!(failed.is_some_and(|it| !it.has_passed && it.seconds > 600.0));
        let killed = TestResult::parse("  TRY 1 SIGABRT [   1.000s] application task::x");
        assert!(killed.is_some_and(|it| !it.has_passed && it.suite == "application"));
    }

    #[test]
    fn other_lines_are_none() {
        for line in [
            "        SLOW [> 60.000s] (───────) acceptance::canaries nothing_leaks",
            "     Summary [ 519.124s] 2202 tests run: 2201 passed (1 slow), 1 failed, 0 skipped",
            "    Finished `test` profile [unoptimized + debuginfo] target(s) in 41.47s",
            "a log [   0.1s] line of a test",
            "",
        ] {
            assert_eq!(TestResult::parse(line), None, "{line}");
        }
    }

    #[test]
    fn the_output_of_a_failed_test_is_kept_from_its_panic_on() {
        let mut report = RunReport::new();
        for line in [
            "        PASS [   0.004s] (1/3) a b",
            "not kept",
            "        FAIL [   0.004s] (2/3) a c",
            "  stderr ───",
            "    thread 'c' panicked at x.rs:1:",
            "    the cause",
            "        PASS [   0.004s] (3/3) a d",
            "not kept either",
        ] {
            report.read(line);
        }
        let [failure] = report.failures.as_slice() else {
            panic!("{:?}", report.failures);
        };
        assert_eq!(failure.name, "a c");
        let expected = ["    thread 'c' panicked at x.rs:1:", "    the cause"];
        assert_eq!(failure.excerpt(), expected);
    }

    #[test]
    fn the_tables_have_the_slowest_suite_first_and_every_stage() {
        let mut report = RunReport::new();
        let result = |suite, has_passed, seconds| TestResult {
            suite,
            test: "x",
            has_passed,
            seconds,
        };
        report.add(result("quick", true, 1.0));
        report.add(result("slow", true, 2.0));
        report.add(result("slow", false, 3.0));
        report.stage("lints", |_| Ok(())).unwrap();
        let failed = report.stage("suites", |_| anyhow::bail!("no"));
        failed.map(|()| "it passed").unwrap_err();
        let expected = "\n| suite | tests | failed | seconds of work |\n|---|---|---|---|\n\
            | slow | 2 | 1 | 5.0 |\n| quick | 1 | 0 | 1.0 |\n\n\
            | stage | minutes | result |\n|---|---|---|\n| lints | 0.0 | passed |\n\
            | suites | 0.0 | **failed** |\n| in all | 0.0 | |\n";
        assert_eq!(report.tables(), expected);
    }
}
