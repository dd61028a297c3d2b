//! Totals of tests, read from what the runners print.

use anyhow::bail;

use crate::run::print;

/// Counts of tests.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TestCount {
    passed: u64,
    failed: u64,
    ignored: u64,
}

impl TestCount {
    /// Prints the totals on one line, and fails if a test failed or none ran.
    pub(crate) fn verdict(self, has_passed: bool) -> anyhow::Result<()> {
        let Self {
            passed,
            failed,
            ignored,
        } = self;
        if ignored > 0 {
            print(&format!(
                "{ignored} not run (filtered out, or a part of `cargo xtask nightly`)"
            ));
        }
        print(&format!("{passed} passed, {failed} failed"));
        if !has_passed || failed > 0 {
            bail!("some tests failed or did not run");
        }
        if passed == 0 {
            bail!("no test ran");
        }
        Ok(())
    }

    /// `test result: ok. 24 passed; 0 failed; 0 ignored; …`
    pub(crate) fn add_libtest(&mut self, line: &str) {
        if let Some(result) = line.strip_prefix("test result: ") {
            self.passed += number_before(result, "passed");
            self.failed += number_before(result, "failed");
            self.ignored += number_before(result, "ignored");
        }
    }

    /// `     Summary [   0.1s] 26 tests run: 24 passed (1 slow), 1 failed, 1 timed out, 3 skipped`
    pub(crate) fn add_nextest(&mut self, line: &str) {
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

/// The number before a word, as in `…, 12 passed (3 slow), …`.
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
        let mut count = TestCount::default();
        count.add_libtest(
            "test result: ok. 24 passed; 0 failed; 1 ignored; 0 measured; finished in 0.1s",
        );
        count.add_libtest("test result: FAILED. 5 passed; 2 failed; 0 ignored; 0 measured");
        count.add_libtest("24 passed; printed by a test");
        assert_eq!(
            count,
            TestCount {
                passed: 29,
                failed: 2,
                ignored: 1
            }
        );

        let mut count = TestCount::default();
        count.add_nextest("     Summary [   0.12s] 26 tests run: 24 passed (1 slow, 1 leaky), 1 failed, 1 timed out, 3 skipped");
        assert_eq!(
            count,
            TestCount {
                passed: 24,
                failed: 2,
                ignored: 3
            }
        );
    }
}
