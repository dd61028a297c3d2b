//! How soon a conversation is ready, with the real agent server: `cargo xtask bench --start`. Warm starts, cold ones in turns
//! with a bare boot of the same agent server, and bursts beyond the pool; as processes, and as containers where an engine
//! answers. Prints tables; `bench/results` has earlier ones. `--rounds N` says how often, `--cold` leaves
//! all but the pairs out, `--short` sees that it works, `--url URL` also starts conversations at another server (its key in
//! `BENCH_KEY`), one after the other.

mod start_figures;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use acceptance::client::text;
use acceptance::engine::Engine;
use acceptance::{Builder, Client, Sandboxing, ScriptedLlm, Service, Version, print_line};
use anyhow::{Context as _, bail, ensure};
use benchmarks::{median, table::Table};
use serde_json::json;

use crate::start_figures::bare::BareBoot;
use crate::start_figures::{Percentiles, StartFigures, StepTimings};

/// A boot on a busy machine, several times over.
const START_TIMEOUT: Duration = Duration::from_secs(600);
/// Between two looks at a start: what is measured may be late by this much.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// After a boot, and after an end, so that one does not disturb the next.
const CALM_INTERVAL: Duration = Duration::from_secs(2);
const VERSION: Version = Version::V1_58_0;
/// Published images start the agent server as its maker does, without what ours does for the boot.
const PUBLISHED: [(&str, &str); 1] = [(
    "WORKSPACE_DOCKER__ENTRYPOINT",
    "/opt/agent-server/bin/python -P -m openhands.agent_server --host 0.0.0.0",
)];
const POOL_SAYS: &str = "a warm sandbox is ready";

#[actix_web::main]
async fn main() -> anyhow::Result<()> {
    let numbers = StartFigures::of_arguments()?;
    let (mut table, mut steps) = (Table::default(), StepTimings::default());
    let mut ways = vec![("process", Sandboxing::Process)];
    if Engine::shared().answers() {
        ways.push(("Docker", Sandboxing::docker()));
    } else {
        print_line("no container engine answers: processes only");
    }
    let other = match &numbers.url {
        Some(url) => Some(elsewhere(&numbers, url).await?),
        None => None,
    };
    let mut record = StartRecord {
        table: &mut table,
        steps: &mut steps,
        other,
    };
    for (name, sandboxing) in &ways {
        if !numbers.is_cold_only {
            warm(&numbers, name, sandboxing, &mut record).await?;
        }
        cold(&numbers, (name, &[]), sandboxing, &mut record).await?;
        if matches!(sandboxing, Sandboxing::Docker(_)) {
            let name = format!("{name}, image as published ones are");
            cold(&numbers, (&name, &PUBLISHED), sandboxing, &mut record).await?;
        }
        if numbers.is_cold_only {
            continue;
        }
        for count in numbers.bursts {
            burst(*count, name, sandboxing, record.table).await?;
        }
    }
    table.print()?;
    steps.print()?;
    Ok(())
}

/// Where figures go, and what another server took.
struct StartRecord<'a> {
    table: &'a mut Table,
    steps: &'a mut StepTimings,
    other: Option<(String, Percentiles)>,
}

impl StartRecord<'_> {
    /// What is beside a row of ours: the other server and the ratio of the medians, if there is one.
    fn beside(&self, ours: &Percentiles) -> (String, String) {
        let Some((url, theirs)) = &self.other else {
            return Default::default();
        };
        let ratio = theirs.at(50) / ours.at(50);
        (format!("{url}: {}", theirs.row()), format!("{ratio:.1}"))
    }
}

/// Starts of another server, one after the other. What kind they are is its own business.
async fn elsewhere(numbers: &StartFigures, url: &str) -> anyhow::Result<(String, Percentiles)> {
    let key = benchmarks::reference::key().unwrap_or_default();
    let user = Client::new(url.trim_end_matches('/').to_owned(), &key);
    let mut all = Percentiles::default();
    for _ in 0..numbers.cold {
        tokio::time::sleep(CALM_INTERVAL).await;
        all.push(one(&user, None).await?.took);
    }
    Ok((url.to_owned(), all))
}

