//! Writes log lines in batches on a separate thread.
//!
//! Logging only appends to a queue. So a stalled reader of standard error (a full pipe, a full disk of a collector) delays no
//! request, and many lines share a system call. The thread writes the first line after a pause at once. Further lines wait for
//! [`BATCH_INTERVAL`] at most, which bounds the loss by `kill -9`. With [`MAX_QUEUED_BYTES`] in the queue, new lines are dropped
//! and counted in a line of their own. Lines lost to write errors are not counted.
//!
//! `tracing-appender` bounds the number of lines instead of their bytes, and its guard writes to standard error when it gives up,
//! which blocks the end of the process while the reader is stalled.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;

/// Capacity of the queue.
pub const MAX_QUEUED_BYTES: usize = 4 * 1024 * 1024;
/// Pause between two batches.
pub const BATCH_INTERVAL: Duration = Duration::from_millis(5);

/// The queue of log lines. Clones share it.
#[derive(Debug, Clone)]
pub struct LogWriter {
    queue: Sender<QueuedLine>,
    counters: Arc<QueueCounters>,
    escapes_controls: bool,
}

#[derive(Debug)]
enum QueuedLine {
    Line(Vec<u8>),
    /// Is dropped once all earlier lines are written.
    Flush(Sender<()>),
}

#[derive(Debug, Default)]
struct QueueCounters {
    bytes: AtomicUsize,
    /// Number of dropped lines.
    lost: AtomicU64,
}

impl LogWriter {
    /// Starts the thread, which runs until the process ends. `of_lost` formats the line about a number of dropped lines,
    /// including its line end.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn start(to: impl Write + Send + 'static, of_lost: fn(u64) -> String) -> io::Result<Self> {
        let (queue, lines) = channel();
        let counters: Arc<QueueCounters> = Arc::default();
        let shared = Arc::clone(&counters);
        thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || shared.write_batches(&lines, to, of_lost))?;
        Ok(Self {
            queue,
            counters,
            escapes_controls: false,
        })
    }

    /// Writes control characters as `\n` or `\x1b`: they could control a terminal or begin a new line. Log values may contain
    /// text of sandboxes and other servers.
    #[must_use]
    pub fn escaping_controls(self) -> Self {
        Self {
            escapes_controls: true,
            ..self
        }
    }

    /// Waits until all lines so far are written, for `limit` at most. Blocks. Returns `false` on a timeout.
    #[must_use]
    pub fn settle(&self, limit: Duration) -> bool {
        let (pending, written) = channel();
        let _ = self.queue.send(QueuedLine::Flush(pending));
        written.recv_timeout(limit) != Err(RecvTimeoutError::Timeout)
    }
}

impl QueueCounters {
    #[expect(
        clippy::disallowed_methods,
        reason = "a thread that does nothing but write lines gathers them meanwhile"
    )]
    fn write_batches(
        &self,
        lines: &Receiver<QueuedLine>,
        mut to: impl Write,
        of_lost: fn(u64) -> String,
    ) {
        while let Ok(first) = lines.recv() {
            let (mut batch, mut flushes) = (Vec::new(), Vec::new());
            for line in std::iter::once(first).chain(lines.try_iter()) {
                match line {
                    QueuedLine::Line(line) => batch.extend(line),
                    QueuedLine::Flush(pending) => flushes.push(pending),
                }
            }
            self.bytes.fetch_sub(batch.len(), Ordering::Relaxed);
            let lost = self.lost.swap(0, Ordering::Relaxed);
            if lost > 0 {
                batch.extend(of_lost(lost).into_bytes());
            }
            // A failure of the log cannot be logged.
            let _ = to.write_all(&batch).and_then(|()| to.flush());
            drop(flushes);
            thread::sleep(BATCH_INTERVAL);
        }
    }
}

impl<'a> MakeWriter<'a> for LogWriter {
    type Writer = &'a Self;

    fn make_writer(&'a self) -> Self::Writer {
        self
    }
}

/// Each call writes a complete line.
impl Write for &LogWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let queued = if self.escapes_controls {
            escaped(line)
        } else {
            line.to_vec()
        };
        let length = queued.len();
        let before = self.counters.bytes.fetch_add(length, Ordering::Relaxed);
        if before + length > MAX_QUEUED_BYTES {
            self.counters.bytes.fetch_sub(length, Ordering::Relaxed);
            self.counters.lost.fetch_add(1, Ordering::Relaxed);
        } else {
            // The thread ends with the process.
            let _ = self.queue.send(QueuedLine::Line(queued));
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Escapes control characters except the tab and the line end. `tracing_subscriber` escapes some of them, but no line breaks.
fn escaped(line: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(line.strip_suffix(b"\n").unwrap_or(line));
    let mut escaped = String::with_capacity(line.len());
    for character in text.chars() {
        // Writing to a String cannot fail.
        let _ = match character {
            '\n' => escaped.write_str("\\n"),
            '\r' => escaped.write_str("\\r"),
            '\t' => escaped.write_char('\t'),
            control if control.is_ascii_control() => {
                write!(escaped, "\\x{:02x}", u32::from(control))
            }
            control if control.is_control() => write!(escaped, "\\u{{{:x}}}", u32::from(control)),
            plain => escaped.write_char(plain),
        };
    }
    escaped.push('\n');
    escaped.into_bytes()
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt as _;
    use tracing_subscriber::{fmt, registry};

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
        while lines.counters.bytes.load(Ordering::Relaxed) > 0 {
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

    #[test]
    fn values_cannot_control_a_terminal_or_begin_a_new_line() {
        let (lines, permit, pieces) = slow_log();
        drop(permit);
        let text = fmt::layer().with_ansi(false).with_target(false);
        let text = text.with_writer(lines.clone().escaping_controls());
        let value = "x\n2026-01-01T00:00:00.000000Z  INFO forged\r\x1b[2K\u{9b}\x07\té";
        tracing::subscriber::with_default(registry().with(text), || {
            let span = tracing::info_span!("http.request", value = %value);
            span.in_scope(|| tracing::error!(error = %value, "request failed: {value}"));
        });
        assert!(lines.settle(LONG));
        let all: Vec<u8> = pieces.try_iter().flatten().collect();
        let all = String::from_utf8(all).unwrap();
        let escaped = "x\\n2026-01-01T00:00:00.000000Z  INFO forged\\r\\x1b[2K\\u{9b}\\x07\té";
        assert_eq!(all.lines().count(), 1, "{all}");
        assert_eq!(all.matches(escaped).count(), 3, "{all}");
    }
}
