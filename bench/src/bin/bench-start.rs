//! Time until a conversation is ready, with the real agent server: `cargo xtask bench --start`. Measures warm starts, cold starts
//! in turns with a bare boot of the same agent server (both releases for processes), bursts beyond the pool, and the memory and
//! processor time of sandboxes after a burst; as confined processes that are forked, and as containers if an engine responds. Prints tables; `bench/results` has earlier ones. `--rounds N` sets the number of rounds, `--cold` measures only cold
//! starts, `--short` only checks that the benchmark works. `--url URL` also starts conversations at another server, one after the
//! other; its key is in `BENCH_KEY`.

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
use crate::start_figures::footprint;
use crate::start_figures::{Percentiles, StartOptions, StepTimings};

/// Several times as long as a boot on a busy machine.
const START_TIMEOUT: Duration = Duration::from_secs(600);
/// Between two polls of a start, and so the error of a measurement.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Between two polls of each start of a burst. Many short intervals take the processor from the starts.
const BURST_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// After a boot or a stop, so that it does not affect the next measurement.
const SETTLE_INTERVAL: Duration = Duration::from_secs(2);
const VERSION: Version = Version::V1_58_0;
const OLDER_VERSION: Version = Version::V1_34_0;
/// Published images start the agent server without the changes of our images that make it boot faster.
const PUBLISHED_IMAGE_SETTINGS: [(&str, &str); 1] = [(
    "WORKSPACE_DOCKER__ENTRYPOINT",
    "/opt/agent-server/bin/python -P -m openhands.agent_server --host 0.0.0.0",
)];
const WARM_READY_LINE: &str = "a warm sandbox is ready";

#[actix_web::main]
async fn main() -> anyhow::Result<()> {
    let options = StartOptions::from_arguments()?;
    let (mut table, mut steps) = (Table::default(), StepTimings::default());
    let mut backends = vec![("process", Sandboxing::Process)];
    if Engine::shared().is_responding() {
        backends.push(("Docker", Sandboxing::docker()));
    } else {
        print_line("no container engine answers: processes only");
    }
    let other = match &options.url {
        Some(url) => Some(measure_other_server(&options, url).await?),
        None => None,
    };
    let mut record = StartRecord {
        table: &mut table,
        steps: &mut steps,
        other,
    };
    for (name, sandboxing) in &backends {
        if !options.is_cold_only {
            measure_warm(&options, name, sandboxing, &mut record).await?;
        }
        measure_cold(&options, (name, VERSION, &[]), sandboxing, &mut record).await?;
        if *sandboxing == Sandboxing::Process {
            let name = format!("{name}, agent server {OLDER_VERSION}");
            let kind = (&*name, OLDER_VERSION, &[][..]);
            measure_cold(&options, kind, sandboxing, &mut record).await?;
        }
        if matches!(sandboxing, Sandboxing::Docker(_)) {
            let name = format!("{name}, image as published ones are");
            measure_cold(
                &options,
                (&name, VERSION, &PUBLISHED_IMAGE_SETTINGS),
                sandboxing,
                &mut record,
            )
            .await?;
        }
        if options.is_cold_only {
            continue;
        }
        for count in options.bursts {
            measure_burst(*count, name, sandboxing, record.table).await?;
        }
    }
    table.print()?;
    steps.print()?;
    Ok(())
}

/// Tables for the results, and those of another server.
struct StartRecord<'a> {
    table: &'a mut Table,
    steps: &'a mut StepTimings,
    other: Option<(String, Percentiles)>,
}

impl StartRecord<'_> {
    /// Cells for the other server and the ratio of the medians; empty without another server.
    fn comparison(&self, ours: &Percentiles) -> (String, String) {
        let Some((url, theirs)) = &self.other else {
            return Default::default();
        };
        let ratio = theirs.percentile(50) / ours.percentile(50);
        (format!("{url}: {}", theirs.row()), format!("{ratio:.1}"))
    }
}

/// Measures starts of another server, one after the other, whether they are warm or cold.
async fn measure_other_server(
    options: &StartOptions,
    url: &str,
) -> anyhow::Result<(String, Percentiles)> {
    let key = benchmarks::reference::key().unwrap_or_default();
    let user = Client::new(url.trim_end_matches('/').to_owned(), &key);
    let mut all = Percentiles::default();
    for _ in 0..options.cold {
        tokio::time::sleep(SETTLE_INTERVAL).await;
        all.push(start_and_delete(&user, None).await?.took);
    }
    Ok((url.to_owned(), all))
}

