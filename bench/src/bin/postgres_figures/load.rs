//! Load on a service: so many clients as fast as they can, or so many requests a second whatever comes of them.

use std::future::Future;
use std::time::{Duration, Instant};

use acceptance::Client;
use actix_web::web::Bytes;
use futures::future::join_all;
use serde_json::{Value, json};

/// Sorted times.
pub(crate) struct LatencySummary(Vec<Duration>);

impl LatencySummary {
    fn new(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        Self(times)
    }

    /// So many percent took at most so many milliseconds.
    pub(crate) fn at(&self, percent: usize) -> f64 {
        let index = (self.0.len() * percent / 100).min(self.0.len().saturating_sub(1));
        self.0
            .get(index)
            .map_or(0.0, |time| time.as_secs_f64() * 1000.0)
    }
}

/// Of 1.2 KB, as an agent server reports it.
pub(crate) fn event(number: u64) -> Value {
    json!({
        "kind": "ObservationEvent",
        "id": format!("event-{number}"),
        "timestamp": "2026-11-21T10:00:00.123456",
        "source": "environment",
        "tool_name": "terminal",
        "tool_call_id": "call_1",
        "observation": {"kind": "TerminalObservation", "content": [{"type": "text", "text": "x".repeat(1_000)}]},
    })
}

/// A page that is read without being looked into.
#[derive(Clone)]
pub(crate) struct PageQuery {
    http: reqwest::Client,
    url: String,
    key: String,
}

impl PageQuery {
    /// Of a service at `url`, for the user with this key.
    pub(crate) fn new(url: &str, path: &str, user: &Client) -> Self {
        Self {
            http: reqwest::Client::builder()
                .no_proxy()
                .build()
                .expect("a client without TLS can be built"),
            url: format!("{url}{path}"),
            key: user.key().to_owned(),
        }
    }

    /// Its bytes; anything but success is a failure of the benchmark.
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

/// How long two pages take, in turns, so that what else the machine does meets both.
pub(crate) async fn in_turns(turns: usize, pages: [&PageQuery; 2]) -> [LatencySummary; 2] {
    for _ in 0..turns / 10 + 5 {
        let _ = (pages[0].get().await, pages[1].get().await);
    }
    let (mut one, mut two) = (Vec::new(), Vec::new());
    for _ in 0..turns {
        one.push(pages[0].timed().await);
        two.push(pages[1].timed().await);
    }
    [LatencySummary::new(one), LatencySummary::new(two)]
}

/// What one of several pages took.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sample {
    requests: u32,
    time: Duration,
    /// Of the process that serves it.
    processor: Duration,
}

impl Sample {
    /// Requests a second.
    pub(crate) fn per_second(&self) -> f64 {
        f64::from(self.requests) / self.time.as_secs_f64()
    }

    /// Processor time of one request, in microseconds.
    pub(crate) fn micros(&self) -> f64 {
        self.processor.as_secs_f64() * 1e6 / f64::from(self.requests)
    }
}

/// What a process has used of the processor so far.
fn processor_time(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // Behind the name, which may have spaces in it; the first field there is the third.
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split(' ')
        .collect();
    let ticks = |at: usize| {
        fields
            .get(at)
            .and_then(|it| it.parse::<u64>().ok())
            .unwrap_or_default()
    };
    // What user and kernel took (`utime`, `stime`), in hundredths of a second on every Linux.
    Duration::from_millis(10 * (ticks(12) + ticks(13)))
}

/// What pages take from so many clients each, in turns; each with the process that serves it.
pub(crate) async fn throughput<const N: usize>(
    clients: usize,
    turn: Duration,
    pages: [(&PageQuery, u32); N],
) -> [Sample; N] {
    const TURNS: usize = 5;
    let mut taken = [Sample::default(); N];
    for number in 0..=TURNS {
        for ((page, pid), taken) in pages.iter().zip(&mut taken) {
            let (began, before) = (Instant::now(), processor_time(*pid));
            let loops = (0..clients).map(|_| async {
                let mut count = 0_u32;
                while began.elapsed() < turn {
                    drop(page.get().await);
                    count += 1;
                }
                count
            });
            let count: u32 = join_all(loops).await.into_iter().sum();
            // The first turn fills caches.
            if number > 0 {
                taken.requests += count;
                taken.time += began.elapsed();
                taken.processor += processor_time(*pid).saturating_sub(before);
            }
        }
    }
    taken
}

/// Does something so many times a second, each on time whether or not those before are done. A time counts from the moment
/// at which it was due, so that one that holds up others does not hide them (coordinated omission).
#[expect(
    clippy::disallowed_methods,
    reason = "the loop waits for all that it starts"
)]
pub(crate) async fn open_loop<F: Future<Output = ()> + 'static>(
    per_second: f64,
    lasting: Duration,
    mut one: impl FnMut(u64) -> F,
) -> LatencySummary {
    let began = Instant::now();
    let mut under_way = Vec::new();
    for number in 0_u32.. {
        let due = began + Duration::from_secs_f64(f64::from(number) / per_second);
        if due.duration_since(began) >= lasting {
            break;
        }
        tokio::time::sleep_until(due.into()).await;
        let work = one(u64::from(number));
        under_way.push(actix_web::rt::spawn(async move {
            work.await;
            due.elapsed()
        }));
    }
    let times = join_all(under_way).await;
    LatencySummary::new(
        times
            .into_iter()
            .map(|time| time.expect("it ended well"))
            .collect(),
    )
}
