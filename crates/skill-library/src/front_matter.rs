//! The front matter of a skill: YAML between two lines `---` at the beginning of its file.

use std::borrow::Cow;

use saphyr_parser::{Event, Parser, ScalarStyle};

/// The front matter of a file must end within this number of bytes.
pub(crate) const MAX_FRONT_MATTER_BYTES: usize = 16 * 1024;
/// Characters of a name, a type or a trigger.
const MAX_FIELD_CHARS: usize = 256;
/// Triggers of one skill.
const MAX_TRIGGERS: usize = 256;

/// The fields of front matter that lists show. Others are for agents and are ignored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FrontMatter {
    pub(crate) name: Option<String>,
    pub(crate) kind: Option<String>,
    /// Never empty.
    pub(crate) triggers: Option<Vec<String>>,
}

/// Parses the beginning of a file; `None` if it has no front matter. The error completes the sentence "the skill is omitted: …".
pub(crate) fn parse(beginning: &[u8]) -> Result<Option<FrontMatter>, String> {
    let beginning = &beginning[..beginning.len().min(MAX_FRONT_MATTER_BYTES)];
    let is_fence = |line: &[u8]| line.trim_ascii_end() == b"---";
    let mut lines = beginning.split_inclusive(|byte| *byte == b'\n');
    let first = lines.next().unwrap_or_default();
    if !is_fence(first.strip_prefix(b"\xef\xbb\xbf").unwrap_or(first)) {
        return Ok(None);
    }
    let mut end = first.len();
    for line in lines {
        if is_fence(line) {
            let yaml = std::str::from_utf8(&beginning[first.len()..end]);
            return read(yaml.map_err(|_| "its front matter is not UTF-8")?).map(Some);
        }
        end += line.len();
    }
    Err("its front matter has no end in its first 16 KiB".to_owned())
}

fn read(yaml: &str) -> Result<FrontMatter, String> {
    let mut events = Events(Parser::new_from_str(yaml));
    let mut front_matter = FrontMatter::default();
    loop {
        match events.next()? {
            Event::MappingStart(..) => break,
            // An empty document.
            Event::Scalar(text, ..) if text.is_empty() => return Ok(front_matter),
            Event::StreamEnd | Event::DocumentEnd => return Ok(front_matter),
            Event::StreamStart | Event::DocumentStart(_) | Event::Nothing => {}
            _ => return Err("its front matter is not a list of names and values".into()),
        }
    }
    loop {
        let key = match events.next()? {
            Event::MappingEnd => break,
            Event::Scalar(key, ..) => key,
            other => {
                events.skip(&other)?;
                Cow::Borrowed("")
            }
        };
        match &*key {
            "name" => front_matter.name = events.text("name")?,
            "type" => front_matter.kind = events.text("type")?,
            "triggers" => front_matter.triggers = events.texts()?,
            _ => {
                let value = events.next()?;
                events.skip(&value)?;
            }
        }
    }
    // The rest must be valid YAML without another document.
    loop {
        match events.next()? {
            Event::StreamEnd => return Ok(front_matter),
            Event::DocumentStart(_) => {
                return Err("its front matter has several documents".into());
            }
            _ => {}
        }
    }
}

struct Events<'a>(Parser<'a, saphyr_parser::StrInput<'a>>);

impl<'a> Events<'a> {
    fn next(&mut self) -> Result<Event<'a>, String> {
        match self.0.next_event() {
            Some(Ok((event, _))) => Ok(event),
            Some(Err(error)) => {
                let line = error.marker().line();
                Err(format!("its front matter is not YAML (line {line} of it)"))
            }
            None => Ok(Event::StreamEnd),
        }
    }

    /// Skips the rest of a value that begins with this event.
    fn skip(&mut self, first: &Event<'_>) -> Result<(), String> {
        let mut depth = i64::from(opens(first));
        while depth > 0 {
            let event = self.next()?;
            if event == Event::StreamEnd {
                return Err("its front matter ends too early".into());
            }
            depth += i64::from(opens(&event)) - i64::from(closes(&event));
        }
        Ok(())
    }

    /// Reads a text; `None` if it is null or blank.
    fn text(&mut self, key: &str) -> Result<Option<String>, String> {
        match self.next()? {
            Event::Scalar(text, style, ..) => bounded(&text, style),
            _ => Err(format!("`{key}` in the front matter must be a string")),
        }
    }

    /// Reads a text or a list of texts, without null and blank ones.
    fn texts(&mut self) -> Result<Option<Vec<String>>, String> {
        let mut texts = Vec::new();
        match self.next()? {
            Event::Scalar(text, style, ..) => texts.extend(bounded(&text, style)?),
            Event::SequenceStart(..) => loop {
                match self.next()? {
                    Event::SequenceEnd => break,
                    Event::Scalar(text, style, ..) => texts.extend(bounded(&text, style)?),
                    _ => {
                        return Err("`triggers` in its front matter is not a list of texts".into());
                    }
                }
                if texts.len() > MAX_TRIGGERS {
                    return Err("`triggers` in its front matter has more than 256 entries".into());
                }
            },
            _ => {
                return Err("`triggers` in its front matter is not a list of texts".into());
            }
        }
        Ok((!texts.is_empty()).then_some(texts))
    }
}

