//! Merges the layers: embedded defaults, a file, the environment. Checks names and types; values are parsed later.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use toml::Value;

use super::sections::templates::{self, TemplateLayer};

/// Defaults, documentation and schema in one: a key that is missing here does not exist, and its type is the one here.
pub(super) const DEFAULTS: &str = include_str!("../../../../config/default.toml");

/// Keys that have a variant `…_file`.
pub(super) const SECRET_FILE_KEYS: [&str; 8] = [
    "storage.url",
    "auth.bootstrap_key",
    "secrets.master_key",
    "secrets.previous_master_keys",
    "sandbox.index_url",
    "sandbox.proxy",
    "docker.registry_password",
    "docker.secret_env",
];

const PREFIX: &str = "WORKSPACE_";
/// Names the file; not a key itself.
pub(super) const CONFIG_VARIABLE: &str = "WORKSPACE_CONFIG";
/// Variables that CI systems set for other purposes.
const FOREIGN_VARIABLES: [&str; 1] = ["WORKSPACE_TMP"];

/// The source of a value, for messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SettingOrigin {
    Default,
    File(PathBuf),
    /// The number of a template in a file, from 1.
    Template(PathBuf, usize),
    Variable(String),
}

impl fmt::Display for SettingOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("the defaults"),
            Self::File(path) => path.display().fmt(f),
            Self::Template(path, number) => write!(f, "template {number} in {}", path.display()),
            Self::Variable(name) => f.write_str(name),
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct Setting {
    pub(super) value: Value,
    pub(super) origin: SettingOrigin,
}

impl Setting {
    fn default(value: &Value) -> Self {
        Self {
            value: value.clone(),
            origin: SettingOrigin::Default,
        }
    }
}

/// The merged layers: every key with its effective value. Not `Debug`, because values may be secret.
pub(super) struct SettingLayers {
    pub(super) leaves: BTreeMap<String, Setting>,
    pub(super) defaults: BTreeMap<String, Value>,
    /// Additional templates, in the order of the file.
    pub(super) templates: Vec<TemplateLayer>,
    pub(super) problems: Vec<String>,
}

impl SettingLayers {
    pub(super) fn load(file: Option<&Path>, variables: &[(OsString, OsString)]) -> Self {
        let table: toml::Table = DEFAULTS
            .parse()
            .expect("the embedded defaults are valid TOML");
        let defaults = flatten(&table).into_iter();
        let defaults: BTreeMap<String, Value> =
            defaults.map(|(key, value)| (key, value.clone())).collect();
        let leaves = defaults.iter();
        let leaves = leaves.map(|(key, value)| (key.clone(), Setting::default(value)));
        let mut layers = Self {
            leaves: leaves.collect(),
            defaults,
            templates: Vec::new(),
            problems: Vec::new(),
        };
        if let Some(path) = file {
            layers.add_file(path);
        }
        layers.add_variables(variables);
        layers
    }

