//! Splits a command line into words, with the quoting of a POSIX shell.

/// The state of the parser.
enum QuoteState {
    Nothing,
    Word,
    Single,
    Double,
}

const UNBALANCED_QUOTES_HINT: &str =
    "Use shell-like format, e.g., \"arg1 arg2\" or '--config \"value with spaces\"'";

/// Splits a line into words. The error names what is missing and quotes nothing.
pub(super) fn split(line: &str) -> Result<Vec<String>, String> {
    let (mut words, mut word, mut within) = (Vec::new(), String::new(), QuoteState::Nothing);
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        within = match (within, c) {
            (QuoteState::Nothing, c) if c.is_whitespace() => QuoteState::Nothing,
            (QuoteState::Word, c) if c.is_whitespace() => {
                words.push(std::mem::take(&mut word));
                QuoteState::Nothing
            }
            (QuoteState::Nothing | QuoteState::Word, '\'') => QuoteState::Single,
            (QuoteState::Nothing | QuoteState::Word, '"') => QuoteState::Double,
            (QuoteState::Nothing | QuoteState::Word, '\\') => {
                word.push(
                    chars
                        .next()
                        .ok_or_else(|| missing("No escaped character"))?,
                );
                QuoteState::Word
            }
            (QuoteState::Nothing | QuoteState::Word, c) => {
                word.push(c);
                QuoteState::Word
            }
            (QuoteState::Single, '\'') | (QuoteState::Double, '"') => QuoteState::Word,
            (QuoteState::Double, '\\') => {
                let next = chars
                    .next()
                    .ok_or_else(|| missing("No closing quotation"))?;
                if !matches!(next, '"' | '\\') {
                    word.push('\\');
                }
                word.push(next);
                QuoteState::Double
            }
            (quoted, c) => {
                word.push(c);
                quoted
            }
        };
    }
    match within {
        QuoteState::Nothing => {}
        QuoteState::Word => words.push(word),
        QuoteState::Single | QuoteState::Double => return Err(missing("No closing quotation")),
    }
    Ok(words)
}

fn missing(what: &str) -> String {
    format!("{what}. {UNBALANCED_QUOTES_HINT}")
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn words_are_split_as_a_shell_does() {
        for (line, words) in [
            ("", vec![]),
            ("  ", vec![]),
            ("-y 'b c'", vec!["-y", "b c"]),
            (
                "--config \"value with spaces\" x",
                vec!["--config", "value with spaces", "x"],
            ),
            ("a\\ b \"q\\\"q\" \"\\n\"", vec!["a b", "q\"q", "\\n"]),
            ("'' a''b", vec!["", "ab"]),
        ] {
            assert_eq!(split(line).unwrap(), words, "{line}");
        }
        for line in ["\"unterminated", "'x", "a\\", "\"a\\"] {
            assert!(split(line).is_err(), "{line}");
        }
    }
}
