//! What the gateway costs: `cargo xtask bench --gateway`. Prints a table; `bench/results` has earlier ones. With `--short` the
//! numbers are small: that it works is then seen in seconds.
//!
//! The agent server behind is the stub. Four ways to it take turns: directly, through the service, and where nginx is installed
//! through two of them, with as many workers: one that keeps no log, and one that writes a line of each request, as the service
//! does. All of them, and what measures, share the machine's cores.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use acceptance::processes::{children_of, processor_time, resident};
use acceptance::stub::traffic::SOCKET_KEY;
use acceptance::wait::wait_for;
use acceptance::{Client, Service, Stub};
use anyhow::{Context as _, ensure};
use benchmarks::load::{Load, LoadTarget};
use benchmarks::table::Table;
use benchmarks::{is_short, median, megabytes, wire};
use futures::future::try_join_all;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;

use AccessLog::{NoLog, OfEach};

const CONNECTIONS: usize = 32;
const TURNS: usize = 5;
/// Answered at once, with some bytes.
const SMALL: &str = "/server_info";
const SERVICE: &str = "through the service";
/// What the target is about: nothing is written for a request.
const NGINX: &str = "through nginx without a log";
/// Does what the service does, which cannot go without.
const NGINX_LOGGING: &str = "through nginx with its access log";
/// 16 MiB.
const LARGE: &str = "/api/file/download/bytes/16777216";

/// How much of everything.
struct BenchmarkSize {
    requests: u32,
    turn: Duration,
    users: usize,
    sockets_per_user: usize,
}

const FULL: BenchmarkSize = BenchmarkSize {
    requests: 2_000,
    turn: Duration::from_secs(3),
    users: 4,
    sockets_per_user: 500,
};

const SHORT: BenchmarkSize = BenchmarkSize {
    requests: 20,
    turn: Duration::from_millis(100),
    users: 2,
    sockets_per_user: 5,
};

#[actix_web::main]
async fn main() -> anyhow::Result<()> {
    let size = if is_short()? { &SHORT } else { &FULL };
    allow_open_files()?;
    let stub = Stub::new();
    let service = Service::builder()
        .stub(&stub)
        .env("WORKSPACE_SANDBOX__DIRECT_URLS", "true")
        .env("WORKSPACE_LOG__LEVEL", "info")
        .start()
        .await;
    let behind = UpstreamServer::start(&service, "first").await?;
    let nginx = NginxServer::start(behind.address, NoLog)?;
    let logging = NginxServer::start(behind.address, OfEach)?;
    let mut ways = vec![
        GatewayPath::new("directly", behind.address, Vec::new()),
        GatewayPath::new(SERVICE, service.address(), vec![service.pid()]),
    ];
    for (name, nginx) in [(NGINX, &nginx), (NGINX_LOGGING, &logging)] {
        if let Some(nginx) = nginx {
            nginx.answers().await;
            ways.push(GatewayPath::new(name, nginx.address, nginx.pids()));
        }
    }
    let mut table = Table::default();
    latency(&mut table, size, &ways, &behind.key).await?;
    throughput(&mut table, size, &ways, &behind.key).await?;
    if nginx.is_none() {
        table.row(["compared with nginx", "", "nginx is not installed", "", ""]);
    }
    sockets(&mut table, size, &service).await?;
    table.print()?;
    Ok(())
}

/// As many as the system lets us: a socket here is one in this program, two in the service, and one in the stub.
fn allow_open_files() -> anyhow::Result<()> {
    let now = getrlimit(Resource::Nofile);
    let most = Rlimit {
        current: now.maximum,
        maximum: now.maximum,
    };
    Ok(setrlimit(Resource::Nofile, most)?)
}

/// A sandbox, and how it is reached without the service.
struct UpstreamServer {
    address: SocketAddr,
    key: String,
}

impl UpstreamServer {
    async fn start(service: &Service, user: &str) -> anyhow::Result<Self> {
        let user: Client = service.user(user);
        let _ = user.get("/api/v1/settings").await;
        user.use_model("openai/m", "http://127.0.0.1:9/v1", "sk-bench")
            .await;
        let conversation = user.converse("hello").await;
        let url = conversation.conversation_url.context("it runs")?;
        let found = reqwest::Url::parse(&url)?.socket_addrs(|| None)?;
        Ok(Self {
            address: *found.first().context("an address")?,
            key: conversation.session_api_key.context("it runs")?,
        })
    }
}

/// One of the ways to the sandbox.
struct GatewayPath {
    name: &'static str,
    address: SocketAddr,
    /// Processes in between.
    pids: Vec<u32>,
}

