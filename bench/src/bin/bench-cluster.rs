//! Replicas of the service on a cluster: `cargo xtask bench --cluster`. Prints a table; `bench/results` has earlier ones.
//! `--short` uses small numbers and only checks that the benchmark works.
//!
//! The API server and its controllers are simulated in this process, and so are the agent servers of all pods. Everything shares
//! the machine's cores, so the rates are those of the machine; the requests, transactions and processor time of one start say
//! what more machines would do.

mod cluster_figures;

use std::time::{Duration, Instant};

use acceptance::processes::{raise_file_limit, resident_bytes};
use anyhow::Context as _;
use benchmarks::table::Table;
use benchmarks::{is_short, megabytes};

use crate::cluster_figures::agents;
use crate::cluster_figures::fleet::{Fleet, Starts};
use crate::cluster_figures::usage::Usage;

/// Amounts of work.
struct BenchmarkSize {
    replicas: usize,
    users: usize,
    warm: u32,
    starts_in_turn: usize,
    /// Between two of them, in which the pool boots another sandbox.
    pause: Duration,
    /// Starts a second.
    rates: &'static [f64],
    rate_time: Duration,
    sandboxes: usize,
    connections: usize,
    /// Time without requests.
    idle: Duration,
}

const FULL: BenchmarkSize = BenchmarkSize {
    replicas: 10,
    users: 100,
    warm: 100,
    starts_in_turn: 100,
    pause: Duration::from_millis(200),
    // Two cores, which everything shares, do some thirty.
    rates: &[10.0, 25.0],
    rate_time: Duration::from_secs(30),
    sandboxes: 10_000,
    connections: 32,
    idle: Duration::from_secs(60),
};

const SHORT: BenchmarkSize = BenchmarkSize {
    replicas: 2,
    users: 2,
    warm: 2,
    starts_in_turn: 2,
    pause: Duration::from_millis(100),
    rates: &[2.0],
    rate_time: Duration::from_secs(1),
    sandboxes: 10,
    connections: 2,
    idle: Duration::from_secs(1),
};

/// The way of an answer of the API server.
const DELAY: Duration = Duration::from_millis(5);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let size = if is_short()? { &SHORT } else { &FULL };
    raise_file_limit();
    agents::serve()?;
    let mut table = Table::default();
    cold(&mut table, size).await?;
    let mut fleet = Fleet::start(size.replicas, size.users, size.warm).await?;
    warm(&mut table, size, &fleet).await?;
    for rate in size.rates {
        let what = format!("{rate} starts a second at {} replicas", size.replicas);
        let before = Usage::now(&fleet)?;
        let starts = fleet.start_at_rate(*rate, size.rate_time).await?;
        describe(
            &mut table,
            &what,
            &starts,
            &Usage::now(&fleet)?.since(&before),
        );
    }
    let what = format!(
        "starts over {} connections until {} sandboxes run",
        size.connections, size.sandboxes
    );
    let before = Usage::now(&fleet)?;
    let starts = fleet.start_until(size.sandboxes, size.connections).await?;
    describe(
        &mut table,
        &what,
        &starts,
        &Usage::now(&fleet)?.since(&before),
    );
    idle(&mut table, size, &fleet).await?;
    restart(&mut table, &mut fleet).await?;
    table.print()?;
    Ok(())
}

/// Adds the rows of some starts.
fn describe(table: &mut Table, what: &str, starts: &Starts, used: &Usage) {
    let count = starts.count();
    let rate = format!("{:.1} a second", count / starts.took.as_secs_f64());
    table.row([what, &starts.summary(), &rate, "", ""]);
    if let Some((first, number)) = &starts.failure {
        table.row([
            "… that failed",
            &format!("{number}, the first: {first}"),
            "",
            "",
            "",
        ]);
    }
    table.row([
        "… of the API server, for one",
        &used.requests(count),
        "",
        "",
        "",
    ]);
    table.row(["… of Postgres, for one", &used.database(count), "", "", ""]);
    table.row([
        "… processor time for one",
        &used.processor(count),
        "",
        "",
        "",
    ]);
}

/// Starts without warm sandboxes at one replica, one after the other.
async fn cold(table: &mut Table, size: &BenchmarkSize) -> anyhow::Result<()> {
    let fleet = Fleet::start(1, 1, 0).await?;
    fleet.cluster.fake.set_delay(DELAY);
    let before = Usage::now(&fleet)?;
    let starts = fleet
        .start_in_turn(size.starts_in_turn, Duration::ZERO)
        .await?;
    let what = "a cold start, answers of the API server take 5 ms";
    describe(table, what, &starts, &Usage::now(&fleet)?.since(&before));
    Ok(())
}

/// Starts with a warm sandbox, one after the other.
async fn warm(table: &mut Table, size: &BenchmarkSize, fleet: &Fleet) -> anyhow::Result<()> {
    fleet.cluster.fake.set_delay(DELAY);
    let before = Usage::now(fleet)?;
    let starts = fleet.start_in_turn(size.starts_in_turn, size.pause).await?;
    let what = "a warm start, answers of the API server take 5 ms";
    describe(table, what, &starts, &Usage::now(fleet)?.since(&before));
    fleet.cluster.fake.set_delay(Duration::ZERO);
    Ok(())
}

/// All sandboxes run, and there are no requests.
async fn idle(table: &mut Table, size: &BenchmarkSize, fleet: &Fleet) -> anyhow::Result<()> {
    let before = Usage::now(fleet)?;
    tokio::time::sleep(size.idle).await;
    let used = Usage::now(fleet)?.since(&before);
    let seconds = size.idle.as_secs_f64();
    let what = format!("{} sandboxes, idle", fleet.pods());
    let resident = fleet
        .replicas
        .iter()
        .filter_map(|it| resident_bytes(it.pid()));
    let largest = resident.max().context("a replica has ended")?;
    let resident = format!("the largest replica has {:.1} MB", megabytes(largest));
    table.row([&what, &resident, "", "", ""]);
    table.row([
        "… of the API server, in a second",
        &used.requests(seconds),
        "",
        "",
        "",
    ]);
    table.row([
        "… of Postgres, in a second",
        &used.database(seconds),
        "",
        "",
        "",
    ]);
    table.row([
        "… processor time in a second",
        &used.processor(seconds),
        "",
        "",
        "",
    ]);
    Ok(())
}

/// A killed replica comes back.
async fn restart(table: &mut Table, fleet: &mut Fleet) -> anyhow::Result<()> {
    let before = Usage::now(fleet)?;
    let began = Instant::now();
    let replica = fleet.replicas.last_mut().context("there is a replica")?;
    replica.kill9();
    replica.restart().await;
    let took = format!("{:.1} s", began.elapsed().as_secs_f64());
    let used = Usage::now(fleet)?.since(&before);
    table.row([
        "a killed replica serves again",
        &took,
        &used.requests(1.0),
        "",
        "",
    ]);
    Ok(())
}
