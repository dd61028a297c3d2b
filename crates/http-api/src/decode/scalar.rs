//! Decodes strings, booleans, numbers and UUIDs, as lenient as pydantic's lax mode.

use serde_json::{Number, Value, json};
use uuid::Uuid;

use super::{DecodeScalar, FieldError};

impl DecodeScalar for String {
    fn parse(value: &Value) -> Result<Self, FieldError> {
        text_of(value).map(str::to_owned)
    }
}

/// A text without NUL, which neither a Postgres column nor an environment variable can hold.
pub(super) fn text_of(value: &Value) -> Result<&str, FieldError> {
    match value {
        Value::String(text) if text.contains('\0') => Err(FieldError::value_error(
            "a text must not contain the character NUL",
        )),
        Value::String(text) => Ok(text),
        _ => Err(FieldError::string_type()),
    }
}

impl DecodeScalar for bool {
    fn parse(value: &Value) -> Result<Self, FieldError> {
        match value {
            Value::Bool(flag) => Ok(*flag),
            Value::String(text) => word(text),
            Value::Number(number) => match (number.as_f64(), number.is_u64() && !number.is_i64()) {
                (Some(0.0), _) => Ok(false),
                (Some(1.0), _) => Ok(true),
                // pydantic reports whole numbers of 64 bits as unparsable, and others as the wrong type.
                (Some(real), false) if real.fract() == 0.0 && real.abs() < TWO_POW_63 => {
                    Err(bool_parsing())
                }
                _ => Err(bool_type()),
            },
            _ => Err(bool_type()),
        }
    }
}

/// 2⁶³.
const TWO_POW_63: f64 = 9_223_372_036_854_775_808.0;

fn word(text: &str) -> Result<bool, FieldError> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" | "t" | "yes" | "y" | "on" => Ok(true),
        "0" | "false" | "f" | "no" | "n" | "off" => Ok(false),
        _ => Err(bool_parsing()),
    }
}

fn bool_type() -> FieldError {
    FieldError::new("bool_type", "Input should be a valid boolean")
}

fn bool_parsing() -> FieldError {
    FieldError::new(
        "bool_parsing",
        "Input should be a valid boolean, unable to interpret input",
    )
}

impl DecodeScalar for i64 {
    fn parse(value: &Value) -> Result<Self, FieldError> {
        match value {
            Value::Bool(flag) => Ok(Self::from(*flag)),
            Value::Number(number) => integer_of(number),
            Value::String(text) => integer(text),
            _ => Err(FieldError::new(
                "int_type",
                "Input should be a valid integer",
            )),
        }
    }
}

/// An integer for members with bounds: beyond 64 bits it is the nearest one, which the bounds refuse or cut.
#[derive(Debug, Clone, Copy)]
pub struct SaturatedInt(pub i64);

impl DecodeScalar for SaturatedInt {
    fn parse(value: &Value) -> Result<Self, FieldError> {
        let parsed = i64::parse(value).or_else(|fault| {
            let is_negative = match value {
                Value::String(text) => text.trim_start().starts_with('-'),
                other => other.as_f64().is_some_and(|real| real < 0.0),
            };
            match (fault == int_parsing_size(), is_negative) {
                (true, true) => Ok(i64::MIN),
                (true, false) => Ok(i64::MAX),
                _ => Err(fault),
            }
        });
        parsed.map(Self)
    }
}

fn integer_of(number: &Number) -> Result<i64, FieldError> {
    if let Some(whole) = number.as_i64() {
        return Ok(whole);
    }
    match number.as_f64() {
        Some(real) if real.fract() != 0.0 => Err(FieldError::new(
            "int_from_float",
            "Input should be a valid integer, got a number with a fractional part",
        )),
        Some(real) if real.abs() < 9.0e18 =>
        {
            #[expect(
                clippy::cast_possible_truncation,
                reason = "whole and within the range of i64"
            )]
            Ok(real as i64)
        }
        _ => Err(int_parsing_size()),
    }
}

/// `" +1_000.00 "`: blanks around it, one sign, single underscores between digits, zeros after a point.
fn integer(text: &str) -> Result<i64, FieldError> {
    let trimmed = text.trim();
    let (negative, digits) = match trimmed.as_bytes().first() {
        Some(b'-') => (true, &trimmed[1..]),
        Some(b'+') => (false, &trimmed[1..]),
        _ => (false, trimmed),
    };
    let whole = match digits.split_once('.') {
        Some((whole, zeros)) if !zeros.is_empty() && zeros.bytes().all(|b| b == b'0') => whole,
        Some(_) => return Err(int_parsing()),
        None => digits,
    };
    let groups_ok = whole
        .split('_')
        .all(|group| !group.is_empty() && group.bytes().all(|b| b.is_ascii_digit()));
    if !groups_ok {
        return Err(int_parsing());
    }
    let plain: String = whole.chars().filter(|c| *c != '_').collect();
    let signed = if negative { format!("-{plain}") } else { plain };
    signed.parse().map_err(|_| int_parsing_size())
}

fn int_parsing() -> FieldError {
    FieldError::new(
        "int_parsing",
        "Input should be a valid integer, unable to parse string as an integer",
    )
}

fn int_parsing_size() -> FieldError {
    FieldError::new(
        "int_parsing_size",
        "Unable to parse input string as an integer, exceeded maximum size",
    )
}

impl DecodeScalar for f64 {
    fn parse(value: &Value) -> Result<Self, FieldError> {
        let real = match value {
            Value::Bool(flag) => Self::from(u8::from(*flag)),
            Value::Number(number) => number.as_f64().ok_or_else(finite_number)?,
            Value::String(text) => text.trim().replace('_', "").parse().map_err(|_| {
                FieldError::new(
                    "float_parsing",
                    "Input should be a valid number, unable to parse string as a number",
                )
            })?,
            _ => {
                return Err(FieldError::new(
                    "float_type",
                    "Input should be a valid number",
                ));
            }
        };
        // JSON cannot represent infinity and NaN in a response.
        if real.is_finite() {
            Ok(real)
        } else {
            Err(finite_number())
        }
    }
}

fn finite_number() -> FieldError {
    FieldError::new("finite_number", "Input should be a finite number")
}

/// Unsigned numbers. A number that does not fit is out of bounds, not of the wrong type.
macro_rules! unsigned_integers {
    ($($number:ty),*) => {$(
        impl DecodeScalar for $number {
            fn parse(value: &Value) -> Result<Self, FieldError> {
                let wide = i64::parse(value)?;
                Self::try_from(wide).map_err(|_| {
                    if wide < 0 {
                        FieldError::new("greater_than_equal", "Input should be greater than or equal to 0")
                            .with_context(json!({"ge": 0}))
                    } else {
                        FieldError::new("less_than_equal", format!("Input should be less than or equal to {}", Self::MAX))
                            .with_context(json!({"le": Self::MAX}))
                    }
                })
            }
        }
    )*};
}

unsigned_integers!(u16, u32, u64);

/// Every spelling that Python accepts. The error is pydantic's, which uses the same crate.
impl DecodeScalar for Uuid {
    fn parse(value: &Value) -> Result<Self, FieldError> {
        let Value::String(text) = value else {
            return Err(FieldError::new(
                "uuid_type",
                "UUID input should be a string, bytes or UUID object",
            ));
        };
        Self::parse_str(text).map_err(|error| {
            let error = error.to_string();
            FieldError::new(
                "uuid_parsing",
                format!("Input should be a valid UUID, {error}"),
            )
            .with_context(json!({"error": error}))
        })
    }
}
