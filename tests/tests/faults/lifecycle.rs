//! Draining, stopping and reloading, and the notifications that the service manager receives.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use acceptance::wait::{wait_for, wait_until};
use acceptance::{Client, Service};
use reqwest::Method;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const WAIT_TIMEOUT: Duration = Duration::from_secs(180);

/// Receives notifications as systemd does.
struct ServiceManager {
    socket: UnixDatagram,
    dir: TempDir,
}

impl ServiceManager {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("cannot create a temporary directory");
        let socket = UnixDatagram::bind(dir.path().join("notify"))
            .expect("cannot create the notification socket");
        socket
            .set_nonblocking(true)
            .expect("cannot make the socket non-blocking");
        Self { socket, dir }
    }

    fn address(&self) -> String {
        self.dir.path().join("notify").display().to_string()
    }

    /// Asserts that the next notification begins with this text.
    async fn expect_notification(&self, beginning: &str) {
        let message = wait_for(beginning, WAIT_TIMEOUT, || async {
            let mut received = [0; 512];
            let length = self.socket.recv(&mut received).ok()?;
            Some(String::from_utf8_lossy(&received[..length]).into_owned())
        })
        .await;
        assert!(message.starts_with(beginning), "{message}");
    }
}

fn send_signal(service: &Service, signal: Signal) {
    let pid = i32::try_from(service.pid()).ok().and_then(Pid::from_raw);
    kill_process(pid.expect("the service has no process id"), signal)
        .expect("the service does not run");
}

/// The service reports that it is not ready and keeps serving, so that balancers can notice. A second signal ends it at once.
#[tokio::test]
async fn first_signal_drains_and_second_signal_stops_at_once() {
    let manager = ServiceManager::new();
    let mut service = Service::builder()
        .env("NOTIFY_SOCKET", &manager.address())
        // Longer than any stop may take: only the second signal ends the wait.
        .env("WORKSPACE_HTTP__DRAIN_DELAY", "1h")
        .start()
        .await;
    manager.expect_notification("READY=1").await;
    let user = service.admin();
    assert_eq!(user.get("/ready").await.status, 200);
    send_signal(&service, Signal::TERM);
    manager
        .expect_notification("STOPPING=1\nEXTEND_TIMEOUT_USEC=")
        .await;
    let ready = wait_for("a service that is not ready", WAIT_TIMEOUT, || async {
        let ready = user.try_call(Method::GET, "/ready", None).await;
        ready.ok().filter(|answer| answer.status == 503)
    })
    .await;
    assert_eq!(ready.body["detail"], "Not ready: draining");
    assert_eq!(ready.body["checks"]["store"], "ok");
    // Called directly: a proxy has connections of its own.
    let direct = Client::new(format!("http://{}", service.address()), user.key());
    let read = direct.get("/api/v1/app-conversations/search").await;
    assert_eq!(read.status, 200, "{}", read.text);
    let connection = read.headers.get("connection");
    assert_eq!(
        connection.expect("the response has no Connection header"),
        "close"
    );
    service.stop().await;
}

/// A second signal during the drain does not wait for requests in progress.
#[tokio::test]
async fn second_signal_aborts_requests_in_progress() {
    let mut service = Service::builder()
        // Longer than any stop may take: only the second signal ends the wait.
        .env("WORKSPACE_HTTP__DRAIN", "1h")
        .start()
        .await;
    let connecting = TcpStream::connect(service.address()).await;
    let mut stream = connecting.expect("cannot connect to the service");
    let head = format!(
        "POST /api/v1/app-conversations HTTP/1.1\r\nHost: x\r\nX-Session-API-Key: {}\r\nContent-Type: application/json\r\n\
         Content-Length: 100\r\nExpect: 100-continue\r\n\r\n",
        service.admin().key()
    );
    stream
        .write_all(head.as_bytes())
        .await
        .expect("cannot send the request head");
    let (mut received, go_on) = ([0; 25], b"HTTP/1.1 100 Continue\r\n\r\n");
    stream
        .read_exact(&mut received)
        .await
        .expect("no interim response arrives");
    assert_eq!(&received, go_on, "the request must be in progress");
    send_signal(&service, Signal::TERM);
    wait_until("the wait for requests in progress", WAIT_TIMEOUT, || {
        service.log().contains("waiting for requests in progress")
    })
    .await;
    service.stop().await;
    // The body is never sent. A service that had waited for it would have answered with an error.
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
    let rest = String::from_utf8_lossy(&rest);
    assert!(rest.is_empty(), "{rest}");
}

/// Settings that can change are applied, others are named, and an invalid file changes nothing.
#[tokio::test]
async fn sighup_reloads_the_configuration() {
    let manager = ServiceManager::new();
    let file = manager.dir.path().join("service.toml");
    let write = |text: &str| fs::write(&file, text).expect("cannot write the configuration");
    write("");
    let service = Service::builder()
        .env("NOTIFY_SOCKET", &manager.address())
        .env("WORKSPACE_CONFIG", &file.display().to_string())
        // An empty variable counts as not set.
        .env("WORKSPACE_LOG__LEVEL", "")
        .env("WORKSPACE_HTTP__REQUESTS_PER_SECOND", "")
        .start()
        .await;
    manager.expect_notification("READY=1").await;
    let user = service.admin();
    let start = async || user.post("/api/v1/sandboxes", &serde_json::json!({})).await;
    let reload = async |text: &str, expected: &str| {
        write(text);
        send_signal(&service, Signal::HUP);
        manager.expect_notification("RELOADING=1").await;
        manager.expect_notification("READY=1").await;
        wait_until(expected, WAIT_TIMEOUT, || service.log().contains(expected)).await;
    };

    let invalid = "[sandbox]\nmax_running = 0\nmax_runing_per_user = 0\n";
    reload(invalid, "was not reloaded, and nothing has changed: ").await;
    assert!(
        service.log().contains("max_runing_per_user"),
        "the log must name the unknown setting"
    );
    let _ = start().await.ok();

    let changed = "[sandbox]\nmax_running_per_user = 0\n[http]\nrequests_per_second = 7\nworkers = 3\n[log]\nlevel = 'debug'\n";
    let expected =
        "configuration reloaded: http.requests_per_second, log.level, sandbox.max_running_per_user";
    reload(changed, expected).await;
    let restart_hint = "need a restart of the service: http.workers";
    wait_until(restart_hint, WAIT_TIMEOUT, || {
        service.log().contains(restart_hint)
    })
    .await;
    assert_eq!(start().await.status, 429, "the new limit must apply");
    wait_until("a log line of level DEBUG", WAIT_TIMEOUT, || {
        service.log().contains("DEBUG")
    })
    .await;
    let limit = user.get("/api/v1/app-conversations/search").await;
    let limit = limit.headers.get("ratelimit-limit").cloned();
    assert_eq!(limit.expect("the response has no RateLimit-Limit"), "7");

    // The same settings return to their defaults.
    write("");
    send_signal(&service, Signal::HUP);
    manager.expect_notification("RELOADING=1").await;
    manager.expect_notification("READY=1").await;
    let _ = start().await.ok();
}