/// A service with this many warm ones, and its user.
async fn service(
    sandboxing: &Sandboxing,
    warm: u32,
    variables: &[(&'static str, &str)],
    llm: &ScriptedLlm,
) -> (Service, Client) {
    let builder = Service::builder()
        .sandboxing(sandboxing)
        .agent_server(VERSION)
        .env("WORKSPACE_SANDBOX__WARM", &warm.to_string());
    let with = |builder: Builder, (name, value): &(&'static str, &str)| builder.env(name, value);
    let service = variables.iter().fold(builder, with).start().await;
    let user = service.admin();
    user.use_model("openai/scripted", &llm.base_url(), "sk-scripted")
        .await;
    (service, user)
}

/// A start that has ended.
struct StartedConversation {
    took: Duration,
    status: String,
    timings: BTreeMap<String, u64>,
    conversation: Option<String>,
}

/// POST to the end of the start, as a client sees it. `None`: refused with 429.
async fn start(
    user: &Client,
    message: Option<&str>,
) -> anyhow::Result<Option<StartedConversation>> {
    let asked = match message {
        Some(said) => {
            json!({"initial_message": {"role": "user", "content": text(said), "run": true}})
        }
        None => json!({}),
    };
    let began = Instant::now();
    let answer = user.post("/api/v1/app-conversations", &asked).await;
    if answer.status == 429 {
        return Ok(None);
    }
    let task = answer.ok();
    let id = task["id"].as_str().context("a task has an id")?;
    let path = format!("/api/v1/app-conversations/start-tasks?ids={id}");
    loop {
        let task = user.get(&path).await.ok()[0].take();
        let status = task["status"].as_str().unwrap_or_default();
        if matches!(status, "READY" | "ERROR") {
            return Ok(Some(StartedConversation {
                took: began.elapsed(),
                status: status.to_owned(),
                timings: serde_json::from_value(task["timings"].clone()).unwrap_or_default(),
                conversation: task["app_conversation_id"].as_str().map(str::to_owned),
            }));
        }
        ensure!(
            began.elapsed() < START_TIMEOUT,
            "a start does not end: {task}"
        );
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// One that must be ready. Its sandbox is gone afterwards.
async fn one(user: &Client, message: Option<&str>) -> anyhow::Result<StartedConversation> {
    let Some(started) = start(user, message).await? else {
        bail!("a start was refused for want of room");
    };
    ensure!(started.status == "READY", "a start failed");
    remove(user, started.conversation.as_deref()).await;
    Ok(started)
}

async fn remove(user: &Client, conversation: Option<&str>) {
    if let Some(id) = conversation {
        user.patient().delete_conversation(id).await;
    }
}

async fn wait_for_boots(service: &Service, boots: usize) -> anyhow::Result<()> {
    let began = Instant::now();
    while service.log().matches(POOL_SAYS).count() < boots {
        ensure!(
            began.elapsed() < START_TIMEOUT,
            "no warm sandbox became ready"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    tokio::time::sleep(CALM_INTERVAL).await;
    Ok(())
}

async fn warm(
    numbers: &StartFigures,
    name: &str,
    sandboxing: &Sandboxing,
    record: &mut StartRecord<'_>,
) -> anyhow::Result<()> {
    let llm = sandboxing.model().await;
    let (mut service, user) = service(sandboxing, 1, &[], &llm).await;
    let (mut empty, mut said) = (Percentiles::default(), Percentiles::default());
    let mut boots = 0;
    for _ in 0..numbers.warm {
        for (message, times, kind) in [
            (None, &mut empty, "warm"),
            (Some("hello"), &mut said, "warm, with a first message"),
        ] {
            boots += 1;
            wait_for_boots(&service, boots).await?;
            let started = one(&user, message).await?;
            ensure!(
                started.timings.contains_key("WARM_SANDBOX"),
                "a start that was to be warm was a cold one: {:?}",
                started.timings
            );
            times.push(started.took);
            record
                .steps
                .keep(&format!("{name}, {kind}"), &started.timings);
        }
    }
    service.stop().await;
    let target = "p50 ≤ 100 ms, p95 ≤ 500 ms";
    let row = |what: &str| format!("{name}: warm, POST to READY{what}");
    let (with, ratio) = record.beside(&empty);
    record
        .table
        .row([&row(""), &empty.row(), &with, &ratio, target]);
    let what = row(" with a first message");
    record.table.row([&what, &said.row(), "", "", target]);
    Ok(())
}

async fn cold(
    numbers: &StartFigures,
    (name, variables): (&str, &[(&'static str, &str)]),
    sandboxing: &Sandboxing,
    record: &mut StartRecord<'_>,
) -> anyhow::Result<()> {
    let llm = sandboxing.model().await;
    let (mut service, user) = service(sandboxing, 0, variables, &llm).await;
    let (mut ours, mut theirs) = (Percentiles::default(), Percentiles::default());
    let mut over = Vec::new();
    // What both read is in memory from then on.
    BareBoot::boot(sandboxing, VERSION).await?;
    for round in 0..numbers.cold {
        // In turns, and neither always first.
        let mut pair = [Duration::ZERO; 2];
        for turn in [round % 2, 1 - round % 2] {
            tokio::time::sleep(CALM_INTERVAL).await;
            pair[turn] = if turn == 0 {
                BareBoot::boot(sandboxing, VERSION).await?
            } else {
                let started = one(&user, None).await?;
                record
                    .steps
                    .keep(&format!("{name}, cold"), &started.timings);
                started.took
            };
        }
        let [bare, took] = pair;
        over.push((took.as_secs_f64() - bare.as_secs_f64()) * 1000.0);
        theirs.push(bare);
        ours.push(took);
    }
    service.stop().await;
    let difference = format!("{:+.0} ms, the median of pairs", median(over));
    let (what, with) = (
        format!("{name}: cold, POST to READY"),
        format!("bare boot {}", theirs.row()),
    );
    record
        .table
        .row([&what, &ours.row(), &with, &difference, "≤ +150 ms"]);
    let (with, ratio) = record.beside(&ours);
    if !with.is_empty() {
        record.table.row(["…", "", &with, &ratio, ""]);
    }
    Ok(())
}

/// So many at once, with one warm sandbox in the pool.
async fn burst(
    count: usize,
    name: &str,
    sandboxing: &Sandboxing,
    table: &mut Table,
) -> anyhow::Result<()> {
    let llm = sandboxing.model().await;
    let (mut service, user) = service(sandboxing, 1, &[], &llm).await;
    wait_for_boots(&service, 1).await?;
    let began = Instant::now();
    let all = (0..count).map(|_| start(&user, None));
    let all = futures::future::join_all(all).await;
    let took = began.elapsed().as_secs_f64();
    let all: Vec<Option<StartedConversation>> = all.into_iter().collect::<anyhow::Result<_>>()?;
    let with = |status: &str| {
        let all = all.iter().flatten();
        all.filter(|it| it.status == status).count()
    };
    let (ready, failed) = (with("READY"), with("ERROR"));
    let refused = all.iter().filter(|it| it.is_none()).count();
    for started in all.iter().flatten() {
        remove(&user, started.conversation.as_deref()).await;
    }
    service.stop().await;
    ensure!(
        ready > 0 && failed == 0,
        "of a burst {failed} starts failed"
    );
    let what = format!("{name}: burst of {count}");
    let this =
        format!("{ready} READY, {refused} refused with 429, {failed} failed, in {took:.0} s");
    table.row([&what, &this, "", "", "all READY or 429"]);
    Ok(())
}
