//! Benchmark of the service on Postgres: `cargo xtask bench --postgres`. Prints a table; `bench/results` has earlier ones.
//! `--short` uses small numbers and only checks that the benchmark works. `--reads` measures only throughput, with 20,000
//! conversations, in three minutes.
//!
//! The sides of a comparison take turns, so that other load of the machine affects both.

mod postgres_figures;

use std::time::{Duration, Instant};

use acceptance::{Postgres, print_line};
use anyhow::{Context as _, ensure};
use benchmarks::SortedTimes;
use benchmarks::table::Table;
use serde_json::{Value, json};

use crate::postgres_figures::load::{self, PageQuery};
use crate::postgres_figures::seed::{
    FIRST_REPORTED_CONVERSATION, SeedCounts, SeededDatabase, conversation_id, event, sandbox_key,
};
use crate::postgres_figures::{bare, throughput};

const LIST: &str = "/api/v1/app-conversations/search?limit=100";

/// Amounts of work.
struct BenchmarkSize {
    small: SeedCounts,
    large: SeedCounts,
    rounds: usize,
    duration: Duration,
    events_per_second: f64,
    clients: usize,
}

const FULL: BenchmarkSize = BenchmarkSize {
    small: SeedCounts {
        users: 1,
        conversations: 1_000,
        events: 1_000,
        sandboxes: 1,
    },
    large: SeedCounts {
        users: 1_000,
        conversations: 1_000_000,
        events: 100_000,
        sandboxes: 50,
    },
    rounds: 500,
    duration: Duration::from_secs(30),
    events_per_second: 5_000.0,
    clients: 8,
};

/// For throughput only: the cost of a request hardly depends on the number of other rows.
const READS: BenchmarkSize = BenchmarkSize {
    large: SeedCounts {
        users: 10,
        conversations: 20_000,
        events: 100,
        sandboxes: 1,
    },
    ..FULL
};

const SHORT: BenchmarkSize = BenchmarkSize {
    small: SeedCounts {
        users: 1,
        conversations: 200,
        events: 200,
        sandboxes: 1,
    },
    large: SeedCounts {
        users: 10,
        conversations: 2_000,
        events: 400,
        sandboxes: 5,
    },
    rounds: 5,
    duration: Duration::from_secs(1),
    events_per_second: 100.0,
    clients: 2,
};

#[actix_web::main]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let size = match arguments.first().map(String::as_str) {
        Some(bare::ROLE_ARGUMENT) => return bare::serve(&arguments[1..]).await,
        Some("--short") => &SHORT,
        Some("--reads") => return reads().await,
        None => &FULL,
        Some(other) => anyhow::bail!("unknown argument {other}; there are --short and --reads"),
    };
    let postgres = Postgres::start();
    let began = Instant::now();
    let small = SeededDatabase::new(&postgres, "small", size.small).await?;
    let large = SeededDatabase::new(&postgres, "large", size.large).await?;
    print_line(&format!("seeded in {:.0} s", began.elapsed().as_secs_f64()));
    let mut table = Table::default();
    pages(&mut table, size, &small, &large).await?;
    throughput::rows(&mut table, size, &large).await?;
    intake(&mut table, size, &large).await?;
    table.print()?;
    Ok(())
}

async fn reads() -> anyhow::Result<()> {
    let postgres = Postgres::start();
    let seeded = SeededDatabase::new(&postgres, "large", READS.large).await?;
    let mut table = Table::default();
    throughput::rows(&mut table, &READS, &seeded).await?;
    Ok(table.print()?)
}

fn summary(times: &SortedTimes) -> String {
    format!(
        "p50 {:.2} ms, p95 {:.2} ms",
        times.percentile(50),
        times.percentile(95)
    )
}

/// Compares pages of many rows with pages of few rows.
async fn pages(
    table: &mut Table,
    size: &BenchmarkSize,
    small: &SeededDatabase,
    large: &SeededDatabase,
) -> anyhow::Result<()> {
    let events = format!(
        "/api/v1/conversation/{}/events/search?limit=100",
        conversation_id(0)
    );
    let cases = [
        (
            "list of 100 conversations, first page",
            LIST.to_owned(),
            false,
        ),
        ("… a page in the middle", LIST.to_owned(), true),
        ("page of 100 events, first page", events.clone(), false),
        (
            "… newest first",
            format!("{events}&sort_order=TIMESTAMP_DESC"),
            false,
        ),
        ("… a page in the middle", events, true),
    ];
    for (what, path, in_the_middle) in cases {
        let page = async |seeded: &SeededDatabase| {
            let token = if in_the_middle {
                middle_page(seeded, &path).await?
            } else {
                String::new()
            };
            let page = PageQuery::new(
                &seeded.service.url(),
                &format!("{path}{token}"),
                &seeded.reader,
            );
            let shown: Value = serde_json::from_slice(&page.get().await)?;
            let count = shown["items"].as_array().map_or(0, Vec::len);
            ensure!(count == 100, "{what}: the page has {count} rows, not 100");
            anyhow::Ok(page)
        };
        let (many, few) = (page(large).await?, page(small).await?);
        let [many, few] = load::measure_in_turns(size.rounds, [&many, &few]).await;
        let ratio = format!("{:.2}", many.percentile(50) / few.percentile(50));
        table.row([what, &summary(&many), &summary(&few), &ratio, "≤ 1.3"]);
    }
    Ok(())
}

