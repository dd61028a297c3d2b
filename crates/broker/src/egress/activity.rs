//! Ends connections over which nothing moves.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, sleep_until};

/// When bytes last moved, shared by a stream and its watcher.
#[derive(Debug, Clone)]
pub(super) struct ActivityClock {
    start: Instant,
    last_millis: Arc<AtomicU64>,
}

impl ActivityClock {
    pub(super) fn new() -> Self {
        Self {
            start: Instant::now(),
            last_millis: Arc::default(),
        }
    }

    fn touch(&self) {
        let millis = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_millis.store(millis, Ordering::Relaxed);
    }

    /// Returns when no byte has moved for this time.
    pub(super) async fn idle(&self, timeout: Duration) {
        loop {
            let last = Duration::from_millis(self.last_millis.load(Ordering::Relaxed));
            let end = self.start + last + timeout;
            if Instant::now() >= end {
                return;
            }
            sleep_until(end).await;
        }
    }
}

/// A stream that reports its activity.
#[derive(Debug)]
pub(super) struct ActiveStream<S> {
    stream: S,
    clock: ActivityClock,
}

impl<S> ActiveStream<S> {
    pub(super) fn new(stream: S, clock: ActivityClock) -> Self {
        Self { stream, clock }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ActiveStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if polled.is_ready() {
            self.clock.touch();
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ActiveStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        if polled.is_ready() {
            self.clock.touch();
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
