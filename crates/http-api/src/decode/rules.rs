//! Constraints on single members, with pydantic's texts: functions from a value to its error, if any.

use std::fmt::Display;
use std::ops::{Bound, RangeBounds};
use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Value, json};

use super::FieldError;

/// The error of a failed check, whose text must not quote a secret.
pub fn refusal<E: Display>(checked: Result<(), E>) -> Option<FieldError> {
    checked.err().map(FieldError::value_error)
}

/// Length of a text in characters: `characters(1..=64)`.
pub fn characters(range: impl RangeBounds<u64>) -> impl Fn(&String) -> Option<FieldError> {
    move |text| {
        let actual = text.chars().count() as u64;
        let (kind, words, name, bound) = broken_bound(
            &range,
            actual,
            ("string_too_short", "at least", "min_length"),
            ("string_too_long", "at most", "max_length"),
        )?;
        let s = plural(bound);
        let message = format!("String should have {words} {bound} character{s}");
        Some(FieldError::new(kind, message).with_context(json!({name: bound})))
    }
}

/// Length of a list: `items(1..)`.
pub fn items<T>(range: impl RangeBounds<u64>) -> impl Fn(&Vec<T>) -> Option<FieldError> {
    move |list| {
        let actual = list.len() as u64;
        let (kind, words, name, bound) = broken_bound(
            &range,
            actual,
            ("too_short", "at least", "min_length"),
            ("too_long", "at most", "max_length"),
        )?;
        let s = plural(bound);
        let message =
            format!("List should have {words} {bound} item{s} after validation, not {actual}");
        let context = json!({"field_type": "List", name: bound, "actual_length": actual});
        Some(FieldError::new(kind, message).with_context(context))
    }
}

const fn plural(n: u64) -> &'static str {
    if n == 1 { "" } else { "s" }
}

/// Size of a number: `bounds(1..=100)`. An excluded start is `gt`, as for the page limits.
pub fn bounds<T>(range: impl RangeBounds<T>) -> impl Fn(&T) -> Option<FieldError>
where
    T: PartialOrd + Copy + Into<Value> + Display,
{
    move |value| {
        let low = match range.start_bound() {
            Bound::Excluded(_) => ("greater_than", "greater than", "gt"),
            _ => ("greater_than_equal", "greater than or equal to", "ge"),
        };
        let high = ("less_than_equal", "less than or equal to", "le");
        let (kind, words, name, bound) = broken_bound(&range, *value, low, high)?;
        let error = FieldError::new(kind, format!("Input should be {words} {bound}"));
        Some(error.with_context(json!({name: bound.into()})))
    }
}

/// The `type` of an error, a part of its text, and the name of the bound in its context.
type BoundWords = (&'static str, &'static str, &'static str);

/// The words for the bound of `range` that `value` breaks, and the bound; `None` if it breaks none.
fn broken_bound<T: PartialOrd + Copy>(
    range: &impl RangeBounds<T>,
    value: T,
    low: BoundWords,
    high: BoundWords,
) -> Option<(&'static str, &'static str, &'static str, T)> {
    let ((kind, words, name), bound) = match (range.start_bound(), range.end_bound()) {
        (Bound::Included(min), _) if value < *min => (low, *min),
        (Bound::Excluded(min), _) if value <= *min => (low, *min),
        (_, Bound::Included(max)) if value > *max => (high, *max),
        _ => return None,
    };
    Some((kind, words, name, bound))
}

/// A text that matches the whole pattern.
pub fn pattern(pattern: &'static LazyLock<Regex>) -> impl Fn(&String) -> Option<FieldError> {
    move |value| {
        let text = pattern.as_str();
        let message = format!("String should match pattern '{text}'");
        let error = FieldError::new("string_pattern_mismatch", message);
        (!pattern.is_match(value)).then(|| error.with_context(json!({"pattern": text})))
    }
}
