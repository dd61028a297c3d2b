//! Requests whose sender may not have their answer any more, and bodies that come too slowly.

use std::time::Duration;

use gateway::GatewayLimits;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use crate::fixture::{Client, GatewayFixture, TEST_TIMEOUT, eventually, get, status};

const BEGUN: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n";

/// In front of a server that answers each request with this, and no more; and whoever is told when one of its connections is
/// over.
async fn saying(answer: &'static [u8]) -> (GatewayFixture, mpsc::UnboundedReceiver<()>) {
    let (over, ended) = mpsc::unbounded_channel();
    let fixture = GatewayFixture::before(GatewayLimits::default(), move |stream| {
        let over = over.clone();
        async move {
            let mut behind = Client(stream);
            behind.head().await;
            behind.send(answer).await;
            behind.rest().await;
            let _ = over.send(());
        }
    })
    .await;
    (fixture, ended)
}

async fn is_over(fixture: &GatewayFixture, mut ended: mpsc::UnboundedReceiver<()>) {
    let told = timeout(TEST_TIMEOUT, ended.recv()).await;
    told.expect("the server behind is told").unwrap();
    let open = || fixture.shared.meter().counts().requests_open;
    eventually("no request is open", || open() == 0).await;
}

#[actix_web::test]
async fn revocation_truncates_a_response() {
    let (fixture, ended) = saying(BEGUN).await;
    let mut client = fixture.connect().await;
    client.send(get("/").as_bytes()).await;
    client.until("first\r\n").await;
    fixture.revoked.cancel();
    assert_eq!(client.rest().await, "", "its end is not said");
    is_over(&fixture, ended).await;
    fixture.stop().await;
}

#[actix_web::test]
async fn revocation_also_truncates_busy_and_unread_responses() {
    for reads in [true, false] {
        let fixture = GatewayFixture::before(GatewayLimits::default(), |stream| async move {
            let mut behind = Client(stream);
            behind.head().await;
            behind.send(BEGUN).await;
            let chunk = format!("4000\r\n{}\r\n", "x".repeat(0x4000));
            while behind.0.write_all(chunk.as_bytes()).await.is_ok() {}
        })
        .await;
        let mut client = fixture.connect().await;
        client.send(get("/").as_bytes()).await;
        client.until("first\r\n").await;
        fixture.revoked.cancel();
        let open = || fixture.shared.meter().counts().requests_open;
        if reads {
            let rest = client.rest().await;
            assert!(!rest.ends_with("0\r\n\r\n"), "it is not whole");
        }
        eventually("no request is open", || open() == 0).await;
        fixture.stop().await;
    }
}

#[actix_web::test]
async fn a_request_without_a_response_fails_on_revocation() {
    let head = "Host: h\r\nConnection: close\r\n";
    for request in [
        get("/"),
        format!("POST / HTTP/1.1\r\n{head}Content-Length: 9\r\n\r\nxx"),
        format!("POST / HTTP/1.1\r\n{head}Content-Length: 2\r\n\r\nxx"),
        format!("POST / HTTP/1.1\r\n{head}Transfer-Encoding: chunked\r\n\r\n2\r\nxx\r\n"),
    ] {
        let (fixture, ended) = saying(b"").await;
        let mut client = fixture.connect().await;
        client.send(request.as_bytes()).await;
        let open = || fixture.shared.meter().counts().requests_open;
        eventually("it is under way", || open() == 1).await;
        fixture.revoked.cancel();
        assert_eq!(status(&client.head().await), 409, "{request}");
        is_over(&fixture, ended).await;
        fixture.stop().await;
    }
}

/// In front of a server that takes a body after this time and says that it was whole.
async fn taking(limits: GatewayLimits, after: Duration) -> GatewayFixture {
    GatewayFixture::before(limits, move |stream| async move {
        let mut behind = Client(stream);
        let head = behind.head().await;
        sleep(after).await;
        if head.contains("content-length") {
            let length = head.split("content-length: ").nth(1).unwrap();
            let length = length.split("\r\n").next().unwrap().parse().unwrap();
            let mut body = vec![0; length];
            if behind.0.read_exact(&mut body).await.is_err() {
                return;
            }
        } else {
            behind.until("0\r\n\r\n").await;
        }
        behind.send(b"HTTP/1.1 204 No Content\r\n\r\n").await;
    })
    .await
}

/// What a client may do in a second and a half is here what it may do in a minute.
fn hasty() -> GatewayLimits {
    GatewayLimits {
        upload_timeout: Duration::from_millis(1500),
        min_upload_bytes: 1_000,
        ..GatewayLimits::default()
    }
}

const HEAD: &str = "POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n";

#[actix_web::test]
async fn a_file_that_comes_in_drops_is_cut_and_a_conversation_is_not() {
    let fixture = taking(hasty(), Duration::ZERO).await;
    let (mut from, mut to) = fixture.connect().await.0.into_split();
    let drip = async {
        let head = format!("{HEAD}Content-Length: 9000\r\n\r\n");
        to.write_all(head.as_bytes()).await.unwrap();
        // Each piece comes in time, and all of them together would not.
        while to.write_all(b"x").await.is_ok() {
            sleep(Duration::from_millis(50)).await;
        }
    };
    let mut answer = [0; 12];
    let answered = timeout(TEST_TIMEOUT, from.read_exact(&mut answer));
    tokio::select! {
        read = answered => read.unwrap().unwrap(),
        () = drip => panic!("cut before it was answered"),
    };
    assert_eq!(&answer, b"HTTP/1.1 408");

    let mut client = fixture.connect().await;
    let head = format!("{HEAD}Transfer-Encoding: chunked\r\n\r\n");
    client.send(head.as_bytes()).await;
    for _ in 0..60 {
        client.send(b"1\r\nx\r\n").await;
        sleep(Duration::from_millis(50)).await;
    }
    client.send(b"0\r\n\r\n").await;
    assert_eq!(status(&client.head().await), 204);
    fixture.stop().await;
}

#[actix_web::test]
async fn a_server_behind_that_takes_its_time_is_not_the_clients_fault() {
    const SIZE: usize = 32 << 20;
    let fixture = taking(hasty(), Duration::from_secs(3)).await;
    let mut client = fixture.connect().await;
    let head = format!("{HEAD}Content-Length: {SIZE}\r\n\r\n");
    client.send(head.as_bytes()).await;
    client.send(&vec![b'u'; SIZE]).await;
    assert_eq!(status(&client.head().await), 204);
    fixture.stop().await;
}
