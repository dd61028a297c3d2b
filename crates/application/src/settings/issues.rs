//! Issues with settings in a request. An issue names a place and a kind, never a value, which may be secret.

use std::fmt;

/// Kind of an issue. Clients of the reference know the texts.
#[derive(Debug, Clone, PartialEq)]
pub enum IssueKind {
    /// Missing.
    Missing,
    /// An unknown field where unknown fields are refused.
    Unknown,
    /// Not a string.
    String,
    /// Not an integer.
    Integer,
    /// Text that is not an integer.
    IntegerText,
    /// A number with a fraction where an integer is wanted.
    Fraction,
    /// More than 64 bits.
    IntegerSize,
    /// Not a number.
    Number,
    /// Text that is not a number.
    NumberText,
    /// Infinite or NaN.
    Finite,
    /// Not a boolean.
    Boolean,
    /// Text or a number that does not mean a boolean.
    BooleanText,
    /// Not a list.
    List,
    /// Not an object.
    Object,
    /// Below the least value.
    AtLeast(f64),
    /// Above the greatest value.
    AtMost(f64),
    /// None of the allowed values.
    OneOf(Vec<String>),
    /// Another issue, as text.
    Other(String),
}

impl IssueKind {
    /// The error type in the validation body.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Unknown => "extra_forbidden",
            Self::String => "string_type",
            Self::Integer => "int_type",
            Self::IntegerText => "int_parsing",
            Self::Fraction => "int_from_float",
            Self::IntegerSize => "int_parsing_size",
            Self::Number => "float_type",
            Self::NumberText => "float_parsing",
            Self::Finite => "finite_number",
            Self::Boolean => "bool_type",
            Self::BooleanText => "bool_parsing",
            Self::List => "list_type",
            Self::Object => "dict_type",
            Self::AtLeast(_) => "greater_than_equal",
            Self::AtMost(_) => "less_than_equal",
            Self::OneOf(_) => "enum",
            Self::Other(_) => "value_error",
        }
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

impl fmt::Display for IssueKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => "Field required",
            Self::Unknown => "Extra inputs are not permitted",
            Self::String => "Input should be a valid string",
            Self::Integer => "Input should be a valid integer",
            Self::IntegerText => {
                "Input should be a valid integer, unable to parse string as an integer"
            }
            Self::Fraction => {
                "Input should be a valid integer, got a number with a fractional part"
            }
            Self::IntegerSize => "Input should be an integer of at most 64 bits",
            Self::Number => "Input should be a valid number",
            Self::NumberText => {
                "Input should be a valid number, unable to parse string as a number"
            }
            Self::Finite => "Input should be a finite number",
            Self::Boolean => "Input should be a valid boolean",
            Self::BooleanText => "Input should be a valid boolean, unable to interpret input",
            Self::List => "Input should be a valid list",
            Self::Object => "Input should be a valid dictionary",
            Self::AtLeast(min) => {
                return write!(f, "Input should be greater than or equal to {min}");
            }
            Self::AtMost(max) => return write!(f, "Input should be less than or equal to {max}"),
            Self::OneOf(words) => return write!(f, "Input should be {}", alternatives(words)),
            Self::Other(text) => return write!(f, "Value error, {text}"),
        })
    }
}

/// An issue and its place (path from the top of the body).
#[derive(Debug, Clone, PartialEq)]
pub struct Issue {
    /// Keys and indexes down to the value.
    pub at: Vec<String>,
    /// The kind.
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
