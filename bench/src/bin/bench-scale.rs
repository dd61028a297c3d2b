//! Cost of many rows and many sandboxes: `cargo xtask bench --scale`. Prints a table; `bench/results` has earlier ones. `--short`
//! uses small numbers and only checks that the benchmark works. `--only` selects `conversations`, `events` or `sandboxes`;
//! `--idle N` measures only N idle sandboxes. `--url URL` also measures the lists of another server; its key is in `BENCH_KEY`.
//!
//! It uses `SQLite`, and process sandboxes with the stub agent server.

use std::net::SocketAddr;
use std::time::Duration;

use acceptance::processes::{processor_time, resident_bytes};
use acceptance::wait::wait_for;
use acceptance::{Client, Service, Stub};
use anyhow::{Context as _, bail, ensure};
use benchmarks::load::{Load, LoadTarget};
use benchmarks::reference;
use benchmarks::table::Table;
use benchmarks::{event, median, megabytes, rows, wire};
use futures::future::join_all;
use serde_json::{Value, json};

const CONVERSATIONS: &str = "/api/v1/app-conversations/search?limit=100";
const SANDBOXES: &str = "/api/v1/sandboxes/search?limit=100";
/// The values of `--only`.
const BENCHMARKS: [&str; 3] = ["conversations", "events", "sandboxes"];
/// Until all sandboxes run.
const START_TIMEOUT: Duration = Duration::from_secs(600);

/// Each page is measured in blocks: a pause of a busy machine affects the p99 of one block, not the median of the blocks.
const BLOCKS: u32 = 5;

/// Amounts of work; the first number of each list is the baseline.
struct BenchmarkSize {
    conversations: &'static [u32],
    events: &'static [u32],
    sandboxes: &'static [usize],
    requests: u32,
    /// Time without requests.
    idle: Duration,
}

const FULL: BenchmarkSize = BenchmarkSize {
    conversations: &[10, 1_000, 100_000, 1_000_000],
    events: &[100, 2_000, 100_000],
    sandboxes: &[1, 100, 1_000],
    requests: 10_000,
    idle: Duration::from_secs(60),
};

const SHORT: BenchmarkSize = BenchmarkSize {
    conversations: &[10, 200],
    events: &[100, 200],
    sandboxes: &[1, 4],
    requests: 20,
    idle: Duration::from_secs(1),
};

#[actix_web::main]
async fn main() -> anyhow::Result<()> {
    let ScaleArguments {
        size,
        only,
        idle,
        url,
    } = arguments()?;
    // An invalid URL must fail before minutes of work.
    let url = url.map(|url| Ok::<_, anyhow::Error>((parse_address(&url)?, url)));
    let url = url.transpose()?;
    let mut table = Table::default();
    if let Some(sandboxes) = idle {
        measure_sandboxes(&mut table, size, &[sandboxes]).await?;
    } else {
        let is_wanted = |what: &str| only.as_deref().is_none_or(|only| only == what);
        if is_wanted(BENCHMARKS[0]) {
            measure_conversations(&mut table, size).await?;
        }
        if is_wanted(BENCHMARKS[1]) {
            measure_events(&mut table, size).await?;
        }
        if is_wanted(BENCHMARKS[2]) {
            measure_sandboxes(&mut table, size, size.sandboxes).await?;
        }
    }
    if let Some((address, url)) = url
        && let Err(error) = compare_lists(&mut table, size, (address, &url)).await
    {
        table.print()?;
        return Err(error.context(format!("cannot measure {url}")));
    }
    table.print()?;
    Ok(())
}

/// Arguments of the program.
struct ScaleArguments {
    size: &'static BenchmarkSize,
    /// One of [`BENCHMARKS`].
    only: Option<String>,
    /// Number of idle sandboxes.
    idle: Option<usize>,
    url: Option<String>,
}

fn arguments() -> anyhow::Result<ScaleArguments> {
    let (mut size, mut only, mut idle, mut url) = (&FULL, None, None, None);
    let mut arguments = std::env::args().skip(1);
    while let Some(word) = arguments.next() {
        match word.as_str() {
            "--short" => size = &SHORT,
            "--only" => {
                let what = arguments
                    .next()
                    .filter(|what| BENCHMARKS.contains(&what.as_str()));
                only = Some(what.with_context(|| format!("--only takes one of {BENCHMARKS:?}"))?);
            }
            "--idle" => idle = Some(arguments.next().context("--idle takes a number")?.parse()?),
            "--url" => url = Some(arguments.next().context("--url takes a URL")?),
            other => {
                bail!(
                    "unknown argument {other}; there are --short, --only WHAT, --idle N and --url URL"
                )
            }
        }
    }
    Ok(ScaleArguments {
        size,
        only,
        idle,
        url,
    })
}

/// The address of another server.
fn parse_address(url: &str) -> anyhow::Result<SocketAddr> {
    let parsed = reqwest::Url::parse(url).context("--url takes a URL")?;
    let is_plain = parsed.scheme() == "http" && parsed.path() == "/";
    ensure!(is_plain, "{url}: only http, and no path");
    let addresses = parsed.socket_addrs(|| None)?;
    addresses
        .into_iter()
        .next()
        .context("the host has no address")
}

