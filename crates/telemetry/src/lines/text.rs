//! Log lines as text without colours. The bytes equal those of `tracing_subscriber`'s own format, which is slower because it
//! passes every part through `std::fmt` and colour handling. Each request writes a line.

use std::cell::{Cell, RefCell};
use std::fmt::{self, Debug, Write as _};
use std::mem;
use std::time::{SystemTime, UNIX_EPOCH};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::field::{RecordFields, VisitOutput as _};
use tracing_subscriber::fmt::format::{DefaultVisitor, Writer};
use tracing_subscriber::fmt::time::{self, FormatTime as _};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields};
use tracing_subscriber::registry::{LookupSpan, Scope};

/// Characters of a timestamp without its fraction.
const SECONDS_CHARS: usize = "2026-11-22T19:31:02".len();
/// Capacity that a buffer keeps after a larger line.
const MAX_RETAINED_BYTES: usize = 4 * 1024;

/// Time, level, spans with their fields, message and fields.
#[derive(Debug)]
pub struct TextFormat;

impl<S, N> FormatEvent<S, N> for TextFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        ctx: &FmtContext<'_, S, N>,
        mut to: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        now(&mut to)?;
        to.write_str(level(*event.metadata().level()))?;
        let mut has_spans = false;
        for span in ctx.event_scope().into_iter().flat_map(Scope::from_root) {
            has_spans = true;
            to.write_str(span.name())?;
            let parts = span.extensions();
            let fields = parts.get::<FormattedFields<N>>();
            if let Some(fields) = fields.filter(|it| !it.is_empty()) {
                to.write_str("{")?;
                to.write_str(&fields.fields)?;
                to.write_str("}")?;
            }
            to.write_str(":")?;
        }
        if has_spans {
            to.write_str(" ")?;
        }
        ctx.format_fields(to.by_ref(), event)?;
        to.write_str("\n")
    }
}

fn level(level: Level) -> &'static str {
    match level {
        Level::TRACE => " TRACE ",
        Level::DEBUG => " DEBUG ",
        Level::INFO => "  INFO ",
        Level::WARN => "  WARN ",
        Level::ERROR => " ERROR ",
    }
}

/// Writes the time. Reuses the date and second of the previous line if they are the same.
fn now(to: &mut Writer<'_>) -> fmt::Result {
    thread_local! {
        static LAST: RefCell<(u64, String)> = const { RefCell::new((0, String::new())) };
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let Ok(since) = since else {
        return time::SystemTime.format_time(to);
    };
    LAST.with_borrow_mut(|(second, text)| {
        if *second != since.as_secs() || text.is_empty() {
            text.clear();
            time::SystemTime.format_time(&mut Writer::new(text))?;
            let after = SystemTime::now().duration_since(UNIX_EPOCH);
            // Do not cache if the second may have changed meanwhile, or if the year has five digits.
            if after.map_or(0, |time| time.as_secs()) != since.as_secs()
                || text.as_bytes().get(SECONDS_CHARS) != Some(&b'.')
            {
                to.write_str(text)?;
                text.clear();
                return Ok(());
            }
            *second = since.as_secs();
            text.truncate(SECONDS_CHARS);
        }
        to.write_str(text)?;
        let mut fraction = *b".000000Z";
        let mut micros = since.subsec_micros();
        for digit in fraction[1..7].iter_mut().rev() {
            *digit += u8::try_from(micros % 10).unwrap_or(0);
            micros /= 10;
        }
        to.write_str(std::str::from_utf8(&fraction).map_err(|_| fmt::Error)?)
    })
}

/// Formats fields as `name=value`.
#[derive(Debug)]
pub struct TextFields;

impl<'a> FormatFields<'a> for TextFields {
    fn format_fields<R: RecordFields>(&self, mut to: Writer<'a>, fields: R) -> fmt::Result {
        thread_local! {
            /// A reused buffer, so that the text of a span is allocated once.
            static TEXT: Cell<String> = const { Cell::new(String::new()) };
        }
        let mut visitor = FieldVisitor {
            // A line that is logged while a value is formatted gets an empty buffer.
            to: TEXT.take(),
            is_first: true,
            done: Ok(()),
        };
        fields.record(&mut visitor);
        let mut text = visitor.to;
        let done = visitor.done.and_then(|()| to.write_str(&text));
        text.clear();
        text.shrink_to(MAX_RETAINED_BYTES);
        TEXT.set(text);
        done
    }
}

struct FieldVisitor {
    to: String,
    is_first: bool,
    done: fmt::Result,
}

impl FieldVisitor {
    fn write(&mut self, field: &Field, value: fmt::Arguments<'_>) -> fmt::Result {
        if !mem::take(&mut self.is_first) {
            self.to.push(' ');
        }
        let name = field.name();
        if name == "message" {
            return Printable(&mut self.to).write_fmt(value);
        }
        self.to.push_str(name.strip_prefix("r#").unwrap_or(name));
        self.to.push('=');
        Printable(&mut self.to).write_fmt(value)
    }

    fn note(&mut self, field: &Field, value: fmt::Arguments<'_>) {
        // The crate `log` adds fields about the call site.
        if self.done.is_ok() && !field.name().starts_with("log.") {
            self.done = self.write(field, value);
        }
    }
}

impl Visit for FieldVisitor {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.note(field, format_args!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => self.note(field, format_args!("{value}")),
            _ => self.note(field, format_args!("{value:?}")),
        }
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        // The library's visitor also writes the sources. Such fields are rare.
        let is_first = mem::take(&mut self.is_first);
        let mut visitor = DefaultVisitor::new(Writer::new(&mut self.to), is_first);
        visitor.record_error(field, value);
        self.done = self.done.and(visitor.finish());
    }
}

