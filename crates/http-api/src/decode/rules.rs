//! Constraints on single members, checked by the `validator` crate's traits, with pydantic's texts.

use std::ops::{Bound, RangeBounds};
use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Value, json};
use validator::{ValidateLength, ValidateRange, ValidateRegex};

use super::FieldError;

/// A constraint; see [`super::Object::rule`]. A function from the value to an error is also a rule.
pub trait Rule<T: ?Sized> {
    /// Returns the error of the value, if any.
    fn check(&self, value: &T) -> Option<FieldError>;
}

impl<T: ?Sized, F: Fn(&T) -> Option<FieldError>> Rule<T> for F {
    fn check(&self, value: &T) -> Option<FieldError> {
        self(value)
    }
}

/// The error of a failed check, whose text must not quote a secret.
pub fn refusal<E: std::fmt::Display>(checked: Result<(), E>) -> Option<FieldError> {
    checked.err().map(FieldError::value_error)
}

/// Inclusive bounds of a length.
#[derive(Debug, Clone, Copy)]
struct LengthRange {
    min: Option<u64>,
    max: Option<u64>,
}

impl LengthRange {
    fn of(range: &impl RangeBounds<u64>) -> Self {
        let min = match range.start_bound() {
            Bound::Included(n) => Some(*n),
            Bound::Excluded(n) => Some(n + 1),
            Bound::Unbounded => None,
        };
        let max = match range.end_bound() {
            Bound::Included(n) => Some(*n),
            Bound::Excluded(n) => Some(n.saturating_sub(1)),
            Bound::Unbounded => None,
        };
        Self { min, max }
    }

    /// The bound that `value` breaks, if any.
    fn broken_by(self, value: &impl ValidateLength<u64>) -> Option<(BrokenBound, u64)> {
        if !value.validate_length(self.min, None, None) {
            return self.min.map(|min| (BrokenBound::Min, min));
        }
        if !value.validate_length(None, self.max, None) {
            return self.max.map(|max| (BrokenBound::Max, max));
        }
        None
    }
}

#[derive(Debug, Clone, Copy)]
enum BrokenBound {
    Min,
    Max,
}

const fn plural(n: u64) -> &'static str {
    if n == 1 { "" } else { "s" }
}

/// Length of a text in characters: `characters(1..=64)`.
pub fn characters<T: ValidateLength<u64>>(range: impl RangeBounds<u64>) -> impl Rule<T> {
    let span = LengthRange::of(&range);
    move |value: &T| {
        let (side, bound) = span.broken_by(value)?;
        let s = plural(bound);
        Some(match side {
            BrokenBound::Min => FieldError::new(
                "string_too_short",
                format!("String should have at least {bound} character{s}"),
            )
            .with_context(json!({"min_length": bound})),
            BrokenBound::Max => FieldError::new(
                "string_too_long",
                format!("String should have at most {bound} character{s}"),
            )
            .with_context(json!({"max_length": bound})),
        })
    }
}

/// Length of a list: `items(1..)`.
pub fn items<T: ValidateLength<u64>>(range: impl RangeBounds<u64>) -> impl Rule<T> {
    let span = LengthRange::of(&range);
    move |value: &T| {
        let (side, bound) = span.broken_by(value)?;
        let (actual, s) = (value.length()?, plural(bound));
        Some(match side {
            BrokenBound::Min => FieldError::new(
                "too_short",
                format!("List should have at least {bound} item{s} after validation, not {actual}"),
            )
            .with_context(
                json!({"field_type": "List", "min_length": bound, "actual_length": actual}),
            ),
            BrokenBound::Max => FieldError::new(
                "too_long",
                format!("List should have at most {bound} item{s} after validation, not {actual}"),
            )
            .with_context(
                json!({"field_type": "List", "max_length": bound, "actual_length": actual}),
            ),
        })
    }
}

/// Size of a number. `Included` is `ge`/`le`, `Excluded` is `gt`/`lt`:
/// `bounds((Bound::Excluded(0), Bound::Included(100)))` for the page limits, `bounds(1..=100)` for plain ranges.
pub fn bounds<T>(range: impl RangeBounds<T>) -> impl Rule<T>
where
    T: ValidateRange<T> + Copy + Into<Value> + std::fmt::Display,
{
    let (start, end) = (range.start_bound().cloned(), range.end_bound().cloned());
    move |value: &T| {
        let low = match start {
            Bound::Included(min) if !value.validate_range(Some(min), None, None, None) => {
                Some(("greater_than_equal", "greater than or equal to", "ge", min))
            }
            Bound::Excluded(min) if !value.validate_range(None, None, Some(min), None) => {
                Some(("greater_than", "greater than", "gt", min))
            }
            _ => None,
        };
        let high = match end {
            Bound::Included(max) if !value.validate_range(None, Some(max), None, None) => {
                Some(("less_than_equal", "less than or equal to", "le", max))
            }
            Bound::Excluded(max) if !value.validate_range(None, None, None, Some(max)) => {
                Some(("less_than", "less than", "lt", max))
            }
            _ => None,
        };
        let (kind, words, name, bound) = low.or(high)?;
        Some(
            FieldError::new(kind, format!("Input should be {words} {bound}"))
                .with_context(json!({name: bound.into()})),
        )
    }
}

/// A text that matches the whole pattern.
pub fn pattern<T: ValidateRegex>(pattern: &'static LazyLock<Regex>) -> impl Rule<T> {
    move |value: &T| {
        let text = pattern.as_str();
        (!value.validate_regex(pattern)).then(|| {
            FieldError::new(
                "string_pattern_mismatch",
                format!("String should match pattern '{text}'"),
            )
            .with_context(json!({"pattern": text}))
        })
    }
}
