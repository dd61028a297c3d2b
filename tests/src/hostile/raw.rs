//! Connections with invalid or incomplete HTTP. Each must end soon without further input, with a refusal at worst.

use std::net::SocketAddr;
use std::time::Duration;

use futures::future::join_all;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::wire::{ExchangeError, parse, send};

/// The time that the service waits for a slow head or body, and a reserve for a busy machine.
const SLOW_REQUEST_TIMEOUT: Duration = Duration::from_secs(45);

/// Statuses of refusals, by the HTTP parser or by the service.
const REFUSALS: &[u16] = &[400, 401, 404, 405, 408, 411, 413, 415, 422, 431, 501, 505];

/// Runs all cases. Returns descriptions of the failures.
pub(super) async fn misuse(address: SocketAddr, key: &str) -> Vec<String> {
    let refused = cases(key).into_iter().map(|(name, bytes)| async move {
        match send(address, &bytes, SLOW_REQUEST_TIMEOUT).await {
            Err(ExchangeError::TimedOut(_)) => {
                Some(format!("{name}: the connection is kept for ever"))
            }
            Err(_) => None,
            Ok(received) => match parse(&received) {
                Ok((response, _)) if REFUSALS.contains(&response.status) => None,
                Ok((response, _)) => {
                    Some(format!("{name}: {} {}", response.status, response.text()))
                }
                Err(silence) => Some(format!("{name}: {silence:?}")),
            },
        }
    });
    let slow = slow(key).into_iter().map(|(name, bytes)| async move {
        let kept = keeps_open(address, &bytes).await;
        kept.then(|| format!("{name}: not ended within {SLOW_REQUEST_TIMEOUT:?}"))
    });
    let (refused, slow, pipeline, crowd) = futures::join!(
        join_all(refused),
        join_all(slow),
        pipelined(address, key),
        crowd(address)
    );
    let all = refused.into_iter().chain(slow).chain([pipeline, crowd]);
    all.flatten().collect()
}

type Case = (&'static str, Vec<u8>);

/// Complete requests that are wrong.
fn cases(key: &str) -> Vec<Case> {
    [bodies(key), heads(), no_http()].concat()
}

fn bodies(key: &str) -> Vec<Case> {
    let blank = " ".repeat(5_000_000);
    let cases = [
        (
            "two lengths",
            "Content-Length: 2\r\nContent-Length: 9",
            "{}",
        ),
        ("a negative length", "Content-Length: -1", "{}"),
        (
            "a huge length",
            "Content-Length: 99999999999999999999999",
            "{}",
        ),
        (
            "a length of 8 EiB",
            "Content-Length: 9223372036854775807",
            "{}",
        ),
        ("a length with a sign", "Content-Length: +2", "{}"),
        (
            "length and chunks",
            "Content-Length: 4\r\nTransfer-Encoding: chunked",
            "zz\r\n\r\n",
        ),
        ("unknown coding", "Transfer-Encoding: cow", "{}"),
        (
            "no chunk size",
            "Transfer-Encoding: chunked",
            "zz\r\n{}\r\n0\r\n\r\n",
        ),
        (
            "a huge chunk",
            "Transfer-Encoding: chunked",
            "ffffffffffffffffff\r\n{}\r\n",
        ),
        (
            "gzip that is none",
            "Content-Encoding: gzip\r\nContent-Length: 2",
            "{}",
        ),
        ("too large", "Content-Length: 5000000", blank.as_str()),
    ];
    let post = |(name, headers, body)| {
        let request = format!(
            "POST /api/v1/app-conversations HTTP/1.1\r\nHost: x\r\nX-Session-API-Key: {key}\r\n\
             Content-Type: application/json\r\nConnection: close\r\n{headers}\r\n\r\n{body}"
        );
        (name, request.into_bytes())
    };
    cases.map(post).to_vec()
}

fn heads() -> Vec<Case> {
    let huge = format!("X: {}\r\n", "y".repeat(300_000));
    let many = "A: b\r\n".repeat(5_000);
    let long = format!("GET /{} HTTP/1.1", "a".repeat(200_000));
    let alive = "GET /alive HTTP/1.1";
    let cases = [
        ("a huge header", alive, huge.as_str()),
        ("many headers", alive, many.as_str()),
        ("a header without a name", alive, ": x\r\n"),
        ("a NUL in a header", alive, "X: a\0b\r\n"),
        ("a blank in a name", alive, "X Y: a\r\n"),
        ("a huge target", long.as_str(), ""),
        ("no version", "GET /nowhere", ""),
        ("another version", "GET /nowhere HTTP/9.9", ""),
        ("no target", "GET", ""),
        ("a NUL in the target", "GET /nowhere\0 HTTP/1.1", ""),
        ("a star", "GET * HTTP/1.1", ""),
        (
            "another host's address",
            "GET http://other.example/nowhere HTTP/1.1",
            "",
        ),
        ("a tunnel", "CONNECT other.example:443 HTTP/1.1", ""),
    ];
    let get = |(name, line, headers)| {
        let request = format!("{line}\r\nHost: x\r\nConnection: close\r\n{headers}\r\n");
        (name, request.into_bytes())
    };
    cases.map(get).to_vec()
}

fn no_http() -> Vec<Case> {
    let latin1 = b"GET /n\xf6 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    vec![
        ("Latin-1 in the target", latin1.to_vec()),
        (
            "TLS",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".repeat(20),
        ),
        (
            "HTTP/2",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec(),
        ),
        ("noise", (0..=255_u8).cycle().take(70_000).collect()),
    ]
}

