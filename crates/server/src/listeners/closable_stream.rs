//! A client connection that any thread can close.
//!
//! The server's worker owns the socket. A second descriptor for other threads would halve the connections that the
//! limit of open files allows. Other threads therefore cancel a token, and the worker then reads the end of the stream.

use std::cell::{OnceCell, Ref, RefCell};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http_api::ClientConnection;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// A connection that can be closed from another thread.
pub(crate) struct ClosableStream {
    stream: Rc<RefCell<TcpStream>>,
    /// Closes the connection from any thread: reads return its end, and writes fail.
    close_token: CancellationToken,
    closed: Pin<Box<WaitForCancellationFutureOwned>>,
    connection: Rc<OnceCell<Arc<ClientConnection>>>,
}

/// A connection after its server has dropped it.
pub(crate) struct StreamRemainder {
    stream: Rc<RefCell<TcpStream>>,
    close_token: CancellationToken,
    /// The connection counts until this is dropped.
    connection: Rc<OnceCell<Arc<ClientConnection>>>,
}

impl ClosableStream {
    /// The stream for the server, and what remains when the server has dropped it.
    pub(crate) fn new(stream: TcpStream) -> (Self, StreamRemainder) {
        let stream = Rc::new(RefCell::new(stream));
        let close_token = CancellationToken::new();
        let connection = Rc::default();
        let remainder = StreamRemainder {
            stream: Rc::clone(&stream),
            close_token: close_token.clone(),
            connection: Rc::clone(&connection),
        };
        let stream = Self {
            stream,
            closed: Box::pin(close_token.clone().cancelled_owned()),
            close_token,
            connection,
        };
        (stream, remainder)
    }

    pub(crate) fn stream(&self) -> Ref<'_, TcpStream> {
        self.stream.borrow()
    }

    pub(crate) fn close_token(&self) -> &CancellationToken {
        &self.close_token
    }

    /// Counts the connection until its remainder is dropped.
    pub(crate) fn count_as(&self, connection: Arc<ClientConnection>) {
        // It is set once, when the stream is accepted.
        let _ = self.connection.set(connection);
    }

    /// Polls the connection, unless it is closed. Also wakes a pending task on close.
    fn poll_unless_closed<T>(
        &mut self,
        cx: &mut Context<'_>,
        closed: impl FnOnce() -> io::Result<T>,
        poll: impl FnOnce(Pin<&mut TcpStream>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if self.closed.as_mut().poll(cx).is_ready() {
            return Poll::Ready(closed());
        }
        poll(Pin::new(&mut *self.stream.borrow_mut()), cx)
    }

    /// Reads and discards received bytes: closing a socket with unread bytes resets it, and the client may lose the
    /// last response.
    fn discard_received(&self) {
        for _ in 0..4 {
            if !discard(&self.stream()).is_ok_and(|read| read > 0) {
                return;
            }
        }
    }
}

impl StreamRemainder {
    /// Shuts down the write side and reads until the client closes too, for a while: closing a socket with unread bytes
    /// resets it, and the client may lose the response. Ends when another thread closes the connection.
    pub(crate) async fn linger(self, time_limit: Duration) {
        let Self {
            stream,
            close_token,
            connection: _connection,
        } = self;
        let Some(mut stream) = Rc::into_inner(stream).map(RefCell::into_inner) else {
            return;
        };
        let drain = async {
            stream.shutdown().await?;
            loop {
                stream.readable().await?;
                match discard(&stream) {
                    Ok(0) => return io::Result::Ok(()),
                    Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                    _ => {}
                }
            }
        };
        tokio::select! {
            () = close_token.cancelled() => {}
            // The connection is closed in any case.
            _ = timeout(time_limit, drain) => {}
        }
    }
}

/// A separate function keeps the buffer out of the future, which exists for each connection.
fn discard(stream: &TcpStream) -> io::Result<usize> {
    stream.try_read(&mut [0; 16 * 1024])
}

fn broken<T>() -> io::Result<T> {
    Err(io::ErrorKind::BrokenPipe.into())
}

impl AsyncRead for ClosableStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = self.poll_unless_closed(cx, || Ok(()), |stream, cx| stream.poll_read(cx, buf));
        if self.close_token.is_cancelled() {
            self.discard_received();
        }
        // Zero bytes read mean the end of the stream.
        read
    }
}

impl AsyncWrite for ClosableStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_unless_closed(cx, broken, |stream, cx| stream.poll_write(cx, buf))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_unless_closed(cx, broken, |stream, cx| {
            stream.poll_write_vectored(cx, bufs)
        })
    }

    fn is_write_vectored(&self) -> bool {
        self.stream().is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.stream.borrow_mut()).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.stream.borrow_mut()).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    async fn pair() -> (ClosableStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap());
        let (client, accepted) = tokio::join!(client, listener.accept());
        (ClosableStream::new(accepted.unwrap().0).0, client.unwrap())
    }

    #[tokio::test]
    async fn a_stream_carries_bytes_until_it_is_closed() {
        let (mut ours, mut client) = pair().await;
        client.write_all(b"query").await.unwrap();
        let mut received = [0; 5];
        ours.read_exact(&mut received).await.unwrap();
        ours.write_all(b"answer").await.unwrap();
        let mut answer = [0; 6];
        client.read_exact(&mut answer).await.unwrap();
        assert_eq!((&received, &answer), (b"query", b"answer"));
        client.write_all(b"rest").await.unwrap();
        ours.close_token().cancel();
        assert_eq!(ours.read(&mut received).await.unwrap(), 0);
        let refused = ours.write(b"x").await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::BrokenPipe);
    }

    /// Closes the stream from another thread while the joined future waits.
    fn close_from_another_thread(close_token: CancellationToken) -> impl Future<Output = ()> {
        futures::future::lazy(|_| {
            let thread = std::thread::spawn(move || close_token.cancel());
            thread.join().unwrap();
        })
    }

    #[tokio::test]
    async fn a_pending_read_ends_when_the_stream_is_closed() {
        let (mut ours, _client) = pair().await;
        let close_token = ours.close_token().clone();
        let mut received = [0; 8];
        let (read, ()) = tokio::join!(
            ours.read(&mut received),
            close_from_another_thread(close_token)
        );
        assert_eq!(read.unwrap(), 0);
    }

    #[tokio::test]
    async fn a_pending_write_fails_when_the_stream_is_closed() {
        let (mut ours, _client) = pair().await;
        let close_token = ours.close_token().clone();
        let large_body = vec![0; 64 << 20];
        let (written, ()) = tokio::join!(
            ours.write_all(&large_body),
            close_from_another_thread(close_token)
        );
        assert_eq!(written.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[tokio::test]
    async fn a_client_that_still_sends_receives_the_whole_response() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap());
        let (client, accepted) = tokio::join!(client, listener.accept());
        let (mut ours, remainder) = ClosableStream::new(accepted.unwrap().0);
        let mut client = client.unwrap();
        ours.write_all(b"431").await.unwrap();
        drop(ours);
        let rest = vec![0; 8 << 20];
        let talk = async {
            client.write_all(&rest).await.unwrap();
            client.shutdown().await.unwrap();
            let mut answer = String::new();
            client.read_to_string(&mut answer).await.unwrap();
            answer
        };
        let (answer, ()) = tokio::join!(talk, remainder.linger(Duration::from_secs(30)));
        assert_eq!(answer, "431");
    }
}
