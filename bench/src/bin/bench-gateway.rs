//! Cost of the gateway: `cargo xtask bench --gateway`. Prints a table; `bench/results` has earlier ones. `--short` uses small
//! numbers and only checks that the benchmark works.
//!
//! The upstream agent server is the stub. Four paths to it take turns: directly, through the service, and, if nginx is installed,
//! through two nginx servers with as many workers: one without a log, and one that logs each request like the service. All of
//! them and the benchmark share the machine's cores.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use acceptance::processes::{children_of, processor_time, raise_file_limit, resident_bytes};
use acceptance::stub::traffic::SOCKET_KEY;
use acceptance::wait::wait_for;
use acceptance::{Client, Service, Stub};
use anyhow::{Context as _, ensure};
use benchmarks::load::{Load, LoadTarget};
use benchmarks::table::Table;
use benchmarks::{is_short, median, megabytes, wire};
use futures::future::try_join_all;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;

use AccessLog::{EveryRequest, Off};

const CONNECTIONS: usize = 32;
const ROUNDS: usize = 5;
/// A small response without work.
const SMALL_RESPONSE: &str = "/server_info";
const THROUGH_SERVICE: &str = "through the service";
/// The nginx that the target compares with.
const THROUGH_NGINX: &str = "through nginx without a log";
/// Logs each request, as the service does.
const THROUGH_LOGGING_NGINX: &str = "through nginx with its access log";
/// 16 MiB.
const LARGE_DOWNLOAD: &str = "/api/file/bytes/16777216";

/// Amounts of work.
struct BenchmarkSize {
    requests: u32,
    round_time: Duration,
    users: usize,
    sockets_per_user: usize,
}

const FULL: BenchmarkSize = BenchmarkSize {
    requests: 2_000,
    round_time: Duration::from_secs(3),
    users: 4,
    sockets_per_user: 500,
};

const SHORT: BenchmarkSize = BenchmarkSize {
    requests: 20,
    round_time: Duration::from_millis(100),
    users: 2,
    sockets_per_user: 5,
};

#[actix_web::main]
async fn main() -> anyhow::Result<()> {
    let size = if is_short()? { &SHORT } else { &FULL };
    raise_file_limit();
    let stub = Stub::new();
    let service = Service::builder()
        .stub(&stub)
        .env("WORKSPACE_SANDBOX__DIRECT_URLS", "true")
        // Sessions and direct addresses exclude each other.
        .env("WORKSPACE_AUTH__MODE", "api_key")
        .env("WORKSPACE_LOG__LEVEL", "info")
        .start()
        .await;
    let upstream = UpstreamServer::start(&service, "first").await?;
    let nginx = NginxServer::start(upstream.address, Off)?;
    let logging = NginxServer::start(upstream.address, EveryRequest)?;
    let mut paths = vec![
        GatewayPath::new("directly", upstream.address, Vec::new()),
        GatewayPath::new(THROUGH_SERVICE, service.address(), vec![service.pid()]),
    ];
    for (name, nginx) in [(THROUGH_NGINX, &nginx), (THROUGH_LOGGING_NGINX, &logging)] {
        if let Some(nginx) = nginx {
            nginx.wait_until_ready().await;
            paths.push(GatewayPath::new(name, nginx.address, nginx.pids()));
        }
    }
    let mut table = Table::default();
    latency(&mut table, size, &paths, &upstream.key).await?;
    throughput(&mut table, size, &paths, &upstream.key).await?;
    if nginx.is_none() {
        table.row(["compared with nginx", "", "nginx is not installed", "", ""]);
    }
    sockets(&mut table, size, &service).await?;
    table.print()?;
    Ok(())
}

/// A sandbox's agent server, at its own address.
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
        let url = conversation
            .conversation_url
            .context("the conversation does not run")?;
        let found = reqwest::Url::parse(&url)?.socket_addrs(|| None)?;
        Ok(Self {
            address: *found.first().context("the URL has no address")?,
            key: conversation
                .session_api_key
                .context("the conversation does not run")?,
        })
    }
}

