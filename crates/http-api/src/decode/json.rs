//! Parses JSON, with the reference's error texts.

use serde_json::Value;

use super::json_syntax;

/// Why bytes are not a JSON document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JsonError {
    /// Not UTF-8, or nested more deeply than any client needs (128 levels).
    Undecodable,
    /// Not JSON: an error at a character.
    Syntax {
        /// Characters before the error.
        position: usize,
        /// What was expected there.
        message: &'static str,
    },
}

/// Parses a document. A leading byte-order mark is skipped; of repeated members the last one counts.
pub fn parse(bytes: &[u8]) -> Result<Value, JsonError> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let text = std::str::from_utf8(bytes).map_err(|_| JsonError::Undecodable)?;
    serde_json::from_str(text).map_err(|error| explain(text, &error))
}

fn explain(text: &str, error: &serde_json::Error) -> JsonError {
    // Python accepts some values that Rust cannot represent: numbers beyond a double, unpaired surrogates.
    json_syntax::first_error(text).unwrap_or_else(|| JsonError::Syntax {
        position: offset(text, error),
        message: "Value out of range",
    })
}

/// Characters before the line and column that serde reports.
fn offset(text: &str, error: &serde_json::Error) -> usize {
    let before: usize = text
        .split_inclusive('\n')
        .take(error.line().saturating_sub(1))
        .map(|line| line.chars().count())
        .sum();
    (before + error.column().saturating_sub(1)).min(text.chars().count())
}
