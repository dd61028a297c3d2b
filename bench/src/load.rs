//! Load on a server: a closed loop of connections, or an open loop with a fixed rate of requests.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use futures::future::try_join_all;
use hdrhistogram::Histogram;

use crate::wire::Connection;

/// Builds the request with this number.
pub type Requests = Box<dyn Fn(u64) -> Vec<u8>>;

/// A server and the requests to send to it.
pub struct LoadTarget {
    /// The server.
    pub address: SocketAddr,
    /// Builds the requests.
    pub requests: Requests,
    /// Used numbers, so that no request is sent twice.
    sent: Cell<u64>,
}

/// The result of a run.
#[derive(Debug, Clone)]
pub struct Load {
    /// In microseconds.
    times: Histogram<u64>,
    elapsed: Duration,
}

impl Load {
    /// Responses per second.
    #[must_use]
    pub fn per_second(&self) -> f64 {
        f64::from(self.count()) / self.elapsed.as_secs_f64()
    }

    /// The number of responses.
    #[must_use]
    pub fn count(&self) -> u32 {
        u32::try_from(self.times.len()).unwrap_or(u32::MAX)
    }

    /// A percentile, in milliseconds.
    #[must_use]
    pub fn percentile(&self, percent: f64) -> f64 {
        let micros = self.times.value_at_percentile(percent);
        f64::from(u32::try_from(micros).unwrap_or(u32::MAX)) / 1000.0
    }

    /// As a cell of a table.
    #[must_use]
    pub fn summary(&self) -> String {
        format!(
            "p50 {:.2} ms, p99 {:.2} ms",
            self.percentile(50.0),
            self.percentile(99.0)
        )
    }
}

/// An empty histogram from one microsecond to ten minutes with three significant digits.
fn histogram() -> anyhow::Result<Histogram<u64>> {
    Ok(Histogram::new_with_bounds(1, 600_000_000, 3)?)
}

fn record(times: &RefCell<Histogram<u64>>, time: Duration) {
    let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    times.borrow_mut().saturating_record(micros.max(1));
}

impl LoadTarget {
    /// Requests to this server.
    #[must_use]
    pub fn new(address: SocketAddr, requests: Requests) -> Self {
        Self {
            address,
            requests,
            sent: Cell::new(0),
        }
    }

    /// Always the same request.
    #[must_use]
    pub fn same(address: SocketAddr, request: Vec<u8>) -> Self {
        Self::new(address, Box::new(move |_| request.clone()))
    }

    fn next(&self) -> Vec<u8> {
        (self.requests)(self.sent.replace(self.sent.get() + 1))
    }

    async fn send(&self, connection: &mut Connection) -> anyhow::Result<()> {
        let request = self.next();
        let answer = match connection.exchange(&request).await {
            // A server may close an idle connection while a request is on its way.
            Err(error) if is_closed(&error) => {
                *connection = Connection::open(self.address).await?;
                connection.exchange(&request).await
            }
            answer => answer,
        };
        let line = || {
            let line = request.split(|byte| *byte == b'\r').next();
            String::from_utf8_lossy(line.unwrap_or_default()).into_owned()
        };
        let answer = answer.with_context(line)?;
        ensure!(
            (200..300).contains(&answer.status),
            "{} was answered with {}",
            line(),
            answer.status
        );
        Ok(())
    }

    /// Sends requests one after the other on one connection.
    ///
    /// # Errors
    /// When a request fails.
    pub async fn run_in_turn(&self, count: u32) -> anyhow::Result<Load> {
        let times = RefCell::new(histogram()?);
        let began = Instant::now();
        let mut connection = Connection::open(self.address).await?;
        for _ in 0..count {
            let began_request = Instant::now();
            self.send(&mut connection).await?;
            record(&times, began_request.elapsed());
        }
        let times = times.into_inner();
        Ok(Load {
            times,
            elapsed: began.elapsed(),
        })
    }

    /// Closed loop: each connection sends its next request as soon as it has a response.
    ///
    /// # Errors
    /// When a request fails.
    pub async fn run_closed_loop(
        &self,
        connections: usize,
        duration: Duration,
    ) -> anyhow::Result<Load> {
        let times = RefCell::new(histogram()?);
        let began = Instant::now();
        let loops = (0..connections).map(|_| async {
            let mut connection = Connection::open(self.address).await?;
            while began.elapsed() < duration {
                let began_request = Instant::now();
                self.send(&mut connection).await?;
                record(&times, began_request.elapsed());
            }
            anyhow::Ok(())
        });
        try_join_all(loops).await?;
        let times = times.into_inner();
        Ok(Load {
            times,
            elapsed: began.elapsed(),
        })
    }

    /// Open loop: requests are due at a fixed rate. A request that waits for a free connection is timed from its due time, so that a
    /// slow request does not hide the delay of others (coordinated omission). The delay of the own timer is not counted.
    ///
    /// # Errors
    /// When a request fails.
    pub async fn run_open_loop(
        &self,
        per_second: f64,
        connections: usize,
        duration: Duration,
    ) -> anyhow::Result<Load> {
        let times = RefCell::new(histogram()?);
        let number = Cell::new(0_u32);
        let began = Instant::now();
        let loops = (0..connections).map(|_| async {
            let mut connection = Connection::open(self.address).await?;
            loop {
                let due = Duration::from_secs_f64(f64::from(number.get()) / per_second);
                if due >= duration {
                    return anyhow::Ok(());
                }
                number.set(number.get() + 1);
                let mut due = began + due;
                if due > Instant::now() {
                    tokio::time::sleep_until(due.into()).await;
                    due = Instant::now();
                }
                self.send(&mut connection).await?;
                record(&times, due.elapsed());
            }
        });
        try_join_all(loops).await?;
        let times = times.into_inner();
        Ok(Load {
            times,
            elapsed: began.elapsed(),
        })
    }
}

fn is_closed(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(
        error.kind(),
        BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::request;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    /// Responds at once, but to the first request after a pause.
    async fn server(listener: tokio::net::TcpListener, pause: Duration) {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut received = [0; 1024];
        let mut pause = Some(pause);
        while stream.read(&mut received).await.is_ok_and(|read| read > 0) {
            if let Some(pause) = pause.take() {
                tokio::time::sleep(pause).await;
            }
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
            stream.write_all(answer).await.unwrap();
        }
    }

    #[tokio::test]
    async fn delayed_requests_are_timed_from_their_due_time() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let aim = LoadTarget::same(listener.local_addr().unwrap(), request("GET", "/", &[], ""));
        let pause = Duration::from_millis(400);
        let measured = async {
            tokio::select! {
                () = server(listener, pause) => unreachable!("the client goes first"),
                load = aim.run_open_loop(100.0, 1, Duration::from_millis(200)) => load.unwrap(),
            }
        };
        let load = measured.await;
        // All twenty were due during the pause of the first one, and the last one waited for half of it.
        assert_eq!(load.count(), 20);
        assert!(load.percentile(1.0) >= 200.0, "{}", load.summary());
    }
}
