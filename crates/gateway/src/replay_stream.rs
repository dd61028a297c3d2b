//! The connection that hyper gets: a socket, or one on which a request was sent already.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use actix_web::web::Bytes;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// A connection to a server behind. Where the request has been sent by others, the one that hyper writes goes nowhere, and
/// then it reads what has come already before the rest.
pub(crate) struct ReplayStream {
    io: TokioIo<TcpStream>,
    /// What was read and not shown yet.
    early: Bytes,
    /// The request that is to come was sent already: one without a body.
    is_request_sent: bool,
    /// Waits until the request has been written.
    reader: Option<Waker>,
}

impl ReplayStream {
    /// One that is new.
    pub(crate) fn new(io: TokioIo<TcpStream>) -> Self {
        Self {
            io,
            early: Bytes::new(),
            is_request_sent: false,
            reader: None,
        }
    }

    /// One over which a request was sent, and from which this was read.
    pub(crate) fn with_sent_request(io: TcpStream, early: Bytes) -> Self {
        Self {
            early,
            is_request_sent: true,
            ..Self::new(TokioIo::new(io))
        }
    }

    /// The socket, and what was read of it and nobody has seen.
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
            // An answer to nothing would be a mistake of the server's.
            self.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        if self.early.is_empty() {
            return Pin::new(&mut self.io).poll_read(cx, buf);
        }
        let length = self.early.len().min(buf.remaining());
        let some = self.early.split_to(length);
        buf.put_slice(&some);
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
        // All that such a request has.
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
        let first = bufs.iter().find(|it| !it.is_empty());
        self.poll_write(cx, first.map_or(&[], |it| it))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