/// A path to the agent server.
struct GatewayPath {
    name: &'static str,
    address: SocketAddr,
    /// Processes on the path.
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

    fn load_target(&self, path: &str, key: &str) -> LoadTarget {
        let request = wire::request("GET", path, &[wire::key_header(key)], "");
        LoadTarget::same(self.address, request)
    }

    fn processor_time(&self) -> Duration {
        let times = self.pids.iter().filter_map(|pid| processor_time(*pid));
        times.sum()
    }
}

/// Measures one request after the other, on each path in turn.
async fn latency(
    table: &mut Table,
    size: &BenchmarkSize,
    paths: &[GatewayPath],
    key: &str,
) -> anyhow::Result<()> {
    let mut found: Vec<Vec<Load>> = paths.iter().map(|_| Vec::new()).collect();
    for round in 0..=ROUNDS {
        for (gateway_path, found) in paths.iter().zip(&mut found) {
            let load = gateway_path
                .load_target(SMALL_RESPONSE, key)
                .run_in_turn(size.requests)
                .await?;
            // The first round opens connections and fills caches.
            if round > 0 {
                found.push(load);
            }
        }
    }
    let at =
        |which: usize, percent| median(found[which].iter().map(|load| load.percentile(percent)));
    let summary = |which| {
        format!(
            "p50 {:.3} ms, p99 {:.3} ms",
            at(which, 50.0),
            at(which, 99.0)
        )
    };
    for (which, gateway_path) in paths.iter().enumerate() {
        if which == 0 {
            table.row(["a small request, directly", &summary(which), "", "", ""]);
            continue;
        }
        let added = |percent| at(which, percent) - at(0, percent);
        let added = format!("added p50 {:.3} ms, p99 {:.3} ms", added(50.0), added(99.0));
        let target = match gateway_path.name {
            THROUGH_SERVICE => "added p50 ≤ 0.5 ms, p99 ≤ 3 ms",
            _ => "",
        };
        table.row([
            &format!("… {}", gateway_path.name),
            &summary(which),
            &added,
            "",
            target,
        ]);
    }
    Ok(())
}

/// Measures the throughput of each path in turn, and the processor time of its processes.
async fn throughput(
    table: &mut Table,
    size: &BenchmarkSize,
    paths: &[GatewayPath],
    key: &str,
) -> anyhow::Result<()> {
    for (what, path, connections) in [
        ("small requests", SMALL_RESPONSE, CONNECTIONS),
        ("downloads of 16 MiB", LARGE_DOWNLOAD, 4),
    ] {
        let mut rates: Vec<Vec<f64>> = paths.iter().map(|_| Vec::new()).collect();
        let mut costs = rates.clone();
        for _ in 0..ROUNDS {
            for (which, gateway_path) in paths.iter().enumerate() {
                let before = gateway_path.processor_time();
                let load = gateway_path
                    .load_target(path, key)
                    .run_closed_loop(connections, size.round_time)
                    .await?;
                let spent = gateway_path
                    .processor_time()
                    .saturating_sub(before)
                    .as_secs_f64();
                rates[which].push(load.per_second());
                costs[which].push(spent * 1e6 / f64::from(load.count()));
            }
        }
        let rates: Vec<f64> = rates.into_iter().map(median).collect();
        let costs: Vec<f64> = costs.into_iter().map(median).collect();
        for (which, gateway_path) in paths.iter().enumerate() {
            let cost = match which {
                0 => String::new(),
                _ => format!(", {:.0} µs of processor each", costs[which]),
            };
            let summary = format!("{:.0} a second{cost}", rates[which]);
            let what = format!("{what}, {connections} connections, {}", gateway_path.name);
            table.row([&what, &summary, "", "", ""]);
            if gateway_path.name != THROUGH_SERVICE {
                continue;
            }
            let nginxes = paths.iter().enumerate().skip(which + 1);
            for (other, nginx) in nginxes {
                let summary = format!("{:.0} a second, {:.0} µs", rates[other], costs[other]);
                let ratio = format!("{:.2}", rates[which] / rates[other]);
                let target = if nginx.name == THROUGH_NGINX {
                    "≥ 0.8"
                } else {
                    ""
                };
                let what = format!("… of what goes {}", nginx.name);
                table.row([&what, "", &summary, &ratio, target]);
            }
        }
    }
    Ok(())
}

