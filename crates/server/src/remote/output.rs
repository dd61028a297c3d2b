//! What goes to standard output: tables for people, JSON for programs.

use std::io::{self, Write as _};

use anyhow::Context as _;
use serde::Serialize;
use serde_json::Value;

/// Whoever read standard output has gone.
#[derive(Debug, thiserror::Error)]
#[error("nobody reads the output")]
pub(super) struct OutputClosed;

/// Standard output.
pub(super) struct Output {
    pub(super) is_json: bool,
}

impl Output {
    pub(super) fn new(is_json: bool) -> Self {
        Self { is_json }
    }

    /// A line.
    #[expect(clippy::unused_self, reason = "one way to print")]
    pub(super) fn line(&self, text: &str) -> anyhow::Result<()> {
        let mut out = io::stdout().lock();
        let written = writeln!(out, "{}", text.trim_end()).and_then(|()| out.flush());
        match written {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(OutputClosed.into()),
            written => written.context("cannot print"),
        }
    }

    /// A document, in a line.
    pub(super) fn document(&self, document: &impl Serialize) -> anyhow::Result<()> {
        let document = serde_json::to_value(document).context("the answer is no JSON")?;
        self.line(&without_keys(document).to_string())
    }

    /// A document for programs, a line for people.
    pub(super) fn item(&self, item: &impl Serialize, line: &str) -> anyhow::Result<()> {
        if self.is_json {
            return self.document(item);
        }
        self.line(line)
    }

    /// For the person at the terminal; programs do without.
    pub(super) fn tell(&self, text: &str) {
        if !self.is_json {
            crate::to_stderr(text);
        }
    }
}

/// Without what opens a sandbox: output for programs ends up in logs.
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

/// In one line and without what could steer a terminal; at most so many characters.
pub(super) fn plain(text: &str, most: usize) -> String {
    let words = text.split(|c: char| c.is_whitespace() || c.is_control());
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    let line = words.join(" ");
    if line.chars().count() <= most {
        return line;
    }
    line.chars().take(most - 1).chain("…".chars()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn no_key_of_a_sandbox_is_printed() {
        let given = json!({"items": [{"id": 1, "session_api_key": "k", "exposed_urls":
            [{"name": "VSCODE", "url": "http://h:1/?tkn=k&folder=x"}, {"name": "A", "url": "http://h:2"}]}]});
        let shown = json!({"items": [{"id": 1, "exposed_urls":
            [{"name": "VSCODE", "url": "http://h:1/"}, {"name": "A", "url": "http://h:2"}]}]});
        assert_eq!(without_keys(given), shown);
    }

    #[test]
    fn texts_of_others_do_not_steer_the_terminal() {
        assert_eq!(plain("a\u{1b}[31mb\r\n\tc\u{9b}d", 99), "a [31mb c d");
        assert_eq!(plain("äöü", 2), "ä…");
        assert_eq!(plain("äöü", 3), "äöü");
    }
}
