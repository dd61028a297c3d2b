//! Upgraded connections.

use gateway::GatewayLimits;
use tokio::io::AsyncWriteExt;

use crate::fixture::{Client, GatewayFixture, status, wait_until};

const UPGRADE_REQUEST: &[u8] = b"GET /sockets/x HTTP/1.1\r\nHost: h\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\
                     Sec-WebSocket-Key: k\r\nSec-WebSocket-Version: 13\r\n\r\n";
const SWITCHING_PROTOCOLS: &[u8] =
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                        Sec-WebSocket-Accept: a\r\n\r\nhello";

/// An upstream that sends `hello`, repeats the bytes that it receives, and disconnects at `bye`.
async fn echoing() -> GatewayFixture {
    GatewayFixture::with_upstream(GatewayLimits::default(), |stream| async move {
        let mut upstream = Client(stream);
        let head = upstream.read_head().await;
        assert!(head.contains("connection: Upgrade") && head.contains("sec-websocket-key: k"));
        upstream.send(SWITCHING_PROTOCOLS).await;
        let mut piece = [0; 4096];
        loop {
            let got = tokio::io::AsyncReadExt::read(&mut upstream.0, &mut piece).await;
            let got = got.unwrap_or(0);
            if got == 0 || &piece[..got] == b"bye" {
                return;
            }
            let _ = upstream.0.write_all(&piece[..got]).await;
        }
    })
    .await
}

async fn open_tunnel(fixture: &GatewayFixture) -> Client {
    let mut client = fixture.connect().await;
    client.send(UPGRADE_REQUEST).await;
    let head = client.read_head().await;
    assert_eq!(status(&head), 101, "{head}");
    assert!(head.contains("sec-websocket-accept: a"), "{head}");
    assert!(
        head.to_lowercase().contains("connection: upgrade"),
        "{head}"
    );
    assert!(!head.contains("transfer-encoding"), "{head}");
    client.read_until("hello").await;
    client
}

async fn all_closed(fixture: &GatewayFixture) {
    let open = || fixture.shared.meter().counts().tunnels_open;
    wait_until("no tunnel is open", || open() == 0).await;
}

#[actix_web::test]
async fn bytes_pass_in_both_directions_until_the_upstream_closes() {
    let fixture = echoing().await;
    let mut client = open_tunnel(&fixture).await;
    for word in ["one", "two", "\u{0}\u{1}"] {
        client.send(word.as_bytes()).await;
        assert_eq!(client.read_until(word).await, word);
    }
    assert_eq!(fixture.shared.meter().counts().tunnels_open, 1);
    client.send(b"bye").await;
    assert_eq!(client.read_rest().await, "");
    all_closed(&fixture).await;
    assert_eq!(fixture.shared.meter().counts().upgraded, 1);
    fixture.stop().await;
}

#[actix_web::test]
async fn large_amounts_pass_in_both_directions_concurrently() {
    const SIZE: usize = 8 << 20;
    let fixture = echoing().await;
    let client = open_tunnel(&fixture).await;
    let (mut from, mut to) = client.0.into_split();
    let write = async {
        to.write_all(&vec![b'm'; SIZE]).await.unwrap();
    };
    let mut got = vec![0; SIZE];
    let read = tokio::io::AsyncReadExt::read_exact(&mut from, &mut got);
    let (read, ()) = tokio::join!(read, write);
    read.unwrap();
    assert!(got.iter().all(|byte| *byte == b'm'));
    fixture.stop().await;
}

#[actix_web::test]
async fn a_tunnel_ends_with_its_client_and_with_the_service() {
    let fixture = echoing().await;
    let client = open_tunnel(&fixture).await;
    drop(client);
    all_closed(&fixture).await;
    let mut client = open_tunnel(&fixture).await;
    fixture.shared.end_tunnels();
    client.read_rest().await;
    all_closed(&fixture).await;
    fixture.stop().await;
}

/// An upstream that sends `hello` and then sends without pause.
async fn flooding() -> GatewayFixture {
    GatewayFixture::with_upstream(GatewayLimits::default(), |stream| async move {
        let mut upstream = Client(stream);
        upstream.read_head().await;
        upstream.send(SWITCHING_PROTOCOLS).await;
        while upstream.0.write_all(&[b'x'; 16 * 1024]).await.is_ok() {}
    })
    .await
}

