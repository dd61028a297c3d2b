//! Splitting a command line into words, as a POSIX shell quotes them.

/// Where the reader is.
enum Within {
    Nothing,
    Word,
    Single,
    Double,
}

const ADVICE: &str =
    "Use shell-like format, e.g., \"arg1 arg2\" or '--config \"value with spaces\"'";

/// The words of a line. The error names what is missing and quotes nothing.
pub(super) fn split(line: &str) -> Result<Vec<String>, String> {
    let (mut words, mut word, mut within) = (Vec::new(), String::new(), Within::Nothing);
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        within = match (within, c) {
            (Within::Nothing, c) if c.is_whitespace() => Within::Nothing,
            (Within::Word, c) if c.is_whitespace() => {
                words.push(std::mem::take(&mut word));
                Within::Nothing
            }
            (Within::Nothing | Within::Word, '\'') => Within::Single,
            (Within::Nothing | Within::Word, '"') => Within::Double,
            (Within::Nothing | Within::Word, '\\') => {
                word.push(
                    chars
                        .next()
                        .ok_or_else(|| missing("No escaped character"))?,
                );
                Within::Word
            }
            (Within::Nothing | Within::Word, c) => {
                word.push(c);
                Within::Word
            }
            (Within::Single, '\'') | (Within::Double, '"') => Within::Word,
            (Within::Double, '\\') => {
                let next = chars
                    .next()
                    .ok_or_else(|| missing("No closing quotation"))?;
                if !matches!(next, '"' | '\\') {
                    word.push('\\');
                }
                word.push(next);
                Within::Double
            }
            (quoted, c) => {
                word.push(c);
                quoted
            }
        };
    }
    match within {
        Within::Nothing => {}
        Within::Word => words.push(word),
        Within::Single | Within::Double => return Err(missing("No closing quotation")),
    }
    Ok(words)
}

fn missing(what: &str) -> String {
    format!("{what}. {ADVICE}")
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
