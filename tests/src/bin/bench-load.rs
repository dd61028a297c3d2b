//! Requests a second and latencies of central routes beside the reference: `cargo xtask bench --load`. Prints a table;
//! `docs/benchmarks.md` quotes one. With `--short` the numbers are small: that it works is then seen in seconds. An
//! agent-workspace that `--url` names must not limit requests (`http.requests_per_second = 0`).
//!
//! Compared with, in this order: the server that `--url` names (its key in `BENCH_KEY`), the reference started by the Python
//! that `BENCH_REFERENCE_PYTHON` names, and otherwise figures that were measured before, which are labelled so. What is
//! compared takes turns, so that what else the machine does meets both sides.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use acceptance::figures::load::{Aim, Load};
use acceptance::figures::reference;
use acceptance::figures::table::Table;
use acceptance::figures::{event, median, wire};
use acceptance::processes::processor_time;
use acceptance::{Client, Service, Stub};
use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};

/// Connections of all loads, as when the earlier figures were taken.
const CONNECTIONS: usize = 32;
const TURNS: usize = 5;
/// When all events happened.
const TODAY: &str = "2026-11-21T10:00:00.123456";

/// How much of everything.
struct Size {
    turn: Duration,
    sandboxes: u32,
    events: u32,
}

const FULL: Size = Size {
    turn: Duration::from_secs(2),
    sandboxes: 10,
    events: 2_000,
};

const SHORT: Size = Size {
    turn: Duration::from_millis(100),
    sandboxes: 2,
    events: 200,
};

/// A route, what the reference took of it before (32 connections, on a machine like this), and how many times as much is
/// wanted.
struct Case {
    what: &'static str,
    path: String,
    before: Option<f64>,
    wanted: Option<f64>,
    /// Whether another server can be asked with nothing but a key.
    is_anywhere: bool,
}

#[actix_web::main]
async fn main() -> anyhow::Result<()> {
    let (size, url) = arguments()?;
    let ours = Ours::start(size).await?;
    let other = Other::start(url).await?;
    let mut table = Table::default();
    for case in cases(&ours) {
        let path = case.path.clone();
        let request = wire::request("GET", &path, &[wire::key(ours.user.key())], "");
        let aim = Aim::same(ours.service.address(), request);
        let other = other.as_ref().filter(|_| case.is_anywhere);
        let other = other.map(|it| (it.name.as_str(), it.aim(path)));
        measure(&mut table, size, &case, (&aim, ours.service.pid()), other).await?;
    }
    let intake = Case {
        what: "POST webhooks/events, one event",
        path: format!("/api/v1/webhooks/events/{}", ours.conversation),
        before: Some(8.6),
        wanted: Some(200.0),
        is_anywhere: false,
    };
    let (path, key) = (intake.path.clone(), wire::key(&ours.sandbox_key));
    let post = move |number| {
        let body = json!([event(&format!("load-{number}"), TODAY)]).to_string();
        wire::request("POST", &path, std::slice::from_ref(&key), &body)
    };
    let aim = Aim::new(ours.service.address(), Box::new(post));
    measure(&mut table, size, &intake, (&aim, ours.service.pid()), None).await?;
    table.print()?;
    Ok(())
}

fn arguments() -> anyhow::Result<(&'static Size, Option<String>)> {
    let (mut size, mut url) = (&FULL, None);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--short" => size = &SHORT,
            "--url" => url = Some(words.next().context("--url needs an URL")?),
            other => bail!("unknown argument {other}; there are --short and --url URL"),
        }
    }
    Ok((size, url))
}

fn cases(ours: &Ours) -> Vec<Case> {
    let case = |what, path: &str, before, wanted| Case {
        what,
        path: format!("/api/v1/{path}"),
        before,
        wanted,
        is_anywhere: true,
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
        case(
            "GET sandboxes/search",
            "sandboxes/search",
            Some(37.0),
            Some(300.0),
        ),
        case(
            "GET app-conversations/search",
            "app-conversations/search",
            Some(if ours.sandboxes >= 10 { 5.3 } else { 21.0 }),
            Some(300.0),
        ),
        Case {
            is_anywhere: false,
            ..case("GET a page of 100 events", &events, None, None)
        },
    ]
}