#[actix_web::test]
async fn revocation_closes_a_tunnel() {
    let fixture = echoing().await;
    let mut client = open_tunnel(&fixture).await;
    fixture.revoked.cancel();
    client.read_rest().await;
    all_closed(&fixture).await;
    fixture.stop().await;

    let fixture = flooding().await;
    let mut client = open_tunnel(&fixture).await;
    fixture.revoked.cancel();
    client.read_rest().await;
    all_closed(&fixture).await;
    fixture.stop().await;
}

#[actix_web::test]
async fn a_close_frame_between_frames_carries_the_reason() {
    for (code, is_stop) in [(1012_u16, true), (1008, false)] {
        let fixture =
            GatewayFixture::with_upstream(GatewayLimits::default(), |stream| async move {
                let mut upstream = Client(stream);
                upstream.read_head().await;
                let (head, _) =
                    SWITCHING_PROTOCOLS.split_at(SWITCHING_PROTOCOLS.len() - "hello".len());
                upstream.send(&[head, b"\x81\x05hello"].concat()).await;
                upstream.read_rest().await;
            })
            .await;
        let mut client = open_tunnel(&fixture).await;
        if is_stop {
            fixture.shared.end_tunnels();
        } else {
            fixture.revoked.cancel();
        }
        let [high, low] = code.to_be_bytes();
        let frame = [0x88, 2, high, low];
        assert_eq!(client.read_rest().await, String::from_utf8_lossy(&frame));
        all_closed(&fixture).await;
        fixture.stop().await;
    }
}

#[actix_web::test]
async fn revocation_also_closes_a_tunnel_that_is_not_read() {
    let (heard, ended) = tokio::sync::oneshot::channel();
    let heard = std::cell::RefCell::new(Some(heard));
    let fixture = GatewayFixture::with_upstream(GatewayLimits::default(), move |stream| {
        let heard = heard.borrow_mut().take();
        async move {
            let mut upstream = Client(stream);
            upstream.read_head().await;
            upstream.send(SWITCHING_PROTOCOLS).await;
            let (mut from, mut to) = upstream.0.into_split();
            let pour = async { while to.write_all(&[b'x'; 16 * 1024]).await.is_ok() {} };
            // Ends when the gateway closes the connection.
            let listen = async {
                let mut all = Vec::new();
                let _ = tokio::io::AsyncReadExt::read_to_end(&mut from, &mut all).await;
                let _ = heard.map(|heard| heard.send(()));
            };
            tokio::join!(pour, listen);
        }
    })
    .await;
    let client = open_tunnel(&fixture).await;
    // The buffer is full, because the client does not read.
    let down = || fixture.shared.meter().counts().bytes_down;
    let mut before = 0;
    wait_until("the buffers are full", || {
        let now = down();
        let is_full = now > 1 << 16 && now == before;
        before = now;
        is_full
    })
    .await;
    fixture.revoked.cancel();
    let ended = tokio::time::timeout(crate::fixture::TEST_TIMEOUT, ended).await;
    ended
        .expect("the upstream sees the end of its connection")
        .unwrap();
    drop(client);
    all_closed(&fixture).await;
    fixture.stop().await;
}

#[actix_web::test]
async fn a_refused_upgrade_is_forwarded() {
    let fixture = GatewayFixture::with_upstream(GatewayLimits::default(), |stream| async move {
        let mut upstream = Client(stream);
        upstream.read_head().await;
        upstream
            .send(
                b"HTTP/1.1 403 Forbidden\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n",
            )
            .await;
    })
    .await;
    let mut client = fixture.connect().await;
    client.send(UPGRADE_REQUEST).await;
    let response = client.read_rest().await;
    assert_eq!(status(&response), 403);
    assert!(
        response.contains("content-length: 2") && response.ends_with("\r\n\r\nno"),
        "{response}"
    );
    all_closed(&fixture).await;
    fixture.stop().await;
}
