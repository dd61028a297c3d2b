//! The effective configuration as text, without secrets.

use std::fmt::Write as _;

use toml::Value;
use url::Url;

use crate::layers::{Redaction, SettingLayers, default_texts};
use crate::setting::{Setting, SettingOrigin};
use crate::templates::short_name;
use crate::values::is_empty;

/// Settings of the service itself that are redacted.
const REDACTED_KEYS: [(&str, Redaction); 8] = [
    ("auth.bootstrap_key", Redaction::Value),
    ("secrets.master_key", Redaction::Value),
    ("secrets.previous_master_keys", Redaction::Value),
    ("metrics.key", Redaction::Value),
    ("mail.password", Redaction::Value),
    ("telemetry.headers", Redaction::Assignments),
    ("storage.url", Redaction::Url),
    ("sandbox.callback_url", Redaction::Url),
];

/// Stands for a secret.
pub const REDACTED: &str = "<redacted>";

/// Renders TOML in the order of the defaults, with the source of each changed value. `derived` has values that the service
/// computes.
pub fn show(layers: &SettingLayers, derived: &[(&str, String)]) -> String {
    let mut text = String::new();
    let lists = layers.template_keys();
    let (mut section, mut is_list) = ("", false);
    for line in default_texts(&layers.sections).flat_map(str::lines) {
        if let Some(name) = line
            .strip_prefix('[')
            .and_then(|line| line.strip_suffix(']'))
        {
            section = name;
            is_list = lists
                .iter()
                .any(|list| list.is_list() && list.section == section);
            if !is_list {
                let _ = writeln!(text, "\n[{section}]");
            }
        } else if let Some((name, _)) = line
            .split_once(" = ")
            .filter(|_| !line.starts_with('#') && !is_list)
        {
            let key = if section.is_empty() {
                name.to_owned()
            } else {
                format!("{section}.{name}")
            };
            let leaf = &layers.leaves[&key];
            let derived = derived
                .iter()
                .find(|(of, _)| *of == key && is_empty(&leaf.value));
            let value = match derived {
                Some((_, value)) => Value::from(value.as_str()),
                None => redacted(layers, &key, &leaf.value),
            };
            text.push_str(&line_of(name, &value, &leaf.origin));
        }
    }
    for template in &layers.templates {
        let keys = lists.iter().find(|it| it.section == template.section);
        let table = keys.map_or(template.section, |keys| keys.table);
        let _ = writeln!(text, "\n[[{table}]]");
        for (key, Setting { value, origin }) in &template.leaves {
            text.push_str(&line_of(
                short_name(key),
                &redacted(layers, key, value),
                origin,
            ));
        }
    }
    text
}

fn line_of(name: &str, value: &Value, origin: &SettingOrigin) -> String {
    match origin {
        SettingOrigin::Default => format!("{name} = {value}\n"),
        origin => format!("{name} = {value}  # {origin}\n"),
    }
}

fn redacted(layers: &SettingLayers, key: &str, value: &Value) -> Value {
    let sections = layers.sections.iter().flat_map(|section| section.redacted);
    let mut redacted = REDACTED_KEYS.iter().chain(sections);
    let redaction = redacted.find(|(name, _)| *name == key);
    let Some((_, redaction)) = redaction.filter(|_| !is_empty(value)) else {
        return value.clone();
    };
    let hide = |value: &Value| {
        Value::from(match (redaction, value.as_str()) {
            (Redaction::Assignments, Some(text)) => without_value(text),
            (Redaction::Url, Some(text)) => without_password(text),
            (Redaction::Value, _) | (_, None) => REDACTED.to_owned(),
        })
    };
    match value.as_array() {
        Some(items) => Value::Array(items.iter().map(hide).collect()),
        None => hide(value),
    }
}

/// `NAME=<redacted>`; shows nothing of other texts.
fn without_value(item: &str) -> String {
    item.split_once('=')
        .map_or(REDACTED.to_owned(), |(name, _)| {
            format!("{name}={REDACTED}")
        })
}

/// Keeps scheme, host, port and path. A query may contain a password (`postgres://host/db?password=…`).
pub fn without_password(text: &str) -> String {
    if let Some(path) = text.strip_prefix("sqlite://") {
        return format!("sqlite://{}", path.split('?').next().unwrap_or_default());
    }
    let Ok(mut url) = Url::parse(text) else {
        return REDACTED.to_owned();
    };
    if !url.username().is_empty() || url.password().is_some() {
        // Both fail only for URLs that cannot have credentials.
        let _ = url.set_password(None);
        let _ = url.set_username("***");
    }
    if url.query().is_some() {
        url.set_query(Some("***"));
    }
    url.to_string()
}
