//! Which secrets are in a text.

use std::fmt::Write as _;

use base64::prelude::{BASE64_STANDARD_NO_PAD, BASE64_URL_SAFE_NO_PAD, Engine as _};

use super::MARK;

/// A text that must not be found, or only where it belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Secret {
    /// What it is, for a person.
    pub what: String,
    /// Whose it is; empty for the operator's.
    pub owner: String,
    forms: Vec<String>,
    is_planted: bool,
}

impl Secret {
    /// `text` is the part to look for: at least eight letters, digits or dashes.
    ///
    /// # Panics
    /// When a text is none that can be used here.
    #[must_use]
    pub fn new(what: &str, owner: &str, text: &str) -> Self {
        assert!(text.len() >= 8, "{what} is too short to be found");
        Self {
            what: what.to_owned(),
            owner: owner.to_owned(),
            forms: forms(text),
            is_planted: text.starts_with(MARK),
        }
    }

    /// Where it is in a text, if it is.
    #[must_use]
    pub fn find(&self, text: &str) -> Option<usize> {
        self.forms.iter().find_map(|form| text.find(form))
    }
}

fn hexadecimal(text: &str) -> String {
    text.bytes().fold(String::new(), |mut digits, byte| {
        // Writing to a String cannot fail.
        let _ = write!(digits, "{byte:02x}");
        digits
    })
}

/// How a text is written: plain (also in JSON and URLs), hexadecimal, and base64 at any place of a longer text.
fn forms(text: &str) -> Vec<String> {
    let digits = hexadecimal(text);
    let mut all = vec![text.to_owned(), digits.to_ascii_uppercase(), digits];
    for before in 0..3_usize {
        let padded = [vec![0; before], text.as_bytes().to_vec()].concat();
        // Without the characters that neighbours have a share in.
        let (from, until) = ((before * 8).div_ceil(6), padded.len() * 8 / 6);
        all.push(BASE64_STANDARD_NO_PAD.encode(&padded)[from..until].to_owned());
        all.push(BASE64_URL_SAFE_NO_PAD.encode(&padded)[from..until].to_owned());
    }
    all.sort();
    all.dedup();
    all
}

/// All secrets of a story.
#[derive(Debug, Clone)]
pub struct Secrets {
    all: Vec<Secret>,
    mark: Vec<String>,
}

impl Default for Secrets {
    fn default() -> Self {
        Self {
            all: Vec::new(),
            mark: forms(MARK),
        }
    }
}

impl Secrets {
    /// Adds one, once.
    pub fn add(&mut self, secret: Secret) {
        if !self.all.contains(&secret) {
            self.all.push(secret);
        }
    }

    /// Adds several.
    pub fn extend(&mut self, secrets: impl IntoIterator<Item = Secret>) {
        secrets.into_iter().for_each(|secret| self.add(secret));
    }

    /// Those in a text, each with what stands before it.
    #[must_use]
    pub fn found_in(&self, text: &str) -> Vec<(&Secret, String)> {
        // Long texts are searched once for all planted ones.
        let is_marked = self.mark.iter().any(|form| text.contains(form));
        let candidates = self.all.iter().filter(|one| is_marked || !one.is_planted);
        candidates
            .filter_map(|secret| Some((secret, before(text, secret.find(text)?))))
            .collect()
    }
}

/// Up to 120 characters before a place, on one line.
fn before(text: &str, at: usize) -> String {
    let last = text[..at].chars().rev().take(120).collect::<Vec<_>>();
    let line = last.into_iter().rev().collect::<String>();
    line.replace('\n', "⏎")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_found_however_it_is_written() {
        let text = "QanaryOfThisTestZ";
        let mut secrets = Secrets::default();
        secrets.add(Secret::new("it", "", text));
        secrets.add(Secret::new("another", "", "QanaryOfThisOtherTestZ"));
        for (before, after) in [("", ""), ("a", "b"), ("ab", "c"), ("?>", "é\"")] {
            let whole = format!("{before}{text}{after}");
            let hex = hexadecimal(&whole).to_ascii_uppercase();
            for written in [
                whole.clone(),
                BASE64_STANDARD_NO_PAD.encode(&whole),
                BASE64_URL_SAFE_NO_PAD.encode(&whole),
                hex.to_ascii_lowercase(),
                hex,
                format!("{whole:?}"),
            ] {
                let found = secrets.found_in(&format!("x{written}y"));
                assert_eq!(found.len(), 1, "{written}");
                assert_eq!(found[0].0.what, "it");
            }
        }
        assert_eq!(secrets.found_in("QanaryOfThis is none").len(), 0);
    }
}
