//! Parses Server-Sent Events (WHATWG HTML, section 9.2) from chunks of any size.

use std::time::Duration;

/// A message of a stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SseMessage {
    /// Its type; `message` by default.
    pub event: String,
    /// Its lines, joined by newlines.
    pub data: String,
    /// The last id seen, possibly in an earlier message.
    pub id: Option<String>,
}

/// A message exceeds the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a message of the stream has more than {0} bytes")]
pub struct MessageTooLong(pub usize);

/// An incremental parser.
#[derive(Debug, Default)]
pub struct SseParser {
    line: Vec<u8>,
    /// The incomplete message. Its id takes effect at the next blank line.
    message: SseMessage,
    has_data: bool,
    last_id: Option<String>,
    retry: Option<Duration>,
    /// The last byte was a CR: a following LF belongs to it.
    after_cr: bool,
    is_after_first: bool,
    max_message_bytes: usize,
}

impl SseParser {
    /// A parser that keeps at most this many bytes of a message.
    #[must_use]
    pub fn new(max_message_bytes: usize) -> Self {
        Self {
            max_message_bytes,
            ..Self::default()
        }
    }

    /// The reconnection time that the service requested last.
    pub fn retry(&self) -> Option<Duration> {
        self.retry
    }

    /// The last id of a complete message or blank line.
    pub fn last_id(&self) -> Option<&str> {
        self.last_id.as_deref()
    }

    /// Adds bytes, and returns the messages that they complete.
    ///
    /// # Errors
    /// A message is too long. The stream cannot be read further.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<SseMessage>, MessageTooLong> {
        let mut messages = Vec::new();
        for &byte in bytes {
            let is_rest_of_line_end = std::mem::take(&mut self.after_cr) && byte == b'\n';
            if is_rest_of_line_end {
                continue;
            }
            if byte == b'\n' || byte == b'\r' {
                self.after_cr = byte == b'\r';
                let line = std::mem::take(&mut self.line);
                messages.extend(self.end_line(&line));
                // Keeps the allocation of the buffer.
                self.line = line;
                self.line.clear();
            } else {
                self.line.push(byte);
            }
            if self.line.len() + self.message.data.len() > self.max_message_bytes {
                return Err(MessageTooLong(self.max_message_bytes));
            }
        }
        Ok(messages)
    }

    fn end_line(&mut self, line: &[u8]) -> Option<SseMessage> {
        let line = match line.strip_prefix(b"\xEF\xBB\xBF") {
            Some(rest) if !self.is_after_first => rest,
            _ => line,
        };
        self.is_after_first = true;
        if line.is_empty() {
            return self.dispatch();
        }
        let line = String::from_utf8_lossy(line);
        let (name, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "event" => value.clone_into(&mut self.message.event),
            "data" => {
                if self.has_data {
                    self.message.data.push('\n');
                }
                self.message.data.push_str(value);
                self.has_data = true;
            }
            "id" if !value.contains('\0') => self.message.id = Some(value.to_owned()),
            "retry" if value.bytes().all(|byte| byte.is_ascii_digit()) => {
                let milliseconds = value.parse().ok().map(Duration::from_millis);
                self.retry = milliseconds.or(self.retry);
            }
            // A comment (its name is empty), or an unknown field.
            _ => {}
        }
        None
    }

    fn dispatch(&mut self) -> Option<SseMessage> {
        let id = self.message.id.clone();
        self.last_id.clone_from(&id);
        let next = SseMessage {
            id,
            ..SseMessage::default()
        };
        let mut message = std::mem::replace(&mut self.message, next);
        if message.event.is_empty() {
            message.event.push_str("message");
        }
        std::mem::take(&mut self.has_data).then_some(message)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(chunks: &[&[u8]]) -> (Vec<SseMessage>, Option<Duration>) {
        let mut parser = SseParser::new(1 << 16);
        let messages = chunks.iter().flat_map(|chunk| parser.push(chunk).unwrap());
        (messages.collect(), parser.retry())
    }

    #[test]
    fn an_id_counts_once_its_message_is_complete() {
        let mut parser = SseParser::new(1000);
        parser.push(b"id: 1\ndata: a\n").unwrap();
        assert_eq!(parser.last_id(), None);
        parser.push(b"\nid: 2\n").unwrap();
        assert_eq!(parser.last_id(), Some("1"));
        parser.push(b"\n").unwrap();
        assert_eq!(parser.last_id(), Some("2"));
    }

    fn message(event: &str, data: &str, id: Option<&str>) -> SseMessage {
        SseMessage {
            event: event.into(),
            data: data.into(),
            id: id.map(Into::into),
        }
    }

    #[test]
    fn the_stream_of_the_service_is_read() {
        let text = b"retry: 1500\n\n: keep-alive\n\nid: 7\ndata: {\"a\":1}\n\nid:8\r\ndata: x\r\ndata:  y\r\n\r\nevent: end\ndata: {}\n\ndata: half";
        let (messages, retry) = read(&[text]);
        assert_eq!(retry, Some(Duration::from_millis(1500)));
        assert_eq!(
            messages,
            [
                message("message", "{\"a\":1}", Some("7")),
                message("message", "x\n y", Some("8")),
                message("end", "{}", Some("8")),
            ]
        );
    }

    #[test]
    fn unusual_streams_are_read_as_in_the_standard() {
        let text = "\u{feff}data\n\nevent: e\n\nretry: 1x\nid: a\0b\nnothing: x\ndata: ä\n\n";
        let (messages, retry) = read(&[text.as_bytes()]);
        assert_eq!(retry, None);
        assert_eq!(
            messages,
            [message("message", "", None), message("message", "ä", None)]
        );
    }

    #[test]
    fn a_message_above_the_limit_is_an_error() {
        let mut parser = SseParser::new(100);
        assert_eq!(parser.push(&[b'x'; 101]), Err(MessageTooLong(100)));
        let mut parser = SseParser::new(100);
        let lines = "data: 12345678901234567890\n".repeat(6);
        assert_eq!(parser.push(lines.as_bytes()), Err(MessageTooLong(100)));
    }

    fn line() -> impl Strategy<Value = String> {
        let field = prop_oneof!["data", "event", "id", "retry", "", "other", "\u{feff}data"];
        let value = "[a-z0-9:ä€ \u{0}\u{feff}]{0,6}";
        let end = prop_oneof![
            Just("\n"),
            Just("\r"),
            Just("\r\n"),
            Just("\n\n"),
            Just("\r\r")
        ];
        (
            field,
            prop_oneof![Just(""), Just(":"), Just(": ")],
            value,
            end,
        )
            .prop_map(|(field, colon, value, end)| format!("{field}{colon}{value}{end}"))
    }

    proptest! {
        #[test]
        fn any_chunks_give_the_same_messages(
            lines in prop::collection::vec(line(), 0..20),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
        ) {
            let bytes = lines.concat().into_bytes();
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let chunks: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            prop_assert_eq!(read(&chunks), read(&[&bytes]));
        }

        #[test]
        fn no_input_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = SseParser::new(50).push(&bytes);
        }
    }
}
