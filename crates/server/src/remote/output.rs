//! Output of the commands: tables for people, JSON for programs.

use std::io::{self, Write as _};

use anyhow::Context as _;
use serde::Serialize;
use serde_json::Value;

#[derive(Debug, thiserror::Error)]
#[error("standard output was closed")]
pub(super) struct OutputClosed;

pub(super) struct CommandOutput {
    pub(super) is_json: bool,
}

impl CommandOutput {
    #[expect(clippy::unused_self, reason = "all output goes through this type")]
    pub(super) fn line(&self, text: &str) -> anyhow::Result<()> {
        let mut out = io::stdout().lock();
        let written = writeln!(out, "{}", text.trim_end()).and_then(|()| out.flush());
        match written {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(OutputClosed.into()),
            written => written.context("cannot write to standard output"),
        }
    }

    pub(super) fn document(&self, document: &impl Serialize) -> anyhow::Result<()> {
        let document = serde_json::to_value(document).context("cannot serialize the response")?;
        self.line(&without_keys(document).to_string())
    }

    /// Prints a document for programs, or a line for people.
    pub(super) fn item(&self, item: &impl Serialize, line: &str) -> anyhow::Result<()> {
        if self.is_json {
            return self.document(item);
        }
        self.line(line)
    }

    /// Prints a message for the person at the terminal, not for programs.
    pub(super) fn note(&self, text: &str) {
        if !self.is_json {
            crate::to_stderr(text);
        }
    }
}

/// Removes keys of sandboxes: output for programs ends up in logs.
fn without_keys(document: Value) -> Value {
    match document {
        Value::Object(mut members) => {
            members.shift_remove("session_api_key");
            if let Some(Value::Array(urls)) = members.get_mut("exposed_urls") {
                for url in urls {
                    if let Some(Value::String(url)) = url.get_mut("url") {
                        url.truncate(url.find('?').unwrap_or(url.len()));
                    }
                }
            }
            members
                .into_iter()
                .map(|(name, value)| (name, without_keys(value)))
                .collect()
        }
        Value::Array(items) => items.into_iter().map(without_keys).collect(),
        other => other,
    }
}

/// One line without terminal escape sequences, truncated to `max_chars` characters.
pub(super) fn plain(text: &str, max_chars: usize) -> String {
    let words = text.split(|c: char| c.is_whitespace() || c.is_control());
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    let line = words.join(" ");
    if line.chars().count() <= max_chars {
        return line;
    }
    line.chars()
        .take(max_chars - 1)
        .chain("…".chars())
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn session_keys_are_not_printed() {
        let document = json!({"items": [{"id": 1, "session_api_key": "k", "exposed_urls":
            [{"name": "VSCODE", "url": "http://h:1/?tkn=k&folder=x"}, {"name": "A", "url": "http://h:2"}]}]});
        let expected = json!({"items": [{"id": 1, "exposed_urls":
            [{"name": "VSCODE", "url": "http://h:1/"}, {"name": "A", "url": "http://h:2"}]}]});
        assert_eq!(without_keys(document), expected);
    }

    #[test]
    fn control_characters_are_removed_and_long_texts_truncated() {
        assert_eq!(plain("a\u{1b}[31mb\r\n\tc\u{9b}d", 99), "a [31mb c d");
        assert_eq!(plain("äöü", 2), "ä…");
        assert_eq!(plain("äöü", 3), "äöü");
    }
}
