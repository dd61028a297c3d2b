//! Cost of model calls through the service: `cargo xtask bench --broker`. Prints a table; `bench/results` has earlier ones.
//! `--short` uses small numbers and only checks that the benchmark works.
//!
//! Three paths to a provider that answers at once take turns: directly, through the service, and through a bare proxy with the
//! same HTTP library. All of them and the benchmark share the machine's cores.

mod broker_figures;

use std::net::SocketAddr;
use std::time::Duration;

use acceptance::processes::{processor_time, raise_file_limit};
use acceptance::{Sandboxing, Service, Stub};
use anyhow::Context as _;
use benchmarks::load::{Load, LoadTarget};
use benchmarks::table::Table;
use benchmarks::{is_short, median, wire};
use serde_json::{Value, json};

use crate::broker_figures::bare::{BareProxy, ROLE_ARGUMENT};
use crate::broker_figures::model::CHUNKS;
use crate::broker_figures::{bare, model};

const ROUNDS: usize = 5;
const THROUGH_SERVICE: &str = "through the service";
const THROUGH_BARE_PROXY: &str = "through a bare proxy";

/// Amounts of work.
struct BenchmarkSize {
    calls: u32,
    round_time: Duration,
    users: usize,
    /// Concurrent calls of one user.
    calls_per_user: usize,
}

const FULL: BenchmarkSize = BenchmarkSize {
    calls: 2_000,
    round_time: Duration::from_secs(3),
    users: 10,
    calls_per_user: 20,
};

const SHORT: BenchmarkSize = BenchmarkSize {
    calls: 20,
    round_time: Duration::from_millis(100),
    users: 2,
    calls_per_user: 2,
};

/// A way to the provider.
struct CallPath {
    name: &'static str,
    address: SocketAddr,
    /// The process on the way.
    pid: Option<u32>,
    /// The path of calls and the token, of each user.
    users: Vec<(String, String)>,
}

#[actix_web::main]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [role, upstream] = arguments.as_slice()
        && role == ROLE_ARGUMENT
    {
        let upstream = upstream.clone();
        let ended = std::thread::spawn(move || bare::serve(&upstream)).join();
        return ended.unwrap_or_else(|_| anyhow::bail!("the bare proxy panicked"));
    }
    let size = if is_short()? { &SHORT } else { &FULL };
    raise_file_limit();
    let provider = model::serve()?;
    let stub = Stub::new();
    let service = Service::builder()
        .stub(&stub)
        .sandboxing(&Sandboxing::UnconfinedProcess)
        .env("WORKSPACE_LOG__LEVEL", "info")
        .start()
        .await;
    let bare = BareProxy::start(provider)?;
    let direct = || vec![("/v1/chat/completions".to_owned(), "sk-bench".to_owned()); size.users];
    let paths = [
        CallPath {
            name: "directly",
            address: provider,
            pid: None,
            users: direct(),
        },
        CallPath {
            name: THROUGH_SERVICE,
            address: service.address(),
            pid: Some(service.pid()),
            users: tokens(size, &service, &stub, provider).await?,
        },
        CallPath {
            name: THROUGH_BARE_PROXY,
            address: bare.address,
            pid: Some(bare.pid()),
            users: direct(),
        },
    ];
    let mut table = Table::default();
    latency(&mut table, size, &paths).await?;
    for (what, streams) in [("calls", false), ("streams", true)] {
        throughput(&mut table, size, &paths, (what, streams)).await?;
    }
    table.print()?;
    Ok(())
}

/// Starts a conversation for each user, whose agent gets the service's address and a token.
async fn tokens(
    size: &BenchmarkSize,
    service: &Service,
    stub: &Stub,
    provider: SocketAddr,
) -> anyhow::Result<Vec<(String, String)>> {
    for number in 0..size.users {
        let user = service.user(&format!("user-{number}"));
        user.use_model("openai/m", &format!("http://{provider}/v1"), "sk-bench")
            .await;
        user.converse("hello").await;
    }
    let creates = stub.creates();
    let users = creates.iter().map(|request| {
        let request: Value = serde_json::from_str(request)?;
        let llm = &request["agent"]["llm"];
        let base = llm["base_url"]
            .as_str()
            .context("the agent has an address")?;
        let token = llm["api_key"].as_str().context("the agent has a token")?;
        let path = reqwest::Url::parse(base)?
            .path()
            .trim_end_matches('/')
            .to_owned();
        Ok((format!("{path}/chat/completions"), token.to_owned()))
    });
    users.collect()
}

