//! Requests and responses that are forwarded.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use gateway::GatewayLimits;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;

use crate::fixture::{Client, GatewayFixture, get_request, status, wait_until};

#[actix_web::test]
async fn requests_are_rewritten_and_connections_reused() {
    let connections = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&connections);
    let fixture = GatewayFixture::with_upstream(GatewayLimits::default(), move |stream| {
        count.fetch_add(1, Ordering::Relaxed);
        async move {
            let mut upstream = Client(stream);
            for _ in 0..2 {
                let head = upstream.read_head().await;
                let response = format!(
                    "HTTP/1.1 201 Created\r\nSet-Cookie: a=1\r\nX-Kept: 1\r\nContent-Length: {}\r\n\r\n{head}",
                    head.len()
                );
                upstream.send(response.as_bytes()).await;
            }
        }
    })
    .await;
    for _ in 0..2 {
        let request = "GET /a%20b?x=%2F HTTP/1.1\r\nHost: outside\r\nX-Session-API-Key: mine\r\nCookie: c=1\r\n\
                       Accept: x\r\nConnection: close\r\n\r\n";
        let response = fixture.send_request(request).await;
        assert_eq!(status(&response), 201, "{response}");
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        assert!(
            head.contains("x-kept: 1") && !head.contains("set-cookie"),
            "{head}"
        );
        assert!(body.starts_with("GET /a%20b?x=%2F HTTP/1.1\r\n"), "{body}");
        assert!(body.contains("x-session-api-key: theirs"), "{body}");
        assert!(body.contains("host: 127.0.0.1:"), "{body}");
        for gone in ["mine", "c=1", "outside", "close"] {
            assert!(!body.contains(gone), "{gone}: {body}");
        }
    }
    assert_eq!(connections.load(Ordering::Relaxed), 1);
    assert_eq!(fixture.shared.meter().counts().answered, 2);
    fixture.stop().await;
}

#[actix_web::test]
async fn streamed_chunks_arrive_before_the_end() {
    let go_on = Arc::new(Notify::new());
    let ended_sender = Arc::clone(&go_on);
    let fixture = GatewayFixture::with_upstream(GatewayLimits::default(), move |stream| {
        let ended_sender = Arc::clone(&ended_sender);
        async move {
            let mut upstream = Client(stream);
            upstream.read_head().await;
            upstream
                .send(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n")
                .await;
            ended_sender.notified().await;
            upstream.send(b"6\r\nsecond\r\n0\r\n\r\n").await;
        }
    })
    .await;
    let mut client = fixture.connect().await;
    client.send(get_request("/").as_bytes()).await;
    let first = client.read_until("first\r\n").await;
    assert!(first.contains("transfer-encoding: chunked"), "{first}");
    assert_eq!(status(&first), 200);
    go_on.notify_one();
    assert_eq!(client.read_rest().await, "6\r\nsecond\r\n0\r\n\r\n");
    wait_until("no request is open", || {
        fixture.shared.meter().counts().requests_open == 0
    })
    .await;
    fixture.stop().await;
}

#[actix_web::test]
async fn uploads_arrive_complete_with_a_length_or_in_chunks() {
    const SIZE: usize = 8 << 20;
    let fixture = GatewayFixture::with_upstream(GatewayLimits::default(), |stream| async move {
        let mut upstream = Client(stream);
        let head = upstream.read_head().await;
        assert!(!head.contains("expect"), "{head}");
        let mut got = vec![0; SIZE];
        if head.contains("content-length") {
            upstream.0.read_exact(&mut got).await.unwrap();
        } else {
            let chunked = upstream.read_until("\r\n0\r\n\r\n").await;
            let bytes = chunked.matches('u').count();
            got = vec![b'u'; bytes];
        }
        let others = got.iter().filter(|byte| **byte != b'u').count();
        let sum = (got.len() - others).to_string();
        let response = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{sum}",
            sum.len()
        );
        upstream.send(response.as_bytes()).await;
    })
    .await;
    let mut client = fixture.connect().await;
    let head = format!(
        "PUT / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: {SIZE}\r\n\r\n"
    );
    client.send(head.as_bytes()).await;
    assert_eq!(client.read_head().await, "HTTP/1.1 100 Continue\r\n\r\n");
    client.send(&vec![b'u'; SIZE]).await;
    assert!(
        client
            .read_rest()
            .await
            .ends_with(&format!("\r\n\r\n{SIZE}"))
    );
    let response = fixture
        .send_request("POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nuuu\r\n2\r\nuu\r\n0\r\n\r\n")
        .await;
    assert!(response.ends_with("\r\n\r\n5"), "{response}");
    assert_eq!(fixture.shared.meter().counts().bytes_up, SIZE as u64 + 5);
    fixture.stop().await;
}

