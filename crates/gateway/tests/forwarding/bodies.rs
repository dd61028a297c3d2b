//! Requests and answers that come through.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use gateway::GatewayLimits;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;

use crate::fixture::{Client, GatewayFixture, eventually, get, status};

#[actix_web::test]
async fn a_request_goes_on_as_ours_and_connections_are_kept() {
    let connections = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&connections);
    let fixture = GatewayFixture::before(GatewayLimits::default(), move |stream| {
        count.fetch_add(1, Ordering::Relaxed);
        async move {
            let mut behind = Client(stream);
            for _ in 0..2 {
                let head = behind.head().await;
                let answer = format!(
                    "HTTP/1.1 201 Created\r\nSet-Cookie: a=1\r\nX-Kept: 1\r\nContent-Length: {}\r\n\r\n{head}",
                    head.len()
                );
                behind.send(answer.as_bytes()).await;
            }
        }
    })
    .await;
    for _ in 0..2 {
        let request = "GET /a%20b?x=%2F HTTP/1.1\r\nHost: outside\r\nX-Session-API-Key: mine\r\nCookie: c=1\r\n\
                       Accept: x\r\nConnection: close\r\n\r\n";
        let answer = fixture.ask(request).await;
        assert_eq!(status(&answer), 201, "{answer}");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
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
    let told = Arc::clone(&go_on);
    let fixture = GatewayFixture::before(GatewayLimits::default(), move |stream| {
        let told = Arc::clone(&told);
        async move {
            let mut behind = Client(stream);
            behind.head().await;
            behind
                .send(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n")
                .await;
            told.notified().await;
            behind.send(b"6\r\nsecond\r\n0\r\n\r\n").await;
        }
    })
    .await;
    let mut client = fixture.connect().await;
    client.send(get("/").as_bytes()).await;
    let first = client.until("first\r\n").await;
    assert!(first.contains("transfer-encoding: chunked"), "{first}");
    assert_eq!(status(&first), 200);
    go_on.notify_one();
    assert_eq!(client.rest().await, "6\r\nsecond\r\n0\r\n\r\n");
    eventually("no request is open", || {
        fixture.shared.meter().counts().requests_open == 0
    })
    .await;
    fixture.stop().await;
}

#[actix_web::test]
async fn uploads_arrive_whole_announced_or_in_chunks() {
    const SIZE: usize = 8 << 20;
    let fixture = GatewayFixture::before(GatewayLimits::default(), |stream| async move {
        let mut behind = Client(stream);
        let head = behind.head().await;
        assert!(!head.contains("expect"), "{head}");
        let mut got = vec![0; SIZE];
        if head.contains("content-length") {
            behind.0.read_exact(&mut got).await.unwrap();
        } else {
            let chunked = behind.until("\r\n0\r\n\r\n").await;
            let bytes = chunked.matches('u').count();
            got = vec![b'u'; bytes];
        }
        let others = got.iter().filter(|byte| **byte != b'u').count();
        let sum = (got.len() - others).to_string();
        let answer = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{sum}",
            sum.len()
        );
        behind.send(answer.as_bytes()).await;
    })
    .await;
    let mut client = fixture.connect().await;
    let head = format!(
        "PUT / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: {SIZE}\r\n\r\n"
    );
    client.send(head.as_bytes()).await;
    assert_eq!(client.head().await, "HTTP/1.1 100 Continue\r\n\r\n");
    client.send(&vec![b'u'; SIZE]).await;
    assert!(client.rest().await.ends_with(&format!("\r\n\r\n{SIZE}")));
    let answer = fixture
        .ask("POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nuuu\r\n2\r\nuu\r\n0\r\n\r\n")
        .await;
    assert!(answer.ends_with("\r\n\r\n5"), "{answer}");
    assert_eq!(fixture.shared.meter().counts().bytes_up, SIZE as u64 + 5);
    fixture.stop().await;
}

#[actix_web::test]
async fn answers_without_a_body_have_none() {
    let fixture = GatewayFixture::before(GatewayLimits::default(), |stream| async move {
        let mut behind = Client(stream);
        loop {
            let head = behind.head().await;
            let answer = match head.split(' ').nth(1) {
                Some("/head") => "HTTP/1.1 200 OK\r\nContent-Length: 12345\r\n\r\n",
                Some("/204") => "HTTP/1.1 204 No Content\r\n\r\n",
                _ => "HTTP/1.1 304 Not Modified\r\nETag: \"1\"\r\n\r\n",
            };
            behind.send(answer.as_bytes()).await;
        }
    })
    .await;
    let head = fixture.ask(&get("/head").replace("GET", "HEAD")).await;
    assert!(head.contains("content-length: 12345"), "{head}");
    for (path, expected) in [("/204", 204), ("/304", 304)] {
        let answer = fixture.ask(&get(path)).await;
        assert_eq!(status(&answer), expected);
        assert!(answer.ends_with("\r\n\r\n"), "{answer}");
    }
    fixture.stop().await;
}

#[actix_web::test]
async fn a_client_that_does_not_read_slows_the_upstream_down() {
    const MUCH: usize = 64 << 20;
    let sent = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&sent);
    let fixture = GatewayFixture::before(GatewayLimits::default(), move |stream| {
        let count = Arc::clone(&count);
        async move {
            let mut behind = Client(stream);
            behind.head().await;
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {MUCH}\r\n\r\n");
            behind.send(head.as_bytes()).await;
            let piece = vec![b'd'; 64 * 1024];
            while count.load(Ordering::Relaxed) < MUCH {
                if behind.0.write_all(&piece).await.is_err() {
                    return;
                }
                count.fetch_add(piece.len(), Ordering::Relaxed);
            }
        }
    })
    .await;
    let mut client = fixture.connect().await;
    client.send(get("/").as_bytes()).await;
    client.head().await;
    // It stands still once the buffers of the sockets are full: then nothing more is sent for a while.
    let mut before = usize::MAX;
    while before != sent.load(Ordering::Relaxed) {
        before = sent.load(Ordering::Relaxed);
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    }
    assert!(before < MUCH / 2, "{before} bytes are on their way");
    assert_eq!(client.rest().await.len(), MUCH);
    fixture.stop().await;
}

#[actix_web::test]
async fn an_idle_connection_is_closed() {
    let (told, mut ended) = tokio::sync::mpsc::unbounded_channel();
    let limits = GatewayLimits {
        pool_idle_timeout: std::time::Duration::from_millis(200),
        ..GatewayLimits::default()
    };
    let fixture = GatewayFixture::before(limits, move |stream| {
        let told = told.clone();
        async move {
            let mut behind = Client(stream);
            behind.head().await;
            behind.send(b"HTTP/1.1 204 No Content\r\n\r\n").await;
            let _ = told.send(behind.rest().await);
        }
    })
    .await;
    assert_eq!(status(&fixture.ask(&get("/")).await), 204);
    let rest = tokio::time::timeout(crate::fixture::TEST_TIMEOUT, ended.recv()).await;
    assert_eq!(rest.unwrap().as_deref(), Some(""));
    fixture.stop().await;
}
