//! Servers that fail in every way, and requests that are meant to be read in two.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use gateway::GatewayLimits;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpSocket;

use crate::fixture::{Client, GatewayFixture, TEST_TIMEOUT, eventually, get, status};

/// Deadlines that a test can wait for.
fn short() -> GatewayLimits {
    GatewayLimits {
        idle_timeout: Duration::from_millis(500),
        upload_timeout: Duration::from_millis(500),
        ..GatewayLimits::default()
    }
}

#[actix_web::test]
async fn a_server_that_is_gone_is_a_502() {
    // The port is bound, but nothing listens on it.
    let nobody = TcpSocket::new_v4().unwrap();
    nobody.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let gone = nobody.local_addr().unwrap();
    let fixture = GatewayFixture::before_address(GatewayLimits::default(), gone);
    let answer = fixture.ask(&get("/")).await;
    assert_eq!(status(&answer), 502);
    assert!(answer.contains("cannot be reached"), "{answer}");
    assert_eq!(fixture.shared.meter().counts().failed, 1);
    fixture.stop().await;
}

#[actix_web::test]
async fn invalid_responses_are_502_or_504() {
    let huge = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(1 << 20));
    let table = [
        ("", 502),
        ("garbage\r\n\r\n", 502),
        ("HTTP/1.1 200 OK\r\nContent-Le", 502),
        (
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
            502,
        ),
        ("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", 502),
        (huge.as_str(), 502),
    ];
    for (said, expected) in table {
        let said = said.to_owned();
        let fixture = GatewayFixture::before(short(), move |stream| {
            let said = said.clone();
            async move {
                let mut behind = Client(stream);
                behind.head().await;
                // It may have hung up before all is said.
                let _ = tokio::io::AsyncWriteExt::write_all(&mut behind.0, said.as_bytes()).await;
            }
        })
        .await;
        let answer = fixture.ask(&get("/")).await;
        assert_eq!(status(&answer), expected, "{answer}");
        fixture.stop().await;
    }
    // Only here: anywhere else a busy machine would make it too late.
    let hasty = GatewayLimits {
        response_timeout: Duration::from_millis(500),
        ..short()
    };
    let fixture = GatewayFixture::before(hasty, |stream| async move {
        let mut behind = Client(stream);
        behind.head().await;
        behind.rest().await;
    })
    .await;
    assert_eq!(status(&fixture.ask(&get("/")).await), 504);
    fixture.stop().await;
}

#[actix_web::test]
async fn an_answer_that_stops_or_stalls_is_cut() {
    for stalls in [false, true] {
        let fixture = GatewayFixture::before(short(), move |stream| async move {
            let mut behind = Client(stream);
            behind.head().await;
            behind
                .send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
                .await;
            if stalls {
                behind.rest().await;
            }
        })
        .await;
        let answer = fixture.ask(&get("/")).await;
        assert!(answer.ends_with("\r\n\r\nhalf"), "{answer}");
        fixture.stop().await;
    }
}

#[actix_web::test]
async fn a_kept_connection_that_was_closed_costs_nothing() {
    let connections = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&connections);
    let fixture = GatewayFixture::before(GatewayLimits::default(), move |stream| {
        count.fetch_add(1, Ordering::Relaxed);
        async move {
            let mut behind = Client(stream);
            behind.head().await;
            behind.send(b"HTTP/1.1 204 No Content\r\n\r\n").await;
        }
    })
    .await;
    for _ in 0..3 {
        assert_eq!(status(&fixture.ask(&get("/")).await), 204);
    }
    assert!(connections.load(Ordering::Relaxed) >= 3);
    fixture.stop().await;
}

