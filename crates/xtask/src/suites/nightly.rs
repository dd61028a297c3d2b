//! Runs what takes too long for each change: all scenarios on all releases, all crash points, and long hostile runs.

use anyhow::bail;

use crate::package::{self, PackageArgs};
use crate::run::{cargo, output, print, program, run};
use crate::suites::Extent;
use crate::suites::attack::{self, AttackArgs};
use crate::suites::report::RunReport;
use crate::suites::{self, soak};
use crate::{bench, docs};

/// Length and seed of the runs.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct NightlyArgs {
    /// Minutes of each run with a variable length: hostile requests, attacks, killed replicas.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(2..=600))]
    minutes: u64,
    /// Selects the requests, crash points and operations.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Number of sandboxes that each part of the soak creates, and of kills meanwhile.
const SOAK_SANDBOXES: u64 = 200;
const SOAK_KILLS: u64 = 20;
/// Size of the file that the proxies transfer.
const TRANSFER_MIB: u64 = 8 * 1024;

/// Runs everything, also after a failure, and prints a summary in the form of `bench/results`.
pub(crate) fn nightly(args: NightlyArgs) -> anyhow::Result<()> {
    // Without it the suites that run twice would run once.
    suites::check_nextest()?;
    let date = output(program("date").arg("+%F"))?;
    let commit = output(program("git").args(["rev-parse", "--short", "HEAD"]))?;
    let mut report = RunReport::new();
    let mut causes = Vec::new();
    checks(&mut report, &mut causes);
    if let Err(cause) = suites::all(Extent::Nightly, &mut report) {
        causes.push(format!("suites: {cause:#}"));
    }
    long_runs(&mut report, &mut causes, args);
    print(&format!("\n{}, commit {}", date.trim(), commit.trim()));
    report.print();
    if !causes.is_empty() {
        bail!("{}", causes.join("\n"));
    }
    Ok(())
}

/// Runs a stage, and keeps the cause of a failure.
fn attempt(
    report: &mut RunReport,
    causes: &mut Vec<String>,
    name: &str,
    work: impl FnOnce() -> anyhow::Result<()>,
) {
    if let Err(cause) = report.stage(name, |_| work()) {
        causes.push(format!("{name}: {cause:#}"));
    }
}

/// Checks that CI leaves out.
fn checks(report: &mut RunReport, causes: &mut Vec<String>) {
    attempt(report, causes, "installation", || suites::prepare(true));
    attempt(report, causes, "documentation of the code", || {
        run(cargo()
            .args(["doc", "--workspace", "--no-deps", "--lib", "--bins"])
            .arg("--document-private-items")
            .env("RUSTDOCFLAGS", "-D warnings"))
    });
    attempt(report, causes, "the book", docs::book);
    attempt(report, causes, "benchmarks in short", bench::check);
    attempt(report, causes, "packages", || {
        package::build(&PackageArgs::quick())
    });
}

/// Runs the long forms of suites.
fn long_runs(report: &mut RunReport, causes: &mut Vec<String>, args: NightlyArgs) {
    let NightlyArgs { minutes, seed } = args;
    attempt(report, causes, "every crash point", || {
        soak::crash_points(seed)
    });
    attempt(report, causes, "hostile requests", || {
        soak::hostile(None, Some(minutes), seed, false)
    });
    attempt(report, causes, "slow clients", || soak::slow(false));
    attempt(report, causes, "large files", || {
        soak::transfer(TRANSFER_MIB, false)
    });
    attempt(report, causes, "sandboxes, services killed", || {
        soak::sandboxes(SOAK_SANDBOXES, SOAK_KILLS, seed, false)
    });
    attempt(report, causes, "replicas killed", || {
        soak::replicas(minutes, seed, false)
    });
    attempt(report, causes, "attacks", || {
        attack::attack(&AttackArgs::new(minutes, seed))
    });
}
