//! What a sandbox wrote, as its owner may read it: without keys, without places of the host, and line by line.

use std::fmt;

use secrecy::{ExposeSecret, SecretString};

/// Runs of at least this many letters and digits are masked: keys are longer, ids (32) and words are shorter.
const KEY_LIKE: usize = 33;
/// Known keys that are shorter than this are not masked: they would be found in words.
const SHORTEST_KEY: usize = 4;
/// The most of a line that is kept, in bytes; what is beyond is dropped.
const LINE: usize = 16 * 1024;
/// Of a line that is cut, so many bytes before the cut may be the beginning of a key.
const EDGE: usize = 512;
/// Instead of a key.
const MASK: &str = "***";
/// Instead of the rest of a line.
const CUT: &str = " …";

/// Masks keys in pieces of a log, which may end anywhere. Holds back the line that has not ended, up to 16 KiB.
pub struct LogMask {
    keys: Vec<SecretString>,
    /// What stands for a place of the host.
    places: Vec<(String, String)>,
    line: Vec<u8>,
    is_cut: bool,
}

impl LogMask {
    /// Masks these keys, and whatever is as long as a key.
    pub fn new(keys: &[SecretString]) -> Self {
        Self {
            keys: keys.to_vec(),
            places: Vec::new(),
            line: Vec::new(),
            is_cut: false,
        }
    }

    /// Writes `name` wherever the log has this place of the host.
    #[must_use]
    pub fn with_alias(mut self, place: impl Into<String>, name: impl Into<String>) -> Self {
        self.places.push((place.into(), name.into()));
        self
    }

    /// Takes the next piece; answers the lines that are whole now, each with its end.
    pub fn push(&mut self, piece: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(piece.len());
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            let (text, has_ended) = match part.split_last() {
                Some((b'\n', text)) => (text, true),
                _ => (part, false),
            };
            let room = LINE.saturating_sub(self.line.len());
            self.is_cut |= text.len() > room;
            self.line.extend_from_slice(&text[..text.len().min(room)]);
            if has_ended {
                self.end_line(&mut out);
            }
        }
        out
    }

    /// The line that never ended, with an end.
    pub fn finish(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        if !self.line.is_empty() {
            self.end_line(&mut out);
        }
        out
    }

    fn end_line(&mut self, out: &mut Vec<u8>) {
        if self.is_cut {
            let edge = self.line.len().saturating_sub(EDGE);
            let space = self.line[edge..].iter().rposition(u8::is_ascii_whitespace);
            self.line.truncate(edge + space.unwrap_or(0));
        }
        let text = String::from_utf8_lossy(&self.line);
        let mut text = mask_line(text.trim_end_matches('\r'), &self.keys);
        for (place, name) in &self.places {
            text = text.replace(place, name);
        }
        out.extend_from_slice(text.as_bytes());
        if self.is_cut {
            out.extend_from_slice(CUT.as_bytes());
        }
        out.push(b'\n');
        self.line.clear();
        self.is_cut = false;
    }
}

/// Names no key.
impl fmt::Debug for LogMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LogMask")
    }
}

/// One line from inside a sandbox, with spaces for control characters, and without these keys and whatever is as long as
/// one: keys that the service cannot know (they are the agent's) are recognised by their length.
pub fn mask_line(line: &str, keys: &[SecretString]) -> String {
    let mut text: String = line
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    for key in keys.iter().map(ExposeSecret::expose_secret) {
        if key.len() >= SHORTEST_KEY {
            text = text.replace(key, MASK);
        }
    }
    mask_key_like(&text)
}

fn mask_key_like(text: &str) -> String {
    let mut masked = String::with_capacity(text.len());
    let mut run = String::new();
    let end = |run: &mut String, masked: &mut String| {
        masked.push_str(if run.len() >= KEY_LIKE { MASK } else { run });
        run.clear();
    };
    for c in text.chars() {
        if c.is_ascii_alphanumeric() {
            run.push(c);
        } else {
            end(&mut run, &mut masked);
            masked.push(c);
        }
    }
    end(&mut run, &mut masked);
    masked
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KEY: &str = "session-canary_1";

    fn through(pieces: &[&[u8]]) -> String {
        let mut mask = LogMask::new(&[SecretString::from(KEY)]).with_alias("/srv/data", "<sandbox>");
        let mut out: Vec<u8> = pieces.iter().flat_map(|piece| mask.push(piece)).collect();
        out.extend(mask.finish());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn lines_hold_no_keys_no_places_and_nothing_that_moves_a_terminal() {
        let (unknown, id) = ("k".repeat(43), "a".repeat(32));
        let text = format!("using {KEY} in /srv/data/x\r\n{unknown} {id}\n\x1b[31mred\n\nopen");
        assert_eq!(
            through(&[text.as_bytes()]),
            format!("using *** in <sandbox>/x\n*** {id}\n [31mred\n\nopen\n")
        );
        assert_eq!(through(&[b"not \xff text"]), "not \u{fffd} text\n");
    }

    #[test]
    fn of_a_long_line_the_end_is_dropped_and_no_half_of_a_key_stays() {
        for before in LINE - KEY.len() - 2..=LINE {
            let text = format!("{}{KEY} and more\nnext", "- ".repeat(before / 2));
            let out = through(&[text.as_bytes()]);
            assert!(
                !out.contains("session") && !out.contains("canary"),
                "{before}"
            );
            assert!(out.ends_with(" …\nnext\n"), "{before}");
            let solid = format!("{}{KEY}{}", "-".repeat(before), "-".repeat(600));
            let out = through(&[solid.as_bytes()]);
            assert!(!out.contains("ses") && out.len() < LINE, "{before}");
        }
    }

    proptest! {
        #[test]
        fn where_pieces_end_makes_no_difference(text in "[a-k\\n=/-]{0,80}", at in 0_usize..80, key_at in 0_usize..80) {
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
