//! Runs the test suites, and counts their tests.

use std::process::Command;
use std::thread::available_parallelism;

use anyhow::bail;

use crate::report::{RunReport, TestResult};
use crate::run::{WatchedStream, cargo, print, program, programs, root, run, say, watch};
use crate::{access, agent_servers, debian, engine, images, schemathesis};

/// Counts of tests.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct TestCount {
    passed: u64,
    failed: u64,
    ignored: u64,
}

/// Which suites run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Those that need neither programs of the Python package index nor what is left to nightly runs.
    WithoutAgentServers,
    /// What must pass before a change lands.
    Ci,
    /// Also the ignored tests, and suites by both ways of access.
    Nightly,
}

impl Extent {
    fn has_agent_servers(self) -> bool {
        self != Self::WithoutAgentServers
    }
}

/// Builds, installs and starts what the suites need; quick if all of it exists.
pub(crate) fn prepare(with_agent_servers: bool) -> anyhow::Result<()> {
    debian::libraries()?;
    system_tools()?;
    say("the service");
    programs()?;
    sandboxes(with_agent_servers)?;
    if with_agent_servers {
        say("schemathesis");
        schemathesis::prepare()?;
    }
    Ok(())
}

/// Starts the engine, and installs what single suites need of the distribution.
pub(crate) fn system_tools() -> anyhow::Result<()> {
    say("the engine, and tools of single suites");
    engine::prepare()?;
    debian::tools()?;
    debian::browser()
}

/// Installs the agent servers and makes the images of sandboxes.
pub(crate) fn sandboxes(with_agent_servers: bool) -> anyhow::Result<()> {
    let programs = programs()?;
    images::stub(&programs.stub)?;
    if with_agent_servers {
        for version in agent_servers::VERSIONS {
            say(&format!("agent server {version}"));
            let command = agent_servers::prepare(&programs.service, version)?;
            images::agent_server(version, &command)?;
        }
    }
    Ok(())
}

/// Compiles all suites as [`all`] does.
pub(crate) fn build() -> anyhow::Result<()> {
    let mut command = cargo();
    if has_nextest() {
        command.args(["nextest", "run"]);
    } else {
        command.arg("test");
    }
    run(command.args(["--workspace", "--no-run"]))
}

/// Suites of the package `acceptance` that need more than this repository and Debian.
const AGENT_SERVER_SUITES: [&str; 2] = ["real_agent", "schemathesis"];

/// A nextest filter for what needs no engine, database server, browser or agent server.
const INNER_FILTER: &str =
    "not ((package(sandbox-docker) & kind(test)) | (package(store-sql) & binary(postgres)))";

/// Prepares everything and runs the suites, or only those tests that `args` select: at the service's own port, or as
/// `ACCEPTANCE_BEHIND` says.
pub(crate) fn test(extent: Extent, args: &[String]) -> anyhow::Result<()> {
    let mut report = RunReport::new();
    let outcome = report
        .stage("installation and builds", |_| {
            prepare(extent.has_agent_servers())
        })
        .and_then(|()| {
            if args.is_empty() {
                all(extent, &mut report)
            } else {
                report.stage("test suites", |report| selected(extent, args, report))
            }
        });
    report.print();
    outcome
}

/// Runs what needs no engine, database server, browser or agent server.
pub(crate) fn test_inner(args: &[String]) -> anyhow::Result<()> {
    debian::libraries()?;
    if !has_nextest() {
        bail!("cargo-nextest is missing: install it (`cargo install --locked cargo-nextest`)");
    }
    let mut report = RunReport::new();
    let mut count = TestCount::default();
    let crates = ["--workspace", "--exclude", "acceptance"];
    let rules = ["-p", "acceptance", "--test", "architecture"];
    let mut has_passed = true;
    report.stage("crates", |report| {
        let mut command = runner();
        command.args(crates).args(["--filterset", INNER_FILTER]);
        has_passed &= watch_suites(command.args(args), "", &mut count, report)?;
        Ok(())
    })?;
    if args.is_empty() {
        report.stage("architecture", |report| {
            has_passed &= watch_suites(runner().args(rules), "", &mut count, report)?;
            Ok(())
        })?;
    }
    report.print();
    count.verdict(has_passed)
}

/// Runs all suites, also after a failure. Most suites of `acceptance` go through nginx ([`access`]).
pub(crate) fn all(extent: Extent, report: &mut RunReport) -> anyhow::Result<()> {
    let mut count = TestCount::default();
    let mut has_passed = true;
    report.stage("suites at the service's own port", |report| {
        has_passed &= directly(extent, &mut count, report)?;
        Ok(())
    })?;
    report.stage("suites behind nginx, with TLS", |report| {
        has_passed &= behind_nginx(extent, &mut count, report)?;
        Ok(())
    })?;
    report.stage("documentation examples", |report| {
        // nextest cannot run them.
        let mut command = cargo();
        command.args(["test", "--workspace", "--doc", "--no-fail-fast"]);
        has_passed &= watch_suites(&mut command, "", &mut count, report)?;
        Ok(())
    })?;
    count.verdict(has_passed)
}