#[actix_web::test]
async fn responses_without_a_body_stay_without_one() {
    let fixture = GatewayFixture::with_upstream(GatewayLimits::default(), |stream| async move {
        let mut upstream = Client(stream);
        loop {
            let head = upstream.read_head().await;
            let response = match head.split(' ').nth(1) {
                Some("/head") => "HTTP/1.1 200 OK\r\nContent-Length: 12345\r\n\r\n",
                Some("/204") => "HTTP/1.1 204 No Content\r\n\r\n",
                _ => "HTTP/1.1 304 Not Modified\r\nETag: \"1\"\r\n\r\n",
            };
            upstream.send(response.as_bytes()).await;
        }
    })
    .await;
    let head = fixture
        .send_request(&get_request("/head").replace("GET", "HEAD"))
        .await;
    assert!(head.contains("content-length: 12345"), "{head}");
    for (path, expected) in [("/204", 204), ("/304", 304)] {
        let response = fixture.send_request(&get_request(path)).await;
        assert_eq!(status(&response), expected);
        assert!(response.ends_with("\r\n\r\n"), "{response}");
    }
    fixture.stop().await;
}

#[actix_web::test]
async fn a_client_that_does_not_read_slows_the_upstream_down() {
    const MUCH: usize = 64 << 20;
    let sent = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&sent);
    let fixture = GatewayFixture::with_upstream(GatewayLimits::default(), move |stream| {
        let count = Arc::clone(&count);
        async move {
            let mut upstream = Client(stream);
            upstream.read_head().await;
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {MUCH}\r\n\r\n");
            upstream.send(head.as_bytes()).await;
            let piece = vec![b'd'; 64 * 1024];
            while count.load(Ordering::Relaxed) < MUCH {
                if upstream.0.write_all(&piece).await.is_err() {
                    return;
                }
                count.fetch_add(piece.len(), Ordering::Relaxed);
            }
        }
    })
    .await;
    let mut client = fixture.connect().await;
    client.send(get_request("/").as_bytes()).await;
    client.read_head().await;
    // Once the buffers of the sockets are full, the upstream sends nothing more.
    let mut before = usize::MAX;
    while before != sent.load(Ordering::Relaxed) {
        before = sent.load(Ordering::Relaxed);
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    }
    assert!(before < MUCH / 2, "{before} bytes are buffered");
    assert_eq!(client.read_rest().await.len(), MUCH);
    fixture.stop().await;
}

#[actix_web::test]
async fn an_idle_connection_is_closed() {
    let (ended_sender, mut ended) = tokio::sync::mpsc::unbounded_channel();
    let limits = GatewayLimits {
        pool_idle_timeout: std::time::Duration::from_millis(200),
        ..GatewayLimits::default()
    };
    let fixture = GatewayFixture::with_upstream(limits, move |stream| {
        let ended_sender = ended_sender.clone();
        async move {
            let mut upstream = Client(stream);
            upstream.read_head().await;
            upstream.send(b"HTTP/1.1 204 No Content\r\n\r\n").await;
            let _ = ended_sender.send(upstream.read_rest().await);
        }
    })
    .await;
    assert_eq!(status(&fixture.send_request(&get_request("/")).await), 204);
    let rest = tokio::time::timeout(crate::fixture::TEST_TIMEOUT, ended.recv()).await;
    assert_eq!(rest.unwrap().as_deref(), Some(""));
    fixture.stop().await;
}