    fn add_file(&mut self, path: &Path) {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) => {
                self.problems
                    .push(format!("cannot read {}: {error}", path.display()));
                return;
            }
        };
        let mut table: toml::Table = match text.parse() {
            Ok(table) => table,
            Err(error) => {
                self.problems.push(syntax_error(path, &text, &error));
                return;
            }
        };
        self.templates = templates::take(&mut table, path, self);
        let origin = SettingOrigin::File(path.to_owned());
        let keys: Vec<String> = self.defaults.keys().cloned().collect();
        let keys = keys
            .iter()
            .map(|key| (key.as_str(), key.as_str()))
            .collect();
        let layer = self.read_table(&flatten(&table), &keys, &origin);
        self.add(layer);
    }

    /// Reads values by their names. `keys` maps each known name to its key.
    pub(super) fn read_table(
        &mut self,
        values: &[(String, &Value)],
        keys: &BTreeMap<&str, &str>,
        origin: &SettingOrigin,
    ) -> BTreeMap<String, Setting> {
        let mut layer = BTreeMap::new();
        for (name, value) in values {
            let Some(key) = keys.get(name.as_str()) else {
                let nearest = nearest(name, keys.keys().copied());
                self.problems.push(format!(
                    "{origin}: unknown key `{name}`; did you mean `{nearest}`?"
                ));
                continue;
            };
            match read_typed(value, &self.defaults[*key]) {
                Ok(value) => {
                    let origin = origin.clone();
                    layer.insert((*key).to_owned(), Setting { value, origin });
                }
                Err(kind) => self
                    .problems
                    .push(format!("{origin}: `{name}` must be {kind}")),
            }
        }
        layer
    }

    fn add_variables(&mut self, variables: &[(OsString, OsString)]) {
        let names: BTreeMap<String, String> = self
            .defaults
            .keys()
            .map(|key| (variable_of(key), key.clone()))
            .collect();
        let mut layer = BTreeMap::new();
        for (name, text) in variables {
            let Some(name) = name.to_str().filter(|name| name.starts_with(PREFIX)) else {
                continue;
            };
            if name == CONFIG_VARIABLE || FOREIGN_VARIABLES.contains(&name) {
                continue;
            }
            let Some(key) = names.get(name) else {
                let nearest = nearest(name, names.keys().map(String::as_str));
                self.problems.push(format!(
                    "unknown variable `{name}`; did you mean `{nearest}`?"
                ));
                continue;
            };
            let default = &self.defaults[key];
            let Some(text) = text.to_str() else {
                self.problems.push(format!("{name} must be valid UTF-8"));
                continue;
            };
            if text.is_empty() {
                continue;
            }
            if let Some(value) = parse_like(default, text) {
                let origin = SettingOrigin::Variable(name.to_owned());
                layer.insert(key.clone(), Setting { value, origin });
            } else {
                self.problems
                    .push(format!("{name} must be {}", kind(default)));
            }
        }
        self.add(layer);
    }

    /// These layers with a template on top, without the problems found so far.
    pub(super) fn with_template(&self, template: &TemplateLayer) -> Self {
        let mut layers = Self {
            leaves: self.leaves.clone(),
            defaults: self.defaults.clone(),
            templates: Vec::new(),
            problems: Vec::new(),
        };
        layers.add(template.leaves.clone());
        layers
    }

    /// Adds a layer. A value or its `_file` variant replaces both of a lower layer.
    fn add(&mut self, layer: BTreeMap<String, Setting>) {
        let present: BTreeSet<&str> = layer
            .iter()
            .filter(|(_, leaf)| !is_empty(&leaf.value))
            .map(|(key, _)| key.as_str())
            .collect();
        for key in SECRET_FILE_KEYS {
            let file_key = format!("{key}_file");
            match (present.contains(key), present.contains(file_key.as_str())) {
                (true, true) => self.problems.push(format!(
                    "{} and {} are both set: set only one of them",
                    display_key(key, &layer[key].origin),
                    display_key(&file_key, &layer[&file_key].origin),
                )),
                (true, false) => self.reset(&file_key),
                (false, true) => self.reset(key),
                (false, false) => {}
            }
        }
        self.leaves.extend(layer);
    }

    fn reset(&mut self, key: &str) {
        if let (Some(leaf), Some(default)) = (self.leaves.get_mut(key), self.defaults.get(key)) {
            *leaf = Setting::default(default);
        }
    }
}

/// The key in the notation of its source.
pub(super) fn display_key(key: &str, origin: &SettingOrigin) -> String {
    match origin {
        SettingOrigin::Default => format!("`{key}`"),
        SettingOrigin::File(path) => format!("`{key}` in {}", path.display()),
        SettingOrigin::Template(..) => format!("`{}` of {origin}", templates::short(key)),
        SettingOrigin::Variable(name) => name.clone(),
    }
}

/// `http.bind` → `WORKSPACE_HTTP__BIND`.
pub(super) fn variable_of(key: &str) -> String {
    format!("{PREFIX}{}", key.replace('.', "__").to_uppercase())
}

/// Dotted names of all values in nested tables.
fn flatten(table: &toml::Table) -> Vec<(String, &Value)> {
    let mut leaves = Vec::new();
    for (name, value) in table {
        match value {
            Value::Table(inner) => leaves.extend(
                flatten(inner)
                    .into_iter()
                    .map(|(key, value)| (format!("{name}.{key}"), value)),
            ),
            leaf => leaves.push((name.clone(), leaf)),
        }
    }
    leaves
}

/// A file's value for a key with this default, or a description of the expected type.
fn read_typed(value: &Value, default: &Value) -> Result<Value, &'static str> {
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
fn parse_like(default: &Value, text: &str) -> Option<Value> {
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

fn kind(default: &Value) -> &'static str {
    match default {
        Value::Integer(_) => "a whole number",
        Value::Boolean(_) => "true or false",
        Value::Array(_) => "a list of strings",
        _ => "a string in quotes",
    }
}

/// Whether a text or a list is empty.
pub(super) fn is_empty(value: &Value) -> bool {
    value.as_str().is_some_and(str::is_empty) || value.as_array().is_some_and(Vec::is_empty)
}

fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> &'a str {
    candidates
        .min_by_key(|key| strsim::damerau_levenshtein(name, key))
        .unwrap_or_default()
}

/// Omits the invalid line, which may contain a secret.
fn syntax_error(path: &Path, text: &str, error: &toml::de::Error) -> String {
    let line = error
        .span()
        .and_then(|span| text.get(..span.start))
        .map_or(1, |before| before.matches('\n').count() + 1);
    format!(
        "{}, line {line}: not valid TOML ({})",
        path.display(),
        error.message()
    )
}
