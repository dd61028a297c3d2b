//! Times and a table for `bench/results`.

use std::fmt::Write as _;
use std::future::Future;
use std::io::Write as _;
use std::time::Instant;

use acceptance::{Client, print_line};
use benchmarks::SortedTimes;

/// Times as a cell of a table.
pub(crate) fn times_cell(times: &SortedTimes) -> String {
    format!(
        "median {:.1} ms, p95 {:.1} ms (n={})",
        times.percentile(50),
        times.percentile(95),
        times.count()
    )
}

/// Rows, in order.
#[derive(Default)]
pub(crate) struct Table(String);

impl Table {
    /// Adds a row and prints it at once.
    pub(crate) fn row(&mut self, what: &str, ours: &str, reference: &str) {
        print_line(&format!("{what}: {ours} | {reference}"));
        let _ = writeln!(self.0, "| {what} | {ours} | {reference} |");
    }

    /// Prints the table on standard output.
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

/// Times `count` calls, one after the other.
pub(crate) async fn times<F: Future<Output = ()>>(
    count: usize,
    mut one: impl FnMut() -> F,
) -> SortedTimes {
    let mut all = Vec::with_capacity(count);
    for _ in 0..count {
        let began = Instant::now();
        one().await;
        all.push(began.elapsed());
    }
    SortedTimes::new(all)
}

/// A request that must succeed.
pub(crate) async fn get(user: &Client, path: &str) {
    let _ = user.get(path).await.ok();
}
