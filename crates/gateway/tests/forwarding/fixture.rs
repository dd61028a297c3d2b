//! A listener that forwards all requests, a scripted upstream, and a client that sends and reads bytes.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use actix_web::dev::ServerHandle;
use actix_web::http::StatusCode;
use actix_web::http::header::{HeaderName, HeaderValue};
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use endpoint_guard::Unguarded;
use futures::FutureExt;
use gateway::{ForwardTarget, Gateway, GatewayLimits, SharedGateway};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Deadline of every wait.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(30);

#[expect(
    clippy::disallowed_methods,
    reason = "a script of a test, which ends with its runtime"
)]
pub(crate) fn spawn(work: impl Future<Output = ()> + 'static) {
    actix_web::rt::spawn(work);
}

/// A header of clients that authenticate in their first frame.
pub(crate) const UNAUTHENTICATED_HEADER: &str = "x-unauthenticated";

/// A service that forwards all requests to one upstream.
pub(crate) struct GatewayFixture {
    pub(crate) address: SocketAddr,
    pub(crate) shared: SharedGateway,
    /// Cancelled when all callers lose access.
    pub(crate) revoked: CancellationToken,
    handle: ServerHandle,
}

impl GatewayFixture {
    /// With an upstream that runs this script for each connection.
    pub(crate) async fn with_upstream<F: Future<Output = ()> + 'static>(
        limits: GatewayLimits,
        script: impl Fn(TcpStream) -> F + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let upstream = listener.local_addr().unwrap();
        spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                spawn(script(stream));
            }
        });
        Self::with_upstream_address(limits, upstream)
    }

    pub(crate) fn with_upstream_address(limits: GatewayLimits, upstream: SocketAddr) -> Self {
        let shared = SharedGateway::new(limits, Arc::new(Unguarded));
        let state = shared.clone();
        let revoked = CancellationToken::new();
        let end = revoked.clone();
        let server = HttpServer::new(move || {
            App::new()
                .app_data(web::Data::new(end.clone()))
                .app_data(web::Data::new(Gateway::new(state.clone())))
                .app_data(web::Data::new(upstream))
                .default_service(web::to(pass))
        });
        let server = server
            .workers(1)
            .disable_signals()
            .shutdown_timeout(1)
            .bind("127.0.0.1:0")
            .unwrap();
        let address = server.addrs()[0];
        let server = server.run();
        let handle = server.handle();
        spawn(async move { server.await.unwrap() });
        Self {
            address,
            shared,
            revoked,
            handle,
        }
    }

    pub(crate) async fn connect(&self) -> Client {
        Client(TcpStream::connect(self.address).await.unwrap())
    }

    /// Sends a request and reads until the connection ends.
    pub(crate) async fn send_request(&self, request: &str) -> String {
        let mut client = self.connect().await;
        client.send(request.as_bytes()).await;
        client.read_rest().await
    }

    pub(crate) async fn stop(self) {
        self.handle.stop(false).await;
    }
}

async fn pass(
    req: HttpRequest,
    payload: web::Payload,
    gateway: web::Data<Gateway>,
    upstream: web::Data<SocketAddr>,
    end: web::Data<CancellationToken>,
) -> HttpResponse {
    let target = ForwardTarget {
        sandbox: "one".into(),
        owner: "one".into(),
        unauthenticated: req
            .headers()
            .contains_key(UNAUTHENTICATED_HEADER)
            .then(|| [192, 0, 2, 1].into()),
        base_url: format!("http://{}/", upstream.get_ref()).parse().unwrap(),
        path_and_query: req.uri().path_and_query().unwrap().to_string(),
        headers: vec![(
            HeaderName::from_static("x-session-api-key"),
            HeaderValue::from_static("theirs"),
        )],
        cookies: false,
        prefix: String::new(),
    };
    let end = end.as_ref().clone().cancelled_owned().boxed_local();
    let (payload, gateway) = (payload.into_inner(), gateway.get_ref());
    let response = gateway.forward(&req, payload, &target, end).await;
    response.unwrap_or_else(|failure| {
        let status = StatusCode::from_u16(failure.status()).unwrap();
        HttpResponse::build(status).body(failure.to_string())
    })
}

/// A client, or the server's side of a connection.
pub(crate) struct Client(pub(crate) TcpStream);

impl Client {
    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).await.unwrap();
    }

    /// Reads until the received bytes end with this text, and returns all of them.
    pub(crate) async fn read_until(&mut self, end: &str) -> String {
        let mut got = Vec::new();
        while !got.ends_with(end.as_bytes()) {
            let byte = timeout(TEST_TIMEOUT, self.0.read_u8()).await;
            match byte.unwrap_or_else(|_| panic!("no {end:?} after {:?}", text(&got))) {
                Ok(byte) => got.push(byte),
                Err(error) => panic!("it ends without {end:?} ({error}): {:?}", text(&got)),
            }
        }
        text(&got)
    }

    pub(crate) async fn read_head(&mut self) -> String {
        self.read_until("\r\n\r\n").await
    }

    /// Reads to the end, which may be a reset.
    pub(crate) async fn read_rest(&mut self) -> String {
        let mut got = Vec::new();
        let read = timeout(TEST_TIMEOUT, self.0.read_to_end(&mut got)).await;
        let _ = read.unwrap_or_else(|_| panic!("no end after {:?}", text(&got)));
        text(&got)
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(crate) fn get_request(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
}

pub(crate) fn status(response: &str) -> u16 {
    response
        .split(' ')
        .nth(1)
        .and_then(|word| word.parse().ok())
        .unwrap_or_else(|| panic!("no status in {response:?}"))
}

/// Waits until the condition holds.
pub(crate) async fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let wait = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let held = timeout(TEST_TIMEOUT, wait).await;
    held.unwrap_or_else(|_| panic!("not within {TEST_TIMEOUT:?}: {what}"));
}