/// A service with this many warm sandboxes, and its user. Process sandboxes are forked.
async fn service(
    sandboxing: &Sandboxing,
    version: Version,
    warm: u32,
    variables: &[(&'static str, &str)],
    llm: &ScriptedLlm,
) -> (Service, Client) {
    let builder = Service::builder()
        .sandboxing(sandboxing)
        .installed_agent_server(version)
        .env("WORKSPACE_PROCESS__FORK_SERVER", "on")
        .env("WORKSPACE_SANDBOX__MAX_RUNNING_PER_USER", "50")
        .env("WORKSPACE_SANDBOX__WARM", &warm.to_string());
    let with = |builder: Builder, (name, value): &(&'static str, &str)| builder.env(name, value);
    let service = variables.iter().fold(builder, with).start().await;
    let user = service.admin();
    user.use_model("openai/scripted", &llm.base_url(), "sk-scripted")
        .await;
    (service, user)
}

/// An ended start.
struct StartedConversation {
    took: Duration,
    status: String,
    timings: BTreeMap<String, u64>,
    conversation: Option<String>,
}

/// Times a start from the POST to its end; `None` if it was refused with 429.
async fn start(
    user: &Client,
    message: Option<&str>,
    poll_interval: Duration,
) -> anyhow::Result<Option<StartedConversation>> {
    let request = match message {
        Some(message) => {
            json!({"initial_message": {"role": "user", "content": text(message), "run": true}})
        }
        None => json!({}),
    };
    let began = Instant::now();
    let answer = user.post("/api/v1/app-conversations", &request).await;
    if answer.status == 429 {
        return Ok(None);
    }
    let task = answer.ok();
    let id = task["id"].as_str().context("the task has no id")?;
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
        tokio::time::sleep(poll_interval).await;
    }
}

/// Times a start that must succeed, and deletes its conversation.
async fn start_and_delete(
    user: &Client,
    message: Option<&str>,
) -> anyhow::Result<StartedConversation> {
    let Some(started) = start(user, message, POLL_INTERVAL).await? else {
        bail!("a start was refused with 429");
    };
    ensure!(started.status == "READY", "a start failed");
    delete_conversation(user, started.conversation.as_deref()).await;
    Ok(started)
}

async fn delete_conversation(user: &Client, conversation: Option<&str>) {
    if let Some(id) = conversation {
        user.with_long_timeout().delete_conversation(id).await;
    }
}

async fn wait_for_boots(service: &Service, boots: usize) -> anyhow::Result<()> {
    let began = Instant::now();
    while service.log().matches(WARM_READY_LINE).count() < boots {
        ensure!(
            began.elapsed() < START_TIMEOUT,
            "no warm sandbox became ready"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    tokio::time::sleep(SETTLE_INTERVAL).await;
    Ok(())
}

async fn measure_warm(
    options: &StartOptions,
    name: &str,
    sandboxing: &Sandboxing,
    record: &mut StartRecord<'_>,
) -> anyhow::Result<()> {
    let llm = sandboxing.model().await;
    let (mut service, user) = service(sandboxing, VERSION, 1, &[], &llm).await;
    let (mut without_message, mut with_message) = (Percentiles::default(), Percentiles::default());
    let mut boots = 0;
    for _ in 0..options.warm {
        for (message, times, kind) in [
            (None, &mut without_message, "warm"),
            (
                Some("hello"),
                &mut with_message,
                "warm, with a first message",
            ),
        ] {
            boots += 1;
            wait_for_boots(&service, boots).await?;
            let started = start_and_delete(&user, message).await?;
            ensure!(
                started.timings.contains_key("WARM_SANDBOX"),
                "a start did not use the warm sandbox: {:?}",
                started.timings
            );
            times.push(started.took);
            record
                .steps
                .record(&format!("{name}, {kind}"), &started.timings);
        }
    }
    service.stop().await;
    let target = "p50 ≤ 100 ms, p95 ≤ 500 ms";
    let row = |what: &str| format!("{name}: warm, POST to READY{what}");
    let (with, ratio) = record.comparison(&without_message);
    record
        .table
        .row([&row(""), &without_message.row(), &with, &ratio, target]);
    let what = row(" with a first message");
    record
        .table
        .row([&what, &with_message.row(), "", "", target]);
    Ok(())
}

async fn measure_cold(
    options: &StartOptions,
    (name, version, variables): (&str, Version, &[(&'static str, &str)]),
    sandboxing: &Sandboxing,
    record: &mut StartRecord<'_>,
) -> anyhow::Result<()> {
    let llm = sandboxing.model().await;
    let (mut service, user) = service(sandboxing, version, 0, variables, &llm).await;
    let (mut ours, mut theirs) = (Percentiles::default(), Percentiles::default());
    let mut differences = Vec::new();
    // Loads the files of both sides into the page cache, and waits for the fork server.
    BareBoot::boot(sandboxing, version).await?;
    start_and_delete(&user, None).await?;
    for round in 0..options.cold {
        // In turns, and with an alternating first side.
        let mut pair = [Duration::ZERO; 2];
        for turn in [round % 2, 1 - round % 2] {
            tokio::time::sleep(SETTLE_INTERVAL).await;
            pair[turn] = if turn == 0 {
                BareBoot::boot(sandboxing, version).await?
            } else {
                let started = start_and_delete(&user, None).await?;
                record
                    .steps
                    .record(&format!("{name}, cold"), &started.timings);
                started.took
            };
        }
        let [bare, took] = pair;
        differences.push((took.as_secs_f64() - bare.as_secs_f64()) * 1000.0);
        theirs.push(bare);
        ours.push(took);
    }
    let mut with_message = Percentiles::default();
    for _ in 0..options.cold {
        tokio::time::sleep(SETTLE_INTERVAL).await;
        with_message.push(start_and_delete(&user, Some("hello")).await?.took);
    }
    service.stop().await;
    let difference = format!("{:+.0} ms, the median of pairs", median(differences));
    let (what, with) = (
        format!("{name}: cold, POST to READY"),
        format!("bare boot {}", theirs.row()),
    );
    let target = if *sandboxing == Sandboxing::Process {
        "p50 ≤ 1,000 ms, p95 ≤ 2,000 ms"
    } else {
        "≤ +150 ms"
    };
    record
        .table
        .row([&what, &ours.row(), &with, &difference, target]);
    let what = format!("{what} with a first message");
    record
        .table
        .row([&what, &with_message.row(), "", "", "≤ +300 ms"]);
    let (with, ratio) = record.comparison(&ours);
    if !with.is_empty() {
        record.table.row(["…", "", &with, &ratio, ""]);
    }
    Ok(())
}

/// Measures concurrent starts with one warm sandbox in the pool.
async fn measure_burst(
    count: usize,
    name: &str,
    sandboxing: &Sandboxing,
    table: &mut Table,
) -> anyhow::Result<()> {
    let llm = sandboxing.model().await;
    let (mut service, user) = service(sandboxing, VERSION, 1, &[], &llm).await;
    wait_for_boots(&service, 1).await?;
    let began = Instant::now();
    let all = (0..count).map(|_| start(&user, None, BURST_POLL_INTERVAL));
    let all = futures::future::join_all(all).await;
    let took = began.elapsed().as_secs_f64();
    let all: Vec<Option<StartedConversation>> = all.into_iter().collect::<anyhow::Result<_>>()?;
    let with = |status: &str| {
        let all = all.iter().flatten();
        all.filter(|it| it.status == status).count()
    };
    let (ready, failed) = (with("READY"), with("ERROR"));
    let refused = all.iter().filter(|it| it.is_none()).count();
    if *sandboxing == Sandboxing::Process {
        footprint::measure(&service, table).await?;
    }
    for started in all.iter().flatten() {
        delete_conversation(&user, started.conversation.as_deref()).await;
    }
    service.stop().await;
    ensure!(
        ready > 0 && failed == 0,
        "{failed} starts of a burst failed"
    );
    let what = format!("{name}: burst of {count}");
    let this =
        format!("{ready} READY, {refused} refused with 429, {failed} failed, in {took:.1} s");
    table.row([&what, &this, "", "", "20 in 8 s"]);
    Ok(())
}
