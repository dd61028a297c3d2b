//! Figures of sandboxes in containers: `cargo xtask bench --docker`, as root, which also makes the image of the stub agent server.
//! With `BENCH_REFERENCE_PYTHON` (a Python that has `openhands-ai`), the reference is measured with the same image on the same
//! engine. Prints a table; `bench/results` has earlier ones. What a start costs on top of the engine is measured by
//! `cargo bench -p sandbox-docker`.
//!
//! The engine is one of its own, because the reference looks at every container that its engine has.

mod figures;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use acceptance::engine::stub_image;
use acceptance::processes::{Process, in_containers, resident};
use acceptance::wait::wait_for;
use acceptance::{Client, Engine, PrivateEngine, Sandboxing, Service, Stub};
use anyhow::{Context as _, ensure};
use futures::StreamExt as _;
use reqwest::Method;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::figures::{Table, Times, get, mebibytes, times};
use benchmarks::reference::{self, Running};

const SANDBOXES: usize = 100;
/// Rows beside the one sandbox that reports.
const ROWS: u32 = 499;
const LIST: &str = "/api/v1/sandboxes/search?limit=100";
/// A report of no events: it is authenticated, and nothing is stored.
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

/// Copies the one sandbox that is there as paused ones, which nobody has to look after.
const COPIES: &str = "
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

