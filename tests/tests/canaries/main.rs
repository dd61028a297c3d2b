//! Searches for leaked secrets. A recognizable secret is stored in every place for one. After runs, errors and crashes the
//! tests search all other places: logs, responses, events, the database, files, process lists, containers, and the output
//! of commands.
//!
//! The test with a real agent server is in the suite `real_agent`.

mod bench;
mod provider;
mod scenarios;

use acceptance::{Postgres, Sandboxing};

use crate::bench::CanaryBench;

// Subcommands block the thread of the test; its connections need another one to notice that the service has closed them.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "a part of `cargo xtask nightly`; the other two have each of its parts"]
async fn no_secret_leaks_with_processes_and_sqlite() {
    scenarios::run(CanaryBench::start(&Sandboxing::Process, None).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn no_secret_leaks_with_processes_and_postgres() {
    let bench = CanaryBench::start(&Sandboxing::Process, Some(Postgres::start())).await;
    scenarios::run(bench).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn no_secret_leaks_with_containers_and_sqlite() {
    scenarios::run(CanaryBench::start(&Sandboxing::docker(), None).await).await;
}
