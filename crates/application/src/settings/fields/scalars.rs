//! Conversion of scalars, as lenient as the reference's.

use serde_json::Value;

use super::super::issues::IssueKind;

/// Reads an integer as the reference does: a number without fraction, or its text.
pub(crate) fn integer(value: &Value) -> Result<i64, IssueKind> {
    match value {
        Value::Number(n) if n.is_i64() => n.as_i64().ok_or(IssueKind::Integer),
        Value::Number(n) => match n.as_f64() {
            Some(f) if f.fract() != 0.0 => Err(IssueKind::Fraction),
            Some(f) => whole(f),
            None => Err(IssueKind::Integer),
        },
        Value::String(text) => match text.trim().parse::<i64>() {
            Ok(n) => Ok(n),
            Err(_) => match text.trim().parse::<f64>() {
                Ok(f) if f.is_finite() && f.fract() == 0.0 => whole(f),
                _ => Err(IssueKind::IntegerText),
            },
        },
        Value::Bool(flag) => Ok(i64::from(*flag)),
        _ => Err(IssueKind::Integer),
    }
}

/// Accepts exactly representable integers only.
fn whole(f: f64) -> Result<i64, IssueKind> {
    const LIMIT: f64 = 9_007_199_254_740_992.0;
    if f.is_finite() && f.abs() <= LIMIT {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "within 2^53 and without fraction"
        )]
        Ok(f as i64)
    } else {
        Err(IssueKind::IntegerSize)
    }
}

/// Reads a finite number, or its text.
pub(crate) fn number(value: &Value) -> Result<f64, IssueKind> {
    let number = match value {
        Value::Number(n) => n.as_f64().ok_or(IssueKind::Number)?,
        Value::String(text) => text
            .trim()
            .parse::<f64>()
            .map_err(|_| IssueKind::NumberText)?,
        Value::Bool(flag) => f64::from(u8::from(*flag)),
        _ => return Err(IssueKind::Number),
    };
    if number.is_finite() {
        Ok(number)
    } else {
        Err(IssueKind::Finite)
    }
}

/// Reads a boolean, or one of the words and numbers that the reference accepts.
pub(crate) fn boolean(value: &Value) -> Result<bool, IssueKind> {
    match value {
        Value::Bool(flag) => Ok(*flag),
        Value::Number(n) => match n.as_f64() {
            Some(0.0) => Ok(false),
            Some(1.0) => Ok(true),
            _ => Err(IssueKind::BooleanText),
        },
        Value::String(text) => match text.to_ascii_lowercase().as_str() {
            "1" | "true" | "t" | "yes" | "y" | "on" => Ok(true),
            "0" | "false" | "f" | "no" | "n" | "off" => Ok(false),
            _ => Err(IssueKind::BooleanText),
        },
        _ => Err(IssueKind::Boolean),
    }
}

/// The texts of a list; other values are skipped.
pub(crate) fn texts_of(list: Option<&Value>) -> Vec<String> {
    let items = list.and_then(Value::as_array).into_iter().flatten();
    let texts = items.filter_map(Value::as_str);
    texts.map(str::to_owned).collect()
}
