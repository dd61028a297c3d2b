//! Ten thousand hostile requests (`cargo xtask soak` sends more), every operation on another user's objects, and malformed
//! requests.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use acceptance::hostile::{Options, run, tenancy};
use acceptance::wait::within;
use acceptance::{Service, Stub, print_line};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::sleep;

const WAIT_TIMEOUT: Duration = Duration::from_secs(180);
/// The log line about a connection that does not speak HTTP.
const MALFORMED: &str = "closed a connection that did not speak HTTP";
/// Log lines about such connections in one second.
const MAX_LINES_PER_SECOND: u64 = 3;

#[tokio::test]
async fn hostile_requests_get_documented_responses_and_have_no_side_effects() {
    let stub = Stub::new();
    let builder = Service::builder()
        .stub(&stub)
        .env("WORKSPACE_SANDBOX__MAX_RUNNING_PER_USER", "2")
        // Logging every request would take most of the run.
        .env("WORKSPACE_LOG__LEVEL", "warn");
    let mut service = builder.start().await;
    let options = Options::from_environment();
    let report = run(&mut service, options).await;
    print_line(&report.summary());
    assert!(
        report.failures.is_empty(),
        "{} failures with seed {}:\n\n{}",
        report.failures.len(),
        options.seed,
        report.failures.join("\n\n")
    );
    if let Some(requests) = options.requests.filter(|_| options.limit.is_none()) {
        assert_eq!(report.sent, requests);
    }
}

#[tokio::test]
async fn no_operation_reaches_objects_of_another_user() {
    let stub = Stub::new();
    let service = Service::builder()
        .stub(&stub)
        .env("WORKSPACE_LOG__LEVEL", "warn")
        .env("WORKSPACE_HTTP__WRONG_KEYS_PER_SECOND", "0")
        // A provider of git repositories that refuses connections.
        .env("WORKSPACE_GIT__ALLOW_PRIVATE_HOSTS", "127.0.0.1")
        .start()
        .await;
    let failures = tenancy::check(&service).await;
    let count = failures.len();
    assert!(
        failures.is_empty(),
        "{count} failures:\n\n{}",
        failures.join("\n\n")
    );
}

/// Sends bytes and returns the status of the response. Reads to the end of the connection, which must not be a reset.
async fn status_of_response(address: SocketAddr, bytes: &[u8]) -> u16 {
    let talk = async {
        let (mut reader, mut writer) = TcpStream::connect(address).await?.into_split();
        let mut answer = Vec::new();
        // The service may close its side before it has read everything.
        let (written, read) =
            tokio::join!(writer.write_all(bytes), reader.read_to_end(&mut answer));
        written?;
        read?;
        std::io::Result::Ok(String::from_utf8_lossy(&answer).into_owned())
    };
    let answer = within("the end of the connection", WAIT_TIMEOUT, talk).await;
    let answer =
        answer.unwrap_or_else(|error| panic!("the connection was not closed in order: {error}"));
    let status = answer.split(' ').nth(1).and_then(|it| it.parse().ok());
    status.unwrap_or_else(|| panic!("no status in {answer:?}"))
}

/// The limits of docs/reference/limits.md.
async fn assert_head_limits(address: SocketAddr) {
    let head = |target: &str, headers: &str| {
        format!("GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n")
    };
    let lines = |count: usize| head("/alive", &"A: b\r\n".repeat(count - 2));
    let sized = |bytes: usize| {
        let line = |size: usize| format!("X: {}\r\n", "y".repeat(size));
        let rest = head("/alive", &line(0)).len();
        head("/alive", &line(bytes - rest))
    };
    let target = |bytes: usize| head(&format!("/alive?{}", "a".repeat(bytes - 7)), "");
    for (what, request, status) in [
        ("96 lines", lines(96), 200),
        ("97 lines", lines(97), 431),
        ("5,000 lines", lines(5_000), 431),
        ("less than 128 KiB", sized(128 * 1024 - 1), 200),
        ("more than 128 KiB", sized(144 * 1024), 431),
        ("300 KiB", sized(300 * 1024), 431),
        ("a long target", target(65_534), 200),
        ("too long a target", target(65_535), 400),
        ("no host", "GET / HTTP/1.1\r\n\r\n".to_owned(), 400),
        (
            "TLS",
            "\x16\x03\x01\x02\0\x01\0\x01\x03\x03".repeat(20),
            400,
        ),
    ] {
        assert_eq!(
            status_of_response(address, request.as_bytes()).await,
            status,
            "{what}"
        );
    }
}

#[tokio::test]
async fn malformed_requests_are_answered_and_logged_at_a_limited_rate() {
    let stub = Stub::new();
    let builder = Service::builder().stub(&stub);
    let service = builder.env("WORKSPACE_LOG__LEVEL", "debug").start().await;
    let began = Instant::now();
    assert_head_limits(service.address()).await;
    for _ in 0..300 {
        assert_eq!(
            status_of_response(service.address(), b"\0\r\n\r\n").await,
            400
        );
    }
    // The line that counts the suppressed ones comes in another second.
    let flooded = async {
        loop {
            status_of_response(service.address(), b"\0\r\n\r\n").await;
            let log = service.log();
            let left_out = |line: &str| line.contains(MALFORMED) && !line.contains("left_out=0");
            if log.lines().any(left_out) {
                return log;
            }
            sleep(Duration::from_millis(50)).await;
        }
    };
    let log = within("a line that counts suppressed lines", WAIT_TIMEOUT, flooded).await;
    let lines = log.lines().filter(|line| line.contains(MALFORMED));
    let lines: Vec<&str> = lines.collect();
    let max_lines = MAX_LINES_PER_SECOND * (began.elapsed().as_secs() + 2);
    assert!(
        lines.len() as u64 <= max_lines,
        "the log has {} lines about malformed requests, more than {max_lines}",
        lines.len()
    );
    assert!(
        lines
            .iter()
            .all(|it| it.contains("client.address=127.0.0.1"))
    );
    assert!(!log.contains("ERROR"), "{log}");
}