/// A service with one sandbox and one with many, asked in turns.
async fn webhooks(table: &mut Table, engine: &Engine, reference: &Reference) -> anyhow::Result<()> {
    let stub = Stub::new();
    let few = service(engine, &stub).await;
    let mut many = service(engine, &stub).await;
    let one = few.admin().start_sandbox().await.id;
    let other = many.admin().start_sandbox().await.id;
    let running = many
        .admin()
        .sandbox_becomes(&other, "RUNNING", STATE_TIMEOUT)
        .await;
    let of_many = many
        .admin()
        .with_key(&running.session_api_key.context("it has a key")?);
    let running = few
        .admin()
        .sandbox_becomes(&one, "RUNNING", STATE_TIMEOUT)
        .await;
    let of_few = few
        .admin()
        .with_key(&running.session_api_key.context("it has a key")?);
    many.stop().await;
    let status = Command::new("python3")
        .args(["-c", COPIES])
        .arg(many.data().join("agent-workspace.db"))
        .arg(ROWS.to_string())
        .status()
        .context("python3 cannot be run")?;
    ensure!(status.success(), "the rows were not made");
    many.restart().await;
    let known = many.admin().sandboxes().await.len();
    ensure!(known == ROWS as usize + 1, "{known} sandboxes");
    let (mut with_few, mut with_many, mut refused, mut empty) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let stranger = many.admin().with_key("nobody's");
    for round in 0..1_100 {
        let times = [
            report(&of_few, 200).await?,
            report(&of_many, 200).await?,
            report(&stranger, 401).await?,
            alive(&stranger).await,
        ];
        // The first ones open connections and fill caches.
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
    let many = format!("{what}, 500 sandboxes");
    table.row(&many, &Times::new(with_many).row(), &reference.webhook);
    table.row(
        &format!("{what}, 1 sandbox"),
        &Times::new(with_few).row(),
        &reference.webhook_of_few,
    );
    table.row(
        "… with an unknown key, 500 sandboxes",
        &Times::new(refused).row(),
        "",
    );
    table.row("GET /alive, for comparison", &Times::new(empty).row(), "");
}

async fn report(agent: &Client, expected: u16) -> anyhow::Result<Duration> {
    let began = Instant::now();
    let reply = agent.post(WEBHOOK, &json!([])).await;
    let took = began.elapsed();
    ensure!(reply.status == expected, "a report: {reply:?}");
    Ok(took)
}

async fn alive(user: &Client) -> Duration {
    let began = Instant::now();
    get(user, "/alive").await;
    began.elapsed()
}

/// Real containers, and one whose agent server does not answer.
async fn lists(table: &mut Table, engine: &Engine, reference: &Reference) -> anyhow::Result<()> {
    let stub = Stub::new();
    let service = service(engine, &stub).await;
    let user = service.admin();
    tokio::time::sleep(SETTLE_INTERVAL).await;
    let before = mebibytes(resident(service.pid()));
    let began = Instant::now();
    start_all(&user, SANDBOXES).await;
    running(&user, SANDBOXES).await;
    let took = began.elapsed();
    tokio::time::sleep(SETTLE_INTERVAL).await;
    let with_all = mebibytes(resident(service.pid()));
    let list = times(500, || get(&user, LIST)).await;
    table.row(
        "list of 100 running sandboxes",
        &list.row(),
        &reference.list,
    );

    let server = service.agent_servers().into_iter().next();
    let server = server.context("an agent server runs")?;
    server.signal(Signal::STOP);
    let hanging = times(500, || get(&user, LIST)).await;
    let seen = user.sandbox(&server.sandbox).await.context("it is there")?;
    server.signal(Signal::CONT);
    table.row(
        "… one of them hanging",
        &hanging.row(),
        &reference.list_hanging,
    );
    table.row("… which is shown as", &seen.status, &reference.hanging_is);
    let after = mebibytes(resident(service.pid()));
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

async fn running(user: &Client, count: usize) {
    wait_for("all sandboxes to run", STATE_TIMEOUT, || async {
        let page = user.get(LIST).await.body;
        let items = page["items"].as_array().cloned().unwrap_or_default();
        let up = items.iter().filter(|it| it["status"] == "RUNNING").count();
        (up == count).then_some(())
    })
    .await;
}

/// The reference's figures, as cells of the table.
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
    /// It starts sandboxes one after the other, and lets 10 requests a second through.
    async fn measure(python: &str, engine: &Engine) -> anyhow::Result<Self> {
        let data = std::env::temp_dir().join(format!("bench-reference-{}", std::process::id()));
        std::fs::create_dir_all(&data)?;
        let child = start_reference(python, &data, engine).await?;
        let before = mebibytes(resident(child.pid()));
        let mut figures = Self::default();
        let began = Instant::now();
        let mut key = String::new();
        for number in 0..SANDBOXES {
            let _ = child.client().post(START, &json!({})).await.ok();
            if number == 0 {
                running(&child.client(), 1).await;
                let list = child.client().get(LIST).await.ok();
                let first = list["items"][0]["session_api_key"].as_str();
                first.unwrap_or_default().clone_into(&mut key);
                figures.webhook_of_few = of_reference(&child, &key).await?;
            }
        }
        let started = began.elapsed().as_secs_f64();
        figures.starts = format!("{started:.0} s, one after the other");
        running(&child.client(), SANDBOXES).await;
        figures.webhook = format!("{}, 100 sandboxes", of_reference(&child, &key).await?);
        let user = child.client();
        figures.list = times(10, || get(&user, LIST)).await.row();
        let after = mebibytes(resident(child.pid()));
        figures.memory = format!("{before:.0} MiB, {after:.0} MiB (after its lists)");
        figures.hang(&child, engine).await?;
        drop(child);
        std::fs::remove_dir_all(&data)?;
        let all = engine.docker(&["ps", "--all", "--quiet"]);
        let all: Vec<&str> = all.split_whitespace().collect();
        engine.docker(&[&["rm", "--force", "--volumes"], all.as_slice()].concat());
        Ok(figures)
    }

    async fn hang(&mut self, child: &Running, engine: &Engine) -> anyhow::Result<()> {
        let filter = ["--filter", "name=oh-agent-server-"];
        let ids = engine.docker(&[&["ps", "--quiet", "--no-trunc"], filter.as_slice()].concat());
        let hanging = ids.lines().next().context("a container runs")?.to_owned();
        let processes = in_containers(&[(hanging.clone(), String::new())]);
        let server = processes.into_iter().find(Process::is_agent_server);
        let server = server.context("an agent server runs")?;
        server.signal(Signal::STOP);
        let user = child.client();
        self.list_hanging = times(3, || get(&user, LIST)).await.row();
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

async fn start_reference(python: &str, data: &Path, engine: &Engine) -> anyhow::Result<Running> {
    let image = stub_image();
    let (repository, tag) = image.rsplit_once(':').context("the image has a tag")?;
    let socket = engine.socket().context("the engine has a socket")?;
    let variables = [
        ("RUNTIME", "docker"),
        ("DOCKER_HOST", socket),
        ("OH_SANDBOX_KIND", "DockerSandboxServiceInjector"),
        ("OH_SANDBOX_MAX_NUM_SANDBOXES", "1000"),
        // It takes a machine that has /.dockerenv for a container, and looks for `localhost` elsewhere then.
        (
            "OH_SANDBOX_CONTAINER_URL_PATTERN",
            "http://127.0.0.1:{port}",
        ),
        ("AGENT_SERVER_IMAGE_REPOSITORY", repository),
        ("AGENT_SERVER_IMAGE_TAG", tag),
    ];
    let child = Running::start(python, data, &variables)?;
    let user = child.client();
    wait_for("the reference", STATE_TIMEOUT, || async {
        let alive = user.try_call(Method::GET, "/alive", None).await;
        alive.ok().map(drop)
    })
    .await;
    tokio::time::sleep(SETTLE_INTERVAL).await;
    Ok(child)
}

async fn of_reference(child: &Running, key: &str) -> anyhow::Result<String> {
    let agent = child.client().with_key(key);
    let mut all = Vec::new();
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(200)).await;
        all.push(report(&agent, 200).await?);
    }
    Ok(Times::new(all).row())
}
