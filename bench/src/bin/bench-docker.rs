//! Benchmark of sandboxes in containers: `cargo xtask bench --docker`, as root, which also builds the image of the stub agent
//! server. With `BENCH_REFERENCE_PYTHON` (a Python with `openhands-ai`) it also measures the reference with the same image and
//! engine. Prints a table; `bench/results` has earlier ones. `cargo bench -p sandbox-docker` measures a start without the engine.
//!
//! It starts its own engine, because the reference inspects every container of its engine.

mod figures;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use acceptance::engine::stub_image;
use acceptance::processes::{Process, in_containers, resident_bytes};
use acceptance::wait::wait_for;
use acceptance::{Client, Engine, PrivateEngine, Sandboxing, Service, Stub};
use anyhow::{Context as _, ensure};
use futures::StreamExt as _;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::figures::{Table, get, mebibytes, times, times_cell};
use benchmarks::SortedTimes;
use benchmarks::reference::{self, ReferenceProcess};

const SANDBOXES: usize = 100;
/// Rows beside the sandbox that reports.
const ROWS: u32 = 499;
const LIST: &str = "/api/v1/sandboxes/search?limit=100";
/// A report without events, which is authenticated and stores nothing.
const WEBHOOK: &str = "/api/v1/webhooks/events/11111111-1111-1111-1111-111111111111";
const START: &str = "/api/v1/sandboxes";
const STATE_TIMEOUT: Duration = Duration::from_secs(600);
const SETTLE_INTERVAL: Duration = Duration::from_secs(5);

#[actix_web::main]
async fn main() -> anyhow::Result<()> {
    let engine = PrivateEngine::start();
    engine.load(&stub_image(), &Engine::shared());
    let mut table = Table::default();
    let reference = match reference::python() {
        Some(python) => Reference::measure(&python, &engine.engine()).await?,
        None => Reference::default(),
    };
    webhooks(&mut table, &engine.engine(), &reference).await?;
    lists(&mut table, &engine.engine(), &reference).await?;
    table.print()?;
    Ok(())
}

async fn service(engine: &Engine, stub: &Stub) -> Service {
    let builder = Service::builder()
        .sandboxing(&Sandboxing::Docker(engine.clone()))
        .stub(stub)
        .env("WORKSPACE_SANDBOX__MAX_RUNNING_PER_USER", "1000")
        .env("WORKSPACE_SANDBOX__MAX_RUNNING", "1000")
        .env("WORKSPACE_LOG__LEVEL", "info");
    builder.start().await
}

/// Copies the one sandbox as paused ones, which the service does not watch.
const COPY_SCRIPT: &str = "
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
columns = [row[1] for row in db.execute('pragma table_info(sandboxes)')]
new = {'id': 'printf(\"copy%018d\", n)', 'key_hash': 'printf(\"%064x\", n)', 'desired': '\"paused\"',
    'status': '\"PAUSED\"', 'paused_at': 'created_at', 'agent_url': 'null'}
db.execute('with recursive numbers(n) as (select 1 union all select n + 1 from numbers where n < ' + sys.argv[2] + ') '
    'insert into sandboxes (' + ', '.join(columns) + ') select '
    + ', '.join(new.get(column, column) for column in columns)
    + ' from (select * from sandboxes limit 1), numbers')
db.commit()
";

/// Sends reports in turns to a service with one sandbox and to one with many.
async fn webhooks(table: &mut Table, engine: &Engine, reference: &Reference) -> anyhow::Result<()> {
    let stub = Stub::new();
    let small_service = service(engine, &stub).await;
    let mut large_service = service(engine, &stub).await;
    let one = small_service.admin().start_sandbox().await.id;
    let other = large_service.admin().start_sandbox().await.id;
    let running = large_service
        .admin()
        .wait_for_sandbox_status(&other, "RUNNING", STATE_TIMEOUT)
        .await;
    let agent_of_large_service = large_service
        .admin()
        .with_key(&running.session_api_key.context("the sandbox has no key")?);
    let running = small_service
        .admin()
        .wait_for_sandbox_status(&one, "RUNNING", STATE_TIMEOUT)
        .await;
    let agent_of_small_service = small_service
        .admin()
        .with_key(&running.session_api_key.context("the sandbox has no key")?);
    large_service.stop().await;
    let status = Command::new("python3")
        .args(["-c", COPY_SCRIPT])
        .arg(large_service.data_dir().join("agent-workspace.db"))
        .arg(ROWS.to_string())
        .status()
        .context("python3 cannot be run")?;
    ensure!(status.success(), "the rows were not copied");
    large_service.restart().await;
    let known = large_service.admin().sandboxes().await.len();
    ensure!(
        known == ROWS as usize + 1,
        "the service lists {known} sandboxes, not {}",
        ROWS + 1
    );
    let (mut with_few, mut with_many, mut refused, mut empty) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let client_with_unknown_key = large_service.admin().with_key("unknown");
    for round in 0..1_100 {
        let times = [
            report(&agent_of_small_service, 200).await?,
            report(&agent_of_large_service, 200).await?,
            report(&client_with_unknown_key, 401).await?,
            alive(&client_with_unknown_key).await,
        ];
        // The first rounds open connections and fill caches.
        if round >= 100 {
            for (all, time) in [&mut with_few, &mut with_many, &mut refused, &mut empty]
                .into_iter()
                .zip(times)
            {
                all.push(time);
            }
        }
    }
    webhook_rows(table, reference, [with_few, with_many, refused, empty]);
    Ok(())
}

