//! A stop that announces itself, a configuration that is read again, and what the service manager hears of both.

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

const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// What systemd is to a service.
struct ServiceManager {
    socket: UnixDatagram,
    dir: TempDir,
}

impl ServiceManager {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        let socket = UnixDatagram::bind(dir.path().join("notify")).expect("a socket");
        socket
            .set_nonblocking(true)
            .expect("a socket can be told not to wait");
        Self { socket, dir }
    }

    fn address(&self) -> String {
        self.dir.path().join("notify").display().to_string()
    }

    /// The next message begins so.
    async fn hears(&self, beginning: &str) {
        let message = wait_for(beginning, WAIT_TIMEOUT, || async {
            let mut said = [0; 512];
            let length = self.socket.recv(&mut said).ok()?;
            Some(String::from_utf8_lossy(&said[..length]).into_owned())
        })
        .await;
        assert!(message.starts_with(beginning), "{message}");
    }
}

fn send(service: &Service, signal: Signal) {
    let pid = i32::try_from(service.pid()).ok().and_then(Pid::from_raw);
    kill_process(pid.expect("a child has a pid"), signal).expect("it runs");
}

/// It serves on, so that nobody is turned away who does not know yet, and ends at once when it is told again.
#[tokio::test]
async fn a_service_that_is_to_stop_says_so_first_and_is_hurried_by_a_second_signal() {
    let manager = ServiceManager::new();
    let mut service = Service::builder()
        .env("NOTIFY_SOCKET", &manager.address())
        // Longer than any stop may take.
        .env("WORKSPACE_HTTP__DRAIN_DELAY", "1h")
        .start()
        .await;
    manager.hears("READY=1").await;
    let user = service.admin();
    assert_eq!(user.get("/ready").await.status, 200);
    send(&service, Signal::TERM);
    manager.hears("STOPPING=1\nEXTEND_TIMEOUT_USEC=").await;
    let ready = wait_for("a service that is not ready", WAIT_TIMEOUT, || async {
        let ready = user.try_call(Method::GET, "/ready", None).await;
        ready.ok().filter(|answer| answer.status == 503)
    })
    .await;
    assert_eq!(ready.body["detail"], "Not ready: draining");
    assert_eq!(ready.body["checks"]["store"], "ok");
    // Not through a proxy: it has connections of its own.
    let direct = Client::new(format!("http://{}", service.address()), user.key());
    let read = direct.get("/api/v1/app-conversations/search").await;
    assert_eq!(read.status, 200, "{}", read.text);
    let connection = read.headers.get("connection");
    assert_eq!(connection.expect("it says so"), "close");
    service.stop().await;
}

/// Also while requests may end: nobody waits for the last of them who has said twice that it is to end.
#[tokio::test]
async fn a_second_signal_cuts_off_what_is_under_way() {
    let mut service = Service::builder()
        // Longer than any stop may take.
        .env("WORKSPACE_HTTP__DRAIN", "1h")
        .start()
        .await;
    let connecting = TcpStream::connect(service.address()).await;
    let mut stream = connecting.expect("it listens");
    let head = format!(
        "POST /api/v1/app-conversations HTTP/1.1\r\nHost: x\r\nX-Session-API-Key: {}\r\nContent-Type: application/json\r\n\
         Content-Length: 100\r\nExpect: 100-continue\r\n\r\n",
        service.admin().key()
    );
    stream.write_all(head.as_bytes()).await.expect("it reads");
    let (mut said, go_on) = ([0; 25], b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.read_exact(&mut said).await.expect("it answers");
    assert_eq!(&said, go_on, "the request is under way");
    send(&service, Signal::TERM);
    wait_until("requests that may end", WAIT_TIMEOUT, || {
        service.log().contains("waiting for requests in progress")
    })
    .await;
    service.stop().await;
    // Its body never came; had it been waited for, there would be an answer that says so.
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
    let rest = String::from_utf8_lossy(&rest);
    assert!(rest.is_empty(), "{rest}");
}

/// What can be changed is, what cannot is named, and of a file with a fault nothing is taken.
#[tokio::test]
async fn the_configuration_is_read_again() {
    let manager = ServiceManager::new();
    let file = manager.dir.path().join("service.toml");
    let write = |text: &str| fs::write(&file, text).expect("the file is writable");
    write("");
    let service = Service::builder()
        .env("NOTIFY_SOCKET", &manager.address())
        .env("WORKSPACE_CONFIG", &file.display().to_string())
        // Not set.
        .env("WORKSPACE_LOG__LEVEL", "")
        .env("WORKSPACE_HTTP__REQUESTS_PER_SECOND", "")
        .start()
        .await;
    manager.hears("READY=1").await;
    let user = service.admin();
    let start = async || user.post("/api/v1/sandboxes", &serde_json::json!({})).await;
    let reload = async |text: &str, told: &str| {
        write(text);
        send(&service, Signal::HUP);
        manager.hears("RELOADING=1").await;
        manager.hears("READY=1").await;
        wait_until(told, WAIT_TIMEOUT, || service.log().contains(told)).await;
    };

    let fault = "[sandbox]\nmax_running = 0\nmax_runing_per_user = 0\n";
    reload(fault, "was not reloaded, and nothing has changed: ").await;
    assert!(service.log().contains("max_runing_per_user"), "its name");
    let _ = start().await.ok();

    let changed = "[sandbox]\nmax_running_per_user = 0\n[http]\nrequests_per_second = 7\nworkers = 3\n[log]\nlevel = 'debug'\n";
    let told =
        "configuration reloaded: http.requests_per_second, log.level, sandbox.max_running_per_user";
    reload(changed, told).await;
    let advice = "need a restart of the service: http.workers";
    wait_until(advice, WAIT_TIMEOUT, || service.log().contains(advice)).await;
    assert_eq!(start().await.status, 429, "there is no room");
    wait_until("a line at debug", WAIT_TIMEOUT, || {
        service.log().contains("DEBUG")
    })
    .await;
    let limit = user.get("/api/v1/app-conversations/search").await;
    let limit = limit.headers.get("ratelimit-limit").cloned();
    assert_eq!(limit.expect("it is told"), "7");

    // The same keys, back at their defaults.
    write("");
    send(&service, Signal::HUP);
    manager.hears("RELOADING=1").await;
    manager.hears("READY=1").await;
    let _ = start().await.ok();
}
