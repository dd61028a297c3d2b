//! Secrets are planted in every place that holds one, and after full runs, errors and crashes they are looked for
//! everywhere else: logs, answers, events, the database, files, process lists, containers, the output of commands.
//!
//! The story with a real agent server is in the suite `real_agent`.

mod bench;
mod provider;
mod stories;

use acceptance::{Postgres, Sandboxing};

use crate::bench::CanaryBench;

#[tokio::test]
async fn nothing_leaks_with_processes_and_sqlite() {
    stories::play(CanaryBench::start(&Sandboxing::Process, None).await).await;
}

#[tokio::test]
async fn nothing_leaks_with_postgres() {
    let bench = CanaryBench::start(&Sandboxing::Process, Some(Postgres::start())).await;
    stories::play(bench).await;
}

#[tokio::test]
async fn nothing_leaks_with_containers() {
    stories::play(CanaryBench::start(&Sandboxing::docker(), None).await).await;
}
