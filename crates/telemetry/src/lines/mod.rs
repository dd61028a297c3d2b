//! Writes log lines in batches on a separate thread.
//!
//! Logging only appends to a buffer. So a stalled reader of standard error (a full pipe, a full disk of a collector) delays no
//! request, and many lines share a system call. The thread writes the first line after a pause at once. Further lines wait for
//! [`BATCH_INTERVAL`] at most, which bounds the loss by `kill -9`. With [`MAX_QUEUED_BYTES`] in the queue, new lines are dropped
//! and counted in a line of their own. Lines lost to write errors are not counted.

mod reloadable_filter;
mod text;

use std::io::{self, Write};
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tracing_subscriber::fmt::MakeWriter;

pub use reloadable_filter::ReloadableFilter;
pub use text::{TextFields, TextFormat};

/// Capacity of the queue.
pub const MAX_QUEUED_BYTES: usize = 4 * 1024 * 1024;
/// Pause between two batches.
pub const BATCH_INTERVAL: Duration = Duration::from_millis(5);
/// Capacity that a buffer keeps after it was larger.
const MAX_RETAINED_BYTES: usize = 64 * 1024;

/// The queue of log lines. Clones share it.
#[derive(Debug, Clone)]
pub struct LogWriter(Arc<SharedQueue>);

#[derive(Debug, Default)]
struct SharedQueue {
    queue: Mutex<LogQueue>,
    /// Signals the first line in an empty queue.
    has_lines: Condvar,
    /// Signals a written batch.
    written: Condvar,
}

#[derive(Debug, Default)]
struct LogQueue {
    text: Vec<u8>,
    /// Number of dropped lines.
    lost: u64,
    /// Whether the thread waits for a line.
    is_asleep: bool,
    /// Whether the thread holds an unwritten batch.
    is_writing: bool,
}

impl LogWriter {
    /// Starts the thread, which runs until the process ends. `of_lost` formats the line about a number of dropped lines,
    /// including its line end.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn start(to: impl Write + Send + 'static, of_lost: fn(u64) -> String) -> io::Result<Self> {
        let lines = Self(Arc::default());
        let shared = Arc::clone(&lines.0);
        thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || shared.write_all(to, of_lost))?;
        Ok(lines)
    }

    /// Waits until all lines so far are written, for `limit` at most. Blocks. Returns `false` on a timeout.
    pub fn settle(&self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        let mut queue = self.0.lock();
        while queue.is_writing || !queue.text.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let woken = self.0.written.wait_timeout(queue, left);
            queue = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

impl SharedQueue {
    /// The lock is never poisoned: no code panics while it holds it.
    fn lock(&self) -> MutexGuard<'_, LogQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, line: &[u8]) {
        let mut queue = self.lock();
        if queue.text.len() + line.len() > MAX_QUEUED_BYTES {
            queue.lost += 1;
            return;
        }
        queue.text.extend_from_slice(line);
        if mem::take(&mut queue.is_asleep) {
            drop(queue);
            self.has_lines.notify_one();
        }
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "a thread that does nothing but write lines gathers them meanwhile"
    )]
    fn write_all(&self, mut to: impl Write, of_lost: fn(u64) -> String) {
        let mut batch = Vec::new();
        loop {
            let lost = self.take(&mut batch);
            // A failure of the log cannot be logged.
            let _ = to.write_all(&batch);
            if lost > 0 {
                let _ = to.write_all(of_lost(lost).as_bytes());
            }
            let _ = to.flush();
            batch.clear();
            batch.shrink_to(MAX_RETAINED_BYTES);
            self.lock().is_writing = false;
            self.written.notify_all();
            thread::sleep(BATCH_INTERVAL);
        }
    }

    /// Waits for lines, swaps them with an empty buffer, and returns the number of dropped lines.
    fn take(&self, batch: &mut Vec<u8>) -> u64 {
        let mut queue = self.lock();
        while queue.text.is_empty() {
            queue.is_asleep = true;
            let woken = self.has_lines.wait(queue);
            queue = woken.unwrap_or_else(PoisonError::into_inner);
        }
        queue.is_asleep = false;
        queue.is_writing = true;
        mem::swap(&mut queue.text, batch);
        mem::take(&mut queue.lost)
    }
}

impl<'a> MakeWriter<'a> for LogWriter {
    type Writer = LineWriter<'a>;

    fn make_writer(&'a self) -> Self::Writer {
        LineWriter(&self.0)
    }
}

/// Writer of one complete line.
#[derive(Debug)]
pub struct LineWriter<'a>(&'a SharedQueue);

impl Write for LineWriter<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.add(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    const LONG: Duration = Duration::from_secs(30);

    /// Waits for a permit before each write, and sends the bytes to the test.
    struct SlowWriter {
        permits: Receiver<()>,
        written: Sender<Vec<u8>>,
    }

    impl Write for SlowWriter {
        fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
            let _ = self.permits.recv();
            match self.written.send(piece.to_vec()) {
                Ok(()) => Ok(piece.len()),
                Err(_) => Err(io::ErrorKind::BrokenPipe.into()),
            }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn slow_log() -> (LogWriter, Sender<()>, Receiver<Vec<u8>>) {
        let ((permit, permits), (written, pieces)) = (channel(), channel());
        let writer = SlowWriter { permits, written };
        let lines = LogWriter::start(writer, |lost| format!("{lost} lost\n"));
        (lines.unwrap(), permit, pieces)
    }

    fn log(lines: &LogWriter, text: &str) {
        lines.make_writer().write_all(text.as_bytes()).unwrap();
    }

    #[test]
    fn a_slow_writer_gets_all_lines_in_order() {
        let (lines, permit, pieces) = slow_log();
        for number in 0..100 {
            log(&lines, &format!("line {number}\n"));
        }
        // Nothing is written yet, and no caller waited.
        assert!(!lines.settle(Duration::from_millis(1)));
        drop(permit);
        assert!(lines.settle(LONG));
        let all: Vec<u8> = pieces.try_iter().flatten().collect();
        let all = String::from_utf8(all).unwrap();
        let numbers = all.lines().map(|line| line.strip_prefix("line ").unwrap());
        assert!(numbers.eq((0..100).map(|number: u32| number.to_string())));
    }

    #[test]
    fn lines_beyond_the_capacity_are_dropped_and_counted() {
        let (lines, permit, pieces) = slow_log();
        log(&lines, "first\n");
        while !lines.0.lock().is_writing {
            thread::yield_now();
        }
        let large = format!("{}\n", "x".repeat(MAX_QUEUED_BYTES - 7));
        log(&lines, &large);
        for _ in 0..3 {
            log(&lines, "too much\n");
        }
        log(&lines, "small\n");
        drop(permit);
        assert!(lines.settle(LONG));
        let all: Vec<u8> = pieces.try_iter().flatten().collect();
        let all = String::from_utf8(all).unwrap();
        let rest = all.strip_prefix("first\n").unwrap();
        let rest = rest.strip_prefix(&large).unwrap();
        assert_eq!(rest, "small\n3 lost\n");
        log(&lines, "and on\n");
        assert!(lines.settle(LONG));
        let next: Vec<u8> = pieces.try_iter().flatten().collect();
        assert_eq!(next, b"and on\n");
    }

    #[test]
    fn a_failing_writer_does_not_block_callers() {
        let (lines, permit, pieces) = slow_log();
        drop((permit, pieces));
        log(&lines, "one\n");
        assert!(lines.settle(LONG));
        log(&lines, "two\n");
        assert!(lines.settle(LONG));
    }
}