fn webhook_rows(
    table: &mut Table,
    reference: &Reference,
    [with_few, with_many, refused, empty]: [Vec<Duration>; 4],
) {
    let what = "authenticated webhook without events";
    let with_many_label = format!("{what}, 500 sandboxes");
    table.row(
        &with_many_label,
        &times_cell(&SortedTimes::new(with_many)),
        &reference.webhook,
    );
    table.row(
        &format!("{what}, 1 sandbox"),
        &times_cell(&SortedTimes::new(with_few)),
        &reference.webhook_of_few,
    );
    table.row(
        "… with an unknown key, 500 sandboxes",
        &times_cell(&SortedTimes::new(refused)),
        "",
    );
    table.row(
        "GET /alive, for comparison",
        &times_cell(&SortedTimes::new(empty)),
        "",
    );
}

async fn report(agent: &Client, expected: u16) -> anyhow::Result<Duration> {
    let began = Instant::now();
    let reply = agent.post(WEBHOOK, &json!([])).await;
    let took = began.elapsed();
    ensure!(
        reply.status == expected,
        "unexpected response to a report: {reply:?}"
    );
    Ok(took)
}

async fn alive(user: &Client) -> Duration {
    let began = Instant::now();
    get(user, "/alive").await;
    began.elapsed()
}

/// Lists sandboxes in containers, also while one agent server does not respond.
async fn lists(table: &mut Table, engine: &Engine, reference: &Reference) -> anyhow::Result<()> {
    let stub = Stub::new();
    let service = service(engine, &stub).await;
    let user = service.admin();
    tokio::time::sleep(SETTLE_INTERVAL).await;
    let before = mebibytes(resident_bytes(service.pid()));
    let began = Instant::now();
    start_all(&user, SANDBOXES).await;
    wait_until_running(&user, SANDBOXES).await;
    let took = began.elapsed();
    tokio::time::sleep(SETTLE_INTERVAL).await;
    let with_all = mebibytes(resident_bytes(service.pid()));
    let list = times(500, || get(&user, LIST)).await;
    table.row(
        "list of 100 running sandboxes",
        &times_cell(&list),
        &reference.list,
    );

    let server = service.agent_servers().into_iter().next();
    let server = server.context("no agent server runs")?;
    server.signal(Signal::STOP);
    let hanging = times(500, || get(&user, LIST)).await;
    let seen = user
        .sandbox(&server.sandbox)
        .await
        .context("the service does not list the hanging sandbox")?;
    server.signal(Signal::CONT);
    table.row(
        "… one of them hanging",
        &times_cell(&hanging),
        &reference.list_hanging,
    );
    table.row("… which is shown as", &seen.status, &reference.hanging_is);
    let after = mebibytes(resident_bytes(service.pid()));
    let memory = format!("{before:.1} MiB, {with_all:.1} MiB, {after:.1} MiB");
    table.row(
        "resident memory without, with 100 containers, after 1,000 lists",
        &memory,
        &reference.memory,
    );
    let seconds = format!("{:.0} s", took.as_secs_f64());
    table.row(
        "starting 100 sandboxes, 8 requests at once, until RUNNING",
        &seconds,
        &reference.starts,
    );
    Ok(())
}

async fn start_all(user: &Client, count: usize) {
    let starts = (0..count).map(|_| async {
        let _ = user.post(START, &json!({})).await.ok();
    });
    futures::stream::iter(starts)
        .buffer_unordered(8)
        .collect::<()>()
        .await;
}

async fn wait_until_running(user: &Client, count: usize) {
    wait_for("all sandboxes to run", STATE_TIMEOUT, || async {
        let page = user.get(LIST).await.body;
        let items = page["items"].as_array().cloned().unwrap_or_default();
        let up = items.iter().filter(|it| it["status"] == "RUNNING").count();
        (up == count).then_some(())
    })
    .await;
}

