//! Tests over a real socket, for behaviour of the server's own loop.

use std::net::SocketAddr;

use actix_web::HttpServer;
use actix_web::dev::ServerHandle;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::fixture::{KEY, TestRoutes, config, state};

struct Running {
    address: SocketAddr,
    handle: ServerHandle,
}

#[expect(
    clippy::disallowed_methods,
    reason = "the server under test is driven beside the client"
)]
fn serve() -> Running {
    let state = state(&config(), None);
    let server = HttpServer::new(move || crate::assemble(state.clone(), TestRoutes))
        .workers(1)
        .disable_signals()
        .bind("127.0.0.1:0")
        .unwrap();
    let address = server.addrs()[0];
    let server = server.run();
    let handle = server.handle();
    actix_web::rt::spawn(server);
    Running { address, handle }
}

/// Sends `bytes` and reads until the response contains `wanted` or the connection ends.
async fn exchange(stream: &mut TcpStream, bytes: &str, wanted: &str) -> String {
    stream.write_all(bytes.as_bytes()).await.unwrap();
    let (mut all, mut chunk) = (Vec::new(), [0; 4096]);
    while !String::from_utf8_lossy(&all).contains(wanted) {
        match stream.read(&mut chunk).await {
            Ok(0) | Err(_) => break,
            Ok(n) => all.extend_from_slice(&chunk[..n]),
        }
    }
    String::from_utf8(all).unwrap()
}

#[actix_web::test]
async fn the_server_survives_a_panic_and_answers_before_a_body_arrives() {
    let server = serve();
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let panicked = exchange(
        &mut stream,
        "GET /api/v1/panic HTTP/1.1\r\nHost: a\r\n\r\n",
        "Server Error\"}",
    )
    .await;
    assert!(panicked.starts_with("HTTP/1.1 500 "), "{panicked}");
    assert!(panicked.contains("cache-control: no-cache"), "{panicked}");
    // The same connection and the same worker.
    let alive = exchange(
        &mut stream,
        "GET /alive HTTP/1.1\r\nHost: a\r\n\r\n",
        "ok\"}",
    )
    .await;
    assert!(alive.starts_with("HTTP/1.1 200 "), "{alive}");

    let head = "POST /api/v1/large HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n";
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let stranger = exchange(
        &mut stream,
        &format!("{head}Content-Length: 2500\r\n\r\n"),
        "Unauthorized\"}",
    )
    .await;
    assert!(stranger.starts_with("HTTP/1.1 401 "), "{stranger}");

    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let large = format!("{head}X-Session-API-Key: {KEY}\r\nContent-Length: 99999999\r\n\r\n");
    let large = exchange(&mut stream, &large, "bytes\"}").await;
    assert!(large.starts_with("HTTP/1.1 413 "), "{large}");

    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let piece = format!("400\r\n{}\r\n", "x".repeat(0x400));
    let chunked = format!(
        "{head}X-Session-API-Key: {KEY}\r\nTransfer-Encoding: chunked\r\n\r\n{}",
        piece.repeat(4)
    );
    let chunked = exchange(&mut stream, &chunked, "bytes\"}").await;
    assert!(chunked.starts_with("HTTP/1.1 413 "), "{chunked}");
    server.handle.stop(false).await;
}

#[actix_web::test]
async fn an_upgrade_request_has_its_announced_body_or_none() {
    let server = serve();
    let head = format!(
        "POST /api/v1/large HTTP/1.1\r\nHost: a\r\nX-Session-API-Key: {KEY}\r\nContent-Type: application/json\r\n\
         Connection: Upgrade\r\nUpgrade: websocket\r\n"
    );
    for (rest, status, end) in [
        ("\r\n", 422, "]}"),
        ("Content-Length: 3\r\n\r\n[1]", 200, "\"items\":1"),
        (
            "Transfer-Encoding: chunked\r\n\r\n3\r\n[1]\r\n0\r\n\r\n",
            200,
            "\"items\":1",
        ),
    ] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let answer = exchange(&mut stream, &format!("{head}{rest}"), end).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{answer}"
        );
    }
    server.handle.stop(false).await;
}

#[actix_web::test]
async fn odd_targets_are_not_found() {
    let server = serve();
    for target in [
        "//evil.example/",
        "/%2f%2fevil.example/",
        "http://evil.example/alive/",
        "/..%2f..%2fetc/passwd",
        "/\u{e9}",
    ] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let answer = exchange(&mut stream, &request, "\0").await;
        let status = answer.get(9..12).unwrap_or("");
        assert!(
            matches!(status, "404" | "400" | "307"),
            "{target}: {answer}"
        );
        let location = answer
            .lines()
            .find_map(|line| line.strip_prefix("location: "));
        assert!(
            location.is_none_or(|to| to == "/alive"),
            "{target}: {answer}"
        );
    }
    server.handle.stop(false).await;
}
