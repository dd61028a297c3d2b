//! Throughput and latency of central routes, compared with the reference: `cargo xtask bench --load`. Prints a table;
//! `bench/results` has earlier ones. `--short` uses small numbers and only checks that the benchmark works. `--only WORDS` selects
//! rows that contain these words. An agent-workspace at `--url` must not limit requests (`http.requests_per_second = 0`).
//!
//! It compares with the server at `--url` (its key in `BENCH_KEY`), else with the reference of the Python in
//! `BENCH_REFERENCE_PYTHON`, else with labelled earlier results. The sides take turns, so that other load of the machine affects
//! all of them. Central reads are also compared with bare handlers, minimal handlers over the same database
//! ([`load_figures::bare`]). These must give the service's response.

mod load_figures;

use std::net::SocketAddr;
use std::time::Duration;

use acceptance::{Client, Service, Stub};
use anyhow::{Context as _, bail, ensure};
use benchmarks::load::{Load, LoadTarget};
use benchmarks::reference;
use benchmarks::table::Table;
use benchmarks::{event, wire};
use serde_json::{Value, json};

use crate::load_figures::bare::{self, BareEndpoint, BareRoute, BareServer};
use crate::load_figures::sample::{CONNECTIONS, Sample};

const ROUNDS: usize = 5;
/// Timestamp of every posted event.
const EVENT_TIME: &str = "2026-11-21T10:00:00.123456";

/// The copy of the database that the bare handlers read.
const COPY_FILE: &str = "bare.db";

/// Amounts of work.
struct BenchmarkSize {
    round_time: Duration,
    sandboxes: u32,
    events: u32,
    /// Minimum number of requests for a latency compared with another server.
    min_requests: f64,
}

const FULL: BenchmarkSize = BenchmarkSize {
    round_time: Duration::from_secs(2),
    sandboxes: 10,
    events: 2_000,
    min_requests: 500.0,
};

const SHORT: BenchmarkSize = BenchmarkSize {
    round_time: Duration::from_millis(100),
    sandboxes: 2,
    events: 200,
    min_requests: 1.0,
};

/// A route, the earlier throughput of the reference (32 connections, on a similar machine), and the target factor.
struct BenchmarkCase {
    what: String,
    path: String,
    reference_throughput: Option<f64>,
    target_factor: Option<f64>,
    /// Whether another server can be compared without further setup.
    is_comparable: bool,
    /// Whether it has a bare handler.
    is_bare: bool,
    /// Whether the requesting user has no objects.
    is_empty: bool,
}

/// A server and its process.
type MeasuredServer<'a> = (&'a LoadTarget, u32);

#[actix_web::main]
async fn main() -> anyhow::Result<()> {
    if std::env::args().nth(1).as_deref() == Some(bare::ROLE_ARGUMENT) {
        return bare::serve().await;
    }
    let Arguments { size, url, only } = arguments()?;
    let is_wanted =
        |case: &BenchmarkCase| only.as_ref().is_none_or(|words| case.what.contains(words));
    let ours = ServiceUnderTest::start(size).await?;
    let user_without_objects = ours.service.user("without-objects");
    let copy = ours.copy().await?;
    let other = ComparedServer::start(url).await?;
    let mut table = Table::default();
    for case in cases(&ours).into_iter().filter(is_wanted) {
        let path = case.path.clone();
        let user = if case.is_empty {
            &user_without_objects
        } else {
            &ours.user
        };
        let request = wire::request("GET", &path, &[wire::key_header(user.key())], "");
        let target = LoadTarget::same(ours.service.address(), request);
        let other = other.as_ref().filter(|_| case.is_comparable);
        let other = other.map(|it| (it.name.as_str(), it.load_target(path.clone())));
        let bare = case.is_bare.then(|| ours.bare(&copy, &path));
        let bare = match bare {
            Some(bare) => Some(bare.await?),
            None => None,
        };
        let bare = bare.as_ref().map(|it| (&it.1, it.0.pid()));
        let sides = ((&target, ours.service.pid()), bare, other);
        measure(&mut table, size, &case, sides).await?;
    }
    let intake = BenchmarkCase {
        what: "POST webhooks/events, one event".to_owned(),
        path: format!("/api/v1/webhooks/events/{}", ours.conversation),
        reference_throughput: Some(8.6),
        target_factor: Some(200.0),
        is_comparable: false,
        is_bare: false,
        is_empty: false,
    };
    let (path, key) = (intake.path.clone(), wire::key_header(&ours.sandbox_key));
    let post = move |number| {
        let body = json!([event(&format!("load-{number}"), EVENT_TIME)]).to_string();
        wire::request("POST", &path, std::slice::from_ref(&key), &body)
    };
    let target = LoadTarget::new(ours.service.address(), Box::new(post));
    let sides = ((&target, ours.service.pid()), None, None);
    if is_wanted(&intake) {
        measure(&mut table, size, &intake, sides).await?;
    }
    table.print()?;
    Ok(())
}

