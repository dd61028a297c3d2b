//! What more rows and more sandboxes cost: `cargo xtask bench --scale`. Prints a table; `bench/results` has earlier ones. With
//! `--short` the numbers are small: that it works is then seen in seconds. With `--only conversations`, `events` or `sandboxes` only
//! those are looked at, with `--idle N` only what N live sandboxes take while nobody asks anything. With `--url URL` the same lists of another server, with what it has, are beside the
//! first ones; its key is in `BENCH_KEY`.
//!
//! `SQLite`, and sandboxes as processes that run the stub agent server.

use std::net::SocketAddr;
use std::time::Duration;

use acceptance::processes::{processor_time, resident};
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
/// What there are many of.
const OF: [&str; 3] = ["conversations", "events", "sandboxes"];
/// Until all sandboxes run.
const START_TIMEOUT: Duration = Duration::from_secs(600);

/// A page is asked for in so many blocks: one pause of a busy machine spoils the p99 of one of them, not their median.
const BLOCKS: u32 = 5;

/// How much of everything; the first of each is what the others are compared with.
struct BenchmarkSize {
    conversations: &'static [u32],
    events: &'static [u32],
    sandboxes: &'static [usize],
    requests: u32,
    /// How long nobody asks anything.
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
    // Nobody learns after minutes that it is none.
    let url = url.map(|url| Ok::<_, anyhow::Error>((address(&url)?, url)));
    let url = url.transpose()?;
    let mut table = Table::default();
    if let Some(sandboxes) = idle {
        many_sandboxes(&mut table, size, &[sandboxes]).await?;
    } else {
        let is_wanted = |what: &str| only.as_deref().is_none_or(|only| only == what);
        if is_wanted(OF[0]) {
            many_conversations(&mut table, size).await?;
        }
        if is_wanted(OF[1]) {
            many_events(&mut table, size).await?;
        }
        if is_wanted(OF[2]) {
            many_sandboxes(&mut table, size, size.sandboxes).await?;
        }
    }
    if let Some((address, url)) = url
        && let Err(error) = elsewhere(&mut table, size, (address, &url)).await
    {
        table.print()?;
        return Err(error.context(format!("{url} does not answer as it should")));
    }
    table.print()?;
    Ok(())
}

/// What it is called with.
struct ScaleArguments {
    size: &'static BenchmarkSize,
    /// Only one of [`OF`].
    only: Option<String>,
    /// Only so many sandboxes, idle.
    idle: Option<usize>,
    url: Option<String>,
}

