//! The search for secrets in a text.

use std::fmt::Write as _;

use base64::prelude::{BASE64_STANDARD_NO_PAD, BASE64_URL_SAFE_NO_PAD, Engine as _};
use memchr::memmem;

use super::MARK;

/// A text that may be in certain places only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Secret {
    /// A description for the report.
    pub what: String,
    /// The user it belongs to; empty for the operator.
    pub owner: String,
    encodings: Vec<String>,
    has_mark: bool,
}

impl Secret {
    /// `text` is the part to look for: at least eight letters, digits or dashes.
    ///
    /// # Panics
    /// When `text` is too short.
    #[must_use]
    pub fn new(what: &str, owner: &str, text: &str) -> Self {
        assert!(text.len() >= 8, "{what} is too short to be found");
        Self {
            what: what.to_owned(),
            owner: owner.to_owned(),
            encodings: encodings(text),
            has_mark: text.starts_with(MARK),
        }
    }

    /// Its offset in a text, if the text contains it.
    #[must_use]
    pub fn find(&self, text: &str) -> Option<usize> {
        self.encodings
            .iter()
            .find_map(|encoding| find(text, encoding))
    }
}

/// Like `str::find`, which is slow without optimizations.
fn find(text: &str, part: &str) -> Option<usize> {
    memmem::find(text.as_bytes(), part.as_bytes())
}

fn hexadecimal(text: &str) -> String {
    text.bytes().fold(String::new(), |mut hex_digits, byte| {
        // Writing to a String cannot fail.
        let _ = write!(hex_digits, "{byte:02x}");
        hex_digits
    })
}

/// Encodings of a text: plain (also in JSON and URLs), hexadecimal, and base64 at any offset of a longer text.
fn encodings(text: &str) -> Vec<String> {
    let hex_digits = hexadecimal(text);
    let mut all = vec![text.to_owned(), hex_digits.to_ascii_uppercase(), hex_digits];
    for before in 0..3_usize {
        let padded = [vec![0; before], text.as_bytes().to_vec()].concat();
        // Without the characters that also encode bits of the neighbouring bytes.
        let (from, until) = ((before * 8).div_ceil(6), padded.len() * 8 / 6);
        all.push(BASE64_STANDARD_NO_PAD.encode(&padded)[from..until].to_owned());
        all.push(BASE64_URL_SAFE_NO_PAD.encode(&padded)[from..until].to_owned());
    }
    all.sort();
    all.dedup();
    all
}

/// All secrets of a test.
#[derive(Debug, Clone)]
pub struct Secrets {
    all: Vec<Secret>,
    mark_encodings: Vec<String>,
}

impl Default for Secrets {
    fn default() -> Self {
        Self {
            all: Vec::new(),
            mark_encodings: encodings(MARK),
        }
    }
}

impl Secrets {
    /// Adds a secret unless it is known.
    pub fn add(&mut self, secret: Secret) {
        if !self.all.contains(&secret) {
            self.all.push(secret);
        }
    }

    /// Adds several.
    pub fn extend(&mut self, secrets: impl IntoIterator<Item = Secret>) {
        secrets.into_iter().for_each(|secret| self.add(secret));
    }

    /// The secrets in a text, each with the text before it.
    #[must_use]
    pub fn found_in(&self, text: &str) -> Vec<(&Secret, String)> {
        // Searching for the mark first saves the search for every planted secret in long texts.
        let is_marked = self
            .mark_encodings
            .iter()
            .any(|encoding| find(text, encoding).is_some());
        let candidates = self.all.iter().filter(|one| is_marked || !one.has_mark);
        candidates
            .filter_map(|secret| Some((secret, text_before(text, secret.find(text)?))))
            .collect()
    }
}

/// Up to 120 characters before an offset, on one line.
fn text_before(text: &str, at: usize) -> String {
    let last = text[..at].chars().rev().take(120).collect::<Vec<_>>();
    let line = last.into_iter().rev().collect::<String>();
    line.replace('\n', "⏎")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_is_found_in_every_encoding() {
        let text = "QanaryOfThisTestZ";
        let mut secrets = Secrets::default();
        secrets.add(Secret::new("it", "", text));
        secrets.add(Secret::new("another", "", "QanaryOfThisOtherTestZ"));
        for (before, after) in [("", ""), ("a", "b"), ("ab", "c"), ("?>", "é\"")] {
            let whole = format!("{before}{text}{after}");
            let hex = hexadecimal(&whole).to_ascii_uppercase();
            for encoded in [
                whole.clone(),
                BASE64_STANDARD_NO_PAD.encode(&whole),
                BASE64_URL_SAFE_NO_PAD.encode(&whole),
                hex.to_ascii_lowercase(),
                hex,
                format!("{whole:?}"),
            ] {
                let found = secrets.found_in(&format!("x{encoded}y"));
                assert_eq!(found.len(), 1, "{encoded}");
                assert_eq!(found[0].0.what, "it");
            }
        }
        assert_eq!(secrets.found_in("QanaryOfThis is none").len(), 0);
    }
}
