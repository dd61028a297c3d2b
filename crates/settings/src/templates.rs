//! Tables `[[SECTION.templates]]` of a file. Each is a layer over its section (and other keys that the section names).

use std::collections::BTreeMap;
use std::path::Path;

use crate::layers::{Setting, SettingLayers, SettingOrigin};
use crate::values::is_empty;

/// The keys of a section's templates.
#[derive(Debug, Clone, Copy)]
pub struct TemplateKeys {
    /// The section.
    pub section: &'static str,
    /// Full names of the keys that every template must set.
    pub required: &'static [&'static str],
    /// Full names of the keys that a template may set.
    pub optional: &'static [&'static str],
}

/// The values of one template, by full key.
#[derive(Clone)]
pub(crate) struct TemplateLayer {
    pub(crate) section: &'static str,
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
    let name = keys.section;
    let section = table.get_mut(name).and_then(toml::Value::as_table_mut);
    let Some(templates) = section.and_then(|section| section.remove("templates")) else {
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
            "{}: `{name}.templates` must be tables, each under a line [[{name}.templates]]",
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
                &SettingOrigin::Template(path.to_owned(), number),
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
    let names = keys.required.iter().chain(keys.optional);
    let names = names.map(|key| (short_name(key), *key)).collect();
    let values: Vec<_> = table
        .iter()
        .map(|(name, value)| (name.clone(), value))
        .collect();
    let leaves = layers.read_table(&values, &names, origin);
    for &key in keys.required {
        if leaves.get(key).is_none_or(|leaf| is_empty(&leaf.value)) {
            layers
                .problems
                .push(format!("{origin}: `{}` is required", short_name(key)));
        }
    }
    TemplateLayer {
        section: keys.section,
        leaves,
    }
}
