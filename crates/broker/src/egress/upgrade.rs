//! Web sockets: requests after which a connection carries no HTTP (RFC 6455, section 4; RFC 9110, section 7.8).

use hyper::Request;
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderMap, HeaderValue, UPGRADE};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::copy_bidirectional;

/// The only protocol to which a connection may change.
const WEB_SOCKET: &str = "websocket";

/// What becomes of the client's connection, if its request asks for a web socket.
pub(super) fn asked(request: &mut Request<Incoming>) -> Option<OnUpgrade> {
    let protocol = request.headers().get(UPGRADE)?.as_bytes();
    let is_known = protocol.eq_ignore_ascii_case(WEB_SOCKET.as_bytes());
    is_known.then(|| hyper::upgrade::on(request))
}

/// Puts the headers back that belong to one connection each.
pub(super) fn mark(headers: &mut HeaderMap) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static(WEB_SOCKET));
}

/// Both ends of a web socket.
#[derive(Debug)]
pub(super) struct WebSocket {
    pub(super) client: OnUpgrade,
    pub(super) host: OnUpgrade,
}

impl WebSocket {
    /// Passes bytes as they are until either end closes the connection.
    pub(super) async fn run(self) {
        if let (Ok(client), Ok(host)) = tokio::join!(self.client, self.host) {
            // An error is one of the connection.
            let _ = copy_bidirectional(&mut TokioIo::new(client), &mut TokioIo::new(host)).await;
        }
    }
}
