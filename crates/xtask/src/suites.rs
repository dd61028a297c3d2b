//! Runs all test suites and counts.

use anyhow::bail;

use crate::run::{Output, cargo, print, program, say, service, watch};
use crate::{agent_servers, schemathesis};

/// Tests that ran.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Count {
    passed: u64,
    failed: u64,
    ignored: u64,
}

/// Runs everything, also after a failure, and ends with one line of totals.
pub(crate) fn test(with_agent_servers: bool, args: &[String]) -> anyhow::Result<()> {
    say("the service");
    let service = service()?;
    if with_agent_servers {
        for version in agent_servers::VERSIONS {
            say(&format!("agent server {version}"));
            agent_servers::prepare(&service, version)?;
        }
        say("schemathesis");
        schemathesis::prepare()?;
    }
    say("test suites");
    let mut count = Count::default();
    let has_nextest = has_nextest();
    let all_passed = if has_nextest {
        let mut command = cargo();
        command
            .args(["nextest", "run", "--workspace", "--no-fail-fast"])
            .args(args);
        watch(&mut command, Output::Error, |line| count.add_nextest(line))?
    } else {
        let mut command = cargo();
        command
            .args(["test", "--workspace", "--no-fail-fast"])
            .args(["--lib", "--bins", "--tests", "--examples"])
            .args(args);
        watch(&mut command, Output::Standard, |line| {
            count.add_libtest(line);
        })?
    };
    // Examples in documentation: nextest cannot run them. (Benchmarks are not built: they check nothing.)
    let mut command = cargo();
    command.args(["test", "--workspace", "--doc", "--no-fail-fast"]);
    let examples_passed = watch(&mut command, Output::Standard, |line| {
        count.add_libtest(line);
    })?;

    if count.ignored > 0 {
        print(&format!(
            "{} not run (ignored, or filtered out)",
            count.ignored
        ));
    }
    print(&format!("{} passed, {} failed", count.passed, count.failed));
    if !(all_passed && examples_passed) || count.failed > 0 {
        bail!("some tests failed or did not run");
    }
    if count.passed == 0 {
        bail!("no test ran");
    }
    Ok(())
}

fn has_nextest() -> bool {
    let version = program("cargo-nextest")
        .args(["nextest", "--version"])
        .output();
    version.is_ok_and(|output| output.status.success())
}

impl Count {
    /// `test result: ok. 24 passed; 0 failed; 0 ignored; …`
    fn add_libtest(&mut self, line: &str) {
        if let Some(result) = line.strip_prefix("test result: ") {
            self.passed += number_before(result, "passed");
            self.failed += number_before(result, "failed");
            self.ignored += number_before(result, "ignored");
        }
    }

    /// `     Summary [   0.1s] 26 tests run: 24 passed (1 slow), 1 failed, 1 timed out, 3 skipped`
    fn add_nextest(&mut self, line: &str) {
        if let Some((_, result)) = line
            .trim_start()
            .strip_prefix("Summary [")
            .and_then(|l| l.split_once(':'))
        {
            self.passed += number_before(result, "passed");
            for word in ["failed", "timed out", "exec failed"] {
                self.failed += number_before(result, word);
            }
            self.ignored += number_before(result, "skipped");
        }
    }
}

/// In `…, 12 passed (3 slow), …` the number before a word.
fn number_before(text: &str, word: &str) -> u64 {
    let parts = text.split([',', ';', '.', '(', ')']).map(str::trim);
    parts
        .filter_map(|part| part.strip_suffix(word)?.trim_end().parse::<u64>().ok())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_both_runners_are_counted() {
        let mut count = Count::default();
        count.add_libtest(
            "test result: ok. 24 passed; 0 failed; 1 ignored; 0 measured; finished in 0.1s",
        );
        count.add_libtest("test result: FAILED. 5 passed; 2 failed; 0 ignored; 0 measured");
        count.add_libtest("24 passed; printed by a test");
        assert_eq!(
            count,
            Count {
                passed: 29,
                failed: 2,
                ignored: 1
            }
        );

        let mut count = Count::default();
        count.add_nextest("     Summary [   0.12s] 26 tests run: 24 passed (1 slow, 1 leaky), 1 failed, 1 timed out, 3 skipped");
        assert_eq!(
            count,
            Count {
                passed: 24,
                failed: 2,
                ignored: 3
            }
        );
    }
}
