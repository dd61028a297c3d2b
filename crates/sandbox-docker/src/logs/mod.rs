//! Quotes the end of a container's log without its keys.

mod reader;

use std::collections::VecDeque;

use bollard::query_parameters::LogsOptionsBuilder;
use domain::error::chain;
use domain::sandbox::mask_line;
use futures::TryStreamExt;
use secrecy::SecretString;

use crate::engine::Engine;

/// Limits of the lines to request and the bytes to read: a single line may be long.
const TAIL_LINES: &str = "60";
const MAX_READ_BYTES: usize = 512 * 1024;
const MAX_KEPT_BYTES: usize = 32 * 1024;
const MAX_QUOTED_LINES: usize = 12;
const MAX_LINE_CHARS: usize = 300;

/// The last lines of a container's log with masked keys. Empty if there are none or the engine fails: the cause is reported
/// anyway.
pub(crate) async fn quote(engine: &Engine, container: &str, keys: &[SecretString]) -> String {
    let options = LogsOptionsBuilder::new()
        .stdout(true)
        .stderr(true)
        .tail(TAIL_LINES)
        .build();
    let read = engine.call("reading the log", |docker| async move {
        let mut parts = docker.logs(container, Some(options));
        let (mut kept, mut read) = (VecDeque::new(), 0_usize);
        while let Some(part) = parts.try_next().await? {
            let part = part.into_bytes();
            read += part.len();
            kept.extend(part);
            kept.drain(..kept.len().saturating_sub(MAX_KEPT_BYTES));
            if read > MAX_READ_BYTES {
                break;
            }
        }
        let is_truncated = read > kept.len();
        Ok((Vec::from(kept), is_truncated))
    });
    match read.await {
        Ok((end, is_truncated)) => {
            let text = String::from_utf8_lossy(&end);
            quotation(
                if is_truncated {
                    whole_lines(&text)
                } else {
                    &text
                },
                keys,
            )
        }
        Err(error) => {
            tracing::debug!(error = %chain(&error), container, "cannot read the log of an ended sandbox");
            String::new()
        }
    }
}

/// Drops the first line, which may start in the middle of a key.
fn whole_lines(text: &str) -> &str {
    text.split_once('\n').map_or("", |(_, rest)| rest)
}

fn quotation(text: &str, keys: &[SecretString]) -> String {
    let lines: Vec<String> = text
        .lines()
        .map(message)
        .filter(|line| !line.trim().is_empty())
        .map(|line| truncated(&mask_line(line.trim_end(), keys)))
        .collect();
    lines[lines.len().saturating_sub(MAX_QUOTED_LINES)..].join("\n")
}

/// The agent server logs JSON objects; people need only the message.
fn message(line: &str) -> String {
    let Ok(serde_json::Value::Object(object)) = serde_json::from_str(line) else {
        return line.to_owned();
    };
    let text = |name: &str| object.get(name).and_then(serde_json::Value::as_str);
    let message = text("message").or_else(|| text("msg"));
    // The last line of a traceback names the error.
    let exception = text("exc_info").and_then(|trace| trace.trim_end().lines().last());
    match (message, exception) {
        (Some(message), Some(exception)) => format!("{message}: {exception}"),
        (Some(message), None) => message.to_owned(),
        _ => line.to_owned(),
    }
}

fn truncated(line: &str) -> String {
    match line.char_indices().nth(MAX_LINE_CHARS) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_masked_in_quotations() {
        let (unknown, id) = ("k".repeat(43), "a".repeat(32));
        let text = format!(
            "{{\"message\":\"using canary-1\"}}\n{{\"message\":\"failed\",\"exc_info\":\"Traceback\\n a\\nOSError: no\"}}\n\nplain {unknown} {id}\n"
        );
        let keys = [SecretString::from("canary-1")];
        assert_eq!(
            quotation(&text, &keys),
            format!("using ***\nfailed: OSError: no\nplain *** {id}")
        );
    }

    #[test]
    fn quotations_are_short() {
        let text = format!("{}\n", "long words ".repeat(100)).repeat(50);
        let quoted = quotation(&text, &[]);
        assert_eq!(quoted.lines().count(), MAX_QUOTED_LINES);
        assert!(
            quoted
                .lines()
                .all(|line| line.chars().count() == MAX_LINE_CHARS + 1)
        );
        assert_eq!(quotation("", &[]), "");
        assert_eq!(whole_lines("half a key\nall of it"), "all of it");
        assert_eq!(whole_lines("half a key"), "");
    }
}
