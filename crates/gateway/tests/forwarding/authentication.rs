//! Tunnels whose clients authenticate to the upstream in their first frame.

use std::time::Duration;

use gateway::GatewayLimits;

use crate::fixture::{
    Client, GatewayFixture, UNAUTHENTICATED_HEADER, get_request, status, wait_until,
};

const SWITCHING_PROTOCOLS: &[u8] =
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n";
/// A text frame of a client with the payload `{}`, masked with zeros.
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

/// An upstream that sends this response after the first bytes of the client, and then reads on.
async fn responding_to_first_frame(
    limits: GatewayLimits,
    response: &'static [u8],
) -> GatewayFixture {
    GatewayFixture::with_upstream(limits, move |stream| async move {
        let mut upstream = Client(stream);
        upstream.read_head().await;
        upstream.send(SWITCHING_PROTOCOLS).await;
        let mut piece = [0; 64];
        let read = tokio::io::AsyncReadExt::read(&mut upstream.0, &mut piece).await;
        if read.is_ok_and(|count| count > 0) {
            upstream.send(response).await;
        }
        upstream.read_rest().await;
    })
    .await
}

async fn open_tunnel(fixture: &GatewayFixture) -> Client {
    let mut client = fixture.connect().await;
    let request = format!(
        "GET /sockets/x HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n{UNAUTHENTICATED_HEADER}: 1\r\n\r\n"
    );
    client.send(request.as_bytes()).await;
    let head = client.read_head().await;
    assert_eq!(status(&head), 101, "{head}");
    client
}

/// The close frame with this code.
fn closed_with(code: u16) -> String {
    let [high, low] = code.to_be_bytes();
    String::from_utf8_lossy(&[0x88, 2, high, low]).into_owned()
}

async fn all_closed(fixture: &GatewayFixture) {
    let open = || fixture.shared.meter().counts().tunnels_open;
    wait_until("no tunnel is open", || open() == 0).await;
}

#[actix_web::test]
async fn a_silent_client_is_disconnected() {
    let limits = GatewayLimits {
        authentication_timeout: SHORT,
        ..limits()
    };
    let fixture = responding_to_first_frame(limits, b"").await;
    let mut silent = open_tunnel(&fixture).await;
    assert_eq!(silent.read_rest().await, closed_with(1008));
    // An incomplete frame does not count.
    let mut slow = open_tunnel(&fixture).await;
    slow.send(&FRAME[..3]).await;
    assert_eq!(slow.read_rest().await, closed_with(1008));
    all_closed(&fixture).await;
    fixture.stop().await;
}

#[actix_web::test]
async fn an_accepted_client_keeps_its_tunnel_and_frees_its_admission() {
    let limits = GatewayLimits {
        max_unauthenticated_per_sandbox: 1,
        authentication_timeout: LONG,
        ..limits()
    };
    let fixture = responding_to_first_frame(limits, b"\x81\x05state").await;
    let mut accepted = Vec::new();
    for _ in 0..3 {
        let mut client = open_tunnel(&fixture).await;
        client.send(FRAME).await;
        client.read_until("state").await;
        accepted.push(client);
    }
    // The accepted clients are authenticated, so the next client evicts only the silent one.
    let mut silent = open_tunnel(&fixture).await;
    let next = open_tunnel(&fixture).await;
    assert_eq!(silent.read_rest().await, closed_with(1013));
    let open = || fixture.shared.meter().counts().tunnels_open;
    wait_until("the silent client is evicted", || open() == 4).await;
    drop((accepted, next));
    all_closed(&fixture).await;
    fixture.stop().await;
}

#[actix_web::test]
async fn a_refused_client_that_stays_is_disconnected() {
    let limits = GatewayLimits {
        authentication_grace: SHORT,
        ..limits()
    };
    // Close code 4001, which agent servers send.
    let fixture = responding_to_first_frame(limits, b"\x88\x02\x0f\xa1").await;
    let mut client = open_tunnel(&fixture).await;
    client.send(FRAME).await;
    assert_eq!(client.read_rest().await, closed_with(4001));
    all_closed(&fixture).await;
    fixture.stop().await;
}

#[actix_web::test]
async fn a_client_evicted_before_the_upgrade_gets_an_error() {
    let limits = GatewayLimits {
        max_unauthenticated_per_client: 1,
        ..limits()
    };
    let fixture = GatewayFixture::with_upstream(limits, |stream| async move {
        let mut upstream = Client(stream);
        let head = upstream.read_head().await;
        if head.starts_with("GET /slow") {
            upstream.read_rest().await;
        }
        upstream.send(SWITCHING_PROTOCOLS).await;
        upstream.read_rest().await;
    })
    .await;
    let mut slow = fixture.connect().await;
    let request = get_request("/slow").replace(
        "close",
        "Upgrade\r\nUpgrade: websocket\r\nX-Unauthenticated: 1",
    );
    slow.send(request.as_bytes()).await;
    let open = || fixture.shared.meter().counts().tunnels_open;
    wait_until("the request is open", || open() == 1).await;
    let next = open_tunnel(&fixture).await;
    assert_eq!(status(&slow.read_rest().await), 429);
    drop(next);
    all_closed(&fixture).await;
    fixture.stop().await;
}