/// The page token in the middle of a list.
async fn middle_page(seeded: &SeededDatabase, path: &str) -> anyhow::Result<String> {
    let mut tokens = vec![String::new()];
    loop {
        let last = tokens.last().map_or("", String::as_str);
        let page = seeded.reader.get(&format!("{path}{last}")).await.ok();
        match page["next_page_id"].as_str() {
            Some(id) => tokens.push(format!("&page_id={id}")),
            None => break,
        }
    }
    let middle = tokens.len() / 2;
    tokens.get(middle).cloned().context("the list has no pages")
}

/// Mean number of events in a report.
const MEAN_REPORT_EVENTS: f64 = 7.5;

/// Sends a report of 5 to 10 events, from each sandbox in turn.
async fn report(http: reqwest::Client, service: String, number: u64, sandboxes: u64) {
    let sandbox = i64::try_from(number % sandboxes).unwrap_or_default();
    let id = conversation_id(FIRST_REPORTED_CONVERSATION + sandbox);
    let count = 5 + (number / sandboxes) % 6;
    let batch: Vec<Value> = (0..count)
        .map(|n| event(1_000_000 + number * 10 + n))
        .collect();
    let request = http
        .post(format!("{service}/api/v1/webhooks/events/{id}"))
        .header("X-Session-API-Key", sandbox_key(sandbox))
        .json(&json!(batch));
    let answer = request.send().await;
    let answer = answer.unwrap_or_else(|error| panic!("{error:?}"));
    // The service refuses late reports, which an agent server sends again. The number of stored events shows the difference.
    let status = answer.status().as_u16();
    assert!(matches!(status, 200 | 503), "{status}");
}

/// Measures reports of 5 to 10 events from all sandboxes while a user reads.
async fn intake(
    table: &mut Table,
    size: &BenchmarkSize,
    large: &SeededDatabase,
) -> anyhow::Result<()> {
    let sandboxes = u64::try_from(size.large.sandboxes)?;
    let http = reqwest::Client::builder().no_proxy().build()?;
    let post = |number| report(http.clone(), large.service.url(), number, sandboxes);
    let events = format!(
        "/api/v1/conversation/{}/events/search?limit=100",
        conversation_id(0)
    );
    let paths = [
        LIST,
        "/api/v1/settings",
        events.as_str(),
        "/api/v1/app-conversations/search?limit=20",
    ];
    let pages = paths.map(|path| PageQuery::new(&large.service.url(), path, &large.reader));
    let read = |number: u64| {
        let page = pages[usize::try_from(number % 4).unwrap_or_default()].clone();
        async move { drop(page.get().await) }
    };
    let reads_without_intake = load::open_loop(50.0, size.duration / 3, read).await;
    let (before, began) = (large.count_events()?, Instant::now());
    let (reports, reads) = tokio::join!(
        load::open_loop(
            size.events_per_second / MEAN_REPORT_EVENTS,
            size.duration,
            post
        ),
        load::open_loop(50.0, size.duration, read),
    );
    let spent = began.elapsed().as_secs_f64();
    let stored = large.count_events()? - before;
    let summary = |times: &SortedTimes| {
        format!(
            "p50 {:.1} ms, p99 {:.1} ms",
            times.percentile(50),
            times.percentile(99)
        )
    };
    let what = format!("events stored from {sandboxes} sandboxes, reports of 5 to 10");
    let rate = f64::from(u32::try_from(stored)?) / spent;
    let wanted = size.events_per_second;
    table.row([
        &what,
        &format!("{rate:.0} events/s"),
        &format!("{wanted:.0} sent"),
        "",
        "5,000/s",
    ]);
    table.row(["… until acknowledged", &summary(&reports), "", "", ""]);
    table.row([
        "… a user's reads meanwhile, 50/s",
        &summary(&reads),
        &format!("without intake {}", summary(&reads_without_intake)),
        "",
        "p99 < 25 ms",
    ]);
    ensure!(stored > 0, "no event was stored");
    Ok(())
}