/// Both rates as fast as it goes, then both latencies at a rate that the slower one can keep up with.
async fn measure(
    table: &mut Table,
    size: &Size,
    case: &Case,
    (ours, pid): (&Aim, u32),
    other: Option<(&str, Aim)>,
) -> anyhow::Result<()> {
    let (mut rates, mut costs, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
    let used = || processor_time(pid).context("the service runs");
    for _ in 0..TURNS {
        let before = used()?;
        let load = ours.closed(CONNECTIONS, size.turn).await?;
        costs.push(used()?.saturating_sub(before).as_secs_f64() * 1e6 / f64::from(load.count()));
        rates.push(load.per_second());
        if let Some((_, other)) = &other {
            theirs.push(other.closed(CONNECTIONS, size.turn).await?.per_second());
        }
    }
    let rate = median(rates);
    let their_rate = match &other {
        Some(_) => Some(median(theirs)),
        None => case.before,
    };
    let name = other
        .as_ref()
        .map_or("reference, measured before", |it| it.0);
    let told = format!(
        "{rate:.0} requests/s, {:.0} µs of processor each",
        median(costs)
    );
    table.row([
        &format!("{}, {CONNECTIONS} connections", case.what),
        &told,
        &their_rate.map_or_else(String::new, |it| format!("{it:.1} requests/s ({name})")),
        &their_rate.map_or_else(String::new, |it| format!("{:.0}", rate / it)),
        &case
            .wanted
            .map_or_else(String::new, |it| format!("≥ {it:.0}")),
    ]);
    let lasting = size.turn * 3;
    if let (Some((_, other)), Some(per_second)) = (&other, their_rate) {
        let per_second = per_second * 0.8;
        let theirs = other.open(per_second, CONNECTIONS, lasting).await?;
        let load = ours.open(per_second, CONNECTIONS, lasting).await?;
        let ratio = load.at(99.0) / theirs.at(99.0);
        table.row([
            &format!("… at {per_second:.0} requests/s"),
            &load.told(),
            &theirs.told(),
            &format!("p99 1/{:.0}", ratio.recip()),
            "p99 ≤ 1/50",
        ]);
    }
    let half: Load = ours.open(rate / 2.0, CONNECTIONS, lasting).await?;
    let what = format!("… at half of its rate, {:.0} requests/s", rate / 2.0);
    table.row([&what, &half.told(), "", "", ""]);
    Ok(())
}

/// The service with conversations in running sandboxes, and events in one of them.
struct Ours {
    service: Service,
    user: Client,
    sandboxes: u32,
    conversation: String,
    sandbox_key: String,
    _stub: Stub,
}

impl Ours {
    async fn start(size: &Size) -> anyhow::Result<Self> {
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
        let sandbox_key = key.context("a running sandbox has a key")?;
        let agent = user.with_key(&sandbox_key);
        let path = format!("/api/v1/webhooks/events/{}", last.id);
        for batch in 0..size.events / 100 {
            let events: Vec<Value> = (0..100)
                .map(|number| event(&format!("{batch}-{number}"), TODAY))
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

/// Another server, which has settings and nothing else unless somebody put it there.
struct Other {
    name: String,
    address: SocketAddr,
    headers: Vec<String>,
    /// Whether the caller's address changes with every request: the reference lets 10 requests a second of one through.
    is_limited: bool,
    _running: Option<(reference::Running, tempfile::TempDir)>,
}

impl Other {
    async fn start(url: Option<String>) -> anyhow::Result<Option<Self>> {
        if let Some(url) = url {
            return Ok(Some(Self::at(&url)?));
        }
        let Some(python) = reference::python() else {
            return Ok(None);
        };
        let data = tempfile::tempdir()?;
        let began = Instant::now();
        let running = reference::Running::start(&python, data.path(), &[("RUNTIME", "process")])?;
        let client = running.client();
        while client
            .try_call(reqwest::Method::GET, "/alive", None)
            .await
            .is_err()
        {
            ensure!(
                began.elapsed() < Duration::from_secs(120),
                "the reference does not start"
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let stored = client.post("/api/v1/settings", &json!({})).await;
        ensure!(stored.status < 300, "settings: {}", stored.text);
        Ok(Some(Self {
            name: "reference".to_owned(),
            address: address(running.url())?,
            headers: Vec::new(),
            is_limited: true,
            _running: Some((running, data)),
        }))
    }

    fn at(url: &str) -> anyhow::Result<Self> {
        let key = reference::key();
        Ok(Self {
            name: url.to_owned(),
            address: address(url)?,
            headers: key.iter().map(|it| wire::key(it)).collect(),
            is_limited: false,
            _running: None,
        })
    }

    fn aim(&self, path: String) -> Aim {
        let (headers, is_limited) = (self.headers.clone(), self.is_limited);
        let request = move |number: u64| {
            let mut headers = headers.clone();
            if is_limited {
                let [.., a, b, c] = number.to_be_bytes();
                headers.push(format!("X-Forwarded-For: 10.{a}.{b}.{c}"));
            }
            wire::request("GET", &path, &headers, "")
        };
        Aim::new(self.address, Box::new(request))
    }
}

fn address(url: &str) -> anyhow::Result<SocketAddr> {
    let url = reqwest::Url::parse(url)?;
    ensure!(
        url.scheme() == "http" && url.path() == "/",
        "{url}: only http, without a path"
    );
    let found = url.socket_addrs(|| None)?;
    found.first().copied().context("a host with an address")
}
