//! Templates among the layers of settings.

use std::collections::BTreeSet;
use std::path::Path;

use crate::layers::SettingLayers;
use crate::setting::{SettingOrigin, variable_of};
use crate::templates::{NumberedLeaves, TemplateKeys, TemplateLayer, short_name};

impl SettingLayers {
    /// Removes the templates from a file's table, which then has only single values.
    pub(crate) fn extract_templates(
        &mut self,
        table: &mut toml::Table,
        keys: TemplateKeys,
        path: &Path,
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
            self.problems.push(format!(
                "{}: `{name}` must be tables, each under a line [[{name}]]",
                path.display()
            ));
            return Vec::new();
        };
        (1..)
            .zip(tables)
            .map(|(number, table)| {
                let origin = SettingOrigin::Template(path.to_owned(), number, keys.table);
                self.read_template(table, keys, &origin)
            })
            .collect()
    }

    fn read_template(
        &mut self,
        table: &toml::Table,
        keys: TemplateKeys,
        origin: &SettingOrigin,
    ) -> TemplateLayer {
        let names = keys.all().map(|key| (short_name(key), key)).collect();
        let values: Vec<_> = table
            .iter()
            .map(|(name, value)| (name.clone(), value))
            .collect();
        let leaves = self.read_table(&values, &names, origin);
        TemplateLayer {
            section: keys.section,
            origin: origin.clone(),
            leaves,
        }
    }

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

/// Removes the value at a dotted path.
fn take(table: &mut toml::Table, path: &str) -> Option<toml::Value> {
    match path.split_once('.') {
        Some((name, rest)) => take(table.get_mut(name)?.as_table_mut()?, rest),
        None => table.remove(path),
    }
}
