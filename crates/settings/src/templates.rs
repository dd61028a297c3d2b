//! Repeated tables: `[[SECTION.templates]]` of a file, each a layer over its section (and other keys that the section names),
//! and `[[SECTION]]`, where the section itself is the list.
//!
//! Variables reach the tables of a list by their number, from 0: `WORKSPACE_AUTH__OIDC__0__ISSUER`.

use std::collections::BTreeMap;

use crate::setting::{Setting, SettingOrigin, variable_of};
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

    pub(crate) fn all(&self) -> impl Iterator<Item = &'static str> {
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