/// Arguments of the program.
struct Arguments {
    size: &'static BenchmarkSize,
    url: Option<String>,
    only: Option<String>,
}

fn arguments() -> anyhow::Result<Arguments> {
    let (mut size, mut url, mut only) = (&FULL, None, None);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--short" => size = &SHORT,
            "--url" => url = Some(words.next().context("--url needs a URL")?),
            "--only" => only = Some(words.next().context("--only needs words")?),
            other => {
                bail!("unknown argument {other}; there are --short, --only WORDS and --url URL")
            }
        }
    }
    Ok(Arguments { size, url, only })
}

fn cases(ours: &ServiceUnderTest) -> Vec<BenchmarkCase> {
    let (some, is_ten) = (ours.sandboxes, ours.sandboxes == 10);
    let sandboxes = format!("GET sandboxes/search, {some} running");
    let conversations = format!("GET app-conversations/search, {some} in running sandboxes");
    let case = |what: &str, path: &str, reference_throughput, target_factor| BenchmarkCase {
        what: what.to_owned(),
        path: format!("/api/v1/{path}"),
        reference_throughput,
        target_factor,
        is_comparable: true,
        is_bare: true,
        is_empty: false,
    };
    let lists = |what, path: &str, reference_throughput| BenchmarkCase {
        is_bare: false,
        is_empty: true,
        ..case(what, path, reference_throughput, Some(300.0))
    };
    let events = format!("conversation/{}/events/search?limit=100", ours.conversation);
    vec![
        case(
            "GET sandbox-specs/search",
            "sandbox-specs/search",
            Some(700.0),
            Some(30.0),
        ),
        case("GET settings", "settings", Some(235.0), Some(50.0)),
        lists(
            "GET sandboxes/search, empty",
            "sandboxes/search",
            Some(37.0),
        ),
        lists(
            "GET app-conversations/search, empty",
            "app-conversations/search",
            Some(21.0),
        ),
        BenchmarkCase {
            is_comparable: false,
            ..case(&sandboxes, "sandboxes/search", None, None)
        },
        BenchmarkCase {
            is_comparable: false,
            ..case(
                &conversations,
                "app-conversations/search",
                Some(5.3).filter(|_| is_ten),
                Some(300.0),
            )
        },
        BenchmarkCase {
            is_comparable: false,
            is_bare: false,
            ..case("GET a page of 100 events", &events, None, None)
        },
    ]
}

/// Measures the throughput of all sides, then latencies at a rate that the slower side can sustain.
async fn measure(
    table: &mut Table,
    size: &BenchmarkSize,
    case: &BenchmarkCase,
    (ours, bare, other): (
        MeasuredServer<'_>,
        Option<MeasuredServer<'_>>,
        Option<(&str, LoadTarget)>,
    ),
) -> anyhow::Result<()> {
    let [mut ours_sample, mut bare_sample, mut theirs] = [(); 3].map(|()| Sample::default());
    for _ in 0..ROUNDS {
        ours_sample
            .measure((ours.0, Some(ours.1)), size.round_time)
            .await?;
        if let Some((target, pid)) = bare {
            bare_sample
                .measure((target, Some(pid)), size.round_time)
                .await?;
        }
        if let Some((_, other)) = &other {
            theirs.measure((other, None), size.round_time).await?;
        }
    }
    let (rate, summary) = (ours_sample.rate(), ours_sample.summary());
    let their_rate = match &other {
        Some(_) => Some(theirs.rate()),
        None => case.reference_throughput,
    };
    let name = other
        .as_ref()
        .map_or("reference, measured before", |it| it.0);
    table.row([
        &format!("{}, {CONNECTIONS} connections", case.what),
        &summary,
        &their_rate.map_or_else(String::new, |it| format!("{it:.1} requests/s ({name})")),
        &their_rate.map_or_else(String::new, |it| format!("{:.0}", rate / it)),
        &case
            .target_factor
            .map_or_else(String::new, |it| format!("≥ {it:.0}")),
    ]);
    if bare.is_some() {
        let ratio = format!("{:.2}", rate / bare_sample.rate());
        let with = format!("bare handler: {}", bare_sample.summary());
        table.row(["… beside a bare handler", "", &with, &ratio, "≥ 0.80"]);
    }
    if other.is_some() {
        table.row([
            &format!("… of these {CONNECTIONS} connections"),
            &format!("p99 {:.2} ms", ours_sample.p99()),
            &format!("p99 {:.2} ms", theirs.p99()),
            &format!("p99: 1/{:.0}", theirs.p99() / ours_sample.p99()),
            "p99: 1/50",
        ]);
    }
    let targets = (ours.0, bare.map(|it| it.0));
    latencies(table, size, targets, rate, other.zip(their_rate)).await
}

