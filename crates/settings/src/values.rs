//! Values of settings, and their parsers.

use std::time::Duration;

use toml::Value;

/// A file's value for a key with this default, or a description of the expected type.
pub(crate) fn read_typed(value: &Value, default: &Value) -> Result<Value, &'static str> {
    let value = match (value, default) {
        // A number, or the word for the automatic choice.
        (Value::Integer(number), Value::String(word)) if word == "auto" => {
            Value::String(number.to_string())
        }
        (value, _) => value.clone(),
    };
    let has_texts = |items: &Vec<Value>| items.iter().all(Value::is_str);
    if value.same_type(default) && value.as_array().is_none_or(has_texts) {
        Ok(value)
    } else {
        Err(kind(default))
    }
}

/// Parses a variable's text as the type of this default.
pub(crate) fn parse_like(default: &Value, text: &str) -> Option<Value> {
    let text = text.trim();
    Some(match default {
        Value::Integer(_) => Value::Integer(text.parse().ok()?),
        Value::Boolean(_) => Value::Boolean(match text.to_ascii_lowercase().as_str() {
            "true" | "1" | "yes" | "on" => true,
            "false" | "0" | "no" | "off" => false,
            _ => return None,
        }),
        Value::Array(_) => {
            let items = text.split(',').map(str::trim);
            let items = items.filter(|item| !item.is_empty()).map(Value::from);
            Value::Array(items.collect())
        }
        _ => Value::from(text),
    })
}

/// The type of a default, for messages.
pub(crate) fn kind(default: &Value) -> &'static str {
    match default {
        Value::Integer(_) => "a whole number",
        Value::Boolean(_) => "true or false",
        Value::Array(_) => "a list of strings",
        _ => "a string in quotes",
    }
}

/// Whether a text or a list is empty.
pub(crate) fn is_empty(value: &Value) -> bool {
    value.as_str().is_some_and(str::is_empty) || value.as_array().is_some_and(Vec::is_empty)
}

/// `90d`, `30s`, `250ms`, …; at most ten years.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    let millis = match unit.trim() {
        "ms" => 1,
        "s" => 1000,
        "m" => 60 * 1000,
        "h" => 60 * 60 * 1000,
        "d" => 24 * 60 * 60 * 1000,
        _ => return None,
    };
    let total = number.checked_mul(millis)?;
    (total <= 10 * 366 * 24 * 60 * 60 * 1000).then(|| Duration::from_millis(total))
}

/// Bytes in `4GiB`, `512 MiB`, `0`.
pub fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    let shift = match unit.trim() {
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        "TiB" => 40,
        "" if number == 0 => 0,
        _ => return None,
    };
    let bytes = number.checked_mul(1 << shift)?;
    // The engine uses signed numbers.
    i64::try_from(bytes).is_ok().then_some(bytes)
}

/// The parts of `NAME=VALUE`, if the name is valid for a variable.
pub fn assignment(text: &str) -> Option<(&str, &str)> {
    let (name, value) = text.split_once('=')?;
    let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    let is_name = plain && !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit());
    (is_name && !value.contains('\0')).then_some((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_a_number_and_a_unit() {
        for (text, bytes) in [
            ("0", 0),
            ("0GiB", 0),
            ("64KiB", 65_536),
            ("512 MiB", 536_870_912),
            (" 4GiB ", 4_294_967_296),
            ("2TiB", 2_199_023_255_552),
        ] {
            assert_eq!(parse_size(text), Some(bytes), "{text}");
        }
        for text in [
            "",
            "4",
            "4GB",
            "4G",
            "4gib",
            "GiB",
            "1.5GiB",
            "-1GiB",
            "8388608TiB",
            "99999999999999999999KiB",
        ] {
            assert_eq!(parse_size(text), None, "{text}");
        }
    }

    #[test]
    fn durations_are_a_number_and_a_unit() {
        for (text, millis) in [
            ("250ms", 250),
            ("30s", 30_000),
            ("5 m", 300_000),
            ("2h", 7_200_000),
            ("90d", 7_776_000_000),
        ] {
            assert_eq!(
                parse_duration(text),
                Some(Duration::from_millis(millis)),
                "{text}"
            );
        }
        for text in [
            "",
            "5",
            "s",
            "-5s",
            "1.5s",
            "5 years",
            "99999999999999999999s",
            "4000d",
        ] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
    }
}
