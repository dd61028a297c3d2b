//! Values of settings, and their parsers.

use std::time::Duration;

/// A value of one of the types that settings have.
#[derive(Debug, Clone, PartialEq, Hash)]
pub(crate) enum SettingValue {
    Text(String),
    Number(i64),
    Switch(bool),
    List(Vec<String>),
}

impl SettingValue {
    pub(crate) fn read(value: &toml::Value) -> Option<Self> {
        Some(match value {
            toml::Value::String(text) => Self::Text(text.clone()),
            toml::Value::Integer(number) => Self::Number(*number),
            toml::Value::Boolean(on) => Self::Switch(*on),
            toml::Value::Array(items) => Self::List(
                items
                    .iter()
                    .map(|item| item.as_str().map(str::to_owned))
                    .collect::<Option<_>>()?,
            ),
            _ => return None,
        })
    }

    /// Parses a variable's text as this value's type.
    pub(crate) fn read_like(&self, text: &str) -> Option<Self> {
        let text = text.trim();
        Some(match self {
            Self::Text(_) => Self::Text(text.to_owned()),
            Self::Number(_) => Self::Number(text.parse().ok()?),
            Self::Switch(_) => Self::Switch(match text.to_ascii_lowercase().as_str() {
                "true" | "1" | "yes" | "on" => true,
                "false" | "0" | "no" | "off" => false,
                _ => return None,
            }),
            Self::List(_) => Self::List(
                text.split(',')
                    .map(str::trim)
                    .filter(|item| !item.is_empty())
                    .map(str::to_owned)
                    .collect(),
            ),
        })
    }

    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "a string in quotes",
            Self::Number(_) => "a whole number",
            Self::Switch(_) => "true or false",
            Self::List(_) => "a list of strings",
        }
    }

    pub(crate) fn is_same_kind(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }

    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::Text(text) => text.is_empty(),
            Self::List(items) => items.is_empty(),
            Self::Number(_) | Self::Switch(_) => false,
        }
    }
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
