//! Runs all test suites and counts their tests.

use anyhow::bail;

use crate::run::{WatchedStream, cargo, print, program, programs, root, say, watch};
use crate::{access, agent_servers, debian, engine, images, schemathesis};

/// Counts of tests.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct TestCount {
    passed: u64,
    failed: u64,
    ignored: u64,
}

/// Builds, installs and starts what the suites need; quick if all of it exists.
pub(crate) fn prepare(with_agent_servers: bool) -> anyhow::Result<()> {
    debian::libraries()?;
    say("the service");
    let programs = programs()?;
    say("the engine, and tools of single suites");
    engine::prepare()?;
    debian::tools()?;
    debian::browser()?;
    images::stub(&programs.stub)?;
    if with_agent_servers {
        for version in agent_servers::VERSIONS {
            say(&format!("agent server {version}"));
            let command = agent_servers::prepare(&programs.service, version)?;
            images::agent_server(version, &command)?;
        }
        say("schemathesis");
        schemathesis::prepare()?;
    }
    Ok(())
}

/// Suites of the package `acceptance` that need more than this repository and Debian.
const AGENT_SERVER_SUITES: [&str; 2] = ["real_agent", "schemathesis"];

/// Runs all suites, also after a failure, and prints the totals on one line. Most suites go through nginx ([`access`]). If
/// `args` select tests, these use the service's own port, or what `ACCEPTANCE_BEHIND` says.
pub(crate) fn test(with_agent_servers: bool, args: &[String]) -> anyhow::Result<()> {
    prepare(with_agent_servers)?;
    say("test suites");
    let mut count = TestCount::default();
    let mut all_passed = true;
    if has_nextest() {
        let mut command = cargo();
        command.args(["nextest", "run", "--workspace", "--no-fail-fast"]);
        if !with_agent_servers {
            command.args(["--profile", "without-agent-servers"]);
        }
        if args.is_empty() {
            command.args(["--filterset", &access::direct_filter()]);
        }
        command.args(args);
        all_passed &= watch(&mut command, WatchedStream::Error, |line| {
            count.add_nextest(line);
        })?;
    } else {
        for packages in libtest_parts(with_agent_servers, args.is_empty()) {
            let mut command = cargo();
            command
                .args(["test", "--no-fail-fast"])
                .args(packages)
                .args(args);
            all_passed &= watch(&mut command, WatchedStream::Standard, |line| {
                count.add_libtest(line);
            })?;
        }
    }
    if args.is_empty() {
        all_passed &= behind_nginx(with_agent_servers, &mut count)?;
    }
    // Documentation examples, which nextest cannot run.
    let mut command = cargo();
    command.args(["test", "--workspace", "--doc", "--no-fail-fast"]);
    let examples_passed = watch(&mut command, WatchedStream::Standard, |line| {
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

/// Runs the suites that go through nginx; returns whether all passed.
fn behind_nginx(with_agent_servers: bool, count: &mut TestCount) -> anyhow::Result<bool> {
    let mut suites = access::proxied();
    suites.retain(|suite| with_agent_servers || !AGENT_SERVER_SUITES.contains(suite));
    say(&format!("behind nginx, with TLS: {}", suites.join(", ")));
    let mut command = cargo();
    if has_nextest() {
        command.args(["nextest", "run"]);
    } else {
        command.arg("test");
    }
    // With all packages, so that features and thus builds stay the same.
    command.args(["--workspace", "--no-fail-fast"]);
    for suite in suites {
        command.args(["--test", suite]);
    }
    access::behind_nginx(&mut command);
    if has_nextest() {
        watch(&mut command, WatchedStream::Error, |line| {
            count.add_nextest(line);
        })
    } else {
        watch(&mut command, WatchedStream::Standard, |line| {
            count.add_libtest(line);
        })
    }
}

/// Arguments for `cargo test`, which cannot exclude a suite: they name all others. `without_proxied` omits those that run
/// through nginx separately.
fn libtest_parts(with_agent_servers: bool, without_proxied: bool) -> Vec<Vec<String>> {
    let words = |words: &[&str]| {
        words
            .iter()
            .map(|word| (*word).to_owned())
            .collect::<Vec<_>>()
    };
    let targets = words(&["--lib", "--bins", "--tests", "--examples"]);
    if with_agent_servers && !without_proxied {
        return vec![[words(&["--workspace"]), targets].concat()];
    }
    let others = [words(&["--workspace", "--exclude", "acceptance"]), targets].concat();
    let mut ours = words(&["--package", "acceptance", "--lib", "--bins"]);
    let folder = root().join("tests").join("tests");
    let only_proxied = access::suites(|it| it == access::Access::Proxied);
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let needs_more = !with_agent_servers && AGENT_SERVER_SUITES.contains(&name.as_str());
        let runs_apart = without_proxied && only_proxied.contains(&name.as_str());
        if !(needs_more || runs_apart) {
            ours.extend(["--test".to_owned(), name]);
        }
    }
    vec![others, ours]
}

fn has_nextest() -> bool {
    let version = program("cargo-nextest")
        .args(["nextest", "--version"])
        .output();
    version.is_ok_and(|output| output.status.success())
}

impl TestCount {
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
