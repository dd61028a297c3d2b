//! Runs everything that must pass before a change lands, from a fresh clone.

use std::thread;

use anyhow::anyhow;

use crate::bench::bench_cargo;
use crate::install::{debian, identity_provider, schemathesis};
use crate::run::{cargo, output, programs, run, say};
use crate::suites::Extent;
use crate::suites::report::RunReport;
use crate::{deny, docs, openapi, suites};

/// Runs all checks and suites, and prints what each took.
pub(crate) fn ci() -> anyhow::Result<()> {
    let mut report = RunReport::new();
    let outcome = stages(&mut report);
    report.print();
    outcome
}

/// Downloads and installations run beside the compiler, because they use little processor time.
fn stages(report: &mut RunReport) -> anyhow::Result<()> {
    report.stage("libraries", |_| debian::libraries())?;
    thread::scope(|scope| {
        let tools = scope.spawn(|| {
            suites::system_tools()?;
            schemathesis::prepare()?;
            identity_provider::prepare()?;
            deny::install()
        });
        let checks = checks(report);
        let tools = report.stage("rest of the installation", |_| joined(tools));
        checks.and(tools)
    })?;
    report.stage("dependencies", |_| deny::check())?;
    report.stage("build of the service", |_| programs().map(drop))?;
    thread::scope(|scope| {
        let sandboxes = scope.spawn(|| suites::sandboxes(true));
        let built = built(report);
        let sandboxes = report.stage("rest of the agent servers", |_| joined(sandboxes));
        built.and(sandboxes)
    })?;
    suites::all(Extent::Ci, report)
}

/// Runs checks that start no program of the workspace.
fn checks(report: &mut RunReport) -> anyhow::Result<()> {
    report.stage("lock file and format", |_| {
        let locked = ["metadata", "--locked", "--quiet", "--format-version", "1"];
        output(cargo().args(locked))?;
        output(bench_cargo().args(locked))?;
        run(cargo().args(["fmt", "--all", "--check"]))?;
        run(bench_cargo().args(["fmt", "--check"]))
    })?;
    report.stage("lints", |_| {
        let lint = ["clippy", "--workspace", "--all-targets"];
        run(cargo().args(lint).args(["--", "-D", "warnings"]))
    })?;
    report.stage("documentation of the code", |_| document(&[]))
}

/// Builds the documentation of the code. With `--examples` (there are none) cargo selects the same features of
/// dependencies as for the lints, and reuses their results.
pub(crate) fn document(options: &[&str]) -> anyhow::Result<()> {
    let document = ["doc", "--workspace", "--no-deps", "--lib", "--examples"];
    run(cargo()
        .args(document)
        .args(options)
        .env("RUSTDOCFLAGS", "-D warnings"))
}

/// Builds the suites, and checks the files and pages that the service's program generates.
fn built(report: &mut RunReport) -> anyhow::Result<()> {
    report.stage("build of the suites", |_| suites::build())?;
    report.stage("OpenAPI document", |_| openapi::write(true))?;
    report.stage("pages, links and tutorials", |_| {
        docs::docs(&docs::DocsArgs::CI)
    })
}

/// A failure is printed, because the caller reports one only.
fn joined(thread: thread::ScopedJoinHandle<'_, anyhow::Result<()>>) -> anyhow::Result<()> {
    let ended = thread.join();
    let outcome = ended.unwrap_or_else(|_| Err(anyhow!("an installation panicked")));
    outcome.inspect_err(|error| say(&format!("failed: {error:#}")))
}
