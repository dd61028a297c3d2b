//! Locates the first syntax error of a JSON text, with the text and position of Python's `json` module, which clients see in
//! `json_invalid`. Runs only after `serde_json` has refused the text.

use super::JsonError;

/// Levels of nesting that `serde_json` accepts.
const MAX_NESTING_LEVELS: usize = 127;

/// An error at `position`, in characters.
const fn invalid(position: usize, message: &'static str) -> JsonError {
    JsonError::Syntax { position, message }
}

const EXPECTING_VALUE: &str = "Expecting value";
const EXPECTING_PROPERTY: &str = "Expecting property name enclosed in double quotes";

/// The first error that Python would report, or `None` if it would accept the text.
pub(super) fn first_error(text: &str) -> Option<JsonError> {
    let chars: Vec<char> = text.chars().collect();
    let scanner = Scanner { chars: &chars };
    let end = match scanner.value(scanner.skip_blanks(0), 0) {
        Ok(end) => scanner.skip_blanks(end),
        Err(found) => return Some(found),
    };
    (end < chars.len()).then(|| invalid(end, "Extra data"))
}

/// Each method takes the position where an element starts and returns the position after it.
struct Scanner<'a> {
    chars: &'a [char],
}

impl Scanner<'_> {
    fn at(&self, position: usize) -> Option<char> {
        self.chars.get(position).copied()
    }

    fn skip_blanks(&self, mut position: usize) -> usize {
        while matches!(self.at(position), Some(' ' | '\t' | '\n' | '\r')) {
            position += 1;
        }
        position
    }

    fn value(&self, start: usize, depth: usize) -> Result<usize, JsonError> {
        if depth > MAX_NESTING_LEVELS {
            return Err(JsonError::Undecodable);
        }
        match self.at(start) {
            Some('"') => self.string(start),
            Some('{') => self.object(start, depth),
            Some('[') => self.array(start, depth),
            Some('-' | '0'..='9') => self.number(start),
            Some('t') => self.word(start, "true"),
            Some('f') => self.word(start, "false"),
            Some('n') => self.word(start, "null"),
            _ => Err(invalid(start, EXPECTING_VALUE)),
        }
    }

    fn word(&self, start: usize, word: &str) -> Result<usize, JsonError> {
        let end = start + word.len();
        let same = self
            .chars
            .get(start..end)
            .is_some_and(|found| found.iter().copied().eq(word.chars()));
        if same {
            Ok(end)
        } else {
            Err(invalid(start, EXPECTING_VALUE))
        }
    }

    fn digits(&self, mut position: usize) -> usize {
        while self.at(position).is_some_and(|c| c.is_ascii_digit()) {
            position += 1;
        }
        position
    }

    /// A number ends at the first character that cannot continue it (`01` is `0` and extra data).
    fn number(&self, start: usize) -> Result<usize, JsonError> {
        let first = if self.at(start) == Some('-') {
            start + 1
        } else {
            start
        };
        let mut end = match self.at(first) {
            Some('0') => first + 1,
            Some('1'..='9') => self.digits(first),
            _ => return Err(invalid(start, EXPECTING_VALUE)),
        };
        if self.at(end) == Some('.') && self.digits(end + 1) > end + 1 {
            end = self.digits(end + 1);
        }
        if matches!(self.at(end), Some('e' | 'E')) {
            let sign = usize::from(matches!(self.at(end + 1), Some('+' | '-')));
            let exponent = end + 1 + sign;
            if self.digits(exponent) > exponent {
                end = self.digits(exponent);
            }
        }
        Ok(end)
    }

    fn string(&self, start: usize) -> Result<usize, JsonError> {
        let unterminated = invalid(start, "Unterminated string starting at");
        let mut position = start + 1;
        loop {
            match self.at(position) {
                None => return Err(unterminated),
                Some('"') => return Ok(position + 1),
                Some('\\') => match self.at(position + 1) {
                    None => return Err(unterminated),
                    Some('"' | '\\' | '/' | 'b' | 'f' | 'n' | 'r' | 't') => position += 2,
                    Some('u') => {
                        let hex = self.chars.get(position + 2..position + 6);
                        // Python looks for the character after the digits first, so digits at the end of the text do not form an escape.
                        let is_last = self.at(position + 6).is_none();
                        if is_last
                            || !hex.is_some_and(|hex| hex.iter().all(char::is_ascii_hexdigit))
                        {
                            return Err(invalid(position + 1, "Invalid \\uXXXX escape"));
                        }
                        position += 6;
                    }
                    Some(_) => return Err(invalid(position, "Invalid \\escape")),
                },
                Some(c) if c < ' ' => {
                    return Err(invalid(position, "Invalid control character at"));
                }
                Some(_) => position += 1,
            }
        }
    }

    fn array(&self, start: usize, depth: usize) -> Result<usize, JsonError> {
        let mut position = self.skip_blanks(start + 1);
        if self.at(position) == Some(']') {
            return Ok(position + 1);
        }
        loop {
            position = self.skip_blanks(self.value(position, depth + 1)?);
            match self.at(position) {
                Some(']') => return Ok(position + 1),
                Some(',') => position = self.skip_blanks(position + 1),
                _ => return Err(invalid(position, "Expecting ',' delimiter")),
            }
        }
    }

    fn object(&self, start: usize, depth: usize) -> Result<usize, JsonError> {
        let mut position = self.skip_blanks(start + 1);
        if self.at(position) == Some('}') {
            return Ok(position + 1);
        }
        loop {
            if self.at(position) != Some('"') {
                return Err(invalid(position, EXPECTING_PROPERTY));
            }
            position = self.skip_blanks(self.string(position)?);
            if self.at(position) != Some(':') {
                return Err(invalid(position, "Expecting ':' delimiter"));
            }
            position = self.skip_blanks(self.value(self.skip_blanks(position + 1), depth + 1)?);
            match self.at(position) {
                Some('}') => return Ok(position + 1),
                Some(',') => position = self.skip_blanks(position + 1),
                _ => return Err(invalid(position, "Expecting ',' delimiter")),
            }
        }
    }
}
