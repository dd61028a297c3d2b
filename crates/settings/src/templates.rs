//! Repeated tables: `[[SECTION.templates]]` of a file, each a layer over its section (and other keys that the section names),
//! and `[[SECTION]]`, where the section itself is the list.
//!
//! Variables reach the tables of a list by their number, from 0: `WORKSPACE_AUTH__OIDC__0__ISSUER`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::layers::{Setting, SettingLayers, SettingOrigin, variable_of};
use crate::values::is_empty;

/// Most tables of a list that variables may set.
const MAX_NUMBERED_TABLES: usize = 100;

/// The keys of a section's templates.
#[derive(Debug, Clone, Copy)]
pub struct TemplateKeys {
    /// The section.
    pub section: &'static str,
    /// The path of the tables: `SECTION.templates`. `SECTION` itself for a list, whose section has no values of its own.
    pub table: &'static str,
    /// Full names of the keys that every template must set.
    pub required: &'static [&'static str],
    /// Full names of the keys that a template may set.
    pub optional: &'static [&'static str],
}

impl TemplateKeys {
    pub(crate) fn is_list(&self) -> bool {
        self.table == self.section
    }

    /// Whether a key belongs to the tables of a list, so that it has no value outside of one.
    pub(crate) fn is_of_list(&self, key: &str) -> bool {
        let rest = key.strip_prefix(self.section);
        self.is_list() && rest.is_some_and(|rest| rest.starts_with('.'))
    }

    fn all(&self) -> impl Iterator<Item = &'static str> {
        self.required.iter().chain(self.optional).copied()
    }

    /// The variable of a key in a table of a list, e.g. `WORKSPACE_AUTH__OIDC__0__ISSUER`.
    pub(crate) fn variable_of(&self, number: usize, key: &str) -> String {
        let name = short_name(key).to_uppercase();
        format!("{}__{number}__{name}", variable_of(self.section))
    }

    /// Number and key of such a variable.
    pub(crate) fn numbered_key(&self, variable: &str) -> Option<(usize, &'static str)> {
        let rest = variable.strip_prefix(variable_of(self.section).as_str())?;
        let (number, _) = rest.strip_prefix("__")?.split_once("__")?;
        let number: usize = number.parse().ok().filter(|it| *it < MAX_NUMBERED_TABLES)?;
        let mut keys = self.all().filter(|_| self.is_list());
        let key = keys.find(|key| self.variable_of(number, key) == variable)?;
        Some((number, key))
    }
}

/// The values of one template, by full key.
#[derive(Clone)]
pub(crate) struct TemplateLayer {
    pub(crate) section: &'static str,
    pub(crate) origin: SettingOrigin,
    pub(crate) leaves: BTreeMap<String, Setting>,
}

/// The name of a key within a template.
pub(crate) fn short_name(key: &str) -> &str {
    key.rsplit_once('.').map_or(key, |(_, name)| name)
}

/// Removes the templates from a file's table, which then has only single values.
pub(crate) fn extract_templates(
    table: &mut toml::Table,
    keys: TemplateKeys,
    path: &Path,
    layers: &mut SettingLayers,
) -> Vec<TemplateLayer> {
    let name = keys.table;
    let Some(templates) = take(table, name) else {
        return Vec::new();
    };
    let tables = templates.as_array().and_then(|items| {
        items
            .iter()
            .map(toml::Value::as_table)
            .collect::<Option<Vec<_>>>()
    });
    let Some(tables) = tables else {
        layers.problems.push(format!(
            "{}: `{name}` must be tables, each under a line [[{name}]]",
            path.display()
        ));
        return Vec::new();
    };
    (1..)
        .zip(tables)
        .map(|(number, table)| {
            read_template(
                table,
                keys,
                &SettingOrigin::Template(path.to_owned(), number, keys.table),
                layers,
            )
        })
        .collect()
}

fn read_template(
    table: &toml::Table,
    keys: TemplateKeys,
    origin: &SettingOrigin,
    layers: &mut SettingLayers,
) -> TemplateLayer {
    let names = keys.all().map(|key| (short_name(key), key)).collect();
    let values: Vec<_> = table
        .iter()
        .map(|(name, value)| (name.clone(), value))
        .collect();
    let leaves = layers.read_table(&values, &names, origin);
    TemplateLayer {
        section: keys.section,
        origin: origin.clone(),
        leaves,
    }
}

/// Removes the value at a dotted path.
fn take(table: &mut toml::Table, path: &str) -> Option<toml::Value> {
    match path.split_once('.') {
        Some((name, rest)) => take(table.get_mut(name)?.as_table_mut()?, rest),
        None => table.remove(path),
    }
}

impl TemplateLayer {
    /// Puts values of variables over those of the file. A value or its `_file` variant replaces both.
    pub(crate) fn override_with(&mut self, leaves: BTreeMap<String, Setting>) {
        for key in leaves.keys() {
            let base = key.strip_suffix("_file").unwrap_or(key);
            self.leaves.remove(base);
            self.leaves.remove(&format!("{base}_file"));
        }
        self.leaves.extend(leaves);
    }

    /// The problems of required keys that are missing.
    pub(crate) fn missing(&self, keys: TemplateKeys) -> Vec<String> {
        let missing = keys.required.iter().filter(|key| {
            self.leaves
                .get(**key)
                .is_none_or(|leaf| is_empty(&leaf.value))
        });
        let problems =
            missing.map(|key| format!("{}: `{}` is required", self.origin, short_name(key)));
        problems.collect()
    }
}

/// Values of variables for the tables of lists, by section and number.
pub(crate) type NumberedLeaves = BTreeMap<(&'static str, usize), BTreeMap<String, Setting>>;

impl SettingLayers {
    /// The keys of all templates.
    pub(crate) fn template_keys(&self) -> Vec<TemplateKeys> {
        let keys = self.sections.iter().filter_map(|it| it.templates);
        keys.collect()
    }

    /// Adds the tables that variables set or change.
    pub(crate) fn add_numbered(&mut self, numbered: NumberedLeaves) {
        for ((section, number), leaves) in numbered {
            let theirs = self.templates.iter_mut().filter(|it| it.section == section);
            match theirs.into_iter().nth(number) {
                Some(template) => template.override_with(leaves),
                None => self.templates.push(TemplateLayer {
                    section,
                    origin: SettingOrigin::Variable(format!(
                        "{}__{number}__…",
                        variable_of(section)
                    )),
                    leaves,
                }),
            }
        }
    }

    /// Records required keys that templates lack, once all layers are merged.
    pub(crate) fn check_templates(&mut self) {
        let mut found = BTreeSet::new();
        for keys in self.template_keys() {
            for template in self.templates_of(keys.section) {
                found.extend(template.missing(keys));
            }
        }
        self.problems.extend(found);
    }
}
