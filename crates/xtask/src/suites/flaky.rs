//! Finds tests that fail sometimes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use anyhow::bail;

use crate::run::{WatchedStream, print, say, watch};
use crate::suites;
use crate::suites::report::TestResult;

/// Number of runs, processor load, and tests.
#[derive(Debug, clap::Args)]
pub(crate) struct FlakyArgs {
    /// Number of runs.
    #[arg(long, default_value_t = 10)]
    runs: u32,
    /// Number of busy loops beside the tests. Each one occupies a processor.
    #[arg(long, default_value_t = 0)]
    load: usize,
    /// Arguments of `cargo nextest run`, e.g. a part of a test's name, or `-p store-sql`. Without any: all tests.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

/// Runs the tests and prints which failed how often. Needs what [`suites::prepare`] installs for these tests.
pub(crate) fn flaky(args: &FlakyArgs) -> anyhow::Result<()> {
    suites::check_nextest()?;
    let mut failures: BTreeMap<String, u32> = BTreeMap::new();
    let mut failed_runs = 0;
    {
        let _load = BusyLoops::start(args.load);
        for run in 1..=args.runs {
            say(&format!("run {run} of {}", args.runs));
            failed_runs += u32::from(!run_once(&args.args, &mut failures)?);
        }
    }
    if failed_runs == 0 {
        print(&format!("no failure in {} runs", args.runs));
        return Ok(());
    }
    print("| test | failures |\n|---|---|");
    for (test, count) in failures {
        print(&format!("| {test} | {count} of {} |", args.runs));
    }
    bail!("{failed_runs} of {} runs failed", args.runs);
}

/// Returns whether all tests passed.
fn run_once(args: &[String], failures: &mut BTreeMap<String, u32>) -> anyhow::Result<bool> {
    // The summary repeats failures.
    let mut has_ended = false;
    let mut command = suites::runner();
    if !args.iter().any(|it| it == "-p" || it == "--package") {
        command.arg("--workspace");
    }
    watch(command.args(args), WatchedStream::Error, |line| {
        has_ended |= line.trim_start().starts_with("Summary [");
        let failed = TestResult::parse(line).filter(|it| !has_ended && !it.has_passed);
        if let Some(TestResult { suite, test, .. }) = failed {
            *failures.entry(format!("{suite} {test}")).or_default() += 1;
        }
    })
}

/// Threads that compute until this is dropped.
struct BusyLoops {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl BusyLoops {
    fn start(count: usize) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let spin = || {
            let is_over = Arc::clone(&is_over);
            thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })
        };
        let threads = (0..count).map(|_| spin()).collect();
        Self { is_over, threads }
    }
}

impl Drop for BusyLoops {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // It cannot panic.
            let _ = thread.join();
        }
    }
}
