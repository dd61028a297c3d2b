//! Connections that do not speak HTTP well. Each must end by itself, soon, and with nothing worse than a refusal.

use std::net::SocketAddr;
use std::time::Duration;

use futures::future::join_all;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::wire::{Silence, parse, send};

/// What the service itself waits for a slow head or body, and some more for a busy machine.
const PATIENCE: Duration = Duration::from_secs(50);

/// Refusals of the protocol's parser, of the layers, or nothing but a closed connection.
const REFUSALS: &[u16] = &[400, 401, 404, 405, 408, 411, 413, 415, 422, 431, 501, 505];

/// Runs all; the answer is what went wrong.
pub(super) async fn misuse(address: SocketAddr, key: &str) -> Vec<String> {
    let refused = cases(key).into_iter().map(|(name, bytes)| async move {
        match send(address, &bytes, PATIENCE).await {
            Err(Silence::TimedOut) => Some(format!("{name}: the connection is kept for ever")),
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
        kept.then(|| format!("{name}: not ended within {PATIENCE:?}"))
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

/// Complete in themselves, and wrong.
fn cases(key: &str) -> Vec<(&'static str, Vec<u8>)> {
    let post = |headers: &str, body: &str| {
        format!(
            "POST /api/v1/app-conversations HTTP/1.1\r\nHost: x\r\nX-Session-API-Key: {key}\r\n\
             Content-Type: application/json\r\nConnection: close\r\n{headers}\r\n{body}"
        )
        .into_bytes()
    };
    let get = |line: &str, headers: &str| {
        format!("{line}\r\nHost: x\r\nConnection: close\r\n{headers}\r\n").into_bytes()
    };
    vec![
        (
            "two lengths",
            post("Content-Length: 2\r\nContent-Length: 9\r\n", "{}"),
        ),
        ("a negative length", post("Content-Length: -1\r\n", "{}")),
        (
            "a huge length",
            post("Content-Length: 99999999999999999999999\r\n", "{}"),
        ),
        (
            "a length of 8 EiB",
            post("Content-Length: 9223372036854775807\r\n", "{}"),
        ),
        ("a length with a sign", post("Content-Length: +2\r\n", "{}")),
        (
            "length and chunks",
            post(
                "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
                "zz\r\n\r\n",
            ),
        ),
        ("unknown coding", post("Transfer-Encoding: cow\r\n", "{}")),
        (
            "no chunk size",
            post("Transfer-Encoding: chunked\r\n", "zz\r\n{}\r\n0\r\n\r\n"),
        ),
        (
            "a huge chunk",
            post(
                "Transfer-Encoding: chunked\r\n",
                "ffffffffffffffffff\r\n{}\r\n",
            ),
        ),
        (
            "gzip that is none",
            post("Content-Encoding: gzip\r\nContent-Length: 2\r\n", "{}"),
        ),
        (
            "too large",
            post("Content-Length: 5000000\r\n", &" ".repeat(5_000_000)),
        ),
        (
            "a huge header",
            get(
                "GET /alive HTTP/1.1",
                &format!("X: {}\r\n", "y".repeat(300_000)),
            ),
        ),
        (
            "many headers",
            get("GET /alive HTTP/1.1", &"A: b\r\n".repeat(5_000)),
        ),
        (
            "a header without a name",
            get("GET /alive HTTP/1.1", ": x\r\n"),
        ),
        (
            "a NUL in a header",
            get("GET /alive HTTP/1.1", "X: a\0b\r\n"),
        ),
        (
            "a blank in a name",
            get("GET /alive HTTP/1.1", "X Y: a\r\n"),
        ),
        (
            "a huge target",
            get(&format!("GET /{} HTTP/1.1", "a".repeat(200_000)), ""),
        ),
        ("no version", get("GET /nowhere", "")),
        ("another version", get("GET /nowhere HTTP/9.9", "")),
        ("no target", get("GET", "")),
        ("a NUL in the target", get("GET /nowhere\0 HTTP/1.1", "")),
        (
            "Latin-1 in the target",
            [b"GET /n\xf6 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".to_vec()].concat(),
        ),
        ("a star", get("GET * HTTP/1.1", "")),
        (
            "another host's address",
            get("GET http://other.example/nowhere HTTP/1.1", ""),
        ),
        ("a tunnel", get("CONNECT other.example:443 HTTP/1.1", "")),
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

/// Incomplete, on a connection that stays open.
fn slow(key: &str) -> Vec<(&'static str, Vec<u8>)> {
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
            "a body without a key",
            format!("{head}Content-Length: 100\r\n\r\n{{").into_bytes(),
        ),
    ]
}

/// Whether a connection on which nothing more comes is kept.
async fn keeps_open(address: SocketAddr, bytes: &[u8]) -> bool {
    let until_closed = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(bytes).await?;
        let mut received = Vec::new();
        stream.read_to_end(&mut received).await
    };
    tokio::time::timeout(PATIENCE, until_closed).await.is_err()
}

/// Requests that do not wait for answers get all of them.
async fn pipelined(address: SocketAddr, key: &str) -> Option<String> {
    const REQUESTS: usize = 30;
    let one = |close: &str| {
        format!(
            "GET /api/v1/app-conversations/count HTTP/1.1\r\nHost: x\r\nX-Session-API-Key: {key}\r\n{close}\r\n"
        )
    };
    let bytes = one("").repeat(REQUESTS - 1) + &one("Connection: close\r\n");
    let received = match send(address, bytes.as_bytes(), PATIENCE).await {
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

/// Connections that say nothing take nobody's place.
async fn crowd(address: SocketAddr) -> Option<String> {
    let silent = join_all((0..300).map(|_| TcpStream::connect(address))).await;
    let alive = b"GET /alive HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let answer = send(address, alive, PATIENCE).await;
    let answer = answer.and_then(|received| Ok(parse(&received)?.0.status));
    drop(silent);
    (answer != Ok(200)).then(|| format!("beside silent connections: {answer:?}"))
}
