//! Upgraded connections.

use gateway::GatewayLimits;
use tokio::io::AsyncWriteExt;

use crate::fixture::{Client, GatewayFixture, eventually, status};

const ASK: &[u8] = b"GET /sockets/x HTTP/1.1\r\nHost: h\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\
                     Sec-WebSocket-Key: k\r\nSec-WebSocket-Version: 13\r\n\r\n";
const AGREED: &[u8] =
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                        Sec-WebSocket-Accept: a\r\n\r\nhello";

/// In front of a server that says hello, repeats what it hears until `bye`, and hangs up.
async fn repeating() -> GatewayFixture {
    GatewayFixture::before(GatewayLimits::default(), |stream| async move {
        let mut behind = Client(stream);
        let head = behind.head().await;
        assert!(head.contains("connection: Upgrade") && head.contains("sec-websocket-key: k"));
        behind.send(AGREED).await;
        let mut piece = [0; 4096];
        loop {
            let got = tokio::io::AsyncReadExt::read(&mut behind.0, &mut piece).await;
            let got = got.unwrap_or(0);
            if got == 0 || &piece[..got] == b"bye" {
                return;
            }
            let _ = behind.0.write_all(&piece[..got]).await;
        }
    })
    .await
}

async fn opened(fixture: &GatewayFixture) -> Client {
    let mut client = fixture.connect().await;
    client.send(ASK).await;
    let head = client.head().await;
    assert_eq!(status(&head), 101, "{head}");
    assert!(head.contains("sec-websocket-accept: a"), "{head}");
    assert!(
        head.to_lowercase().contains("connection: upgrade"),
        "{head}"
    );
    assert!(!head.contains("transfer-encoding"), "{head}");
    client.until("hello").await;
    client
}

async fn all_closed(fixture: &GatewayFixture) {
    let open = || fixture.shared.meter().counts().tunnels_open;
    eventually("no tunnel is open", || open() == 0).await;
}

#[actix_web::test]
async fn bytes_go_both_ways_and_the_server_may_end_it() {
    let fixture = repeating().await;
    let mut client = opened(&fixture).await;
    for word in ["one", "two", "\u{0}\u{1}"] {
        client.send(word.as_bytes()).await;
        assert_eq!(client.until(word).await, word);
    }
    assert_eq!(fixture.shared.meter().counts().tunnels_open, 1);
    client.send(b"bye").await;
    assert_eq!(client.rest().await, "");
    all_closed(&fixture).await;
    assert_eq!(fixture.shared.meter().counts().upgraded, 1);
    fixture.stop().await;
}

#[actix_web::test]
async fn much_goes_both_ways_at_once() {
    const SIZE: usize = 8 << 20;
    let fixture = repeating().await;
    let client = opened(&fixture).await;
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
async fn a_client_that_leaves_and_a_service_that_stops_end_it() {
    let fixture = repeating().await;
    let client = opened(&fixture).await;
    drop(client);
    all_closed(&fixture).await;
    let mut client = opened(&fixture).await;
    fixture.shared.end_tunnels();
    client.rest().await;
    all_closed(&fixture).await;
    fixture.stop().await;
}

/// In front of a server that says hello and then never pauses.
async fn pouring() -> GatewayFixture {
    GatewayFixture::before(GatewayLimits::default(), |stream| async move {
        let mut behind = Client(stream);
        behind.head().await;
        behind.send(AGREED).await;
        while behind.0.write_all(&[b'x'; 16 * 1024]).await.is_ok() {}
    })
    .await
}

#[actix_web::test]
async fn revocation_closes_a_tunnel() {
    let fixture = repeating().await;
    let mut client = opened(&fixture).await;
    fixture.revoked.cancel();
    client.rest().await;
    all_closed(&fixture).await;
    fixture.stop().await;

    let fixture = pouring().await;
    let mut client = opened(&fixture).await;
    fixture.revoked.cancel();
    client.rest().await;
    all_closed(&fixture).await;
    fixture.stop().await;
}

/// A client of a WebSocket is told why, in a frame of its own.
#[actix_web::test]
async fn an_end_between_two_frames_says_why() {
    for (code, is_stop) in [(1012_u16, true), (1008, false)] {
        let fixture = GatewayFixture::before(GatewayLimits::default(), |stream| async move {
            let mut behind = Client(stream);
            behind.head().await;
            let (head, _) = AGREED.split_at(AGREED.len() - "hello".len());
            behind.send(&[head, b"\x81\x05hello"].concat()).await;
            behind.rest().await;
        })
        .await;
        let mut client = opened(&fixture).await;
        if is_stop {
            fixture.shared.end_tunnels();
        } else {
            fixture.revoked.cancel();
        }
        let [high, low] = code.to_be_bytes();
        let frame = [0x88, 2, high, low];
        assert_eq!(client.rest().await, String::from_utf8_lossy(&frame));
        all_closed(&fixture).await;
        fixture.stop().await;
    }
}

#[actix_web::test]
async fn revocation_also_closes_a_tunnel_that_is_not_read() {
    let (heard, ended) = tokio::sync::oneshot::channel();
    let heard = std::cell::RefCell::new(Some(heard));
    let fixture = GatewayFixture::before(GatewayLimits::default(), move |stream| {
        let heard = heard.borrow_mut().take();
        async move {
            let mut behind = Client(stream);
            behind.head().await;
            behind.send(AGREED).await;
            let (mut from, mut to) = behind.0.into_split();
            let pour = async { while to.write_all(&[b'x'; 16 * 1024]).await.is_ok() {} };
            // Whether anything still gets through to here.
            let listen = async {
                let mut all = Vec::new();
                let _ = tokio::io::AsyncReadExt::read_to_end(&mut from, &mut all).await;
                let _ = heard.map(|heard| heard.send(()));
            };
            tokio::join!(pour, listen);
        }
    })
    .await;
    let client = opened(&fixture).await;
    // The buffer is full, because the client does not read.
    let down = || fixture.shared.meter().counts().bytes_down;
    let mut before = 0;
    eventually("nothing more fits", || {
        let now = down();
        let is_full = now > 1 << 16 && now == before;
        before = now;
        is_full
    })
    .await;
    fixture.revoked.cancel();
    let ended = tokio::time::timeout(crate::fixture::TEST_TIMEOUT, ended).await;
    ended.expect("the server behind is told").unwrap();
    drop(client);
    all_closed(&fixture).await;
    fixture.stop().await;
}

#[actix_web::test]
async fn a_refusal_is_handed_on() {
    let fixture = GatewayFixture::before(GatewayLimits::default(), |stream| async move {
        let mut behind = Client(stream);
        behind.head().await;
        behind
            .send(
                b"HTTP/1.1 403 Forbidden\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n",
            )
            .await;
    })
    .await;
    let mut client = fixture.connect().await;
    client.send(ASK).await;
    let answer = client.rest().await;
    assert_eq!(status(&answer), 403);
    assert!(
        answer.contains("content-length: 2") && answer.ends_with("\r\n\r\nno"),
        "{answer}"
    );
    all_closed(&fixture).await;
    fixture.stop().await;
}
