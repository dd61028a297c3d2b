//! Tables `[[docker.templates]]` of a file. Each is a layer over the section `docker` (and two keys of `sandbox`).

use std::collections::BTreeMap;
use std::path::Path;

use crate::config::layers::{Setting, SettingLayers, SettingOrigin, is_empty};

/// Keys that every template must set.
const REQUIRED_KEYS: [&str; 2] = ["docker.id", "docker.image"];
/// Keys that a template may set.
const INHERITED_KEYS: [&str; 19] = [
    "docker.command",
    "docker.entrypoint",
    "docker.working_dir",
    "docker.volume",
    "docker.user",
    "docker.memory",
    "docker.cpus",
    "docker.pids",
    "docker.disk",
    "docker.capabilities",
    "docker.read_only",
    "docker.pause",
    "docker.env",
    "docker.secret_env",
    "docker.secret_env_file",
    "docker.ports",
    "docker.mounts",
    "sandbox.idle_stop",
    "sandbox.lifetime",
];

/// The values of one template, by full key.
#[derive(Clone)]
pub(in crate::config) struct TemplateLayer {
    pub(in crate::config) leaves: BTreeMap<String, Setting>,
}

/// The name of a key within a template.
pub(in crate::config) fn short(key: &str) -> &str {
    key.rsplit_once('.').map_or(key, |(_, name)| name)
}

/// Removes the templates from a file's table, which then has only single values.
pub(in crate::config) fn take(
    table: &mut toml::Table,
    path: &Path,
    layers: &mut SettingLayers,
) -> Vec<TemplateLayer> {
    let section = table.get_mut("docker").and_then(toml::Value::as_table_mut);
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
            "{}: `docker.templates` must be tables, each under a line [[docker.templates]]",
            path.display()
        ));
        return Vec::new();
    };
    (1..)
        .zip(tables)
        .map(|(number, table)| {
            read(
                table,
                &SettingOrigin::Template(path.to_owned(), number),
                layers,
            )
        })
        .collect()
}

fn read(table: &toml::Table, origin: &SettingOrigin, layers: &mut SettingLayers) -> TemplateLayer {
    let keys = REQUIRED_KEYS.iter().chain(&INHERITED_KEYS);
    let keys = keys.map(|key| (short(key), *key)).collect();
    let values: Vec<_> = table
        .iter()
        .map(|(name, value)| (name.clone(), value))
        .collect();
    let leaves = layers.read_table(&values, &keys, origin);
    for key in REQUIRED_KEYS {
        if leaves.get(key).is_none_or(|leaf| is_empty(&leaf.value)) {
            layers
                .problems
                .push(format!("{origin}: `{}` is required", short(key)));
        }
    }
    TemplateLayer { leaves }
}
