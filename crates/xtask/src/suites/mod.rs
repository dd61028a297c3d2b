//! Runs the test suites, and counts their tests.

pub(crate) mod attack;
pub(crate) mod ci;
pub(crate) mod escape;
pub(crate) mod flaky;
pub(crate) mod kubernetes;
pub(crate) mod nightly;
pub(crate) mod report;
pub(crate) mod soak;
mod test_count;

use std::process::Command;
use std::thread::available_parallelism;

use serde_json::Value;

use self::report::RunReport;
use self::test_count::TestCount;
use crate::install::{
    agent_servers, debian, engine, identity_provider, images, schemathesis, web_app,
};
use crate::run::{WatchedStream, cargo, output, program, programs, root, run, say, watch};

/// Which suites run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// The suites of [`Extent::Ci`] that need nothing from the package indexes of Python and npm.
    WithoutAgentServers,
    /// The suites that must pass before a change lands.
    Ci,
    /// All suites with the ignored tests, and [`OF_BOTH_WAYS`] also at the service's own port.
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
        say("an identity provider");
        identity_provider::prepare()?;
    }
    Ok(())
}

/// Starts the engine, and installs the distribution's packages that single suites need.
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
        say("the web application");
        web_app::prepare(&programs.service)?;
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
const AGENT_SERVER_SUITES: [&str; 4] = ["real_agent", "schemathesis", "single_sign_on", "web_app"];

/// Test targets that need a container engine, a database server or Python.
const OUTER_TARGETS: [(&str, &str); 3] = [
    ("sandbox-docker", "engine"),
    ("sandbox-kubernetes", "any_cluster"),
    ("store-sql", "postgres"),
];
/// The one suite of `acceptance` that runs no service.
const RULES_TARGET: &str = "architecture";

/// Suites of `acceptance` that go through nginx and, in nightly runs, also reach the service at its own port. `recordings`
/// covers every operation, so it would show changes by nginx. Without nginx, clients of `replicas` try the next replica instead of
/// reading a 502, those of `settings` have a connection each, and the page of `web_app` has the service's own origin.
const OF_BOTH_WAYS: &str =
    "package(acceptance) & binary(/^(recordings|replicas|settings|web_app)$/)";

/// Prepares everything and runs the suites, or only those tests that `args` select.
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
                let mut count = TestCount::default();
                let passed = report.suite_stage("test suites", |report| {
                    selected(extent, args, &mut count, report)
                })?;
                count.verdict(passed)
            }
        });
    report.print();
    outcome
}

/// Runs what needs no engine, database server, browser or agent server.
pub(crate) fn test_inner(args: &[String]) -> anyhow::Result<()> {
    debian::libraries()?;
    let mut command = runner();
    // The whole workspace, so that dependencies have the same features as in other runs.
    command.args(["--workspace", "--lib", "--bins"]);
    for target in inner_targets()? {
        command.args(["--test", &target]);
    }
    let mut report = RunReport::new();
    let mut count = TestCount::default();
    let passed = report.suite_stage("tests without other programs", |report| {
        watch_suites(command.args(args), &mut count, report)
    });
    report.print();
    count.verdict(passed?)
}

/// The test targets of all crates, without those that need other programs.
fn inner_targets() -> anyhow::Result<Vec<String>> {
    let arguments = ["metadata", "--no-deps", "--format-version", "1"];
    let metadata: Value = serde_json::from_str(&output(cargo().args(arguments))?)?;
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut names = vec![RULES_TARGET.to_owned()];
    for package in list(&metadata["packages"]) {
        let package_name = text(&package["name"]);
        for target in list(&package["targets"]) {
            let name = text(&target["name"]);
            let is_outer = OUTER_TARGETS.contains(&(package_name.as_str(), name.as_str()));
            if target["kind"][0] == "test" && package_name != "acceptance" && !is_outer {
                names.push(name);
            }
        }
    }
    Ok(names)
}

/// Runs all suites, also after a failure.
pub(crate) fn all(extent: Extent, report: &mut RunReport) -> anyhow::Result<()> {
    let mut count = TestCount::default();
    let mut has_passed = true;
    has_passed &= report.suite_stage("test suites", |report| {
        selected(extent, &[], &mut count, report)
    })?;
    if extent == Extent::Nightly {
        has_passed &= report.suite_stage("suites without nginx", |report| {
            let mut command = runner();
            command.arg("--workspace").args(profile(extent));
            command.args(["--filterset", OF_BOTH_WAYS]);
            command.env("ACCEPTANCE_BEHIND", "none");
            watch_suites(&mut command, &mut count, report)
        })?;
    }
    has_passed &= report.suite_stage("documentation examples", |report| {
        // nextest cannot run them.
        let mut command = cargo();
        command.args(["test", "--workspace", "--doc", "--no-fail-fast"]);
        watch_suites(&mut command, &mut count, report)
    })?;
    count.verdict(has_passed)
}

/// Runs the tests that `args` select; returns whether all passed.
fn selected(
    extent: Extent,
    args: &[String],
    count: &mut TestCount,
    report: &mut RunReport,
) -> anyhow::Result<bool> {
    if has_nextest() {
        let mut command = runner();
        command.arg("--workspace").args(profile(extent)).args(args);
        return watch_suites(&mut command, count, report);
    }
    let mut has_passed = true;
    for packages in libtest_parts(extent.has_agent_servers()) {
        has_passed &= watch_suites(runner().args(packages).args(args), count, report)?;
    }
    Ok(has_passed)
}

/// The test runner, which continues after a failure. With nextest five tests run at a time for two processors, because many
/// wait most of their time. `.config/nextest.toml` gives several of these places to tests that
/// compute.
pub(crate) fn runner() -> Command {
    let mut command = cargo();
    if has_nextest() {
        let processors = available_parallelism().map_or(1, usize::from);
        let threads = (processors * 5 / 2).to_string();
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
        if !has_ended {
            report.read(line);
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

/// Arguments for `cargo test`, which cannot exclude a suite: they name all others.
fn libtest_parts(with_agent_servers: bool) -> Vec<Vec<String>> {
    let words = |words: &[&str]| {
        words
            .iter()
            .map(|word| (*word).to_owned())
            .collect::<Vec<_>>()
    };
    let targets = words(&["--lib", "--bins", "--tests", "--examples"]);
    if with_agent_servers {
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
        if !AGENT_SERVER_SUITES.contains(&name.as_str()) {
            ours.extend(["--test".to_owned(), name]);
        }
    }
    vec![others, ours]
}

/// Fails without nextest, which some runs need.
pub(crate) fn check_nextest() -> anyhow::Result<()> {
    anyhow::ensure!(
        has_nextest(),
        "cargo-nextest is missing: install it (`cargo install --locked cargo-nextest`)"
    );
    Ok(())
}

pub(crate) fn has_nextest() -> bool {
    let version = program("cargo-nextest")
        .args(["nextest", "--version"])
        .output();
    version.is_ok_and(|output| output.status.success())
}