#[actix_web::test]
async fn uploads_that_stall_or_are_too_large_are_refused() {
    let limits = GatewayLimits {
        max_upload_bytes: Some(10),
        ..short()
    };
    let fixture = GatewayFixture::before(limits, |stream| async move {
        let mut behind = Client(stream);
        behind.rest().await;
    })
    .await;
    let head = "POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n";
    let table = [
        (format!("{head}Content-Length: 11\r\n\r\n"), 413),
        (
            format!("{head}Transfer-Encoding: chunked\r\n\r\nb\r\nxxxxxxxxxxx\r\n"),
            413,
        ),
        (format!("{head}Content-Length: 9\r\n\r\nxx"), 408),
    ];
    for (request, expected) in table {
        // The head alone: actix waits for the rest of a body whose reader is gone, and the service has a layer for that.
        let mut client = fixture.connect().await;
        client.send(request.as_bytes()).await;
        assert_eq!(status(&client.head().await), expected, "{request}");
    }
    assert_eq!(fixture.shared.meter().counts().refused, 3);
    fixture.stop().await;
}

#[actix_web::test]
async fn ambiguous_requests_are_not_forwarded() {
    let connections = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&connections);
    let fixture = GatewayFixture::before(GatewayLimits::default(), move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        async {}
    })
    .await;
    let upgrade = "Connection: upgrade\r\nUpgrade: websocket\r\n";
    let table = [
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_owned(),
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello".to_owned(),
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: +5\r\n\r\nhello".to_owned(),
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: xchunked\r\n\r\nhello".to_owned(),
        format!("POST / HTTP/1.1\r\nHost: h\r\n{upgrade}Content-Length: 5\r\n\r\nhello"),
        format!("GET / HTTP/1.1\r\nHost: h\r\n{upgrade}Content-Length: 5\r\n\r\nhello"),
        "GET / HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\n\r\n".to_owned(),
        // Tunnels to whoever looks for the word, plain requests to actix.
        "GET / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: websocket, x\r\n\r\n".to_owned(),
        "GET / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: x,WebSocket\r\n\r\n".to_owned(),
        "GET / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: \u{e9}, websocket\r\n\r\n".to_owned(),
        "GET / HTTP/1.1\r\nHost: h\r\nX: a\x01b\r\n\r\n".to_owned(),
    ];
    for request in table {
        let mut client = fixture.connect().await;
        client.send(request.as_bytes()).await;
        let answer = tokio::time::timeout(TEST_TIMEOUT, client.head())
            .await
            .unwrap();
        assert_eq!(status(&answer), 400, "{request}");
    }
    assert_eq!(connections.load(Ordering::Relaxed), 0);
    fixture.stop().await;
}

#[actix_web::test]
async fn a_client_that_does_not_read_keeps_its_connection_and_no_place() {
    let limits = GatewayLimits {
        max_requests: 1,
        ..short()
    };
    let fixture = GatewayFixture::before(limits, |stream| async move {
        let mut behind = Client(stream);
        let is_endless = behind.head().await.starts_with("GET /endless ");
        if !is_endless {
            behind.send(b"HTTP/1.1 204 No Content\r\n\r\n").await;
            return;
        }
        let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        behind.send(head).await;
        let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
        while behind.0.write_all(chunk.as_bytes()).await.is_ok() {}
    })
    .await;
    let mut idle = fixture.connect().await;
    idle.send(get("/endless").as_bytes()).await;
    idle.head().await;
    let open = || fixture.shared.meter().counts().requests_open;
    eventually("its place is free", || open() == 0).await;
    assert_eq!(status(&fixture.ask(&get("/")).await), 204);
    let rest = idle.rest().await;
    assert!(!rest.ends_with("0\r\n\r\n"), "it is not whole");
    fixture.stop().await;
}

#[actix_web::test]
async fn one_lane_has_a_bound() {
    let limits = GatewayLimits {
        max_requests_per_sandbox: 1,
        ..GatewayLimits::default()
    };
    let fixture = GatewayFixture::before(limits, |stream| async move {
        let mut behind = Client(stream);
        behind.head().await;
        behind
            .send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")
            .await;
        behind.rest().await;
    })
    .await;
    let mut first = fixture.connect().await;
    first.send(get("/").as_bytes()).await;
    first.head().await;
    assert_eq!(status(&fixture.ask(&get("/")).await), 429);
    fixture.stop().await;
}
