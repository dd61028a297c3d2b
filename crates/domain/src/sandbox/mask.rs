//! Masking of sandbox logs: line by line, without keys and host paths.

use std::fmt;

use secrecy::{ExposeSecret, SecretString};

/// Minimum length of a run of letters and digits that is masked. Keys are longer; ids (32) and words are shorter.
const MIN_KEY_LIKE_CHARS: usize = 33;
/// Minimum length of a known key that is masked. Shorter ones would be found inside words.
const MIN_KEY_BYTES: usize = 4;
/// Maximum bytes of a line that are kept; the rest is dropped.
const MAX_LINE_BYTES: usize = 16 * 1024;
/// The last bytes of a truncated line, which may hold the beginning of a key.
const CUT_EDGE_BYTES: usize = 512;
/// Replaces a key.
const MASK: &str = "***";
/// Replaces the rest of a truncated line.
const TRUNCATION_MARK: &str = " …";

/// Masks keys in a log that arrives in pieces of any length. It buffers the unfinished line, up to 16 KiB.
pub struct LogMask {
    keys: Vec<SecretString>,
    /// Host paths and the text that replaces each.
    path_aliases: Vec<(String, String)>,
    line: Vec<u8>,
    is_cut: bool,
}

impl LogMask {
    /// Masks these keys, and every text that is as long as a key.
    pub fn new(keys: &[SecretString]) -> Self {
        Self {
            keys: keys.to_vec(),
            path_aliases: Vec::new(),
            line: Vec::new(),
            is_cut: false,
        }
    }

    /// Replaces the host path `path` by `alias`.
    #[must_use]
    pub fn with_alias(mut self, path: impl Into<String>, alias: impl Into<String>) -> Self {
        self.path_aliases.push((path.into(), alias.into()));
        self
    }

    /// Takes the next piece and returns the lines that are complete now, each with its line end.
    pub fn push(&mut self, piece: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(piece.len());
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            let (text, has_ended) = match part.split_last() {
                Some((b'\n', text)) => (text, true),
                _ => (part, false),
            };
            let room = MAX_LINE_BYTES.saturating_sub(self.line.len());
            self.is_cut |= text.len() > room;
            self.line.extend_from_slice(&text[..text.len().min(room)]);
            if has_ended {
                self.end_line(&mut out);
            }
        }
        out
    }

    /// Returns the unfinished last line, with a line end.
    pub fn finish(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        if !self.line.is_empty() {
            self.end_line(&mut out);
        }
        out
    }

    fn end_line(&mut self, out: &mut Vec<u8>) {
        if self.is_cut {
            let edge = self.line.len().saturating_sub(CUT_EDGE_BYTES);
            let space = self.line[edge..].iter().rposition(u8::is_ascii_whitespace);
            self.line.truncate(edge + space.unwrap_or(0));
        }
        let text = String::from_utf8_lossy(&self.line);
        let mut text = mask_line(text.trim_end_matches('\r'), &self.keys);
        for (path, alias) in &self.path_aliases {
            text = text.replace(path, alias);
        }
        out.extend_from_slice(text.as_bytes());
        if self.is_cut {
            out.extend_from_slice(TRUNCATION_MARK.as_bytes());
        }
        out.push(b'\n');
        self.line.clear();
        self.is_cut = false;
    }
}

/// Contains no key.
impl fmt::Debug for LogMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LogMask")
    }
}

/// Masks one line from inside a sandbox: replaces control characters by spaces, and masks these keys and every text
/// that is as long as a key. The service does not know the agent's own keys, so it recognises them by their length.
pub fn mask_line(line: &str, keys: &[SecretString]) -> String {
    let mut text: String = line
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    for key in keys.iter().map(ExposeSecret::expose_secret) {
        if key.len() >= MIN_KEY_BYTES {
            text = text.replace(key, MASK);
        }
    }
    mask_key_like(&text)
}

fn mask_key_like(text: &str) -> String {
    let is_separator = |c: char| !c.is_ascii_alphanumeric();
    let mut masked = String::with_capacity(text.len());
    for piece in text.split_inclusive(is_separator) {
        let run = piece.trim_end_matches(is_separator);
        let is_key_like = run.len() >= MIN_KEY_LIKE_CHARS;
        masked.push_str(if is_key_like { MASK } else { run });
        masked.push_str(&piece[run.len()..]);
    }
    masked
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KEY: &str = "session-canary_1";

    fn through(pieces: &[&[u8]]) -> String {
        let mut mask =
            LogMask::new(&[SecretString::from(KEY)]).with_alias("/srv/data", "<sandbox>");
        let mut out: Vec<u8> = pieces.iter().flat_map(|piece| mask.push(piece)).collect();
        out.extend(mask.finish());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn lines_contain_no_keys_no_host_paths_and_no_control_characters() {
        let (unknown, id) = ("k".repeat(43), "a".repeat(32));
        let text = format!("using {KEY} in /srv/data/x\r\n{unknown} {id}\n\x1b[31mred\n\nopen");
        assert_eq!(
            through(&[text.as_bytes()]),
            format!("using *** in <sandbox>/x\n*** {id}\n [31mred\n\nopen\n")
        );
        assert_eq!(through(&[b"not \xff text"]), "not \u{fffd} text\n");
    }

    #[test]
    fn a_long_line_is_truncated_without_leaving_part_of_a_key() {
        for before in MAX_LINE_BYTES - KEY.len() - 2..=MAX_LINE_BYTES {
            let text = format!("{}{KEY} and more\nnext", "- ".repeat(before / 2));
            let out = through(&[text.as_bytes()]);
            assert!(
                !out.contains("session") && !out.contains("canary"),
                "{before}"
            );
            assert!(out.ends_with(" …\nnext\n"), "{before}");
            let solid = format!("{}{KEY}{}", "-".repeat(before), "-".repeat(600));
            let out = through(&[solid.as_bytes()]);
            assert!(
                !out.contains("ses") && out.len() < MAX_LINE_BYTES,
                "{before}"
            );
        }
    }

    proptest! {
        #[test]
        fn the_result_does_not_depend_on_where_pieces_end(text in "[a-k\\n=/-]{0,80}", at in 0_usize..80, key_at in 0_usize..80) {
            let mut text = text;
            let at_key = key_at.min(text.len());
            text.insert_str(at_key, &format!("={KEY}="));
            let at = at.min(text.len());
            let whole = through(&[text.as_bytes()]);
            prop_assert!(!whole.contains(KEY));
            prop_assert_eq!(through(&[&text.as_bytes()[..at], &text.as_bytes()[at..]]), whole);
        }
    }
}
