//! Slow clients. Each function opens connections, sends or reads slowly, and returns the outcome.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use futures::future::join_all;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, sleep, timeout};

/// Deadline for the end of a connection: far longer than a busy machine needs.
const WAIT_TIMEOUT: Duration = Duration::from_secs(120);

/// A connection with a small receive buffer.
async fn connect(address: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(16 * 1024)?;
    socket.connect(address).await
}

/// Opens connections in batches that fit into the listener's backlog.
async fn connect_all(address: SocketAddr, count: usize) -> Vec<TcpStream> {
    let mut all = Vec::with_capacity(count);
    while all.len() < count {
        let next = (count - all.len()).min(200);
        let opened = join_all((0..next).map(|_| connect(address))).await;
        all.extend(
            opened
                .into_iter()
                .map(|stream| stream.expect("a connection")),
        );
    }
    all
}

/// Sends single bytes until the service closes the connection, or until the limit. Returns whether it was closed.
async fn send_slowly(mut stream: TcpStream, first: &[u8], limit: Duration) -> bool {
    let started_at = Instant::now();
    if stream.write_all(first).await.is_err() {
        return true;
    }
    let mut answer = [0; 1024];
    while started_at.elapsed() < limit {
        match timeout(Duration::from_millis(500), stream.read(&mut answer)).await {
            Ok(Ok(0) | Err(_)) => return true,
            Ok(Ok(_)) => continue,
            Err(_) => {}
        }
        if stream.write_all(b"a").await.is_err() {
            return true;
        }
    }
    false
}

/// Request heads that never end (slow loris). Returns the number of connections that stay open.
pub(super) async fn slow_heads(address: SocketAddr, count: usize) -> usize {
    let head = b"GET /alive HTTP/1.1\r\nHost: x\r\nX-Slow: ";
    slow(address, count, head.to_vec()).await
}

/// Bodies that never end, with a valid key.
pub(super) async fn slow_bodies(address: SocketAddr, count: usize, key: &str) -> usize {
    let head = format!(
        "POST /api/v1/app-conversations HTTP/1.1\r\nHost: x\r\nX-Session-API-Key: {key}\r\nContent-Type: application/json\r\n\
         Content-Length: 100000\r\n\r\n"
    );
    slow(address, count, head.into_bytes()).await
}

/// Second request heads that never end.
pub(super) async fn slow_second_heads(address: SocketAddr, count: usize) -> usize {
    let heads = "GET /alive HTTP/1.1\r\nHost: x\r\n\r\nGET /alive HTTP/1.1\r\nX-Slow: ";
    slow(address, count, heads.into()).await
}

async fn slow(address: SocketAddr, count: usize, first: Vec<u8>) -> usize {
    let streams = connect_all(address, count).await;
    let each = streams
        .into_iter()
        .map(|stream| send_slowly(stream, &first, WAIT_TIMEOUT));
    let ended = join_all(each).await;
    ended.into_iter().filter(|is_closed| !is_closed).count()
}

/// Idle connections after one request.
pub(super) async fn idle(address: SocketAddr, count: usize) -> Vec<TcpStream> {
    let mut all = connect_all(address, count).await;
    for some in all.chunks_mut(200) {
        join_all(some.iter_mut().map(one_request)).await;
    }
    all
}

/// Connections that have sent this request and read no response.
pub(super) async fn send_without_reading(
    address: SocketAddr,
    count: usize,
    request: &str,
) -> Vec<TcpStream> {
    let mut all = connect_all(address, count).await;
    for stream in &mut all {
        // The service may have closed the connection.
        let _ = stream.write_all(request.as_bytes()).await;
    }
    all
}

/// The number of connections that the service has not closed or reset.
pub(super) fn open(all: &[TcpStream]) -> usize {
    let is_open = |stream: &&TcpStream| {
        let read = stream.try_read(&mut [0; 1]);
        read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    };
    all.iter().filter(is_open).count()
}

/// The service may already have closed the connection.
async fn one_request(stream: &mut TcpStream) {
    let request = b"GET /alive HTTP/1.1\r\nHost: x\r\n\r\n";
    if stream.write_all(request).await.is_ok() {
        let mut answer = [0; 4096];
        let _ = timeout(WAIT_TIMEOUT, stream.read(&mut answer)).await;
    }
}

/// Requests large responses and reads nothing. Returns the number of connections that the service closed.
pub(super) async fn never_reading(address: SocketAddr, count: usize, request: String) -> usize {
    let streams = connect_all(address, count).await;
    let each = streams.into_iter().map(|mut stream| {
        let request = request.clone();
        async move {
            let started_at = Instant::now();
            let mut sent = stream.write_all(request.as_bytes()).await;
            // On a closed connection, the next byte fails with a reset.
            while sent.is_ok() && started_at.elapsed() < WAIT_TIMEOUT {
                sleep(Duration::from_millis(500)).await;
                sent = stream.write_all(b"a").await;
            }
            sent.is_err()
        }
    });
    let cut = join_all(each).await;
    cut.into_iter().filter(|is_cut| *is_cut).count()
}

/// Sends the request and reads the status. 0: the connection ended without a response.
pub(super) async fn statuses(address: SocketAddr, count: usize, request: &[u8]) -> Vec<u16> {
    let all = responses(address, count, request).await;
    all.into_iter().map(|(status, _)| status).collect()
}

/// The same with the whole response.
pub(super) async fn responses(
    address: SocketAddr,
    count: usize,
    request: &[u8],
) -> Vec<(u16, String)> {
    let streams = connect_all(address, count).await;
    let each = streams.into_iter().map(|mut stream| async move {
        // The service may refuse before it has read everything.
        let _ = stream.write_all(request).await;
        let (mut all, mut chunk) = (Vec::new(), [0; 4096]);
        while let Ok(Ok(read @ 1..)) = timeout(WAIT_TIMEOUT, stream.read(&mut chunk)).await {
            all.extend_from_slice(&chunk[..read]);
        }
        let text = String::from_utf8_lossy(&all).into_owned();
        let status = text
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok());
        (status.unwrap_or(0), text)
    });
    join_all(each).await
}
