//! Issues with settings in a request. An issue names a place and a kind, never a value, which may be secret.

use std::borrow::Cow;
use std::fmt;

use serde_json::Value;

/// Kind of an issue. Clients of the reference know the texts.
#[derive(Debug, Clone, PartialEq)]
pub enum IssueKind {
    Missing,
    Unknown,
    String,
    Integer,
    IntegerText,
    Fraction,
    IntegerSize,
    Number,
    NumberText,
    Finite,
    Boolean,
    /// Text or a number that does not mean a boolean.
    BooleanText,
    List,
    Object,
    AtLeast(f64),
    AtMost(f64),
    OneOf(Vec<String>),
    Other(String),
}

impl IssueKind {
    /// The error type in the validation body.
    pub fn code(&self) -> &'static str {
        self.code_and_text().0
    }

    fn code_and_text(&self) -> (&'static str, Cow<'static, str>) {
        let (code, text) = match self {
            Self::Missing => ("missing", "Field required"),
            Self::Unknown => ("extra_forbidden", "Extra inputs are not permitted"),
            Self::String => ("string_type", "Input should be a valid string"),
            Self::Integer => ("int_type", "Input should be a valid integer"),
            Self::IntegerText => (
                "int_parsing",
                "Input should be a valid integer, unable to parse string as an integer",
            ),
            Self::Fraction => (
                "int_from_float",
                "Input should be a valid integer, got a number with a fractional part",
            ),
            Self::IntegerSize => (
                "int_parsing_size",
                "Input should be an integer of at most 64 bits",
            ),
            Self::Number => ("float_type", "Input should be a valid number"),
            Self::NumberText => (
                "float_parsing",
                "Input should be a valid number, unable to parse string as a number",
            ),
            Self::Finite => ("finite_number", "Input should be a finite number"),
            Self::Boolean => ("bool_type", "Input should be a valid boolean"),
            Self::BooleanText => (
                "bool_parsing",
                "Input should be a valid boolean, unable to interpret input",
            ),
            Self::List => ("list_type", "Input should be a valid list"),
            Self::Object => ("dict_type", "Input should be a valid dictionary"),
            Self::AtLeast(min) => {
                let text = format!("Input should be greater than or equal to {min}");
                return ("greater_than_equal", text.into());
            }
            Self::AtMost(max) => {
                let text = format!("Input should be less than or equal to {max}");
                return ("less_than_equal", text.into());
            }
            Self::OneOf(words) => {
                return (
                    "enum",
                    format!("Input should be {}", alternatives(words)).into(),
                );
            }
            Self::Other(text) => return ("value_error", format!("Value error, {text}").into()),
        };
        (code, text.into())
    }
}

impl fmt::Display for IssueKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.code_and_text().1)
    }
}

/// Formats alternatives as validation texts do: `'a', 'b' or 'c'`.
pub(super) fn alternatives<S: AsRef<str>>(words: &[S]) -> String {
    let quoted: Vec<String> = words.iter().map(|w| format!("'{}'", w.as_ref())).collect();
    match quoted.split_last() {
        None => String::new(),
        Some((only, [])) => only.clone(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
    }
}

/// An issue and its place (path from the top of the body).
#[derive(Debug, Clone, PartialEq)]
pub struct Issue {
    /// Keys and indexes down to the value.
    pub at: Vec<String>,
    pub kind: IssueKind,
}

impl Issue {
    pub(super) fn at<S: AsRef<str>>(path: &[S], kind: IssueKind) -> Self {
        Self {
            at: path.iter().map(|s| s.as_ref().to_owned()).collect(),
            kind,
        }
    }
}

/// Deepest nesting of a value in a request. Documents are parsed again, with a limit, inside other documents.
pub(super) const MAX_DEPTH: usize = 24;
/// Longest name that an error repeats.
const MAX_NAME_CHARS: usize = 100;

pub(super) fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

/// The issue with the first text with NUL in `value` at `parents` and `key`. Such a text is lost or cut on the way to a
/// process, and some stores cannot store it.
pub(super) fn nul_issue(parents: &[&str], key: &str, value: &Value) -> Option<Issue> {
    let at = nul_in(key, value)?;
    let at: Vec<&str> = at.iter().map(String::as_str).rev().collect();
    let nul = IssueKind::Other("Text cannot contain NUL".to_owned());
    Some(Issue::at(&[parents, &at].concat(), nul))
}

/// Path of a text with NUL, innermost name first.
fn nul_in(key: &str, value: &Value) -> Option<Vec<String>> {
    let found = match value {
        _ if key.contains('\0') => Some(Vec::new()),
        Value::String(text) => text.contains('\0').then(Vec::new),
        Value::Array(items) => {
            let mut items = items.iter().enumerate();
            items.find_map(|(index, item)| nul_in(&index.to_string(), item))
        }
        Value::Object(map) => map.iter().find_map(|(key, item)| nul_in(key, item)),
        _ => None,
    };
    let name = key.chars().filter(|c| !c.is_control());
    let name = name.take(MAX_NAME_CHARS).collect();
    found.map(|mut at| {
        at.push(name);
        at
    })
}
