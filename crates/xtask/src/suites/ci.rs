//! Runs everything that must pass before a change lands, from a fresh clone.

use std::thread;

use anyhow::anyhow;

use crate::install::{debian, identity_provider, schemathesis};
use crate::run::{bench_cargo, cargo, lint_builds, output, programs, run, say};
use crate::suites::Extent;
use crate::suites::report::RunReport;
use crate::{charts, deny, docs, openapi, suites};

/// Runs all checks and suites, and prints what each took.
pub(crate) fn ci() -> anyhow::Result<()> {
    lint_builds();
    let mut report = RunReport::new();
    let outcome = stages(&mut report);
    report.print();
    outcome
}

/// Downloads and installations run beside the compiler, because they use little processor time.
fn stages(report: &mut RunReport) -> anyhow::Result<()> {
    report.stage("libraries", |_| debian::libraries())?;
    report.stage("lock file and format", |_| lock_file_and_format())?;
    thread::scope(|scope| {
        let tools = scope.spawn(|| {
            suites::system_tools()?;
            schemathesis::prepare()?;
            identity_provider::prepare()?;
            charts::prepare()?;
            deny::install()
        });
        let service = report.stage("build and lints of the service", |_| programs().map(drop));
        let tools = report.stage("rest of the installation", |_| joined(tools));
        service.and(tools)
    })?;
    report.stage("dependencies", |_| deny::check())?;
    thread::scope(|scope| {
        let sandboxes = scope.spawn(|| suites::sandboxes(true));
        let built = built(report);
        let sandboxes = report.stage("rest of the agent servers", |_| joined(sandboxes));
        built.and(sandboxes)
    })?;
    suites::all(Extent::Ci, report)
}

fn lock_file_and_format() -> anyhow::Result<()> {
    let locked = ["metadata", "--locked", "--quiet", "--format-version", "1"];
    output(cargo().args(locked))?;
    output(bench_cargo().args(locked))?;
    run(cargo().args(["fmt", "--all", "--check"]))?;
    run(bench_cargo().args(["fmt", "--check"]))
}

/// Builds the suites, and checks the files and pages that the service's program generates.
fn built(report: &mut RunReport) -> anyhow::Result<()> {
    report.stage("build and lints of the suites", |_| suites::build())?;
    report.stage("OpenAPI document", |_| openapi::write(true))?;
    report.stage("Helm chart and manifests", |_| {
        charts::charts(&charts::ChartsArgs::CI)
    })?;
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
