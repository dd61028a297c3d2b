//! A value with its source, and the names of keys in the environment.

use std::fmt;
use std::path::PathBuf;

use toml::Value;

/// Of the variables of this service.
pub(crate) const PREFIX: &str = "WORKSPACE_";

/// The source of a value, for messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SettingOrigin {
    Default,
    File(PathBuf),
    /// The number of a template in a file, from 1, and the path of its table.
    Template(PathBuf, usize, &'static str),
    Variable(String),
}

impl fmt::Display for SettingOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("the defaults"),
            Self::File(path) => path.display().fmt(f),
            Self::Template(path, number, table) => match table.strip_suffix(".templates") {
                Some(_) => write!(f, "template {number} in {}", path.display()),
                None => write!(f, "table {number} of [[{table}]] in {}", path.display()),
            },
            Self::Variable(name) => f.write_str(name),
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Setting {
    pub(crate) value: Value,
    pub(crate) origin: SettingOrigin,
}

impl Setting {
    pub(crate) fn default(value: &Value) -> Self {
        Self {
            value: value.clone(),
            origin: SettingOrigin::Default,
        }
    }
}

/// `http.bind` → `WORKSPACE_HTTP__BIND`.
pub(crate) fn variable_of(key: &str) -> String {
    format!("{PREFIX}{}", key.replace('.', "__").to_uppercase())
}
