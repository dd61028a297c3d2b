//! A client connection that any thread can close.
//!
//! The server's worker owns the socket. A second descriptor for other threads would halve the connections that the
//! limit of open files allows. Other threads therefore set a flag and wake the worker, which then reads the end of the
//! stream.

use std::cell::{OnceCell, Ref, RefCell};
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::task::AtomicWaker;
use http_api::ClientConnection;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// A connection that can be closed from another thread.
pub(crate) struct ClosableStream {
    stream: Rc<RefCell<TcpStream>>,
    close_handle: Arc<CloseHandle>,
    connection: Rc<OnceCell<Arc<ClientConnection>>>,
}

/// A connection after its server has dropped it.
pub(crate) struct StreamRemainder {
    stream: Rc<RefCell<TcpStream>>,
    close_handle: Arc<CloseHandle>,
    /// The connection counts until this is dropped.
    connection: Rc<OnceCell<Arc<ClientConnection>>>,
}

/// Closes a connection from any thread.
#[derive(Debug, Default)]
pub(crate) struct CloseHandle {
    is_closed: AtomicBool,
    /// One task both reads and writes, so one waker is enough.
    waiting: AtomicWaker,
}

impl CloseHandle {
    /// Closes the connection: reads return its end, and writes fail.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.waiting.wake();
    }

    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    async fn closed(&self) {
        poll_fn(|cx| {
            self.waiting.register(cx.waker());
            if self.is_closed() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }
}

impl ClosableStream {
    /// The stream for the server, and what remains when the server has dropped it.
    pub(crate) fn new(stream: TcpStream) -> (Self, StreamRemainder) {
        let stream = Rc::new(RefCell::new(stream));
        let close_handle: Arc<CloseHandle> = Arc::default();
        let connection = Rc::default();
        let remainder = StreamRemainder {
            stream: Rc::clone(&stream),
            close_handle: Arc::clone(&close_handle),
            connection: Rc::clone(&connection),
        };
        let stream = Self {
            stream,
            close_handle,
            connection,
        };
        (stream, remainder)
    }

    pub(crate) fn stream(&self) -> Ref<'_, TcpStream> {
        self.stream.borrow()
    }

    pub(crate) fn close_handle(&self) -> &Arc<CloseHandle> {
        &self.close_handle
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
        closed: impl Fn() -> io::Result<T>,
        poll: impl FnOnce(Pin<&mut TcpStream>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if self.is_closed() {
            return Poll::Ready(closed());
        }
        let result = poll(Pin::new(&mut *self.stream.borrow_mut()), cx);
        if result.is_pending() {
            self.close_handle.waiting.register(cx.waker());
            // The connection may have been closed before the waker was registered.
            if self.is_closed() {
                return Poll::Ready(closed());
            }
        }
        result
    }

    /// Reads and discards received bytes: closing a socket with unread bytes resets it, and the client may lose the
    /// last response.
    fn discard_received(&self) {
        let mut buffer = [0; 4096];
        for _ in 0..16 {
            let read = self.stream().try_read(&mut buffer);
            if !read.is_ok_and(|read| read > 0) {
                return;
            }
        }
    }

    fn is_closed(&self) -> bool {
        self.close_handle.is_closed()
    }
}

impl StreamRemainder {
    /// Shuts down the write side and reads until the client closes too, for a while: closing a socket with unread bytes
    /// resets it, and the client may lose the response. Ends when another thread closes the connection.
    pub(crate) async fn linger(self, time_limit: Duration) {
        let Self {
            stream,
            close_handle,
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
            () = close_handle.closed() => {}
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
        if self.is_closed() {
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
        ours.close_handle().close();
        assert_eq!(ours.read(&mut received).await.unwrap(), 0);
        let refused = ours.write(b"x").await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::BrokenPipe);
    }

    /// Closes the stream from another thread while the joined future waits.
    fn close_from_another_thread(close_handle: Arc<CloseHandle>) -> impl Future<Output = ()> {
        futures::future::lazy(|_| {
            let thread = std::thread::spawn(move || close_handle.close());
            thread.join().unwrap();
        })
    }

    #[tokio::test]
    async fn a_pending_read_ends_when_the_stream_is_closed() {
        let (mut ours, _client) = pair().await;
        let close_handle = Arc::clone(ours.close_handle());
        let mut received = [0; 8];
        let (read, ()) = tokio::join!(
            ours.read(&mut received),
            close_from_another_thread(close_handle)
        );
        assert_eq!(read.unwrap(), 0);
    }

    #[tokio::test]
    async fn a_pending_write_fails_when_the_stream_is_closed() {
        let (mut ours, _client) = pair().await;
        let close_handle = Arc::clone(ours.close_handle());
        let large_body = vec![0; 64 << 20];
        let (written, ()) = tokio::join!(
            ours.write_all(&large_body),
            close_from_another_thread(close_handle)
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