/// Compares the lists of another server with those of a service with one conversation.
async fn compare_lists(
    table: &mut Table,
    size: &BenchmarkSize,
    (address, url): (SocketAddr, &str),
) -> anyhow::Result<()> {
    let key = reference::key().unwrap_or_default();
    let stub = Stub::new();
    let service = start_service(&stub, 10).await;
    let user = service.admin();
    let _ = user.converse("hello").await;
    for (what, path) in [("conversations", CONVERSATIONS), ("sandboxes", SANDBOXES)] {
        let ours = measure_page((service.address(), user.key()), path, size.requests).await?;
        let theirs = measure_page((address, &key), path, size.requests).await?;
        let with = format!("{url}, with what it has: {}", theirs.summary());
        let ratio = format!("p50 {:.1}", theirs.percentile(50.0) / ours.percentile(50.0));
        let what = format!("list of {what}, one");
        table.row([&what, &ours.summary(), &with, &ratio, ""]);
    }
    Ok(())
}

/// Latencies of a page, by block.
struct PageLatency(Vec<Load>);

impl PageLatency {
    /// The median of the blocks' percentiles, in milliseconds.
    fn percentile(&self, percent: f64) -> f64 {
        median(self.0.iter().map(|block| block.percentile(percent)))
    }

    /// As a cell of a table.
    fn summary(&self) -> String {
        let (blocks, count) = (self.0.len(), self.0.first().map_or(0, Load::count));
        let (p50, p99) = (self.percentile(50.0), self.percentile(99.0));
        format!("p50 {p50:.2} ms, p99 {p99:.2} ms (n={blocks}×{count})")
    }
}

/// Measures a page `count` times, after a tenth as many requests to warm up.
async fn measure_page(
    of: (SocketAddr, &str),
    path: &str,
    count: u32,
) -> anyhow::Result<PageLatency> {
    let mut all = measure_pages(&[of], path, count).await?;
    all.pop().context("no page was measured")
}

/// Measures the page of several services in turns, so that other load of the machine affects all of them.
async fn measure_pages(
    of: &[(SocketAddr, &str)],
    path: &str,
    count: u32,
) -> anyhow::Result<Vec<PageLatency>> {
    let mut all = Vec::new();
    for (address, key) in of {
        let request = wire::request("GET", path, &[wire::key_header(key)], "");
        let aim = LoadTarget::same(*address, request);
        aim.run_in_turn(count / 10 + 1).await?;
        all.push((aim, Vec::new()));
    }
    for _ in 0..BLOCKS {
        for (aim, blocks) in &mut all {
            blocks.push(aim.run_in_turn(count / BLOCKS).await?);
        }
    }
    Ok(all
        .into_iter()
        .map(|(_, blocks)| PageLatency(blocks))
        .collect())
}

/// Adds the row of a page, compared with the first page of its kind.
fn add_row(
    table: &mut Table,
    what: &str,
    load: &PageLatency,
    first: Option<&(String, PageLatency)>,
    target: &str,
) {
    let (with, ratio) = first.map_or_else(Default::default, |(name, first)| {
        let (p50, p99) = (
            load.percentile(50.0) / first.percentile(50.0),
            load.percentile(99.0) / first.percentile(99.0),
        );
        let with = format!("{name}: {}", first.summary());
        (with, format!("p50 {p50:.2}, p99 {p99:.2}"))
    });
    table.row([what, &load.summary(), &with, &ratio, target]);
}

async fn measure_conversations(table: &mut Table, size: &BenchmarkSize) -> anyhow::Result<()> {
    let stub = Stub::new();
    let mut service = start_service(&stub, 10).await;
    let user = service.admin();
    let _ = user.converse("hello").await;
    let mut first = None;
    for total in size.conversations {
        service.stop().await;
        rows::copy_conversations(&service.data_dir().join("agent-workspace.db"), *total)?;
        service.restart().await;
        let count = user.get("/api/v1/app-conversations/count").await.ok();
        ensure!(
            count == *total,
            "the service counts {count} conversations, not {total}"
        );
        let load = measure_page(
            (service.address(), user.key()),
            CONVERSATIONS,
            size.requests,
        )
        .await?;
        let what = format!("list of at most 100 of {total} conversations");
        add_row(table, &what, &load, first.as_ref(), "");
        // Ten conversations make a shorter page.
        if *total >= 100 {
            first.get_or_insert((total.to_string(), load));
        }
    }
    Ok(())
}