/// Measures memory with many open WebSockets of several users, after an echo over each.
async fn sockets(table: &mut Table, size: &BenchmarkSize, service: &Service) -> anyhow::Result<()> {
    let memory = || resident_bytes(service.pid()).context("the service does not run");
    let before = memory()?;
    let mut open = Vec::new();
    for user in 0..size.users {
        let upstream = UpstreamServer::start(service, &format!("user-{user}")).await?;
        for _ in 0..size.sockets_per_user {
            open.push(open_socket(service.address(), &upstream.key).await?);
        }
    }
    let opened = memory()?;
    let echoes = open.iter_mut().map(|connection| async {
        let mut back = [0; 5];
        connection.stream().write_all(b"hello").await?;
        connection.stream().read_exact(&mut back).await?;
        ensure!(
            &back == b"hello",
            "the agent server echoed {back:?}, not `hello`"
        );
        anyhow::Ok(())
    });
    try_join_all(echoes).await?;
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

async fn open_socket(address: SocketAddr, key: &str) -> anyhow::Result<wire::Connection> {
    let mut connection = wire::Connection::open(address).await?;
    let headers = [
        wire::key_header(key),
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
    let answer = connection.exchange(&request).await?;
    ensure!(
        answer.status == 101,
        "the upgrade is refused with {}",
        answer.status
    );
    Ok(connection)
}

/// nginx's access log.
#[derive(Clone, Copy)]
enum AccessLog {
    Off,
    /// A line for every request, in the default format.
    EveryRequest,
}

/// Forwards everything to one server. Dropping it stops it.
struct NginxServer {
    child: Child,
    address: SocketAddr,
    _reserved_port: TcpSocket,
    _dir: tempfile::TempDir,
}

impl NginxServer {
    /// Starts nginx; `None` if it is not installed.
    fn start(upstream: SocketAddr, log: AccessLog) -> anyhow::Result<Option<Self>> {
        let program_paths = ["/usr/sbin/nginx", "/usr/bin/nginx", "/usr/local/sbin/nginx"];
        let Some(program) = program_paths.iter().find(|it| Path::new(it).exists()) else {
            return Ok(None);
        };
        // Bound and not listening, so that the system gives the port to no other program. nginx sets SO_REUSEADDR, too.
        let held = TcpSocket::new_v4()?;
        held.set_reuseaddr(true)?;
        held.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let address = held.local_addr()?;
        let dir = tempfile::tempdir()?;
        let file = dir.path().join("nginx.conf");
        fs::write(&file, nginx_config(dir.path(), address, upstream, log))?;
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
            _reserved_port: held,
            _dir: dir,
        }))
    }

    async fn wait_until_ready(&self) {
        // nginx listens before it starts its workers, whose processor time is measured.
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
        // After SIGTERM its workers end, too.
        let pid = i32::try_from(self.child.id()).ok();
        if let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let _ = self.child.wait();
    }
}

/// As many workers as the service has on two cores, kept connections, the usual headers of a proxy, and no files but the log.
fn nginx_config(dir: &Path, listen: SocketAddr, upstream: SocketAddr, log: AccessLog) -> String {
    let log = match log {
        Off => "off".to_owned(),
        EveryRequest => format!("{}/access.log", dir.display()),
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
    upstream behind {{ server {upstream}; keepalive {CONNECTIONS}; keepalive_requests 100000000; }}
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
