//! Upstreams that fail, and ambiguous requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use gateway::GatewayLimits;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpSocket;

use crate::fixture::{Client, GatewayFixture, TEST_TIMEOUT, get_request, status, wait_until};

/// Deadlines that a test can wait for.
fn short_timeouts() -> GatewayLimits {
    GatewayLimits {
        idle_timeout: Duration::from_millis(500),
        upload_timeout: Duration::from_millis(500),
        ..GatewayLimits::default()
    }
}

#[actix_web::test]
async fn an_unreachable_upstream_is_a_502() {
    // The port is bound, but nothing listens on it.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    let fixture = GatewayFixture::with_upstream_address(GatewayLimits::default(), address);
    let response = fixture.send_request(&get_request("/")).await;
    assert_eq!(status(&response), 502);
    assert!(response.contains("cannot be reached"), "{response}");
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
    for (bytes, expected) in table {
        let bytes = bytes.to_owned();
        let fixture = GatewayFixture::with_upstream(short_timeouts(), move |stream| {
            let bytes = bytes.clone();
            async move {
                let mut upstream = Client(stream);
                upstream.read_head().await;
                // The gateway may disconnect before all bytes are sent.
                let _ =
                    tokio::io::AsyncWriteExt::write_all(&mut upstream.0, bytes.as_bytes()).await;
            }
        })
        .await;
        let response = fixture.send_request(&get_request("/")).await;
        assert_eq!(status(&response), expected, "{response}");
        fixture.stop().await;
    }
    // A short response timeout only here: a busy machine could exceed it in the other cases.
    let short_upload_limits = GatewayLimits {
        response_timeout: Duration::from_millis(500),
        ..short_timeouts()
    };
    let fixture = GatewayFixture::with_upstream(short_upload_limits, |stream| async move {
        let mut upstream = Client(stream);
        upstream.read_head().await;
        upstream.read_rest().await;
    })
    .await;
    assert_eq!(status(&fixture.send_request(&get_request("/")).await), 504);
    fixture.stop().await;
}

#[actix_web::test]
async fn a_response_that_breaks_or_stalls_is_truncated() {
    for stalls in [false, true] {
        let fixture = GatewayFixture::with_upstream(short_timeouts(), move |stream| async move {
            let mut upstream = Client(stream);
            upstream.read_head().await;
            upstream
                .send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
                .await;
            if stalls {
                upstream.read_rest().await;
            }
        })
        .await;
        let response = fixture.send_request(&get_request("/")).await;
        assert!(response.ends_with("\r\n\r\nhalf"), "{response}");
        fixture.stop().await;
    }
}

#[actix_web::test]
async fn a_request_on_a_closed_pooled_connection_is_repeated() {
    let connections = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&connections);
    let fixture = GatewayFixture::with_upstream(GatewayLimits::default(), move |stream| {
        count.fetch_add(1, Ordering::Relaxed);
        async move {
            let mut upstream = Client(stream);
            upstream.read_head().await;
            upstream.send(b"HTTP/1.1 204 No Content\r\n\r\n").await;
        }
    })
    .await;
    for _ in 0..3 {
        assert_eq!(status(&fixture.send_request(&get_request("/")).await), 204);
    }
    assert!(connections.load(Ordering::Relaxed) >= 3);
    fixture.stop().await;
}

#[actix_web::test]
async fn uploads_that_stall_or_are_too_large_are_refused() {
    let limits = GatewayLimits {
        max_upload_bytes: Some(10),
        ..short_timeouts()
    };
    let fixture = GatewayFixture::with_upstream(limits, |stream| async move {
        let mut upstream = Client(stream);
        upstream.read_rest().await;
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
        // Read only the head: actix waits for the rest of a body that has no reader. The service has a middleware for that.
        let mut client = fixture.connect().await;
        client.send(request.as_bytes()).await;
        assert_eq!(status(&client.read_head().await), expected, "{request}");
    }
    assert_eq!(fixture.shared.meter().counts().refused, 3);
    fixture.stop().await;
}

#[actix_web::test]
async fn ambiguous_requests_are_not_forwarded() {
    let connections = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&connections);
    let fixture = GatewayFixture::with_upstream(GatewayLimits::default(), move |_| {
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
        // Upgrades for a proxy that looks for the token, plain requests for actix.
        "GET / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: websocket, x\r\n\r\n".to_owned(),
        "GET / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: x,WebSocket\r\n\r\n".to_owned(),
        "GET / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: \u{e9}, websocket\r\n\r\n".to_owned(),
        "GET / HTTP/1.1\r\nHost: h\r\nX: a\x01b\r\n\r\n".to_owned(),
    ];
    for request in table {
        let mut client = fixture.connect().await;
        client.send(request.as_bytes()).await;
        let response = tokio::time::timeout(TEST_TIMEOUT, client.read_head())
            .await
            .unwrap();
        assert_eq!(status(&response), 400, "{request}");
    }
    assert_eq!(connections.load(Ordering::Relaxed), 0);
    fixture.stop().await;
}

#[actix_web::test]
async fn a_client_that_does_not_read_loses_its_slot() {
    let limits = GatewayLimits {
        max_requests: 1,
        ..short_timeouts()
    };
    let fixture = GatewayFixture::with_upstream(limits, |stream| async move {
        let mut upstream = Client(stream);
        let is_endless = upstream.read_head().await.starts_with("GET /endless ");
        if !is_endless {
            upstream.send(b"HTTP/1.1 204 No Content\r\n\r\n").await;
            return;
        }
        let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        upstream.send(head).await;
        let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
        while upstream.0.write_all(chunk.as_bytes()).await.is_ok() {}
    })
    .await;
    let mut idle = fixture.connect().await;
    idle.send(get_request("/endless").as_bytes()).await;
    idle.read_head().await;
    let open = || fixture.shared.meter().counts().requests_open;
    wait_until("its slot is free", || open() == 0).await;
    assert_eq!(status(&fixture.send_request(&get_request("/")).await), 204);
    let rest = idle.read_rest().await;
    assert!(
        !rest.ends_with("0\r\n\r\n"),
        "the response has no final chunk"
    );
    fixture.stop().await;
}

#[actix_web::test]
async fn requests_of_one_sandbox_are_limited() {
    let limits = GatewayLimits {
        max_requests_per_sandbox: 1,
        ..GatewayLimits::default()
    };
    let fixture = GatewayFixture::with_upstream(limits, |stream| async move {
        let mut upstream = Client(stream);
        upstream.read_head().await;
        upstream
            .send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")
            .await;
        upstream.read_rest().await;
    })
    .await;
    let mut first = fixture.connect().await;
    first.send(get_request("/").as_bytes()).await;
    first.read_head().await;
    assert_eq!(status(&fixture.send_request(&get_request("/")).await), 429);
    fixture.stop().await;
}
