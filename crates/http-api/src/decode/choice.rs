//! Decodes closed sets of words.

use serde_json::{Value, json};

use super::{DecodeScalar, FieldError};

/// The Python type of the set in the reference; it only changes the `type` of the error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChoiceKind {
    /// An enumeration: `enum`.
    Enum,
    /// A literal: `literal_error`.
    Literal,
}

/// A type whose values are a closed set of words, in the order in which the error lists them.
pub trait Choice: Copy + 'static {
    /// Enumeration or literal.
    const KIND: ChoiceKind = ChoiceKind::Enum;
    /// The words, case-sensitive, and their values.
    const CHOICES: &'static [(&'static str, Self)];

    /// The word of this value.
    fn word(self) -> &'static str
    where
        Self: PartialEq,
    {
        let mut choices = Self::CHOICES.iter();
        choices
            .find(|(_, choice)| *choice == self)
            .map_or("", |(word, _)| word)
    }
}

impl<T: Choice> DecodeScalar for T {
    fn parse(value: &Value) -> Result<Self, FieldError> {
        let word = value.as_str();
        let mut choices = T::CHOICES.iter();
        let found = choices.find(|(name, _)| Some(*name) == word);
        found.map(|(_, choice)| *choice).ok_or_else(fault::<T>)
    }
}

/// The error that lists the words of `T`; also for the keys of a map.
fn fault<T: Choice>() -> FieldError {
    let expected = listed(T::CHOICES.iter().map(|(name, _)| *name));
    let kind = match T::KIND {
        ChoiceKind::Enum => "enum",
        ChoiceKind::Literal => "literal_error",
    };
    FieldError::new(kind, format!("Input should be {expected}"))
        .with_context(json!({"expected": expected}))
}

/// `'a', 'b' or 'c'`.
fn listed<'a>(words: impl DoubleEndedIterator<Item = &'a str>) -> String {
    let mut words: Vec<String> = words.map(|word| format!("'{word}'")).collect();
    let last = words.pop().unwrap_or_default();
    if words.is_empty() {
        last
    } else {
        format!("{} or {last}", words.join(", "))
    }
}
