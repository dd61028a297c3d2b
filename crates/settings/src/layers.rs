//! Merges the layers: embedded defaults, a file, the environment. Checks names and types; values are parsed later.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::Path;

use toml::Value;

use crate::setting::{PREFIX, Setting, SettingOrigin, variable_of};
use crate::templates::{NumberedLeaves, TemplateKeys, TemplateLayer, short_name};
use crate::values::{is_empty, kind, parse_like, read_typed};

/// Defaults, documentation and schema in one: a key that is missing here does not exist, and its type is the one here.
pub(crate) const DEFAULTS: &str = include_str!("../../../config/default.toml");

/// Variables of the process's environment.
pub type EnvVariables = [(OsString, OsString)];

/// How much of a secret setting is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Redaction {
    /// Only its presence.
    Value,
    /// The names of its assignments `NAME=VALUE`.
    Assignments,
    /// A URL without its password.
    Url,
}

/// What a component adds to the configuration.
#[derive(Debug, Clone, Copy, Default)]
pub struct SettingSection {
    /// Its defaults, as TOML like `config/default.toml`; empty if they are in that file.
    pub defaults: &'static str,
    /// The keys of its repeated tables.
    pub templates: Option<TemplateKeys>,
    /// Keys that are shown without their secrets.
    pub redacted: &'static [(&'static str, Redaction)],
}

/// Secrets that may be set together with their `_file` variant.
const COMBINED_SECRET_KEYS: [&str; 2] = ["metrics.key", "telemetry.headers"];

/// Names the file; not a key itself.
pub const CONFIG_VARIABLE: &str = "WORKSPACE_CONFIG";
/// Variables that CI systems set for other purposes.
const FOREIGN_VARIABLES: [&str; 1] = ["WORKSPACE_TMP"];

/// The merged layers: every key with its effective value. Not `Debug`, because values may be secret.
#[derive(Clone)]
pub struct SettingLayers {
    pub(crate) sections: Vec<SettingSection>,
    pub(crate) leaves: BTreeMap<String, Setting>,
    pub(crate) defaults: BTreeMap<String, Value>,
    /// Additional templates of all sections, in the order of the file.
    pub(crate) templates: Vec<TemplateLayer>,
    pub(crate) problems: Vec<String>,
}

impl SettingLayers {
    /// Merges the defaults, those of `sections`, a file and the environment.
    ///
    /// # Panics
    /// If a default is not TOML.
    pub fn load(
        sections: Vec<SettingSection>,
        file: Option<&Path>,
        variables: &EnvVariables,
    ) -> Self {
        let mut defaults = BTreeMap::new();
        for text in default_texts(&sections) {
            let table: toml::Table = text.parse().expect("the embedded defaults are valid TOML");
            let values = flatten(&table).into_iter();
            defaults.extend(values.map(|(key, value)| (key, value.clone())));
        }
        let leaves = defaults.iter();
        let leaves =
            leaves.map(|(key, value): (&String, _)| (key.clone(), Setting::default(value)));
        let mut layers = Self {
            sections,
            leaves: leaves.collect(),
            defaults,
            templates: Vec::new(),
            problems: Vec::new(),
        };
        if let Some(path) = file {
            layers.add_file(path);
        }
        layers.add_variables(variables);
        layers.check_templates();
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
        for keys in self.template_keys() {
            let templates = self.extract_templates(&mut table, keys, path);
            self.templates.extend(templates);
        }
        let origin = SettingOrigin::File(path.to_owned());
        let keys = self.single_keys();
        let keys = keys
            .iter()
            .map(|key| (key.as_str(), key.as_str()))
            .collect();
        let layer = self.read_table(&flatten(&table), &keys, &origin);
        self.add(layer);
    }

    /// Keys that have one value: all but those of lists.
    fn single_keys(&self) -> Vec<String> {
        let lists = self.template_keys();
        let is_single = |key: &&String| !lists.iter().any(|list| list.is_of_list(key));
        self.defaults.keys().filter(is_single).cloned().collect()
    }