impl GatewayPath {
    fn new(name: &'static str, address: SocketAddr, pids: Vec<u32>) -> Self {
        Self {
            name,
            address,
            pids,
        }
    }

    fn aim(&self, path: &str, key: &str) -> LoadTarget {
        let request = wire::request("GET", path, &[wire::key(key)], "");
        LoadTarget::same(self.address, request)
    }

    fn processor_time(&self) -> Duration {
        let times = self.pids.iter().filter_map(|pid| processor_time(*pid));
        times.sum()
    }
}

/// One request after the other, each way in turn.
async fn latency(
    table: &mut Table,
    size: &BenchmarkSize,
    ways: &[GatewayPath],
    key: &str,
) -> anyhow::Result<()> {
    let mut found: Vec<Vec<Load>> = ways.iter().map(|_| Vec::new()).collect();
    for turn in 0..=TURNS {
        for (way, found) in ways.iter().zip(&mut found) {
            let load = way.aim(SMALL, key).in_turn(size.requests).await?;
            // The first turn opens connections and fills caches.
            if turn > 0 {
                found.push(load);
            }
        }
    }
    let at = |which: usize, percent| median(found[which].iter().map(|load| load.at(percent)));
    let summary = |which| {
        format!(
            "p50 {:.3} ms, p99 {:.3} ms",
            at(which, 50.0),
            at(which, 99.0)
        )
    };
    for (which, way) in ways.iter().enumerate() {
        if which == 0 {
            table.row(["a small request, directly", &summary(which), "", "", ""]);
            continue;
        }
        let added = |percent| at(which, percent) - at(0, percent);
        let added = format!("added p50 {:.3} ms, p99 {:.3} ms", added(50.0), added(99.0));
        let target = match way.name {
            SERVICE => "added p50 ≤ 0.5 ms, p99 ≤ 3 ms",
            _ => "",
        };
        table.row([
            &format!("… {}", way.name),
            &summary(which),
            &added,
            "",
            target,
        ]);
    }
    Ok(())
}

/// As fast as it goes, each way in turn; and what the process in between needs for a request.
async fn throughput(
    table: &mut Table,
    size: &BenchmarkSize,
    ways: &[GatewayPath],
    key: &str,
) -> anyhow::Result<()> {
    for (what, path, connections) in [
        ("small requests", SMALL, CONNECTIONS),
        ("downloads of 16 MiB", LARGE, 4),
    ] {
        let mut rates: Vec<Vec<f64>> = ways.iter().map(|_| Vec::new()).collect();
        let mut costs = rates.clone();
        for _ in 0..TURNS {
            for (which, way) in ways.iter().enumerate() {
                let before = way.processor_time();
                let load = way.aim(path, key).closed(connections, size.turn).await?;
                let spent = way.processor_time().saturating_sub(before).as_secs_f64();
                rates[which].push(load.per_second());
                costs[which].push(spent * 1e6 / f64::from(load.count()));
            }
        }
        let rates: Vec<f64> = rates.into_iter().map(median).collect();
        let costs: Vec<f64> = costs.into_iter().map(median).collect();
        for (which, way) in ways.iter().enumerate() {
            let cost = match which {
                0 => String::new(),
                _ => format!(", {:.0} µs of processor each", costs[which]),
            };
            let summary = format!("{:.0} a second{cost}", rates[which]);
            let what = format!("{what}, {connections} connections, {}", way.name);
            table.row([&what, &summary, "", "", ""]);
            if way.name != SERVICE {
                continue;
            }
            let nginxes = ways.iter().enumerate().skip(which + 1);
            for (other, nginx) in nginxes {
                let summary = format!("{:.0} a second, {:.0} µs", rates[other], costs[other]);
                let ratio = format!("{:.2}", rates[which] / rates[other]);
                let target = if nginx.name == NGINX { "≥ 0.8" } else { "" };
                let what = format!("… of what goes {}", nginx.name);
                table.row([&what, "", &summary, &ratio, target]);
            }
        }
    }
    Ok(())
}

/// Many open sockets of several users, and a word over each.
async fn sockets(table: &mut Table, size: &BenchmarkSize, service: &Service) -> anyhow::Result<()> {
    let memory = || resident(service.pid()).context("the service runs");
    let before = memory()?;
    let mut open = Vec::new();
    for user in 0..size.users {
        let behind = UpstreamServer::start(service, &format!("user-{user}")).await?;
        for _ in 0..size.sockets_per_user {
            open.push(socket(service.address(), &behind.key).await?);
        }
    }
    let opened = memory()?;
    let words = open.iter_mut().map(|connection| async {
        let mut back = [0; 5];
        connection.stream().write_all(b"hello").await?;
        connection.stream().read_exact(&mut back).await?;
        ensure!(&back == b"hello", "{back:?} came back");
        anyhow::Ok(())
    });
    try_join_all(words).await?;
    let after = memory()?;
    let count = open.len();
    let with = format!(
        "{:.1} MB before, {:.1} MB once they were open",
        megabytes(before),
        megabytes(opened)
    );
    table.row([
        &format!("{count} open sockets, after a word over each"),
        &format!("{:.1} MB", megabytes(after)),
        &with,
        "",
        "< 150 MB with 2,000",
    ]);
    Ok(())
}