fn selected(extent: Extent, args: &[String], report: &mut RunReport) -> anyhow::Result<()> {
    let mut count = TestCount::default();
    let mut has_passed = true;
    if has_nextest() {
        let mut command = runner();
        command.arg("--workspace").args(profile(extent)).args(args);
        has_passed &= watch_suites(&mut command, "", &mut count, report)?;
    } else {
        for packages in libtest_parts(extent.has_agent_servers(), &[]) {
            let mut command = runner();
            has_passed &= watch_suites(command.args(packages).args(args), "", &mut count, report)?;
        }
    }
    count.verdict(has_passed)
}

/// The runner of tests, which goes on after a failure. With nextest twice as many tests run at a time as there are
/// processors, since many wait most of their time; `.config/nextest.toml` gives those that compute several of these places.
pub(crate) fn runner() -> Command {
    let mut command = cargo();
    if has_nextest() {
        let processors = available_parallelism().map_or(1, usize::from);
        let threads = (processors * 2).to_string();
        command.args(["nextest", "run", "--test-threads", &threads]);
    } else {
        command.arg("test");
    }
    command.arg("--no-fail-fast");
    command
}

/// Shows what a runner prints, and counts its tests. Returns whether all passed.
fn watch_suites(
    command: &mut Command,
    access: &str,
    count: &mut TestCount,
    report: &mut RunReport,
) -> anyhow::Result<bool> {
    let is_nextest = command.get_args().any(|it| it == "nextest");
    if !is_nextest {
        return watch(command, WatchedStream::Standard, |line| {
            count.add_libtest(line);
        });
    }
    // The summary repeats failures.
    let mut has_ended = false;
    watch(command, WatchedStream::Error, |line| {
        count.add_nextest(line);
        has_ended |= line.trim_start().starts_with("Summary [");
        if let Some(result) = TestResult::parse(line).filter(|_| !has_ended) {
            report.add(result, access);
        }
    })
}

/// The profile of nextest.
fn profile(extent: Extent) -> &'static [&'static str] {
    match extent {
        Extent::WithoutAgentServers => &["--profile", "without-agent-servers"],
        Extent::Ci => &[],
        Extent::Nightly => &["--run-ignored", "all"],
    }
}

/// Runs the suites that reach the service at its own port; returns whether all passed.
fn directly(extent: Extent, count: &mut TestCount, report: &mut RunReport) -> anyhow::Result<bool> {
    let is_nightly = extent == Extent::Nightly;
    let others = access::only_proxied(is_nightly);
    if has_nextest() {
        let mut command = runner();
        command.arg("--workspace").args(profile(extent));
        command.args(["--filterset", &access::all_but(&others)]);
        return watch_suites(&mut command, "", count, report);
    }
    let mut has_passed = true;
    for packages in libtest_parts(extent.has_agent_servers(), &others) {
        has_passed &= watch_suites(runner().args(packages), "", count, report)?;
    }
    Ok(has_passed)
}

/// Runs the suites that go through nginx; returns whether all passed.
fn behind_nginx(
    extent: Extent,
    count: &mut TestCount,
    report: &mut RunReport,
) -> anyhow::Result<bool> {
    let mut suites = access::proxied();
    suites.retain(|suite| extent.has_agent_servers() || !AGENT_SERVER_SUITES.contains(suite));
    say(&suites.join(", "));
    let mut command = runner();
    command.arg("--workspace");
    if has_nextest() {
        // Not `--test`, which selects other features of dependencies, so that much is compiled again.
        command.args(profile(extent));
        command.args(["--filterset", &access::only(&suites)]);
    } else {
        for suite in suites {
            command.args(["--test", suite]);
        }
    }
    watch_suites(
        access::behind_nginx(&mut command),
        " (nginx)",
        count,
        report,
    )
}

/// Arguments for `cargo test`, which cannot exclude a suite: they name all others. `omitted` suites run separately.
fn libtest_parts(with_agent_servers: bool, omitted: &[&str]) -> Vec<Vec<String>> {
    let words = |words: &[&str]| {
        words
            .iter()
            .map(|word| (*word).to_owned())
            .collect::<Vec<_>>()
    };
    let targets = words(&["--lib", "--bins", "--tests", "--examples"]);
    if with_agent_servers && omitted.is_empty() {
        return vec![[words(&["--workspace"]), targets].concat()];
    }
    let others = [words(&["--workspace", "--exclude", "acceptance"]), targets].concat();
    let mut ours = words(&["--package", "acceptance", "--lib", "--bins"]);
    let folder = root().join("tests").join("tests");
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let needs_more = !with_agent_servers && AGENT_SERVER_SUITES.contains(&name.as_str());
        if !(needs_more || omitted.contains(&name.as_str())) {
            ours.extend(["--test".to_owned(), name]);
        }
    }
    vec![others, ours]
}

pub(crate) fn has_nextest() -> bool {
    let version = program("cargo-nextest")
        .args(["nextest", "--version"])
        .output();
    version.is_ok_and(|output| output.status.success())
}

impl TestCount {
    /// Prints the totals on one line, and fails if a test failed or none ran.
    fn verdict(self, has_passed: bool) -> anyhow::Result<()> {
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
