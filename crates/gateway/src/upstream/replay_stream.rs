//! The connection that hyper gets: a socket, or one on which the request was already sent.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use actix_web::web::Bytes;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// A connection to an upstream. If the fast path has already sent the request, the stream discards hyper's copy of it, and
/// then replays the bytes that have arrived.
pub(crate) struct ReplayStream {
    io: TokioIo<TcpStream>,
    /// Bytes that were received but not read by hyper.
    early: Bytes,
    /// The request, one without a body, was already sent.
    is_request_sent: bool,
    /// Woken when hyper has written the request.
    reader: Option<Waker>,
}

impl ReplayStream {
    /// A new connection.
    pub(crate) fn new(io: TokioIo<TcpStream>) -> Self {
        Self {
            io,
            early: Bytes::new(),
            is_request_sent: false,
            reader: None,
        }
    }

    /// A connection on which the request was sent, and from which `early` was received.
    pub(crate) fn with_sent_request(io: TcpStream, early: Bytes) -> Self {
        Self {
            early,
            is_request_sent: true,
            ..Self::new(TokioIo::new(io))
        }
    }

    /// The socket, and the received bytes that hyper has not read.
    pub(crate) fn into_parts(self) -> (TcpStream, Bytes) {
        (self.io.into_inner(), self.early)
    }
}

impl Read for ReplayStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if self.is_request_sent {
            // hyper would treat a response before its request as a protocol error.
            self.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        if self.early.is_empty() {
            return Pin::new(&mut self.io).poll_read(cx, buf);
        }
        let length = self.early.len().min(buf.remaining());
        let bytes = self.early.split_to(length);
        buf.put_slice(&bytes);
        Poll::Ready(Ok(()))
    }
}

impl Write for ReplayStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        if !self.is_request_sent {
            return Pin::new(&mut self.io).poll_write(cx, buf);
        }
        // A request without a body ends with an empty line.
        self.is_request_sent = !buf.ends_with(b"\r\n\r\n");
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
        Poll::Ready(Ok(buf.len()))
    }

    fn is_write_vectored(&self) -> bool {
        !self.is_request_sent && self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if !self.is_request_sent {
            return Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
        }
        let first = bufs.iter().find(|buf| !buf.is_empty());
        self.poll_write(cx, first.map_or(&[], |buf| buf))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