/// Incomplete requests on a connection that stays open.
fn slow(key: &str) -> Vec<Case> {
    let head =
        "POST /api/v1/app-conversations HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n";
    let keyed = format!("{head}X-Session-API-Key: {key}\r\n");
    vec![
        ("half a head", b"GET /alive HTTP/1.1\r\nHost: x".to_vec()),
        (
            "half a body",
            format!("{keyed}Content-Length: 100\r\n\r\n{{\"title\":").into_bytes(),
        ),
        (
            "half a chunk",
            format!("{keyed}Transfer-Encoding: chunked\r\n\r\n50\r\n{{").into_bytes(),
        ),
        (
            "half a chunk without a key",
            format!("{head}Transfer-Encoding: chunked\r\n\r\n50\r\n{{").into_bytes(),
        ),
        (
            "a body without a key",
            format!("{head}Content-Length: 100\r\n\r\n{{").into_bytes(),
        ),
    ]
}

/// Whether the service keeps a connection that sends nothing more.
async fn keeps_open(address: SocketAddr, bytes: &[u8]) -> bool {
    let until_closed = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(bytes).await?;
        let mut received = Vec::new();
        stream.read_to_end(&mut received).await
    };
    tokio::time::timeout(SLOW_REQUEST_TIMEOUT, until_closed)
        .await
        .is_err()
}

/// Checks that every pipelined request gets a response.
async fn pipelined(address: SocketAddr, key: &str) -> Option<String> {
    const REQUESTS: usize = 30;
    let one = |close: &str| {
        format!(
            "GET /api/v1/app-conversations/count HTTP/1.1\r\nHost: x\r\nX-Session-API-Key: {key}\r\n{close}\r\n"
        )
    };
    let bytes = one("").repeat(REQUESTS - 1) + &one("Connection: close\r\n");
    let received = match send(address, bytes.as_bytes(), SLOW_REQUEST_TIMEOUT).await {
        Ok(received) => received,
        Err(silence) => return Some(format!("pipelining: {silence:?}")),
    };
    let mut rest = received.as_slice();
    let mut answers = 0;
    while let Ok((response, more)) = parse(rest) {
        if response.status != 200 {
            return Some(format!(
                "pipelining: {} in the {answers}th answer",
                response.status
            ));
        }
        answers += 1;
        rest = more;
    }
    (answers != REQUESTS).then(|| format!("pipelining: {answers} answers to {REQUESTS} requests"))
}

/// Checks that silent connections do not prevent others.
async fn crowd(address: SocketAddr) -> Option<String> {
    let silent = join_all((0..300).map(|_| TcpStream::connect(address))).await;
    let alive = b"GET /alive HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let answer = send(address, alive, SLOW_REQUEST_TIMEOUT).await;
    let answer = answer.and_then(|received| Ok(parse(&received)?.0.status));
    drop(silent);
    (answer != Ok(200)).then(|| format!("beside silent connections: {answer:?}"))
}
