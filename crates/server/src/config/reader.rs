//! Reads typed values from the merged layers, and collects all problems instead of stopping at the first.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use url::Url;

use super::layers::{Setting, SettingLayers, SettingOrigin, display_key};

pub(super) struct SettingReader<'a> {
    layers: &'a SettingLayers,
    problems: RefCell<Vec<String>>,
    read: RefCell<BTreeSet<String>>,
}

impl<'a> SettingReader<'a> {
    pub(super) fn new(layers: &'a SettingLayers) -> Self {
        Self {
            layers,
            problems: RefCell::new(layers.problems.clone()),
            read: RefCell::default(),
        }
    }

    /// All problems in the order in which they were found.
    pub(super) fn into_problems(self) -> Vec<String> {
        self.problems.into_inner()
    }

    /// Keys that were read.
    #[cfg(test)]
    pub(super) fn keys_read(&self) -> BTreeSet<String> {
        self.read.borrow().clone()
    }

    fn leaf(&self, key: &str) -> &'a Setting {
        self.read.borrow_mut().insert(key.to_owned());
        self.layers
            .leaves
            .get(key)
            .expect("every key that is read is in default.toml")
    }

    /// Records an invalid value of `key`: `what` completes "KEY …" and never contains the value.
    pub(super) fn problem(&self, key: &str, what: &str) {
        let name = display_key(key, &self.leaf(key).origin);
        self.problems.borrow_mut().push(format!("{name} {what}"));
    }

    /// Reads each additional template with the function of the default one.
    pub(super) fn templates<T>(&self, read: fn(&SettingReader<'_>) -> T) -> Vec<T> {
        let templates = self.layers.templates.iter();
        templates
            .map(|template| {
                let layers = self.layers.with_template(template);
                let reader = SettingReader::new(&layers);
                let value = read(&reader);
                let mut problems = self.problems.borrow_mut();
                for problem in reader.into_problems() {
                    // Report an invalid inherited value once, not per template.
                    if !problems.contains(&problem) {
                        problems.push(problem);
                    }
                }
                value
            })
            .collect()
    }

    /// Records an invalid value of `key` in an additional template (counted from 0).
    pub(super) fn template_problem(&self, template: usize, key: &str, what: &str) {
        let leaf = self.layers.templates[template].leaves.get(key);
        let name = display_key(
            key,
            leaf.map_or(&SettingOrigin::Default, |leaf| &leaf.origin),
        );
        self.problems.borrow_mut().push(format!("{name} {what}"));
    }

    pub(super) fn text(&self, key: &str) -> String {
        self.optional(key).unwrap_or_default()
    }

    /// A text; `None` when empty.
    pub(super) fn optional(&self, key: &str) -> Option<String> {
        let text = self.leaf(key).value.as_str();
        text.filter(|text| !text.is_empty()).map(str::to_owned)
    }

    pub(super) fn switch(&self, key: &str) -> bool {
        self.leaf(key).value.as_bool() == Some(true)
    }

    pub(super) fn list(&self, key: &str) -> Vec<String> {
        let items = self.leaf(key).value.as_array().into_iter().flatten();
        items
            .filter_map(|item| item.as_str().map(str::to_owned))
            .collect()
    }

    /// The parsed items of a list. If one is invalid, records a problem and returns nothing.
    pub(super) fn parsed_list<T>(
        &self,
        key: &str,
        expected: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Vec<T> {
        let parsed: Option<Vec<T>> = self.list(key).iter().map(|item| parse(item)).collect();
        parsed.unwrap_or_else(|| {
            self.problem(key, &format!("must hold {expected}"));
            Vec::new()
        })
    }

    /// A number in a range. Otherwise records a problem and returns the nearest number.
    pub(super) fn number<T: TryFrom<i64>>(&self, key: &str, range: RangeInclusive<i64>) -> T {
        let number = self.leaf(key).value.as_integer();
        let number = number.unwrap_or_else(|| unreachable!("the layers checked the type of {key}"));
        let (first, last) = (*range.start(), *range.end());
        if !range.contains(&number) {
            self.problem(key, &format!("must be from {first} to {last}"));
        }
        T::try_from(number.clamp(first, last))
            .unwrap_or_else(|_| unreachable!("the range of {key} fits its type"))
    }

    /// A parsed text. On failure records a problem and returns the default.
    pub(super) fn parsed<T>(
        &self,
        key: &str,
        expected: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> T {
        if let Some(value) = parse(&self.text(key)) {
            return value;
        }
        self.problem(key, &format!("must be {expected}"));
        let default = self.layers.defaults[key].as_str();
        default.and_then(parse).expect("a default parses")
    }

    /// A parsed text, or nothing.
    pub(super) fn optional_parsed<T>(
        &self,
        key: &str,
        expected: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Option<T> {
        let text = self.optional(key)?;
        let value = parse(&text);
        if value.is_none() {
            self.problem(key, &format!("must be {expected}"));
        }
        value
    }

    pub(super) fn duration(&self, key: &str) -> Duration {
        self.parsed(
            key,
            "a number and a unit (ms, s, m, h, d), e.g. 30s",
            parse_duration,
        )
    }

    /// A time-out, which must not be 0.
    pub(super) fn deadline(&self, key: &str) -> Duration {
        self.parsed(
            key,
            "a number above 0 and a unit (ms, s, m, h, d), e.g. 30s",
            |text| parse_duration(text).filter(|time| !time.is_zero()),
        )
    }

    /// A time after which something ends; 0 means never (`None`).
    pub(super) fn limit(&self, key: &str) -> Option<Duration> {
        let time = self.parsed(
            key,
            "a number and a unit (ms, s, m, h, d), e.g. 30m, or 0",
            |text| match text {
                "0" => Some(Duration::ZERO),
                text => parse_duration(text),
            },
        );
        (!time.is_zero()).then_some(time)
    }

    /// An absolute `http(s)` URL without query, fragment or credentials.
    pub(super) fn optional_url(&self, key: &str) -> Option<Url> {
        self.optional_parsed(
            key,
            "an http:// or https:// URL without user, query and fragment",
            |text| {
                Url::from_str(text).ok().filter(|url| {
                    matches!(url.scheme(), "http" | "https")
                        && url.has_host()
                        && url.query().is_none()
                        && url.fragment().is_none()
                        && url.username().is_empty()
                        && url.password().is_none()
                })
            },
        )
    }

    /// A path, made absolute against the working directory.
    pub(super) fn optional_path(&self, key: &str) -> Option<PathBuf> {
        self.optional_parsed(key, "a path", |text| std::path::absolute(text).ok())
    }

    /// A secret, from its key or from the file of its `_file` variant.
    pub(super) fn secret(&self, key: &str) -> Option<SecretString> {
        let file_key = format!("{key}_file");
        let path = self.optional_path(&file_key);
        if let Some(text) = self.optional(key) {
            return Some(text.into());
        }
        let path = path?;
        let problem = match keyring::private_file::read(&path) {
            Ok(text) if !text.expose_secret().is_empty() => return Some(text),
            Ok(_) => format!("names an empty file: {}", path.display()),
            Err(error) => {
                let path = path.display();
                format!("names a file that cannot be read: {path}: {error}")
            }
        };
        self.problem(&file_key, &problem);
        None
    }

    /// A secret that clients send as a header value. The service rejects longer ones without a look-up.
    pub(super) fn key_text(&self, key: &str) -> Option<SecretString> {
        let secret = self.secret(key);
        let is_usable = |text: &str| {
            (8..=256).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
        };
        if secret
            .as_ref()
            .is_some_and(|secret| !is_usable(secret.expose_secret()))
        {
            self.problem(key, "must be 8 to 256 visible ASCII characters");
        }
        secret
    }

    /// Secrets of a list, or the lines of the file of its `_file` variant.
    pub(super) fn secret_list(&self, key: &str) -> Vec<SecretString> {
        let listed = self.list(key);
        let from_file = self.secret(key);
        let lines = from_file
            .as_ref()
            .map(ExposeSecret::expose_secret)
            .unwrap_or_default()
            .lines();
        let lines = lines
            .map(str::trim)
            .filter(|line| !line.is_empty())
            .map(str::to_owned);
        listed
            .into_iter()
            .chain(lines)
            .map(SecretString::from)
            .collect()
    }
}

/// `90d`, `30s`, `250ms`, …; at most ten years.
pub(crate) fn parse_duration(text: &str) -> Option<Duration> {
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

#[cfg(test)]
mod tests {
    use super::*;

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