impl CallPath {
    /// Calls of all users in turn.
    fn calls(&self, is_stream: bool) -> LoadTarget {
        let messages = json!([{"role": "user", "content": "x".repeat(4_000)}]);
        let mut body = json!({"model": "m", "messages": messages, "stream": is_stream});
        if is_stream {
            body["stream_options"] = json!({"include_usage": true});
        }
        let body = body.to_string();
        let requests: Vec<Vec<u8>> = self
            .users
            .iter()
            .map(|(path, token)| {
                let key = format!("Authorization: Bearer {token}");
                wire::request("POST", path, &[key], &body)
            })
            .collect();
        let count = requests.len() as u64;
        let next = move |number: u64| {
            let which = usize::try_from(number % count).unwrap_or_default();
            requests[which].clone()
        };
        LoadTarget::new(self.address, Box::new(next))
    }

    fn processor_time(&self) -> Duration {
        self.pid.and_then(processor_time).unwrap_or_default()
    }
}

/// One call after the other, on each path in turn.
async fn latency(
    table: &mut Table,
    size: &BenchmarkSize,
    paths: &[CallPath],
) -> anyhow::Result<()> {
    let mut found: Vec<Vec<Load>> = paths.iter().map(|_| Vec::new()).collect();
    for round in 0..=ROUNDS {
        for (path, found) in paths.iter().zip(&mut found) {
            let load = path.calls(false).run_in_turn(size.calls).await?;
            // The first round opens connections and fills caches.
            if round > 0 {
                found.push(load);
            }
        }
    }
    let at =
        |which: usize, percent| median(found[which].iter().map(|load| load.percentile(percent)));
    for (which, path) in paths.iter().enumerate() {
        let summary = format!(
            "p50 {:.3} ms, p99 {:.3} ms",
            at(which, 50.0),
            at(which, 99.0)
        );
        let added = |percent| at(which, percent) - at(0, percent);
        let added = match which {
            0 => String::new(),
            _ => format!("added p50 {:.3} ms, p99 {:.3} ms", added(50.0), added(99.0)),
        };
        let target = match path.name {
            THROUGH_SERVICE => "added p50 ≤ 1 ms, p99 ≤ 5 ms",
            _ => "",
        };
        table.row([
            &format!("a call, {}", path.name),
            &summary,
            &added,
            "",
            target,
        ]);
    }
    Ok(())
}

/// Many calls or streams at the same time, on each path in turn.
async fn throughput(
    table: &mut Table,
    size: &BenchmarkSize,
    paths: &[CallPath],
    (what, is_stream): (&str, bool),
) -> anyhow::Result<()> {
    let connections = size.users * size.calls_per_user;
    let mut rates: Vec<Vec<f64>> = paths.iter().map(|_| Vec::new()).collect();
    let mut costs = rates.clone();
    for _ in 0..ROUNDS {
        for (which, path) in paths.iter().enumerate() {
            let before = path.processor_time();
            let load = path.calls(is_stream);
            let load = load.run_closed_loop(connections, size.round_time).await?;
            let spent = path.processor_time().saturating_sub(before);
            rates[which].push(load.per_second());
            costs[which].push(spent.as_secs_f64() * 1e6 / f64::from(load.count()));
        }
    }
    let rates: Vec<f64> = rates.into_iter().map(median).collect();
    let costs: Vec<f64> = costs.into_iter().map(median).collect();
    let bare = paths.iter().position(|it| it.name == THROUGH_BARE_PROXY);
    let bare = bare.context("there is a bare proxy")?;
    for (which, path) in paths.iter().enumerate() {
        let of = if is_stream {
            format!(
                "{connections} concurrent {what} of {CHUNKS} chunks, {}",
                path.name
            )
        } else {
            format!("{connections} concurrent {what}, {}", path.name)
        };
        let cost = format!(
            "{:.0} a second, {:.0} µs of processor each",
            rates[which], costs[which]
        );
        let (ratio, target) = match path.name {
            THROUGH_SERVICE => (format!("{:.2}", rates[which] / rates[bare]), "≥ 0.8"),
            _ => (String::new(), ""),
        };
        table.row([&of, &cost, "", &ratio, target]);
    }
    Ok(())
}