    /// Reads values by their names. `keys` maps each known name to its key.
    pub(crate) fn read_table(
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

    fn add_variables(&mut self, variables: &EnvVariables) {
        let lists = self.template_keys();
        let single = self.single_keys().into_iter();
        let names: BTreeMap<String, String> = single.map(|key| (variable_of(&key), key)).collect();
        let (mut layer, mut numbered) = (BTreeMap::new(), NumberedLeaves::new());
        for (name, text) in variables {
            let Some(name) = name.to_str().filter(|name| name.starts_with(PREFIX)) else {
                continue;
            };
            if name == CONFIG_VARIABLE || FOREIGN_VARIABLES.contains(&name) {
                continue;
            }
            let in_list = lists.iter().find_map(|list| {
                let (number, key) = list.numbered_key(name)?;
                Some(((list.section, number), key))
            });
            let single = names.get(name).map(String::as_str);
            let Some(key) = single.or(in_list.map(|(_, key)| key)) else {
                let known = names.keys().cloned().chain(self.list_variables());
                let known: Vec<String> = known.collect();
                let nearest = nearest(name, known.iter().map(String::as_str));
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
                let values = match in_list {
                    Some((table, _)) => numbered.entry(table).or_default(),
                    None => &mut layer,
                };
                values.insert(key.to_owned(), Setting { value, origin });
            } else {
                self.problems
                    .push(format!("{name} must be {}", kind(default)));
            }
        }
        self.add(layer);
        self.add_numbered(numbered);
    }

    /// The variables of the first table of each list.
    fn list_variables(&self) -> Vec<String> {
        let lists = self.template_keys();
        let variables = lists.iter().flat_map(|list| {
            let keys = self.defaults.keys().filter(|key| list.is_of_list(key));
            keys.map(|key| list.variable_of(0, key))
        });
        variables.collect()
    }

    /// All keys.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.leaves.keys().map(String::as_str)
    }

    pub(crate) fn templates_of<'a>(
        &'a self,
        section: &'a str,
    ) -> impl Iterator<Item = &'a TemplateLayer> {
        let templates = self.templates.iter();
        templates.filter(move |template| template.section == section)
    }

    /// These layers with a template on top, without the problems found so far.
    pub(crate) fn with_template(&self, template: &TemplateLayer) -> Self {
        let mut layers = self.clone();
        (layers.templates, layers.problems) = (Vec::new(), Vec::new());
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
        let keys = self.defaults.keys().filter_map(|key| {
            let key = key.strip_suffix("_file")?;
            let is_exclusive =
                self.defaults.contains_key(key) && !COMBINED_SECRET_KEYS.contains(&key);
            is_exclusive.then(|| key.to_owned())
        });
        for key in keys.collect::<Vec<_>>() {
            let (key, file_key) = (key.as_str(), format!("{key}_file"));
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

/// The defaults of the service and of each section.
pub(crate) fn default_texts(sections: &[SettingSection]) -> impl Iterator<Item = &'static str> {
    std::iter::once(DEFAULTS).chain(sections.iter().map(|section| section.defaults))
}

/// The value of a variable; `None` when empty.
pub fn variable<'a>(variables: &'a EnvVariables, name: &str) -> Option<&'a OsStr> {
    let found = variables
        .iter()
        .find(|(key, value)| key == name && !value.is_empty());
    found.map(|(_, value)| value.as_os_str())
}

/// The key in the notation of its source.
pub(crate) fn display_key(key: &str, origin: &SettingOrigin) -> String {
    match origin {
        SettingOrigin::Default => format!("`{key}`"),
        SettingOrigin::File(path) => format!("`{key}` in {}", path.display()),
        SettingOrigin::Template(..) => format!("`{}` of {origin}", short_name(key)),
        SettingOrigin::Variable(name) => name.clone(),
    }
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