async fn latencies(
    table: &mut Table,
    size: &BenchmarkSize,
    (ours, bare): (&LoadTarget, Option<&LoadTarget>),
    rate: f64,
    other: Option<((&str, LoadTarget), f64)>,
) -> anyhow::Result<()> {
    let duration = size.round_time * 3;
    if let Some(((_, other), per_second)) = &other {
        let per_second = per_second * 0.8;
        // A slow server needs more time for enough requests.
        let min_requests = Duration::from_secs_f64(size.min_requests / per_second);
        let duration = duration.max(min_requests);
        let theirs = other
            .run_open_loop(per_second, CONNECTIONS, duration)
            .await?;
        let load = ours
            .run_open_loop(per_second, CONNECTIONS, duration)
            .await?;
        let ratio = load.percentile(99.0) / theirs.percentile(99.0);
        table.row([
            &format!("… at {per_second:.0} requests/s, n={}", theirs.count()),
            &load.summary(),
            &theirs.summary(),
            &format!("p99: 1/{:.0}", ratio.recip()),
            "p99: 1/50",
        ]);
        if let Some(bare) = bare {
            let floor = bare
                .run_open_loop(per_second, CONNECTIONS, duration)
                .await?;
            let with = format!("bare handler: {}", floor.summary());
            table.row(["… at the same rate", "", &with, "", ""]);
        }
    }
    let half: Load = ours
        .run_open_loop(rate / 2.0, CONNECTIONS, duration)
        .await?;
    let what = format!("… at half of its rate, {:.0} requests/s", rate / 2.0);
    table.row([&what, &half.summary(), "", "", ""]);
    Ok(())
}

/// The service, with conversations in running sandboxes and events in one of them.
struct ServiceUnderTest {
    service: Service,
    user: Client,
    sandboxes: u32,
    conversation: String,
    sandbox_key: String,
    _stub: Stub,
}

impl ServiceUnderTest {
    async fn start(size: &BenchmarkSize) -> anyhow::Result<Self> {
        let stub = Stub::new();
        let service = Service::builder()
            .stub(&stub)
            .env("WORKSPACE_SANDBOX__MAX_RUNNING_PER_USER", "100")
            .env("WORKSPACE_LOG__LEVEL", "info")
            .start()
            .await;
        let user = service.admin();
        user.use_model("openai/m", "http://127.0.0.1:9/v1", "sk-bench")
            .await;
        let mut last = user.converse("hello").await;
        for _ in 1..size.sandboxes {
            last = user.converse("hello").await;
        }
        let sandbox = user.sandbox(&last.sandbox_id).await;
        let key = sandbox.and_then(|sandbox| sandbox.session_api_key);
        let sandbox_key = key.context("the running sandbox has no key")?;
        let agent = user.with_key(&sandbox_key);
        let path = format!("/api/v1/webhooks/events/{}", last.id);
        for batch in 0..size.events / 100 {
            let events: Vec<Value> = (0..100)
                .map(|number| event(&format!("{batch}-{number}"), EVENT_TIME))
                .collect();
            let _ = agent.post(&path, &json!(events)).await.ok();
        }
        Ok(Self {
            service,
            user,
            sandboxes: size.sandboxes,
            conversation: last.id,
            sandbox_key,
            _stub: stub,
        })
    }
}