async fn measure_events(table: &mut Table, size: &BenchmarkSize) -> anyhow::Result<()> {
    let stub = Stub::new();
    let service = start_service(&stub, 10).await;
    let user = service.admin();
    let conversation = user.converse("hello").await;
    let sandbox = user.sandbox(&conversation.sandbox_id).await;
    let key = sandbox.and_then(|sandbox| sandbox.session_api_key);
    let agent = user.with_key(&key.context("the running sandbox has no key")?);
    let path = format!("/api/v1/webhooks/events/{}", conversation.id);
    let mut sent = 0;
    let mut first = None;
    for total in size.events {
        while sent < *total {
            let batch: Vec<Value> = (sent..sent + 100).map(numbered_event).collect();
            let _ = agent.post(&path, &json!(batch)).await.ok();
            sent += 100;
        }
        let path = format!(
            "/api/v1/conversation/{}/events/search?limit=100",
            conversation.id
        );
        for (what, order) in [
            ("page of 100 events", ""),
            ("… newest first", "&sort_order=TIMESTAMP_DESC"),
        ] {
            let load = measure_page(
                (service.address(), user.key()),
                &format!("{path}{order}"),
                size.requests,
            )
            .await?;
            let what = format!("{what} out of {total}");
            add_row(
                table,
                &what,
                &load,
                first.as_ref(),
                "≤ 5 ms (reference, measured before: 669 ms out of 2,000)",
            );
            first.get_or_insert((total.to_string(), load));
        }
    }
    Ok(())
}

/// Keeps a service for each number until the end, because sandboxes use some processor time: it then affects all measurements
/// equally.
async fn measure_sandboxes(
    table: &mut Table,
    size: &BenchmarkSize,
    totals: &[usize],
) -> anyhow::Result<()> {
    let stub = Stub::new();
    let mut services = Vec::new();
    for total in totals {
        let service = start_service(&stub, total + 10).await;
        let (user, key) = (service.admin(), service.admin().key().to_owned());
        let _ = user.converse("hello").await;
        let missing: Vec<usize> = (1..*total).collect();
        for some in missing.chunks(8) {
            join_all(some.iter().map(|_| user.start_sandbox())).await;
        }
        all_running(&user, *total).await;
        measure_idle(table, size, &service, *total).await?;
        services.push((service, key));
    }
    let of = services
        .iter()
        .map(|(service, key)| (service.address(), key.as_str()));
    let of: Vec<(SocketAddr, &str)> = of.collect();
    for (what, path) in [
        ("list of at most 100 sandboxes", SANDBOXES),
        ("list of conversations", CONVERSATIONS),
    ] {
        let mut first = None;
        for (total, load) in totals
            .iter()
            .zip(measure_pages(&of, path, size.requests).await?)
        {
            let what = format!("{what} with {total}");
            add_row(table, &what, &load, first.as_ref(), "p99 ≤ 1.20");
            // A list of one sandbox is shorter than a list of a hundred.
            if path == CONVERSATIONS || *total >= 100 {
                first.get_or_insert((format!("{total} sandboxes"), load));
            }
        }
    }
    Ok(())
}

/// Measures processor time and memory of a service with idle sandboxes.
async fn measure_idle(
    table: &mut Table,
    size: &BenchmarkSize,
    service: &Service,
    total: usize,
) -> anyhow::Result<()> {
    tokio::time::sleep(size.idle / 4).await;
    let before = processor_time(service.pid()).context("the service does not run")?;
    tokio::time::sleep(size.idle).await;
    let spent = processor_time(service.pid())
        .context("the service does not run")?
        .saturating_sub(before);
    let percent = 100.0 * spent.as_secs_f64() / size.idle.as_secs_f64();
    let memory = megabytes(resident_bytes(service.pid()).context("the service does not run")?);
    let what = format!("{total} live sandboxes, idle: of a core, resident");
    let found = format!("{percent:.2} %, {memory:.1} MB");
    table.row([&what, &found, "", "", "< 2 %, < 120 MB"]);
    Ok(())
}

/// Starts a service that allows this many sandboxes, and stores a model.
async fn start_service(stub: &Stub, sandboxes: usize) -> Service {
    let sandbox_limit = sandboxes.to_string();
    let service = Service::builder()
        .stub(stub)
        .env("WORKSPACE_SANDBOX__MAX_RUNNING", &sandbox_limit)
        .env("WORKSPACE_SANDBOX__MAX_RUNNING_PER_USER", &sandbox_limit)
        .env("WORKSPACE_SANDBOX__PARALLEL_STARTS", "8")
        .env("WORKSPACE_LOG__LEVEL", "info")
        .start()
        .await;
    let user = service.admin();
    user.use_model("openai/m", "http://127.0.0.1:9/v1", "sk-bench")
        .await;
    service
}

async fn all_running(user: &Client, total: usize) {
    wait_for("all sandboxes to run", START_TIMEOUT, || async {
        let all = user.get_all_pages("/api/v1/sandboxes/search").await;
        let running = all.iter().filter(|it| it["status"] == "RUNNING").count();
        (running == total).then_some(())
    })
    .await;
}

/// An event a tenth of a second after the previous one.
fn numbered_event(number: u32) -> Value {
    let (seconds, tenths) = (number / 10, number % 10);
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let happened_at = format!("2026-11-21T{hours:02}:{minutes:02}:{seconds:02}.{tenths}00000");
    event(&format!("event-{number}"), &happened_at)
}