fn arguments() -> anyhow::Result<ScaleArguments> {
    let (mut size, mut only, mut idle, mut url) = (&FULL, None, None, None);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--short" => size = &SHORT,
            "--only" => {
                let what = words.next().filter(|what| OF.contains(&what.as_str()));
                only = Some(what.with_context(|| format!("--only takes one of {OF:?}"))?);
            }
            "--idle" => idle = Some(words.next().context("--idle takes a number")?.parse()?),
            "--url" => url = Some(words.next().context("--url takes a URL")?),
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

/// Where another server listens.
fn address(url: &str) -> anyhow::Result<SocketAddr> {
    let parsed = reqwest::Url::parse(url).context("--url takes a URL")?;
    let is_plain = parsed.scheme() == "http" && parsed.path() == "/";
    ensure!(is_plain, "{url}: only http, and no path");
    let addresses = parsed.socket_addrs(|| None)?;
    addresses
        .into_iter()
        .next()
        .context("a host with an address")
}

/// The lists of another server, beside those of a service with one conversation.
async fn elsewhere(
    table: &mut Table,
    size: &BenchmarkSize,
    (address, url): (SocketAddr, &str),
) -> anyhow::Result<()> {
    let key = reference::key().unwrap_or_default();
    let stub = Stub::new();
    let service = started(&stub, 10).await;
    let user = service.admin();
    let _ = user.converse("hello").await;
    for (what, path) in [("conversations", CONVERSATIONS), ("sandboxes", SANDBOXES)] {
        let ours = page((service.address(), user.key()), path, size.requests).await?;
        let theirs = page((address, &key), path, size.requests).await?;
        let with = format!("{url}, with what it has: {}", theirs.summary());
        let ratio = format!("p50 {:.1}", theirs.at(50.0) / ours.at(50.0));
        let what = format!("list of {what}, one");
        table.row([&what, &ours.summary(), &with, &ratio, ""]);
    }
    Ok(())
}

/// What a page took, in blocks.
struct PageLatency(Vec<Load>);

impl PageLatency {
    /// The median of the blocks: so many percent took at most so many milliseconds.
    fn at(&self, percent: f64) -> f64 {
        median(self.0.iter().map(|block| block.at(percent)))
    }

    /// As a cell of a table.
    fn summary(&self) -> String {
        let (blocks, count) = (self.0.len(), self.0.first().map_or(0, Load::count));
        let (p50, p99) = (self.at(50.0), self.at(99.0));
        format!("p50 {p50:.2} ms, p99 {p99:.2} ms (n={blocks}×{count})")
    }
}

/// A page, asked for so many times; a tenth as often before that, which is not counted.
async fn page(of: (SocketAddr, &str), path: &str, count: u32) -> anyhow::Result<PageLatency> {
    let mut all = pages(&[of], path, count).await?;
    all.pop().context("one of one")
}

/// The same of several services, in turns: whatever else the machine does is there for each.
async fn pages(
    of: &[(SocketAddr, &str)],
    path: &str,
    count: u32,
) -> anyhow::Result<Vec<PageLatency>> {
    let mut all = Vec::new();
    for (address, key) in of {
        let request = wire::request("GET", path, &[wire::key(key)], "");
        let aim = LoadTarget::same(*address, request);
        aim.in_turn(count / 10 + 1).await?;
        all.push((aim, Vec::new()));
    }
    for _ in 0..BLOCKS {
        for (aim, blocks) in &mut all {
            blocks.push(aim.in_turn(count / BLOCKS).await?);
        }
    }
    Ok(all
        .into_iter()
        .map(|(_, blocks)| PageLatency(blocks))
        .collect())
}

/// A line for a page; what it is compared with is the first one of its kind.
fn summary(
    table: &mut Table,
    what: &str,
    load: &PageLatency,
    first: Option<&(String, PageLatency)>,
    target: &str,
) {
    let (with, ratio) = first.map_or_else(Default::default, |(name, first)| {
        let (p50, p99) = (
            load.at(50.0) / first.at(50.0),
            load.at(99.0) / first.at(99.0),
        );
        let with = format!("{name}: {}", first.summary());
        (with, format!("p50 {p50:.2}, p99 {p99:.2}"))
    });
    table.row([what, &load.summary(), &with, &ratio, target]);
}

async fn many_conversations(table: &mut Table, size: &BenchmarkSize) -> anyhow::Result<()> {
    let stub = Stub::new();
    let mut service = started(&stub, 10).await;
    let user = service.admin();
    let _ = user.converse("hello").await;
    let mut first = None;
    for total in size.conversations {
        service.stop().await;
        rows::copy_conversations(&service.data().join("agent-workspace.db"), *total)?;
        service.restart().await;
        let count = user.get("/api/v1/app-conversations/count").await.ok();
        ensure!(count == *total, "{count} conversations, not {total}");
        let load = page(
            (service.address(), user.key()),
            CONVERSATIONS,
            size.requests,
        )
        .await?;
        let what = format!("list of at most 100 of {total} conversations");
        summary(table, &what, &load, first.as_ref(), "");
        // Ten make a shorter page.
        if *total >= 100 {
            first.get_or_insert((total.to_string(), load));
        }
    }
    Ok(())
}

async fn many_events(table: &mut Table, size: &BenchmarkSize) -> anyhow::Result<()> {
    let stub = Stub::new();
    let service = started(&stub, 10).await;
    let user = service.admin();
    let conversation = user.converse("hello").await;
    let sandbox = user.sandbox(&conversation.sandbox_id).await;
    let key = sandbox.and_then(|sandbox| sandbox.session_api_key);
    let agent = user.with_key(&key.context("a running sandbox has a key")?);
    let path = format!("/api/v1/webhooks/events/{}", conversation.id);
    let mut sent = 0;
    let mut first = None;
    for total in size.events {
        while sent < *total {
            let batch: Vec<Value> = (sent..sent + 100).map(numbered).collect();
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
            let load = page(
                (service.address(), user.key()),
                &format!("{path}{order}"),
                size.requests,
            )
            .await?;
            let what = format!("{what} out of {total}");
            summary(
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

/// A service for each number, all of them there until the last page is read: the sandboxes themselves wake up now and then, and
/// take as much from a service with one as from that with a thousand.
async fn many_sandboxes(
    table: &mut Table,
    size: &BenchmarkSize,
    totals: &[usize],
) -> anyhow::Result<()> {
    let stub = Stub::new();
    let mut services = Vec::new();
    for total in totals {
        let service = started(&stub, total + 10).await;
        let (user, key) = (service.admin(), service.admin().key().to_owned());
        let _ = user.converse("hello").await;
        let missing: Vec<usize> = (1..*total).collect();
        for some in missing.chunks(8) {
            join_all(some.iter().map(|_| user.start_sandbox())).await;
        }
        all_running(&user, *total).await;
        idle(table, size, &service, *total).await?;
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
        for (total, load) in totals.iter().zip(pages(&of, path, size.requests).await?) {
            let what = format!("{what} with {total}");
            summary(table, &what, &load, first.as_ref(), "p99 ≤ 1.20");
            // A list of one sandbox is shorter than one of a hundred.
            if path == CONVERSATIONS || *total >= 100 {
                first.get_or_insert((format!("{total} sandboxes"), load));
            }
        }
    }
    Ok(())
}

/// What a service with so many sandboxes takes while nobody asks anything.
async fn idle(
    table: &mut Table,
    size: &BenchmarkSize,
    service: &Service,
    total: usize,
) -> anyhow::Result<()> {
    tokio::time::sleep(size.idle / 4).await;
    let before = processor_time(service.pid()).context("the service runs")?;
    tokio::time::sleep(size.idle).await;
    let spent = processor_time(service.pid())
        .context("the service runs")?
        .saturating_sub(before);
    let percent = 100.0 * spent.as_secs_f64() / size.idle.as_secs_f64();
    let memory = megabytes(resident(service.pid()).context("the service runs")?);
    let what = format!("{total} live sandboxes, idle: of a core, resident");
    let found = format!("{percent:.2} %, {memory:.1} MB");
    table.row([&what, &found, "", "", "< 2 %, < 120 MB"]);
    Ok(())
}

/// A user with a model, and places for so many sandboxes.
async fn started(stub: &Stub, sandboxes: usize) -> Service {
    let places = sandboxes.to_string();
    let service = Service::builder()
        .stub(stub)
        .env("WORKSPACE_SANDBOX__MAX_RUNNING", &places)
        .env("WORKSPACE_SANDBOX__MAX_RUNNING_PER_USER", &places)
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
        let all = user.all("/api/v1/sandboxes/search").await;
        let running = all.iter().filter(|it| it["status"] == "RUNNING").count();
        (running == total).then_some(())
    })
    .await;
}

/// A tenth of a second after the last one.
fn numbered(number: u32) -> Value {
    let (seconds, tenths) = (number / 10, number % 10);
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let happened_at = format!("2026-11-21T{hours:02}:{minutes:02}:{seconds:02}.{tenths}00000");
    event(&format!("event-{number}"), &happened_at)
}
