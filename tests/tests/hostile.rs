//! Ten thousand hostile requests (`cargo xtask soak` sends more), every operation about another user's objects, and bytes that
//! are no request.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use acceptance::hostile::{Options, run, tenancy};
use acceptance::{Service, Stub, print_line};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

/// Generous: what takes longer does not come.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);
/// Of the line in the log about a connection that does not speak HTTP.
const MALFORMED: &str = "closed a connection that did not speak HTTP";
/// Lines of that kind in a second.
const MAX_LINES_PER_SECOND: u64 = 3;

#[tokio::test]
async fn hostile_requests_get_answers_that_are_documented_and_change_nothing_else() {
    let stub = Stub::new();
    let builder = Service::builder()
        .stub(&stub)
        .env("WORKSPACE_SANDBOX__MAX_RUNNING_PER_USER", "2")
        // A log line for each request would be most of the run.
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
async fn every_operation_keeps_the_objects_of_a_user_from_all_others() {
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

/// The status of the answer to these bytes, which is read to its end: no reset takes it away.
async fn status_of(address: SocketAddr, bytes: &[u8]) -> u16 {
    let talk = async {
        let (mut reader, mut writer) = TcpStream::connect(address).await?.into_split();
        let mut answer = Vec::new();
        // The service may end its direction before it has read everything.
        let (written, read) =
            tokio::join!(writer.write_all(bytes), reader.read_to_end(&mut answer));
        written?;
        read?;
        std::io::Result::Ok(String::from_utf8_lossy(&answer).into_owned())
    };
    let answer = timeout(WAIT_TIMEOUT, talk)
        .await
        .expect("the connection ends");
    let answer = answer.expect("it is not reset");
    let status = answer.split(' ').nth(1).and_then(|it| it.parse().ok());
    status.unwrap_or_else(|| panic!("no status in {answer:?}"))
}

/// docs/reference/limits.md.
async fn heads_have_the_documented_limits(address: SocketAddr) {
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
            status_of(address, request.as_bytes()).await,
            status,
            "{what}"
        );
    }
}

#[tokio::test]
async fn what_is_no_request_gets_an_answer_and_few_lines_in_the_log() {
    let stub = Stub::new();
    let builder = Service::builder().stub(&stub);
    let service = builder.env("WORKSPACE_LOG__LEVEL", "debug").start().await;
    let began = Instant::now();
    heads_have_the_documented_limits(service.address()).await;
    for _ in 0..300 {
        assert_eq!(status_of(service.address(), b"\0\r\n\r\n").await, 400);
    }
    // One that tells of those that were left out, in another second.
    let told = async {
        loop {
            status_of(service.address(), b"\0\r\n\r\n").await;
            let log = service.log();
            let left_out = |line: &str| line.contains(MALFORMED) && !line.contains("left_out=0");
            if log.lines().any(left_out) {
                return log;
            }
            sleep(Duration::from_millis(50)).await;
        }
    };
    let log = timeout(WAIT_TIMEOUT, told)
        .await
        .expect("it is told how many");
    let lines = log.lines().filter(|line| line.contains(MALFORMED));
    let lines: Vec<&str> = lines.collect();
    let most = MAX_LINES_PER_SECOND * (began.elapsed().as_secs() + 2);
    assert!(lines.len() as u64 <= most, "{} lines", lines.len());
    assert!(
        lines
            .iter()
            .all(|it| it.contains("client.address=127.0.0.1"))
    );
    assert!(!log.contains("ERROR"), "{log}");
}