fn opens(event: &Event<'_>) -> bool {
    matches!(event, Event::MappingStart(..) | Event::SequenceStart(..))
}

fn closes(event: &Event<'_>) -> bool {
    matches!(event, Event::MappingEnd | Event::SequenceEnd)
}

/// Checks a text; `None` if it is null or blank.
fn bounded(text: &str, style: ScalarStyle) -> Result<Option<String>, String> {
    let is_null =
        style == ScalarStyle::Plain && matches!(text, "" | "~" | "null" | "Null" | "NULL");
    let text = text.trim();
    if is_null || text.is_empty() {
        return Ok(None);
    }
    if text.chars().count() > MAX_FIELD_CHARS {
        return Err("a text in its front matter has more than 256 characters".into());
    }
    if text.contains(char::is_control) {
        return Err("a text in its front matter has control characters".into());
    }
    Ok(Some(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use proptest::prelude::*;

    use super::*;

    fn front_matter(name: Option<&str>, kind: Option<&str>, triggers: &[&str]) -> FrontMatter {
        let triggers: Vec<_> = triggers.iter().map(ToString::to_string).collect();
        FrontMatter {
            name: name.map(str::to_owned),
            kind: kind.map(str::to_owned),
            triggers: (!triggers.is_empty()).then_some(triggers),
        }
    }

    #[test]
    fn front_matter_of_existing_skills_is_read() {
        for (text, expected) in [
            (
                "---\nname: github\ntype: knowledge\nversion: 1.0.0\nagent: CodeActAgent\ntriggers:\n- github\n- git\n---\nText",
                front_matter(Some("github"), Some("knowledge"), &["github", "git"]),
            ),
            (
                "\u{feff}---\r\nname: \"a: b\"\r\ntriggers: [x, 'y z', ~, 7]\r\n---\r\n",
                front_matter(Some("a: b"), None, &["x", "y z", "7"]),
            ),
            (
                "---\ndescription: >-\n  Long\n  ---- text\nmetadata:\n  name: inner\n  triggers: [no]\nname: outer\n---\n",
                front_matter(Some("outer"), None, &[]),
            ),
            ("---\n---\n", front_matter(None, None, &[])),
            ("---\n# only a remark\n---\n", front_matter(None, None, &[])),
            (
                "---\nname:\ntriggers: []\n---\n",
                front_matter(None, None, &[]),
            ),
            (
                "---\ntriggers: one\n---",
                front_matter(None, None, &["one"]),
            ),
        ] {
            assert_eq!(parse(text.as_bytes()), Ok(Some(expected)), "{text}");
        }
        for text in ["", "# Title", "----\nname: x\n---", " ---\nname: x\n---"] {
            assert_eq!(parse(text.as_bytes()), Ok(None), "{text}");
        }
    }

    #[test]
    fn invalid_front_matter_has_a_reason() {
        let long = format!("---\nname: {}\n---\n", "x".repeat(257));
        let many = format!("---\ntriggers: [{}]\n---\n", "t,".repeat(257));
        let endless = format!("---\n{}", "a: b\n".repeat(10_000));
        for (text, why) in [
            ("---\nname: x\n", "no end"),
            (endless.as_str(), "no end"),
            ("---\nx: [\n---\n", "not YAML"),
            ("---\n- a\n---\n", "not a list of names and values"),
            ("---\nname: {a: b}\n---\n", "`name`"),
            ("---\na: &x [1]\ntype: *x\n---\n", "`type`"),
            ("---\ntriggers: [[a]]\n---\n", "not a list of texts"),
            ("---\nname: \"a\\nb\"\n---\n", "control"),
            (long.as_str(), "256 characters"),
            (many.as_str(), "256 entries"),
        ] {
            let error = parse(text.as_bytes()).unwrap_err();
            assert!(error.contains(why), "{error} / {why}");
        }
        assert!(parse(b"---\nname: \xff\n---\n").is_err());
    }

    #[test]
    fn aliases_are_never_expanded() {
        let mut text = String::from("---\na0: &a0 [x, x]\n");
        for n in 1..60 {
            let before = n - 1;
            writeln!(text, "a{n}: &a{n} [*a{before}, *a{before}]").unwrap();
        }
        text.push_str("name: bomb\n---\n");
        assert_eq!(
            parse(text.as_bytes()).unwrap(),
            Some(front_matter(Some("bomb"), None, &[]))
        );
    }

    proptest! {
        #[test]
        fn parsing_any_text_ends(text in "(---\n)?[-a: \\[\\]{}&*!|>'\"\n#,?%@`~\t]{0,200}(\n---\n)?") {
            let _ = parse(text.as_bytes());
        }

        #[test]
        fn parsing_any_bytes_ends(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse(&[b"---\n".as_slice(), &bytes, b"\n---\n"].concat());
        }
    }
}