impl ServiceUnderTest {
    /// Copies the database for bare handlers, with decrypted values.
    async fn copy(&self) -> anyhow::Result<tempfile::TempDir> {
        let directory = tempfile::tempdir()?;
        let settings = self.user.get("/api/v1/settings").await.text;
        let sandboxes = self.user.get_all_pages("/api/v1/sandboxes/search").await;
        let from = self.service.data_dir().join("agent-workspace.db");
        bare::copy(
            &from,
            &directory.path().join(COPY_FILE),
            &settings,
            &sandboxes,
        )?;
        Ok(directory)
    }

    /// Starts a bare handler for this path and checks that its response is the service's.
    async fn bare(
        &self,
        copy: &tempfile::TempDir,
        path: &str,
    ) -> anyhow::Result<(BareServer, LoadTarget)> {
        let answer = || async { self.user.get(path).await.text };
        let what = match path.trim_start_matches("/api/v1/") {
            "settings" => BareEndpoint::Settings,
            "sandboxes/search" => BareEndpoint::Sandboxes,
            "app-conversations/search" => BareEndpoint::Conversations,
            _ => BareEndpoint::Fixed(answer().await),
        };
        let sandboxes = self.user.get_all_pages("/api/v1/sandboxes/search").await;
        let owner = sandboxes
            .first()
            .and_then(|it| it["created_by_user_id"].as_str());
        let owner = owner.context("the sandbox has no owner")?.to_owned();
        let database = copy.path().join(COPY_FILE);
        let bare = BareServer::start(&BareRoute {
            database,
            owner,
            what,
        })?;
        let url = format!("http://{}{path}", bare.address);
        let bare_answer = reqwest::get(url).await?.text().await?;
        // Settings contain the current time.
        let digits = |text: &str| text.replace(|sign: char| sign.is_ascii_digit(), "0");
        let (bare_answer, service_answer) = (digits(&bare_answer), digits(&answer().await));
        ensure!(
            bare_answer == service_answer,
            "{path}: the bare handler responds with {bare_answer}, not with {service_answer}"
        );
        let request = wire::request("GET", path, &[wire::key_header(self.user.key())], "");
        let target = LoadTarget::same(bare.address, request);
        Ok((bare, target))
    }
}

/// Another server to compare with.
struct ComparedServer {
    name: String,
    address: SocketAddr,
    headers: Vec<String>,
    /// Whether each request needs another client address: the reference allows 10 requests a second of one address.
    is_limited: bool,
    _process: Option<(reference::ReferenceProcess, tempfile::TempDir)>,
}

impl ComparedServer {
    async fn start(url: Option<String>) -> anyhow::Result<Option<Self>> {
        if let Some(url) = url {
            return Ok(Some(Self::at(&url)?));
        }
        let Some(python) = reference::python() else {
            return Ok(None);
        };
        let data = tempfile::tempdir()?;
        let running =
            reference::ReferenceProcess::start(&python, data.path(), &[("RUNTIME", "process")])?;
        let client = running.client();
        running.wait_until_ready(Duration::from_millis(50)).await?;
        let stored = client.post("/api/v1/settings", &json!({})).await;
        ensure!(
            stored.status < 300,
            "the reference refuses settings: {}",
            stored.text
        );
        Ok(Some(Self {
            name: "reference".to_owned(),
            address: parse_address(running.url())?,
            headers: Vec::new(),
            is_limited: true,
            _process: Some((running, data)),
        }))
    }

    fn at(url: &str) -> anyhow::Result<Self> {
        let key = reference::key();
        Ok(Self {
            name: url.to_owned(),
            address: parse_address(url)?,
            headers: key.iter().map(|it| wire::key_header(it)).collect(),
            is_limited: false,
            _process: None,
        })
    }

    fn load_target(&self, path: String) -> LoadTarget {
        let (headers, is_limited) = (self.headers.clone(), self.is_limited);
        let request = move |number: u64| {
            let mut headers = headers.clone();
            if is_limited {
                let [.., a, b, c] = number.to_be_bytes();
                headers.push(format!("X-Forwarded-For: 10.{a}.{b}.{c}"));
            }
            wire::request("GET", &path, &headers, "")
        };
        LoadTarget::new(self.address, Box::new(request))
    }
}

fn parse_address(url: &str) -> anyhow::Result<SocketAddr> {
    let url = reqwest::Url::parse(url)?;
    ensure!(
        url.scheme() == "http" && url.path() == "/",
        "{url}: only http, without a path"
    );
    let found = url.socket_addrs(|| None)?;
    found.first().copied().context("the host has no address")
}
