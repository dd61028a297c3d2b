//! Load on a service: a closed loop of clients, or an open loop with a fixed rate of requests.

use std::future::Future;
use std::time::{Duration, Instant};

use acceptance::Client;
use acceptance::processes::processor_time;
use actix_web::web::Bytes;
use benchmarks::SortedTimes;
use futures::future::join_all;

/// A request for a page whose content does not matter.
#[derive(Clone)]
pub(crate) struct PageQuery {
    http: reqwest::Client,
    url: String,
    key: String,
}

impl PageQuery {
    /// A page of the service at `url`, for this user.
    pub(crate) fn new(url: &str, path: &str, user: &Client) -> Self {
        Self {
            http: reqwest::Client::builder()
                .no_proxy()
                .build()
                .expect("cannot build an HTTP client"),
            url: format!("{url}{path}"),
            key: user.key().to_owned(),
        }
    }

    /// The bytes of the page.
    pub(crate) async fn get(&self) -> Bytes {
        let request = self
            .http
            .get(&self.url)
            .header("X-Session-API-Key", &self.key);
        let answer = request
            .send()
            .await
            .and_then(reqwest::Response::error_for_status);
        let answer = answer.unwrap_or_else(|error| panic!("{error:?}"));
        answer
            .bytes()
            .await
            .unwrap_or_else(|error| panic!("{error:?}"))
    }

    async fn timed(&self) -> Duration {
        let began = Instant::now();
        drop(self.get().await);
        began.elapsed()
    }
}

/// Measures two pages in turns, so that other load of the machine affects both.
pub(crate) async fn measure_in_turns(rounds: usize, pages: [&PageQuery; 2]) -> [SortedTimes; 2] {
    for _ in 0..rounds / 10 + 5 {
        let _ = (pages[0].get().await, pages[1].get().await);
    }
    let (mut first, mut second) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        first.push(pages[0].timed().await);
        second.push(pages[1].timed().await);
    }
    [SortedTimes::new(first), SortedTimes::new(second)]
}

/// Measurements of one page.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sample {
    requests: u32,
    time: Duration,
    /// Processor time of the process that serves the page.
    processor: Duration,
}

impl Sample {
    /// Requests per second.
    pub(crate) fn per_second(&self) -> f64 {
        f64::from(self.requests) / self.time.as_secs_f64()
    }

    /// Processor time of one request, in microseconds.
    pub(crate) fn micros(&self) -> f64 {
        self.processor.as_secs_f64() * 1e6 / f64::from(self.requests)
    }
}

/// Measures pages with `clients` clients each, in turns. Each page comes with its process.
pub(crate) async fn throughput<const N: usize>(
    clients: usize,
    round_time: Duration,
    pages: [(&PageQuery, u32); N],
) -> [Sample; N] {
    const ROUNDS: usize = 5;
    let used = |pid| processor_time(pid).unwrap_or_default();
    let mut samples = [Sample::default(); N];
    for number in 0..=ROUNDS {
        for ((page, pid), samples) in pages.iter().zip(&mut samples) {
            let (began, before) = (Instant::now(), used(*pid));
            let loops = (0..clients).map(|_| async {
                let mut count = 0_u32;
                while began.elapsed() < round_time {
                    drop(page.get().await);
                    count += 1;
                }
                count
            });
            let count: u32 = join_all(loops).await.into_iter().sum();
            // The first round fills caches.
            if number > 0 {
                samples.requests += count;
                samples.time += began.elapsed();
                samples.processor += used(*pid).saturating_sub(before);
            }
        }
    }
    samples
}

/// Open loop: starts requests at a fixed rate, whether or not earlier ones have ended. Times count from the due time, so that a
/// slow request does not hide the delay of others (coordinated omission).
#[expect(clippy::disallowed_methods, reason = "the loop awaits all tasks")]
pub(crate) async fn open_loop<F: Future<Output = ()> + 'static>(
    per_second: f64,
    duration: Duration,
    mut start_request: impl FnMut(u64) -> F,
) -> SortedTimes {
    let began = Instant::now();
    let mut tasks = Vec::new();
    for number in 0_u32.. {
        let due = began + Duration::from_secs_f64(f64::from(number) / per_second);
        if due.duration_since(began) >= duration {
            break;
        }
        tokio::time::sleep_until(due.into()).await;
        let work = start_request(u64::from(number));
        tasks.push(actix_web::rt::spawn(async move {
            work.await;
            due.elapsed()
        }));
    }
    let times = join_all(tasks).await;
    SortedTimes::new(
        times
            .into_iter()
            .map(|time| time.expect("a task panicked"))
            .collect(),
    )
}
