//! Benchmark of the service as a program: `cargo xtask bench --service`. With `BENCH_REFERENCE_PYTHON` (a Python with
//! `openhands-ai`) it also measures the reference. Prints a table; `bench/results` has earlier ones.
//!
//! Python's `sqlite3` module copies rows while the service is stopped, because creating 100,000 conversations through the API
//! takes hours.

mod figures;

use std::time::{Duration, Instant};

use acceptance::agent_server::built_program;
use acceptance::processes::resident_bytes;
use acceptance::{Client, Service, Stub};
use anyhow::{Context as _, ensure};
use benchmarks::{SortedTimes, event, megabytes, rows};
use serde_json::{Value, json};

use crate::figures::{Table, get, mebibytes, times, times_cell};
use benchmarks::reference::{self, ReferenceProcess};

const STARTS: usize = 20;
const CONVERSATIONS: u32 = 100_000;
const SETTLE_INTERVAL: Duration = Duration::from_secs(5);

#[actix_web::main]
async fn main() -> anyhow::Result<()> {
    let mut table = Table::default();
    let reference = match reference::python() {
        Some(python) => Reference::measure(&python).await?,
        None => Reference::default(),
    };
    starts(&mut table, &reference).await;
    requests(&mut table, &reference).await?;
    conversation_starts(&mut table).await;
    many_conversations(&mut table).await?;
    table.print()?;
    Ok(())
}

async fn starts(table: &mut Table, reference: &Reference) {
    let (mut fresh, mut again, mut idle) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..STARTS {
        let mut service = Service::start().await;
        fresh.push(service.startup_time());
        if number < 3 {
            tokio::time::sleep(SETTLE_INTERVAL).await;
            idle.push(mebibytes(resident_bytes(service.pid())));
        }
        service.stop().await;
        service.restart().await;
        again.push(service.startup_time());
    }
    table.row(
        "start to first 200, new data directory",
        &times_cell(&SortedTimes::new(fresh)),
        &reference.start,
    );
    table.row(
        "start to first 200, existing data directory",
        &times_cell(&SortedTimes::new(again)),
        "",
    );
    idle.sort_by(f64::total_cmp);
    let size = std::fs::metadata(built_program("agent-workspace")).map_or(0, |file| file.len());
    let size = format!("{:.1} MB", megabytes(size));
    table.row("size of the program", &size, "");
    let resident = format!("{:.1} MiB", idle[idle.len() / 2]);
    table.row(
        "resident memory, idle for 5 s",
        &resident,
        &reference.resident,
    );
}

const LIST: &str = "/api/v1/app-conversations/search?limit=100";
const SETTINGS: &str = "/api/v1/settings";

async fn requests(table: &mut Table, reference: &Reference) -> anyhow::Result<()> {
    let service = Service::start().await;
    let user = service.admin();
    user.use_model("openai/m", "http://127.0.0.1:9/v1", "sk-bench")
        .await;
    let list = times(500, || get(&user, LIST)).await;
    table.row("empty list", &times_cell(&list), &reference.list);
    let settings = times(500, || get(&user, SETTINGS)).await;
    table.row(
        "GET /api/v1/settings",
        &times_cell(&settings),
        &reference.settings,
    );
    let legacy = times(500, || get(&user, "/api/settings")).await;
    table.row("GET /api/settings", &times_cell(&legacy), "");
    let paths = [
        LIST,
        SETTINGS,
        "/api/v1/users/me",
        "/api/v1/sandbox-specs/search",
        "/api/settings",
    ];
    for _ in 0..1_800 {
        for path in paths {
            get(&user, path).await;
        }
        let body = json!({"language": "en"});
        ensure!(
            user.post(SETTINGS, &body).await.status == 200,
            "the service refuses a change of settings"
        );
    }
    let after = format!("{:.1} MiB", mebibytes(resident_bytes(service.pid())));
    table.row("resident memory after 10,800 mixed requests", &after, "");
    Ok(())
}

