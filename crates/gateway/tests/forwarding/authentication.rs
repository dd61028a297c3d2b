//! Sockets whose clients authenticate to the server behind in their first frame.

use std::time::Duration;

use gateway::GatewayLimits;

use crate::fixture::{Client, GatewayFixture, UNAUTHENTICATED, eventually, get, status};

const AGREED: &[u8] =
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n";
/// A text of a client, `{}`, masked with zeros.
const FRAME: &[u8] = b"\x81\x82\0\0\0\0{}";
const LONG: Duration = Duration::from_secs(600);
const SHORT: Duration = Duration::from_millis(50);

fn limits() -> GatewayLimits {
    GatewayLimits {
        authentication_timeout: LONG,
        authentication_grace: LONG,
        ..GatewayLimits::default()
    }
}

/// In front of a server that answers the first thing that it hears with this, and then hears more.
async fn answering(limits: GatewayLimits, answer: &'static [u8]) -> GatewayFixture {
    GatewayFixture::before(limits, move |stream| async move {
        let mut behind = Client(stream);
        behind.head().await;
        behind.send(AGREED).await;
        let mut piece = [0; 64];
        let read = tokio::io::AsyncReadExt::read(&mut behind.0, &mut piece).await;
        if read.is_ok_and(|count| count > 0) {
            behind.send(answer).await;
        }
        behind.rest().await;
    })
    .await
}

async fn opened(fixture: &GatewayFixture) -> Client {
    let mut client = fixture.connect().await;
    let ask = format!(
        "GET /sockets/x HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n{UNAUTHENTICATED}: 1\r\n\r\n"
    );
    client.send(ask.as_bytes()).await;
    let head = client.head().await;
    assert_eq!(status(&head), 101, "{head}");
    client
}

/// What a client reads whose socket we close with this code.
fn closed_with(code: u16) -> String {
    let [high, low] = code.to_be_bytes();
    String::from_utf8_lossy(&[0x88, 2, high, low]).into_owned()
}

async fn all_closed(fixture: &GatewayFixture) {
    let open = || fixture.shared.meter().counts().tunnels_open;
    eventually("no tunnel is open", || open() == 0).await;
}

#[actix_web::test]
async fn a_client_that_says_nothing_is_closed() {
    let limits = GatewayLimits {
        authentication_timeout: SHORT,
        ..limits()
    };
    let fixture = answering(limits, b"").await;
    let mut silent = opened(&fixture).await;
    assert_eq!(silent.rest().await, closed_with(1008));
    // A frame that never ends is none.
    let mut slow = opened(&fixture).await;
    slow.send(&FRAME[..3]).await;
    assert_eq!(slow.rest().await, closed_with(1008));
    all_closed(&fixture).await;
    fixture.stop().await;
}

#[actix_web::test]
async fn an_accepted_client_stays_and_makes_room_for_others() {
    let limits = GatewayLimits {
        max_unauthenticated_per_sandbox: 1,
        authentication_timeout: LONG,
        ..limits()
    };
    let fixture = answering(limits, b"\x81\x05state").await;
    let mut accepted = Vec::new();
    for _ in 0..3 {
        let mut client = opened(&fixture).await;
        client.send(FRAME).await;
        client.until("state").await;
        accepted.push(client);
    }
    // They are known by now: none of them goes for this one, which goes for the next.
    let mut silent = opened(&fixture).await;
    let next = opened(&fixture).await;
    assert_eq!(silent.rest().await, closed_with(1013));
    let open = || fixture.shared.meter().counts().tunnels_open;
    eventually("the silent one is gone", || open() == 4).await;
    drop((accepted, next));
    all_closed(&fixture).await;
    fixture.stop().await;
}

#[actix_web::test]
async fn a_client_that_is_refused_and_stays_is_cut() {
    let limits = GatewayLimits {
        authentication_grace: SHORT,
        ..limits()
    };
    // 4001, as agent servers say it.
    let fixture = answering(limits, b"\x88\x02\x0f\xa1").await;
    let mut client = opened(&fixture).await;
    client.send(FRAME).await;
    assert_eq!(client.rest().await, closed_with(4001));
    all_closed(&fixture).await;
    fixture.stop().await;
}

#[actix_web::test]
async fn a_client_that_makes_room_before_the_upgrade_is_told() {
    let limits = GatewayLimits {
        max_unauthenticated_per_client: 1,
        ..limits()
    };
    let fixture = GatewayFixture::before(limits, |stream| async move {
        let mut behind = Client(stream);
        let head = behind.head().await;
        if head.starts_with("GET /slow") {
            behind.rest().await;
        }
        behind.send(AGREED).await;
        behind.rest().await;
    })
    .await;
    let mut slow = fixture.connect().await;
    let ask = get("/slow").replace(
        "close",
        "Upgrade\r\nUpgrade: websocket\r\nX-Unauthenticated: 1",
    );
    slow.send(ask.as_bytes()).await;
    let open = || fixture.shared.meter().counts().tunnels_open;
    eventually("it is under way", || open() == 1).await;
    let next = opened(&fixture).await;
    assert_eq!(status(&slow.rest().await), 429);
    drop(next);
    all_closed(&fixture).await;
    fixture.stop().await;
}