async fn socket(address: SocketAddr, key: &str) -> anyhow::Result<wire::Connection> {
    let mut connection = wire::Connection::open(address).await?;
    let headers = [
        wire::key(key),
        "Connection: Upgrade".to_owned(),
        "Upgrade: websocket".to_owned(),
        "Sec-WebSocket-Version: 13".to_owned(),
        format!("Sec-WebSocket-Key: {SOCKET_KEY}"),
    ];
    let request = wire::request(
        "GET",
        "/sockets/events/00000000000000000000000000000001",
        &headers,
        "",
    );
    let answer = connection.ask(&request).await?;
    ensure!(
        answer.status == 101,
        "a socket is answered {}",
        answer.status
    );
    Ok(connection)
}

/// What nginx writes of the requests.
#[derive(Clone, Copy)]
enum AccessLog {
    NoLog,
    /// A line at once, in the format that it has by itself.
    OfEach,
}

/// Forwards everything to one server. Ended with the value.
struct NginxServer {
    child: Child,
    address: SocketAddr,
    _held: TcpSocket,
    _dir: tempfile::TempDir,
}

impl NginxServer {
    /// `None` where it is not installed.
    fn start(behind: SocketAddr, log: AccessLog) -> anyhow::Result<Option<Self>> {
        let places = ["/usr/sbin/nginx", "/usr/bin/nginx", "/usr/local/sbin/nginx"];
        let Some(program) = places.iter().find(|it| Path::new(it).exists()) else {
            return Ok(None);
        };
        // Bound and not listening: the system gives the port to nobody else, and nginx asks for it in the same way.
        let held = TcpSocket::new_v4()?;
        held.set_reuseaddr(true)?;
        held.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let address = held.local_addr()?;
        let dir = tempfile::tempdir()?;
        let file = dir.path().join("nginx.conf");
        fs::write(&file, configuration(dir.path(), address, behind, log))?;
        let child = Command::new(program)
            .arg("-p")
            .arg(dir.path())
            .arg("-c")
            .arg(&file)
            .arg("-e")
            .arg(dir.path().join("error.log"))
            .stdin(Stdio::null())
            .spawn()?;
        Ok(Some(Self {
            child,
            address,
            _held: held,
            _dir: dir,
        }))
    }

    async fn answers(&self) {
        // It listens before its workers are there, whose processor time is counted.
        wait_for("nginx and its workers", Duration::from_secs(30), || async {
            wire::Connection::open(self.address).await.ok()?;
            (children_of(self.child.id()).len() == 2).then_some(())
        })
        .await;
    }

    fn pids(&self) -> Vec<u32> {
        let mut pids = children_of(self.child.id());
        pids.push(self.child.id());
        pids
    }
}

impl Drop for NginxServer {
    fn drop(&mut self) {
        // Its workers end with it, if it is asked to end.
        let pid = i32::try_from(self.child.id()).ok();
        if let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let _ = self.child.wait();
    }
}

/// As many workers as the service has on two cores; kept connections, headers that a proxy sets, and nothing on disk but the log.
fn configuration(dir: &Path, listen: SocketAddr, behind: SocketAddr, log: AccessLog) -> String {
    let log = match log {
        NoLog => "off".to_owned(),
        OfEach => format!("{}/access.log", dir.display()),
    };
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|it| format!("{it}_temp_path {}/{it};\n", dir.display()))
        .concat();
    format!(
        "worker_processes 2;
daemon off;
pid {dir}/nginx.pid;
events {{ worker_connections 4096; }}
http {{
    access_log {log};
    {temporary}
    keepalive_requests 100000000;
    proxy_max_temp_file_size 0;
    upstream behind {{ server {behind}; keepalive {CONNECTIONS}; keepalive_requests 100000000; }}
    server {{
        listen {listen};
        location / {{
            proxy_pass http://behind;
            proxy_http_version 1.1;
            proxy_set_header Connection \"\";
            proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
            proxy_set_header X-Forwarded-Proto $scheme;
            proxy_set_header X-Forwarded-Host $http_host;
            proxy_set_header X-Request-Id $request_id;
        }}
    }}
}}
",
        dir = dir.display()
    )
}
