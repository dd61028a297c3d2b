//! Requests of many signed-in browsers: `cargo xtask bench --browsers`. Prints a table; `bench/results` has earlier ones. `--short`
//! uses small numbers and only checks that the benchmark works.
//!
//! Each browser has a session and a connection of its own, and polls what the web application polls. Python's `sqlite3` module
//! writes the sessions while the service is stopped, because a thousand passwords take a minute of processor time.

use std::process::Command;
use std::time::Duration;

use acceptance::Service;
use acceptance::processes::{processor_time, raise_file_limit};
use anyhow::{Context as _, ensure};
use benchmarks::load::LoadTarget;
use benchmarks::table::Table;
use benchmarks::{is_short, median, wire};

/// Blocks of each measurement, whose medians count: a pause of a busy machine affects one block.
const BLOCKS: usize = 5;
/// Requests of one browser in a second: two kinds, each every five seconds.
const RATE: f64 = 0.4;

/// Amounts of work.
struct BenchmarkSize {
    users: u32,
    browsers: u32,
    block: Duration,
}

const FULL: BenchmarkSize = BenchmarkSize {
    users: 100,
    browsers: 1_000,
    block: Duration::from_secs(10),
};

const SHORT: BenchmarkSize = BenchmarkSize {
    users: 2,
    browsers: 10,
    block: Duration::from_secs(1),
};

/// Adds sessions whose tokens are `browser-N`, of the users in turn.
const SCRIPT: &str = "
import hashlib, sqlite3, sys, time, uuid
db = sqlite3.connect(sys.argv[1])
now = int(time.time() * 1000000)
users = [row[0] for row in db.execute(\"select id from users where id like 'user-%'\")]
for n in range(int(sys.argv[2])):
    row = {'id': str(uuid.uuid4()), 'user_id': users[n % len(users)], 'created_at': now, 'last_seen_at': now,
        'hash': hashlib.sha256(('browser-%d' % n).encode()).hexdigest(), 'expires_at': now + 86400 * 1000000}
    db.execute('insert into sessions (' + ', '.join(row) + ') values (' + ', '.join('?' for _ in row) + ')', list(row.values()))
db.commit()
";

#[actix_web::main]
async fn main() -> anyhow::Result<()> {
    let size = if is_short()? { &SHORT } else { &FULL };
    raise_file_limit();
    let mut service = Service::builder()
        .env("WORKSPACE_LOG__LEVEL", "info")
        .start()
        .await;
    for number in 0..size.users {
        // The first request makes the user's organization.
        let user = service.user(&format!("user-{number}"));
        let _ = user.get("/api/organizations").await.ok();
    }
    service.stop().await;
    let written = Command::new("python3")
        .args(["-c", SCRIPT])
        .arg(service.data_dir().join("agent-workspace.db"))
        .arg(size.browsers.to_string())
        .status()
        .context("python3 cannot be run")?;
    ensure!(written.success(), "the sessions were not written");
    service.restart().await;
    let mut table = Table::default();
    let organizations = |_: &str| "/api/organizations".to_owned();
    measure(
        &mut table,
        size,
        &service,
        ("GET /api/organizations", &organizations),
    )
    .await?;
    let me = |organization: &str| format!("/api/organizations/{organization}/me");
    measure(
        &mut table,
        size,
        &service,
        ("GET /api/organizations/{org_id}/me", &me),
    )
    .await?;
    table.print()?;
    Ok(())
}

/// The header lines of a browser.
fn headers(browser: u32) -> [String; 2] {
    [
        format!("Cookie: aw_session=browser-{browser}"),
        "Sec-Fetch-Site: same-origin".to_owned(),
    ]
}

/// The current organization of each browser's user.
async fn organizations(size: &BenchmarkSize, service: &Service) -> anyhow::Result<Vec<String>> {
    let mut connection = wire::Connection::open(service.address()).await?;
    let mut all = Vec::new();
    for browser in 0..size.browsers {
        let request = wire::request("GET", "/api/organizations", &headers(browser), "");
        let answer = connection.exchange(&request).await?;
        let received = String::from_utf8_lossy(connection.received());
        ensure!(
            answer.status == 200,
            "a browser is not signed in: {received}"
        );
        let body = received.split("\r\n\r\n").nth(1).unwrap_or_default();
        let body: serde_json::Value = serde_json::from_str(body)?;
        let id = body["current_org_id"].as_str();
        all.push(id.context("a user has an organization")?.to_owned());
    }
    Ok(all)
}

async fn measure(
    table: &mut Table,
    size: &BenchmarkSize,
    service: &Service,
    (what, path): (&str, &dyn Fn(&str) -> String),
) -> anyhow::Result<()> {
    let organizations = organizations(size, service).await?;
    let requests: Vec<Vec<u8>> = (0..size.browsers)
        .zip(&organizations)
        .map(|(browser, organization)| {
            wire::request("GET", &path(organization), &headers(browser), "")
        })
        .collect();
    let count = u64::from(size.browsers);
    let next = move |number: u64| {
        let which = usize::try_from(number % count).unwrap_or_default();
        requests[which].clone()
    };
    let target = LoadTarget::new(service.address(), Box::new(next));
    let (rate, connections) = (
        RATE * f64::from(size.browsers),
        usize::try_from(size.browsers)?,
    );
    let mut loads = Vec::new();
    let before = processor_time(service.pid()).unwrap_or_default();
    for _ in 0..BLOCKS {
        loads.push(target.run_open_loop(rate, connections, size.block).await?);
    }
    let spent = processor_time(service.pid()).unwrap_or_default() - before;
    let count: f64 = loads.iter().map(|load| f64::from(load.count())).sum();
    let at = |percent| median(loads.iter().map(|load| load.percentile(percent)));
    let what = format!(
        "{what}, {} browsers, {rate:.0} requests a second",
        size.browsers
    );
    let times = format!("p50 {:.2} ms, p99 {:.2} ms", at(50.0), at(99.0));
    let cost = format!(
        "{:.0} µs of processor each",
        spent.as_secs_f64() * 1e6 / count
    );
    table.row([&what, &times, &cost, "", "p99 ≤ 10 ms"]);
    Ok(())
}
