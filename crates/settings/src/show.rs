//! The effective configuration as text, without secrets.

use std::fmt::Write as _;

use url::Url;

use crate::layers::{Setting, SettingLayers, SettingOrigin, default_texts};
use crate::templates::short;
use crate::values::SettingValue;

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

/// Settings of the service itself that are redacted.
const REDACTED_KEYS: [(&str, Redaction); 7] = [
    ("auth.bootstrap_key", Redaction::Value),
    ("secrets.master_key", Redaction::Value),
    ("secrets.previous_master_keys", Redaction::Value),
    ("metrics.key", Redaction::Value),
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
    let mut section = "";
    for line in default_texts(&layers.sections).flat_map(str::lines) {
        if let Some(name) = line
            .strip_prefix('[')
            .and_then(|line| line.strip_suffix(']'))
        {
            section = name;
            let _ = writeln!(text, "\n[{section}]");
        } else if let Some((name, _)) = line.split_once(" = ").filter(|_| !line.starts_with('#')) {
            let key = if section.is_empty() {
                name.to_owned()
            } else {
                format!("{section}.{name}")
            };
            let leaf = &layers.leaves[&key];
            let derived = derived
                .iter()
                .find(|(of, _)| *of == key && leaf.value.is_empty());
            let value = match derived {
                Some((_, value)) => SettingValue::Text(value.clone()),
                None => redacted(layers, &key, &leaf.value),
            };
            text.push_str(&line_of(name, &value, &leaf.origin));
        }
    }
    for template in &layers.templates {
        let _ = writeln!(text, "\n[[{}.templates]]", template.section);
        for (key, Setting { value, origin }) in &template.leaves {
            text.push_str(&line_of(short(key), &redacted(layers, key, value), origin));
        }
    }
    text
}

fn line_of(name: &str, value: &SettingValue, origin: &SettingOrigin) -> String {
    let value = toml_text(value);
    match origin {
        SettingOrigin::Default => format!("{name} = {value}\n"),
        origin => format!("{name} = {value}  # {origin}\n"),
    }
}

fn redacted(layers: &SettingLayers, key: &str, value: &SettingValue) -> SettingValue {
    let sections = layers.sections.iter().flat_map(|section| section.redacted);
    let mut redacted = REDACTED_KEYS.iter().chain(sections);
    let redaction = redacted.find(|(name, _)| *name == key);
    let Some((_, redaction)) = redaction.filter(|_| !value.is_empty()) else {
        return value.clone();
    };
    let hide = |text: &String| match redaction {
        Redaction::Value => REDACTED.to_owned(),
        Redaction::Assignments => without_value(text),
        Redaction::Url => without_password(text),
    };
    match value {
        SettingValue::Text(text) => SettingValue::Text(hide(text)),
        SettingValue::List(items) => SettingValue::List(items.iter().map(hide).collect()),
        SettingValue::Number(_) | SettingValue::Switch(_) => {
            SettingValue::Text(REDACTED.to_owned())
        }
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

fn toml_text(value: &SettingValue) -> String {
    match value {
        SettingValue::Text(text) => toml::Value::String(text.clone()).to_string(),
        SettingValue::Number(number) => number.to_string(),
        SettingValue::Switch(on) => on.to_string(),
        SettingValue::List(items) => {
            toml::Value::Array(items.iter().cloned().map(toml::Value::String).collect()).to_string()
        }
    }
}