/// Results of the reference, as cells of the table.
#[derive(Default)]
struct Reference {
    webhook: String,
    webhook_of_few: String,
    list: String,
    list_hanging: String,
    hanging_is: String,
    memory: String,
    starts: String,
}

impl Reference {
    /// The reference starts sandboxes one after the other, and allows 10 requests a second.
    async fn measure(python: &str, engine: &Engine) -> anyhow::Result<Self> {
        let data = std::env::temp_dir().join(format!("bench-reference-{}", std::process::id()));
        std::fs::create_dir_all(&data)?;
        let child = start_reference(python, &data, engine).await?;
        let before = mebibytes(resident_bytes(child.pid()));
        let mut figures = Self::default();
        let began = Instant::now();
        let mut key = String::new();
        for number in 0..SANDBOXES {
            let _ = child.client().post(START, &json!({})).await.ok();
            if number == 0 {
                wait_until_running(&child.client(), 1).await;
                let list = child.client().get(LIST).await.ok();
                let first = list["items"][0]["session_api_key"].as_str();
                first.unwrap_or_default().clone_into(&mut key);
                figures.webhook_of_few = time_reports(&child, &key).await?;
            }
        }
        let started = began.elapsed().as_secs_f64();
        figures.starts = format!("{started:.0} s, one after the other");
        wait_until_running(&child.client(), SANDBOXES).await;
        figures.webhook = format!("{}, 100 sandboxes", time_reports(&child, &key).await?);
        let user = child.client();
        figures.list = times_cell(&times(10, || get(&user, LIST)).await);
        let after = mebibytes(resident_bytes(child.pid()));
        figures.memory = format!("{before:.0} MiB, {after:.0} MiB (after its lists)");
        figures.measure_hanging(&child, engine).await?;
        drop(child);
        std::fs::remove_dir_all(&data)?;
        let all = engine.docker(&["ps", "--all", "--quiet"]);
        let all: Vec<&str> = all.split_whitespace().collect();
        engine.docker(&[&["rm", "--force", "--volumes"], all.as_slice()].concat());
        Ok(figures)
    }

    async fn measure_hanging(
        &mut self,
        child: &ReferenceProcess,
        engine: &Engine,
    ) -> anyhow::Result<()> {
        let filter = ["--filter", "name=oh-agent-server-"];
        let ids = engine.docker(&[&["ps", "--quiet", "--no-trunc"], filter.as_slice()].concat());
        let hanging = ids.lines().next().context("no container runs")?.to_owned();
        let processes = in_containers(&[(hanging.clone(), String::new())]);
        let server = processes.into_iter().find(Process::is_agent_server);
        let server = server.context("no agent server runs")?;
        server.signal(Signal::STOP);
        let user = child.client();
        self.list_hanging = times_cell(&times(3, || get(&user, LIST)).await);
        let seen: Value = child.client().get(LIST).await.ok();
        server.signal(Signal::CONT);
        let name = engine.docker(&["inspect", "--format", "{{.Name}}", &hanging]);
        let items = seen["items"].as_array().into_iter().flatten();
        let mut items = items.filter(|it| it["id"] == name.trim_start_matches('/'));
        let status = items.next().and_then(|it| it["status"].as_str());
        status
            .unwrap_or("not there")
            .clone_into(&mut self.hanging_is);
        Ok(())
    }
}

async fn start_reference(
    python: &str,
    data: &Path,
    engine: &Engine,
) -> anyhow::Result<ReferenceProcess> {
    let image = stub_image();
    let (repository, tag) = image.rsplit_once(':').context("the image has no tag")?;
    let socket = engine.socket().context("the engine has no socket")?;
    let variables = [
        ("RUNTIME", "docker"),
        ("DOCKER_HOST", socket),
        ("OH_SANDBOX_KIND", "DockerSandboxServiceInjector"),
        ("OH_SANDBOX_MAX_NUM_SANDBOXES", "1000"),
        // With /.dockerenv the reference assumes that it runs in a container, and resolves `localhost` elsewhere.
        (
            "OH_SANDBOX_CONTAINER_URL_PATTERN",
            "http://127.0.0.1:{port}",
        ),
        ("AGENT_SERVER_IMAGE_REPOSITORY", repository),
        ("AGENT_SERVER_IMAGE_TAG", tag),
    ];
    let child = ReferenceProcess::start(python, data, &variables)?;
    child.wait_until_ready(Duration::from_millis(50)).await?;
    tokio::time::sleep(SETTLE_INTERVAL).await;
    Ok(child)
}

async fn time_reports(child: &ReferenceProcess, key: &str) -> anyhow::Result<String> {
    let agent = child.client().with_key(key);
    let mut all = Vec::new();
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(200)).await;
        all.push(report(&agent, 200).await?);
    }
    Ok(times_cell(&SortedTimes::new(all)))
}