/// Escapes control characters, which could control a terminal or begin a new line. Log values may contain text of sandboxes and
/// other servers.
struct Printable<'a>(&'a mut String);

impl fmt::Write for Printable<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // Fast path for plain ASCII.
        if text.bytes().fold(true, |all, byte| all & is_plain(byte)) {
            self.0.push_str(text);
            return Ok(());
        }
        let mut rest = text;
        while let Some((at, sign)) = rest
            .char_indices()
            .find(|(_, sign)| is_unsafe_control(*sign))
        {
            self.0.push_str(&rest[..at]);
            match u32::from(sign) {
                0x0a => self.0.push_str("\\n"),
                0x0d => self.0.push_str("\\r"),
                code @ 0x80.. => write!(self.0, "\\u{{{code:x}}}")?,
                code => write!(self.0, "\\x{code:02x}")?,
            }
            rest = &rest[at + sign.len_utf8()..];
        }
        self.0.push_str(rest);
        Ok(())
    }
}

/// Printable ASCII and the tab.
const fn is_plain(byte: u8) -> bool {
    matches!(byte, b' '..=b'~' | b'\t')
}

/// Control characters except the tab. `tracing_subscriber` escapes some of them, but no line breaks.
fn is_unsafe_control(sign: char) -> bool {
    sign.is_control() && sign != '\t'
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use tracing_subscriber::fmt::{MakeWriter, layer};
    use tracing_subscriber::layer::SubscriberExt as _;
    use tracing_subscriber::registry;

    use super::*;

    #[derive(Clone, Default)]
    struct LogBuffer(Arc<Mutex<Vec<u8>>>);

    impl io::Write for LogBuffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl MakeWriter<'_> for LogBuffer {
        type Writer = Self;

        fn make_writer(&self) -> Self {
            self.clone()
        }
    }

    impl LogBuffer {
        /// The lines without their times. Checks the format of the times.
        fn lines(&self) -> Vec<String> {
            let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
            let lines = text.lines().map(|line| {
                let (time, rest) = line.split_once(' ').unwrap();
                let form: String = time
                    .chars()
                    .map(|it| if it.is_ascii_digit() { '0' } else { it })
                    .collect();
                assert_eq!(form, "0000-00-00T00:00:00.000000Z");
                rest.to_owned()
            });
            lines.collect()
        }
    }

    #[derive(Debug, thiserror::Error)]
    #[error("outer\x1b")]
    struct Outer(#[source] io::Error);

    fn log_all_kinds() {
        tracing::error!("plain");
        let span = tracing::info_span!(
            "http.request",
            request.id = %"a-b",
            number = 5_u64,
            text = "quoted \"\x1b",
            absent = tracing::field::Empty,
        );
        span.in_scope(|| {
            tracing::warn!(
                duration_ms = -3_i64,
                is = true,
                ratio = 0.5,
                "steers \x1b[31m \u{9b} \x07 é"
            );
            span.record("absent", 7_u16);
            tracing::info_span!("inner")
                .in_scope(|| tracing::info!(r#type = ?Some("x"), "in {}", "it"));
            let error = Outer(io::Error::other("cause"));
            let error: &(dyn std::error::Error + 'static) = &error;
            tracing::debug!(error, later = 1);
            let alone = io::Error::other("alone\x1b");
            let alone: &(dyn std::error::Error + 'static) = &alone;
            tracing::trace!(first = 1, alone, "said");
        });
        let message = String::from("a\tb");
        tracing::info!(message = message.as_str(), other = %"x y");
        tracing::info!(message = "", other = 1);
    }

    #[test]
    fn lines_equal_those_of_the_library() {
        let (own, library) = (LogBuffer::default(), LogBuffer::default());
        let plain = layer().with_ansi(false).with_target(false);
        let quick = layer()
            .event_format(TextFormat)
            .fmt_fields(TextFields)
            .with_ansi(false);
        tracing::subscriber::with_default(
            registry().with(plain.with_writer(library.clone())),
            log_all_kinds,
        );
        tracing::subscriber::with_default(
            registry().with(quick.with_writer(own.clone())),
            log_all_kinds,
        );
        let expected = library.lines();
        assert_eq!(expected.len(), 7);
        assert_eq!(own.lines(), expected);
    }

    #[test]
    fn values_cannot_begin_a_new_line() {
        let buffer = LogBuffer::default();
        let quick = layer().event_format(TextFormat).fmt_fields(TextFields);
        let quick = quick.with_ansi(false).with_writer(buffer.clone());
        let value = "x\n2026-01-01T00:00:00.000000Z  INFO forged\r\x1b[2K";
        tracing::subscriber::with_default(registry().with(quick), || {
            let span = tracing::info_span!("http.request", value = %value);
            span.in_scope(|| tracing::error!(error = %value, "request failed: {value}"));
        });
        let escaped = "x\\n2026-01-01T00:00:00.000000Z  INFO forged\\r\\x1b[2K";
        let lines = buffer.lines();
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert_eq!(lines[0].matches(escaped).count(), 3, "{lines:?}");
    }
}
