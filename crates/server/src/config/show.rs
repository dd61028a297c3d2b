//! The effective configuration as text, without secrets.

use std::fmt::Write as _;

use toml::Value;
use url::Url;

use super::layers::{DEFAULTS, Setting, SettingLayers, SettingOrigin, is_empty};
use super::sections::templates::short;

/// Keys of which only the presence is shown.
const SECRET_KEYS: [&str; 5] = [
    "auth.bootstrap_key",
    "secrets.master_key",
    "secrets.previous_master_keys",
    "docker.registry_password",
    "metrics.key",
];
/// Keys of which only the names of assignments are shown.
const SECRET_ASSIGNMENT_KEYS: [&str; 2] = ["docker.secret_env", "telemetry.headers"];
/// Keys that are shown without passwords.
const SECRET_URL_KEYS: [&str; 4] = [
    "storage.url",
    "sandbox.index_url",
    "sandbox.proxy",
    "sandbox.callback_url",
];

pub(super) const REDACTED: &str = "<redacted>";

/// Renders TOML in the order of the defaults, with the source of each changed value. `derived` has values that the service
/// computes.
pub(super) fn show(layers: &SettingLayers, derived: &[(&str, String)]) -> String {
    let mut text = String::new();
    let mut section = "";
    for line in DEFAULTS.lines() {
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
                .find(|(of, _)| *of == key && is_empty(&leaf.value));
            let value = match derived {
                Some((_, value)) => Value::from(value.as_str()),
                None => redacted(&key, &leaf.value),
            };
            text.push_str(&line_of(name, &value, &leaf.origin));
        }
    }
    for template in &layers.templates {
        text.push_str("\n[[docker.templates]]\n");
        for (key, Setting { value, origin }) in &template.leaves {
            text.push_str(&line_of(short(key), &redacted(key, value), origin));
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

fn redacted(key: &str, value: &Value) -> Value {
    let each = |hide: fn(&str) -> String| match value {
        Value::Array(items) => {
            let texts = items.iter().filter_map(Value::as_str);
            Value::Array(texts.map(|text| Value::from(hide(text))).collect())
        }
        value => Value::from(hide(value.as_str().unwrap_or_default())),
    };
    if is_empty(value) {
        value.clone()
    } else if SECRET_URL_KEYS.contains(&key) {
        each(without_password)
    } else if SECRET_KEYS.contains(&key) {
        each(|_| REDACTED.to_owned())
    } else if SECRET_ASSIGNMENT_KEYS.contains(&key) {
        each(without_value)
    } else {
        value.clone()
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
pub(crate) fn without_password(text: &str) -> String {
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
