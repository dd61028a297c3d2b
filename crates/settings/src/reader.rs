//! Reads typed values from the merged layers, and collects all problems instead of stopping at the first.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use url::Url;

use crate::layers::{EnvVariables, SettingLayers, display_key, variable};
use crate::setting::{Setting, SettingOrigin};
use crate::values::{assignment, parse_duration, parse_size};

/// Reads typed values. An invalid value is recorded as a problem, and the default is returned.
pub struct SettingReader<'a> {
    layers: &'a SettingLayers,
    variables: &'a EnvVariables,
    problems: RefCell<Vec<String>>,
    read: RefCell<BTreeSet<String>>,
}

impl<'a> SettingReader<'a> {
    /// A reader of these layers and of the environment.
    pub fn new(layers: &'a SettingLayers, variables: &'a EnvVariables) -> Self {
        Self {
            layers,
            variables,
            problems: RefCell::new(layers.problems.clone()),
            read: RefCell::default(),
        }
    }

    /// All problems in the order in which they were found.
    pub fn into_problems(self) -> Vec<String> {
        self.problems.into_inner()
    }

    /// Keys that were read.
    pub fn keys_read(&self) -> BTreeSet<String> {
        self.read.borrow().clone()
    }

    /// A variable of the environment that is not a setting of this service; `None` when empty.
    pub fn variable(&self, name: &str) -> Option<&'a OsStr> {
        variable(self.variables, name)
    }

    fn leaf(&self, key: &str) -> &'a Setting {
        self.read.borrow_mut().insert(key.to_owned());
        self.layers
            .leaves
            .get(key)
            .expect("every key that is read is in default.toml")
    }

    /// Records an invalid value of `key`: `what` completes "KEY …" and never contains the value.
    pub fn problem(&self, key: &str, what: &str) {
        self.record(display_key(key, &self.leaf(key).origin) + " " + what);
    }

    /// Reports a value that is read several times (by templates and backends) once.
    fn record(&self, problem: String) {
        let mut problems = self.problems.borrow_mut();
        if !problems.contains(&problem) {
            problems.push(problem);
        }
    }

    /// Reads each additional template of a section with the function of the default one.
    pub fn templates<T>(&self, section: &str, read: fn(&SettingReader<'_>) -> T) -> Vec<T> {
        // Also where a list is empty.
        let lists = self.layers.template_keys();
        let mut list = lists.iter().filter(|it| it.section == section);
        if let Some(list) = list.next() {
            let keys = self.layers.keys().filter(|key| list.is_of_list(key));
            self.read.borrow_mut().extend(keys.map(str::to_owned));
        }
        let templates = self.layers.templates_of(section);
        templates
            .map(|template| {
                let layers = self.layers.with_template(template);
                let reader = SettingReader::new(&layers, self.variables);
                let value = read(&reader);
                for problem in reader.into_problems() {
                    self.record(problem);
                }
                value
            })
            .collect()
    }

    /// Records an invalid value of `key` in an additional template of its section (counted from 0).
    pub fn template_problem(&self, template: usize, key: &str, what: &str) {
        let section = key.rsplit_once('.').map_or("", |(section, _)| section);
        let template = self.layers.templates_of(section).nth(template);
        let leaf = template.and_then(|template| template.leaves.get(key));
        let origin = leaf.map_or(&SettingOrigin::Default, |leaf| &leaf.origin);
        self.record(display_key(key, origin) + " " + what);
    }

    /// A text.
    pub fn text(&self, key: &str) -> String {
        self.optional(key).unwrap_or_default()
    }

    /// A text; `None` when empty.
    pub fn optional(&self, key: &str) -> Option<String> {
        let text = self.leaf(key).value.as_str();
        text.filter(|text| !text.is_empty()).map(str::to_owned)
    }

    /// Whether neither a file nor the environment sets the value.
    pub fn is_default(&self, key: &str) -> bool {
        self.leaf(key).origin == SettingOrigin::Default
    }

    /// A truth value.
    pub fn switch(&self, key: &str) -> bool {
        self.leaf(key).value.as_bool() == Some(true)
    }

    /// A list of texts.
    pub fn list(&self, key: &str) -> Vec<String> {
        let items = self.leaf(key).value.as_array().into_iter().flatten();
        items
            .filter_map(|item| item.as_str().map(str::to_owned))
            .collect()
    }

    /// The parsed items of a list. If one is invalid, records a problem and returns nothing.
    pub fn parsed_list<T>(
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
    pub fn number<T: TryFrom<i64>>(&self, key: &str, range: RangeInclusive<i64>) -> T {
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
    ///
    /// # Panics
    /// If the default is not valid.
    pub fn parsed<T>(&self, key: &str, expected: &str, parse: impl Fn(&str) -> Option<T>) -> T {
        if let Some(value) = parse(&self.text(key)) {
            return value;
        }
        self.problem(key, &format!("must be {expected}"));
        let default = self.layers.defaults[key].as_str();
        default.and_then(parse).expect("a default parses")
    }

    /// One of several names.
    ///
    /// # Panics
    /// If there are no names.
    pub fn choice<T: Copy>(&self, key: &str, choices: &[(&str, T)]) -> T {
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        let (last, others) = names.split_last().expect("a setting has choices");
        let expected = format!("{} or {last}", others.join(", "));
        self.parsed(key, &expected, |text| {
            let found = choices.iter().find(|(name, _)| *name == text);
            found.map(|(_, value)| *value)
        })
    }

    /// A parsed text, or nothing.
    pub fn optional_parsed<T>(
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

    /// A time span.
    pub fn duration(&self, key: &str) -> Duration {
        self.parsed(
            key,
            "a number and a unit (ms, s, m, h, d), e.g. 30s",
            parse_duration,
        )
    }

    /// A time-out, which must not be 0.
    pub fn deadline(&self, key: &str) -> Duration {
        self.parsed(
            key,
            "a number above 0 and a unit (ms, s, m, h, d), e.g. 30s",
            |text| parse_duration(text).filter(|time| !time.is_zero()),
        )
    }

    /// A time after which something ends; 0 means never (`None`).
    pub fn limit(&self, key: &str) -> Option<Duration> {
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

    /// A number of bytes; 0 means no limit (`None`).
    pub fn size_limit(&self, key: &str) -> Option<u64> {
        let expected = "a number and a unit (KiB, MiB, GiB, TiB), or 0";
        Some(self.parsed(key, expected, parse_size)).filter(|bytes| *bytes > 0)
    }

    /// A count; 0 means no limit (`None`).
    pub fn count_limit<T: TryFrom<i64> + Default + PartialOrd>(
        &self,
        key: &str,
        max: i64,
    ) -> Option<T> {
        Some(self.number(key, 0..=max)).filter(|count| *count > T::default())
    }

    /// An absolute `http(s)` URL without query, fragment or credentials.
    pub fn optional_url(&self, key: &str) -> Option<Url> {
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
    pub fn optional_path(&self, key: &str) -> Option<PathBuf> {
        self.optional_parsed(key, "a path", |text| std::path::absolute(text).ok())
    }

    /// A secret, from its key or from the file of its `_file` variant.
    pub fn secret(&self, key: &str) -> Option<SecretString> {
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
    pub fn key_text(&self, key: &str) -> Option<SecretString> {
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
    pub fn secret_list(&self, key: &str) -> Vec<SecretString> {
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

    /// The parsed items of a secret list. If one is invalid, records a problem and returns nothing.
    pub fn parsed_secrets<T, All: FromIterator<T> + Default>(
        &self,
        key: &str,
        expected: &str,
        parse: impl Fn(&SecretString) -> Option<T>,
    ) -> All {
        let parsed: Option<All> = self.secret_list(key).iter().map(parse).collect();
        parsed.unwrap_or_else(|| {
            self.problem(key, &format!("(or its file) must hold {expected}"));
            All::default()
        })
    }

    /// Words, quoted as for a shell; `None` when there are none.
    pub fn words(&self, key: &str, expected: &str) -> Option<Vec<String>> {
        self.optional_parsed(key, expected, |text| {
            shlex::split(text).filter(|words| !words.is_empty())
        })
    }

    /// Variables of a list with entries `NAME=VALUE`.
    pub fn assignments(&self, key: &str) -> BTreeMap<String, String> {
        let entries = self.parsed_list(key, "entries NAME=VALUE", |text| {
            assignment(text).map(|(name, value)| (name.to_owned(), value.to_owned()))
        });
        entries.into_iter().collect()
    }
}
