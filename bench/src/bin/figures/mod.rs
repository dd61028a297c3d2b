//! What programs that measure share: times, and a table for `bench/results`.

use std::fmt::Write as _;
use std::future::Future;
use std::io::Write as _;
use std::time::{Duration, Instant};

use acceptance::{Client, print_line};

/// Sorted times.
pub(crate) struct Times(Vec<Duration>);

impl Times {
    /// Sorts them.
    pub(crate) fn new(mut times: Vec<Duration>) -> Self {
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

    /// As a cell of a table.
    pub(crate) fn row(&self) -> String {
        format!(
            "median {:.1} ms, p95 {:.1} ms (n={})",
            self.at(50),
            self.at(95),
            self.0.len()
        )
    }
}

/// What was found, in order.
#[derive(Default)]
pub(crate) struct Table(String);

impl Table {
    /// One line, which is also told at once.
    pub(crate) fn row(&mut self, what: &str, ours: &str, reference: &str) {
        print_line(&format!("{what}: {ours} | {reference}"));
        let _ = writeln!(self.0, "| {what} | {ours} | {reference} |");
    }

    /// All of it.
    pub(crate) fn print(&self) -> std::io::Result<()> {
        let head = "| what | ours | reference |\n|---|---|---|\n";
        write!(std::io::stdout(), "{head}{}", self.0)
    }
}

/// Bytes in mebibytes.
pub(crate) fn mebibytes(bytes: Option<u64>) -> f64 {
    let kibibytes = u32::try_from(bytes.unwrap_or_default() / 1024).unwrap_or(u32::MAX);
    f64::from(kibibytes) / 1024.0
}

/// How long each of so many takes, one after the other.
pub(crate) async fn times<F: Future<Output = ()>>(
    count: usize,
    mut one: impl FnMut() -> F,
) -> Times {
    let mut all = Vec::with_capacity(count);
    for _ in 0..count {
        let began = Instant::now();
        one().await;
        all.push(began.elapsed());
    }
    Times::new(all)
}

/// A request that must succeed.
pub(crate) async fn get(user: &Client, path: &str) {
    let _ = user.get(path).await.ok();
}
