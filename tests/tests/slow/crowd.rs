//! Clients that take their time: each opens connections, does as little as it can, and says what became of them.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use futures::future::join_all;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, sleep, timeout};

/// Longest wait for the end of a connection, of whatever kind: generous, because the machine may be busy.
const END: Duration = Duration::from_secs(120);

/// A connection, whose client would take little at once.
async fn connect(address: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(16 * 1024)?;
    socket.connect(address).await
}

/// So many at once, however long the queue of the listener is.
async fn connect_all(address: SocketAddr, count: usize) -> Vec<TcpStream> {
    let mut all = Vec::with_capacity(count);
    while all.len() < count {
        let next = (count - all.len()).min(200);
        let opened = join_all((0..next).map(|_| connect(address))).await;
        all.extend(opened.into_iter().map(|it| it.expect("a connection")));
    }
    all
}

/// Sends a byte now and then until the service ends the connection, or for so long; whether it did.
async fn dribble(mut stream: TcpStream, first: &[u8], limit: Duration) -> bool {
    let began = Instant::now();
    if stream.write_all(first).await.is_err() {
        return true;
    }
    let mut answer = [0; 1024];
    while began.elapsed() < limit {
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

/// Heads that never end (slow-loris); how many connections were left open.
pub(super) async fn slow_heads(address: SocketAddr, count: usize) -> usize {
    let head = b"GET /alive HTTP/1.1\r\nHost: x\r\nX-Slow: ";
    slow(address, count, head.to_vec()).await
}

/// Bodies that never end, of requests with a key.
pub(super) async fn slow_bodies(address: SocketAddr, count: usize, key: &str) -> usize {
    let head = format!(
        "POST /api/v1/app-conversations HTTP/1.1\r\nHost: x\r\nX-Session-API-Key: {key}\r\nContent-Type: application/json\r\n\
         Content-Length: 100000\r\n\r\n"
    );
    slow(address, count, head.into_bytes()).await
}

/// Heads that never end, after a first request that did.
pub(super) async fn slow_second_heads(address: SocketAddr, count: usize) -> usize {
    let heads = "GET /alive HTTP/1.1\r\nHost: x\r\n\r\nGET /alive HTTP/1.1\r\nX-Slow: ";
    slow(address, count, heads.into()).await
}

async fn slow(address: SocketAddr, count: usize, first: Vec<u8>) -> usize {
    let streams = connect_all(address, count).await;
    let each = streams.into_iter().map(|it| dribble(it, &first, END));
    let ended = join_all(each).await;
    ended.into_iter().filter(|is_over| !is_over).count()
}

/// Connections with one request behind them.
pub(super) async fn idle(address: SocketAddr, count: usize) -> Vec<TcpStream> {
    let mut all = connect_all(address, count).await;
    for some in all.chunks_mut(200) {
        join_all(some.iter_mut().map(one_request)).await;
    }
    all
}

/// Connections with this request behind them, whose answers are not read.
pub(super) async fn asking(address: SocketAddr, count: usize, request: &str) -> Vec<TcpStream> {
    let mut all = connect_all(address, count).await;
    for stream in &mut all {
        // The service may have given it up.
        let _ = stream.write_all(request.as_bytes()).await;
    }
    all
}

/// How many of them are still open: of the others the end has come, or a reset.
pub(super) fn open(all: &[TcpStream]) -> usize {
    let waits = |stream: &&TcpStream| {
        let read = stream.try_read(&mut [0; 1]);
        read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    };
    all.iter().filter(waits).count()
}

/// The connection may have been given up before.
async fn one_request(stream: &mut TcpStream) {
    let request = b"GET /alive HTTP/1.1\r\nHost: x\r\n\r\n";
    if stream.write_all(request).await.is_ok() {
        let mut answer = [0; 4096];
        let _ = timeout(END, stream.read(&mut answer)).await;
    }
}

/// Sends requests for much, and reads nothing; how many of the connections were cut.
pub(super) async fn never_reading(address: SocketAddr, count: usize, request: String) -> usize {
    let streams = connect_all(address, count).await;
    let each = streams.into_iter().map(|mut stream| {
        let request = request.clone();
        async move {
            let began = Instant::now();
            let mut sent = stream.write_all(request.as_bytes()).await;
            // A connection that is cut answers the next byte with a reset.
            while sent.is_ok() && began.elapsed() < END {
                sleep(Duration::from_millis(500)).await;
                sent = stream.write_all(b"a").await;
            }
            sent.is_err()
        }
    });
    let cut = join_all(each).await;
    cut.into_iter().filter(|is_cut| *is_cut).count()
}

/// Sends all of it, and reads the status; 0: there was none, but the connection ended.
pub(super) async fn statuses(address: SocketAddr, count: usize, request: &[u8]) -> Vec<u16> {
    let all = answers(address, count, request).await;
    all.into_iter().map(|(status, _)| status).collect()
}

/// The same with the whole answer.
pub(super) async fn answers(
    address: SocketAddr,
    count: usize,
    request: &[u8],
) -> Vec<(u16, String)> {
    let streams = connect_all(address, count).await;
    let each = streams.into_iter().map(|mut stream| async move {
        // The service may refuse before it has read everything.
        let _ = stream.write_all(request).await;
        let (mut all, mut piece) = (Vec::new(), [0; 4096]);
        while let Ok(Ok(read @ 1..)) = timeout(END, stream.read(&mut piece)).await {
            all.extend_from_slice(&piece[..read]);
        }
        let text = String::from_utf8_lossy(&all).into_owned();
        let status = text.split(' ').nth(1).and_then(|it| it.parse().ok());
        (status.unwrap_or(0), text)
    });
    join_all(each).await
}