/// Measures starts one after the other, each in its own sandbox, with an agent server that boots in milliseconds.
async fn conversation_starts(table: &mut Table) {
    let stub = Stub::new();
    let service = Service::builder().stub(&stub).start().await;
    let user = service.admin();
    user.use_model("openai/m", "http://127.0.0.1:9/v1", "sk-bench")
        .await;
    let (mut total_times, mut own_times, mut times_without_sandbox) =
        (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..40 {
        let message = json!({"content": [{"type": "text", "text": "hello"}], "run": true});
        let began = Instant::now();
        let path = "/api/v1/app-conversations/stream-start";
        let tasks = user
            .post(path, &json!({"initial_message": message}))
            .await
            .ok();
        let wall = began.elapsed();
        let last = tasks
            .as_array()
            .and_then(|tasks| tasks.last())
            .cloned()
            .unwrap_or_default();
        assert_eq!(last["status"], "READY", "{last}");
        let step = |name: &str| Duration::from_millis(last["timings"][name].as_u64().unwrap_or(0));
        let all = last["timings"].as_object().into_iter().flatten();
        let all: u64 = all.filter_map(|(_, spent)| spent.as_u64()).sum();
        let waiting = step("WAITING_FOR_SANDBOX");
        total_times.push(wall);
        own_times.push(Duration::from_millis(all).saturating_sub(waiting));
        times_without_sandbox.push(wall.saturating_sub(waiting));
        if let Some(id) = last["app_conversation_id"].as_str() {
            user.delete_conversation(id).await;
        }
    }
    table.row(
        "POST to READY with an instant agent server, total",
        &times_cell(&SortedTimes::new(total_times)),
        "",
    );
    table.row(
        "… without WAITING_FOR_SANDBOX, as the client sees it",
        &times_cell(&SortedTimes::new(times_without_sandbox)),
        "",
    );
    table.row(
        "… the service's own steps, by `timings`",
        &times_cell(&SortedTimes::new(own_times)),
        "",
    );
}

async fn many_conversations(table: &mut Table) -> anyhow::Result<()> {
    let stub = Stub::new();
    let mut service = Service::builder().stub(&stub).start().await;
    let user = service.admin();
    user.use_model("openai/m", "http://127.0.0.1:9/v1", "sk-bench")
        .await;
    let first = user.converse("hello").await;
    service.stop().await;
    let database = service.data_dir().join("agent-workspace.db");
    rows::copy_conversations(&database, CONVERSATIONS)?;
    service.restart().await;
    let count = user.get("/api/v1/app-conversations/count").await.ok();
    ensure!(
        count == CONVERSATIONS,
        "the service counts {count} conversations, not {CONVERSATIONS}"
    );

    let warm = times(50, || get(&user, LIST)).await;
    drop(warm);
    let list = times(500, || get(&user, LIST)).await;
    table.row(
        "list of 100 of 100,000 conversations",
        &times_cell(&list),
        "",
    );
    let middle = format!("{LIST}&created_at__lt=2026-11-21T00:00:00Z");
    let filtered = times(200, || get(&user, &middle)).await;
    table.row("… before a date", &times_cell(&filtered), "");
    table.row("… 8 concurrent clients", &throughput(&user, LIST).await, "");
    table.row(
        "GET /api/settings, 8 concurrent clients",
        &throughput(&user, "/api/settings").await,
        "",
    );
    ensure_running(&user, &first.sandbox_id).await;
    intake(table, &user, &first.id, &first.sandbox_id).await
}

/// Resumes the sandbox, in case it stopped while the service was down.
async fn ensure_running(user: &Client, sandbox: &str) {
    let _ = user.resume(sandbox).await;
}

async fn throughput(user: &Client, path: &str) -> String {
    const RUN_TIME: Duration = Duration::from_secs(5);
    let began = Instant::now();
    let clients = (0..8).map(|_| async {
        let mut all = Vec::new();
        while began.elapsed() < RUN_TIME {
            let one = Instant::now();
            get(user, path).await;
            all.push(one.elapsed());
        }
        all
    });
    let all: Vec<Duration> = futures::future::join_all(clients).await.concat();
    let per_second = all.len() as u128 * 1000 / began.elapsed().as_millis().max(1);
    format!(
        "{per_second} requests/s, {}",
        times_cell(&SortedTimes::new(all))
    )
}

/// Measures reports of events.
async fn intake(
    table: &mut Table,
    user: &Client,
    conversation: &str,
    sandbox: &str,
) -> anyhow::Result<()> {
    let key = user
        .sandbox(sandbox)
        .await
        .and_then(|sandbox| sandbox.session_api_key);
    let agent = user.with_key(&key.context("the running sandbox has no key")?);
    let path = format!("/api/v1/webhooks/events/{conversation}");
    for batch in [1_usize, 10, 100] {
        let reports = (4_000 / batch).min(1_000);
        let began = Instant::now();
        let senders = (0..4).map(|sender| {
            let (agent, path) = (&agent, &path);
            async move {
                for number in 0..reports / 4 {
                    let events: Vec<Value> = (0..batch)
                        .map(|place| {
                            event(
                                &format!("{batch}-{sender}-{number}-{place}"),
                                "2026-11-21T10:00:00.123456",
                            )
                        })
                        .collect();
                    let _ = agent.post(path, &json!(events)).await.ok();
                }
            }
        });
        futures::future::join_all(senders).await;
        let millis = began.elapsed().as_millis().max(1);
        let events = (reports / 4 * 4 * batch) as u128 * 1000 / millis;
        table.row(
            &format!("events stored, reports of {batch}, 4 concurrent"),
            &format!("{events} events/s"),
            "",
        );
    }
    Ok(())
}

/// Results of the reference, as cells of the table.
#[derive(Default)]
struct Reference {
    start: String,
    resident: String,
    list: String,
    settings: String,
}

impl Reference {
    async fn measure(python: &str) -> anyhow::Result<Self> {
        let (mut starts, mut memory) = (Vec::new(), Vec::new());
        let (mut list, mut settings) = (Vec::new(), Vec::new());
        for _ in 0..5 {
            let data = std::env::temp_dir().join(format!("bench-reference-{}", std::process::id()));
            std::fs::create_dir_all(&data)?;
            let began = Instant::now();
            let child = ReferenceProcess::start(python, &data, &[("RUNTIME", "process")])?;
            child.wait_until_ready(Duration::from_millis(5)).await?;
            starts.push(began.elapsed());
            tokio::time::sleep(SETTLE_INTERVAL).await;
            memory.push(mebibytes(resident_bytes(child.pid())));
            // The reference has closed the first connection in the meantime.
            let user = child.client();
            let _ = user.post(SETTINGS, &json!({})).await;
            for _ in 0..20 {
                // The reference allows 10 requests a second and delays further ones.
                for (path, times) in [(LIST, &mut list), (SETTINGS, &mut settings)] {
                    tokio::time::sleep(Duration::from_millis(150)).await;
                    let one = Instant::now();
                    get(&user, path).await;
                    times.push(one.elapsed());
                }
            }
            drop(child);
            std::fs::remove_dir_all(&data)?;
        }
        memory.sort_by(f64::total_cmp);
        Ok(Self {
            start: times_cell(&SortedTimes::new(starts)),
            resident: format!("{:.0} MiB", memory[memory.len() / 2]),
            list: times_cell(&SortedTimes::new(list)),
            settings: times_cell(&SortedTimes::new(settings)),
        })
    }
}
