//! Requests whose sender may not have their response any more, and bodies that come too slowly.

use std::time::Duration;

use gateway::GatewayLimits;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use crate::fixture::{Client, GatewayFixture, TEST_TIMEOUT, get_request, status, wait_until};

const FIRST_CHUNK: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n";

/// An upstream that sends only these bytes for each request, and a receiver for the ends of its connections.
async fn responding_with(response: &'static [u8]) -> (GatewayFixture, mpsc::UnboundedReceiver<()>) {
    let (over, ended) = mpsc::unbounded_channel();
    let fixture = GatewayFixture::with_upstream(GatewayLimits::default(), move |stream| {
        let over = over.clone();
        async move {
            let mut upstream = Client(stream);
            upstream.read_head().await;
            upstream.send(response).await;
            upstream.read_rest().await;
            let _ = over.send(());
        }
    })
    .await;
    (fixture, ended)
}

async fn assert_closed(fixture: &GatewayFixture, mut ended: mpsc::UnboundedReceiver<()>) {
    let closed_signal = timeout(TEST_TIMEOUT, ended.recv()).await;
    closed_signal
        .expect("the upstream sees the end of its connection")
        .unwrap();
    let open = || fixture.shared.meter().counts().requests_open;
    wait_until("no request is open", || open() == 0).await;
}

#[actix_web::test]
async fn revocation_truncates_a_response() {
    let (fixture, ended) = responding_with(FIRST_CHUNK).await;
    let mut client = fixture.connect().await;
    client.send(get_request("/").as_bytes()).await;
    client.read_until("first\r\n").await;
    fixture.revoked.cancel();
    assert_eq!(
        client.read_rest().await,
        "",
        "the response has no final chunk"
    );
    assert_closed(&fixture, ended).await;
    fixture.stop().await;
}

#[actix_web::test]
async fn revocation_also_truncates_busy_and_unread_responses() {
    for reads in [true, false] {
        let fixture =
            GatewayFixture::with_upstream(GatewayLimits::default(), |stream| async move {
                let mut upstream = Client(stream);
                upstream.read_head().await;
                upstream.send(FIRST_CHUNK).await;
                let chunk = format!("4000\r\n{}\r\n", "x".repeat(0x4000));
                while upstream.0.write_all(chunk.as_bytes()).await.is_ok() {}
            })
            .await;
        let mut client = fixture.connect().await;
        client.send(get_request("/").as_bytes()).await;
        client.read_until("first\r\n").await;
        fixture.revoked.cancel();
        let open = || fixture.shared.meter().counts().requests_open;
        if reads {
            let rest = client.read_rest().await;
            assert!(
                !rest.ends_with("0\r\n\r\n"),
                "the response has no final chunk"
            );
        }
        wait_until("no request is open", || open() == 0).await;
        fixture.stop().await;
    }
}

#[actix_web::test]
async fn a_request_without_a_response_fails_on_revocation() {
    let head = "Host: h\r\nConnection: close\r\n";
    for request in [
        get_request("/"),
        format!("POST / HTTP/1.1\r\n{head}Content-Length: 9\r\n\r\nxx"),
        format!("POST / HTTP/1.1\r\n{head}Content-Length: 2\r\n\r\nxx"),
        format!("POST / HTTP/1.1\r\n{head}Transfer-Encoding: chunked\r\n\r\n2\r\nxx\r\n"),
    ] {
        let (fixture, ended) = responding_with(b"").await;
        let mut client = fixture.connect().await;
        client.send(request.as_bytes()).await;
        let open = || fixture.shared.meter().counts().requests_open;
        wait_until("the request is open", || open() == 1).await;
        fixture.revoked.cancel();
        assert_eq!(status(&client.read_head().await), 409, "{request}");
        assert_closed(&fixture, ended).await;
        fixture.stop().await;
    }
}

/// An upstream that reads the body after this time and responds 204 if it is complete.
async fn accepting_uploads(limits: GatewayLimits, after: Duration) -> GatewayFixture {
    GatewayFixture::with_upstream(limits, move |stream| async move {
        let mut upstream = Client(stream);
        let head = upstream.read_head().await;
        sleep(after).await;
        if head.contains("content-length") {
            let length = head.split("content-length: ").nth(1).unwrap();
            let length = length.split("\r\n").next().unwrap().parse().unwrap();
            let mut body = vec![0; length];
            if upstream.0.read_exact(&mut body).await.is_err() {
                return;
            }
        } else {
            upstream.read_until("0\r\n\r\n").await;
        }
        upstream.send(b"HTTP/1.1 204 No Content\r\n\r\n").await;
    })
    .await
}

/// Limits of uploads with a short timeout.
fn short_upload_limits() -> GatewayLimits {
    GatewayLimits {
        upload_timeout: Duration::from_millis(1500),
        min_upload_bytes: 1_000,
        ..GatewayLimits::default()
    }
}

const HEAD: &str = "POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n";

#[actix_web::test]
async fn a_slow_upload_with_a_length_is_ended_and_a_chunked_one_is_not() {
    let fixture = accepting_uploads(short_upload_limits(), Duration::ZERO).await;
    let (mut from, mut to) = fixture.connect().await.0.into_split();
    let drip = async {
        let head = format!("{HEAD}Content-Length: 9000\r\n\r\n");
        to.write_all(head.as_bytes()).await.unwrap();
        // Each byte arrives within the timeout, but the rate is too low.
        while to.write_all(b"x").await.is_ok() {
            sleep(Duration::from_millis(50)).await;
        }
    };
    let mut response = [0; 12];
    let answered = timeout(TEST_TIMEOUT, from.read_exact(&mut response));
    tokio::select! {
        read = answered => read.unwrap().unwrap(),
        () = drip => panic!("disconnected before the response"),
    };
    assert_eq!(&response, b"HTTP/1.1 408");

    let mut client = fixture.connect().await;
    let head = format!("{HEAD}Transfer-Encoding: chunked\r\n\r\n");
    client.send(head.as_bytes()).await;
    for _ in 0..60 {
        client.send(b"1\r\nx\r\n").await;
        sleep(Duration::from_millis(50)).await;
    }
    client.send(b"0\r\n\r\n").await;
    assert_eq!(status(&client.read_head().await), 204);
    fixture.stop().await;
}

#[actix_web::test]
async fn a_slow_upstream_does_not_count_against_the_client() {
    const SIZE: usize = 32 << 20;
    let fixture = accepting_uploads(short_upload_limits(), Duration::from_secs(3)).await;
    let mut client = fixture.connect().await;
    let head = format!("{HEAD}Content-Length: {SIZE}\r\n\r\n");
    client.send(head.as_bytes()).await;
    client.send(&vec![b'u'; SIZE]).await;
    assert_eq!(status(&client.read_head().await), 204);
    fixture.stop().await;
}
