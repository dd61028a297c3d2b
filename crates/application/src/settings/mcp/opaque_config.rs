//! MCP configuration as any JSON: masking its secrets, and restoring masked ones from the stored document.

use serde_json::{Map, Value};

use super::super::secret::MASK;
use super::server_url::{self, is_secret_name};

/// Everything below these keys is secret.
fn is_secret_group(key: &str) -> bool {
    matches!(
        key,
        "env" | "headers" | "auth" | "authentication" | "credentials"
    )
}

/// Members of a secret group that are not secret.
fn is_plain_in_group(group: &str, key: &str) -> bool {
    group != "env"
        && group != "headers"
        && matches!(
            key,
            "strategy" | "type" | "header_name" | "username" | "scopes"
        )
}

/// Where a value stands in the document.
#[derive(Clone, Copy, Default)]
struct MaskContext<'a> {
    is_secret: bool,
    /// The innermost secret group around the value; empty outside of one.
    group: &'a str,
    /// Whether the value, or the list that holds it, has a secret name.
    has_secret_name: bool,
}

fn mask_secrets(value: &Value, context: MaskContext<'_>) -> Value {
    match value {
        Value::Object(map) => {
            let members = map.iter().map(|(key, child)| {
                let is_group = is_secret_group(key);
                let is_inherited = context.is_secret && !is_plain_in_group(context.group, key);
                let inner = MaskContext {
                    is_secret: is_group || is_inherited || is_secret_name(key),
                    group: if is_group { key } else { context.group },
                    has_secret_name: is_secret_name(key) && !is_token_count(key),
                };
                (key.clone(), mask_secrets(child, inner))
            });
            Value::Object(members.collect())
        }
        Value::Array(items) => items
            .iter()
            .map(|item| mask_secrets(item, context))
            .collect(),
        Value::String(text) if context.is_secret && !text.is_empty() => Value::from(MASK),
        Value::Number(_) if context.has_secret_name => Value::from(MASK),
        // Elsewhere below a secret name, a number may be a limit and a boolean is a switch, so only a secret group makes
        // them secret.
        Value::Number(_) | Value::Bool(_) if context.is_secret && !context.group.is_empty() => {
            Value::from(MASK)
        }
        other => other.clone(),
    }
}

/// `max_tokens` and the like.
fn is_token_count(key: &str) -> bool {
    key.to_ascii_lowercase().contains("tokens")
}

/// The document with all secrets of its servers masked.
pub(crate) fn masked(document: &Value) -> Value {
    let Value::Object(map) = document else {
        return masked_members(document);
    };
    let members = map.iter().map(|(name, server)| {
        let shown = match name.as_str() {
            "mcpServers" => masked(server),
            _ => masked_server(server),
        };
        (name.clone(), shown)
    });
    Value::Object(members.collect())
}

/// The value with all members with secret names masked.
pub(crate) fn masked_members(value: &Value) -> Value {
    mask_secrets(value, MaskContext::default())
}

fn masked_server(server: &Value) -> Value {
    let mut shown = masked_members(server);
    if let Some(Value::String(url)) = shown.get_mut("url") {
        *url = server_url::masked(url);
    }
    shown
}

/// The first server with a user name or password in its URL.
pub(crate) fn first_server_with_credentials(document: &Value) -> Option<&str> {
    let with = |server: &Value| {
        let url = server.get("url").and_then(Value::as_str);
        url.is_some_and(server_url::has_credentials)
    };
    let mut all = servers(document).into_iter().flatten();
    all.find(|(_, server)| with(server))
        .map(|(name, _)| name.as_str())
}

/// The servers of a document, also inside the older `mcpServers` envelope.
pub(super) fn servers(document: &Value) -> Option<&Map<String, Value>> {
    match document.get("mcpServers") {
        Some(Value::Object(inner)) => Some(inner),
        _ => document.as_object(),
    }
}

/// The stored document with the servers of a request: each replaces the one of its name, and `null` removes it.
pub(crate) fn merge_servers(stored: Option<Value>, changes: &Value) -> Value {
    let mut merged = match stored {
        Some(stored @ Value::Object(_)) => stored,
        _ => Value::Object(Map::new()),
    };
    let target = match merged.get("mcpServers") {
        Some(Value::Object(_)) => &mut merged["mcpServers"],
        _ => &mut merged,
    };
    let (Value::Object(target), Some(changes)) = (target, servers(changes)) else {
        return merged;
    };
    for (name, server) in changes {
        if server.is_null() {
            target.shift_remove(name);
        } else {
            target.insert(name.clone(), server.clone());
        }
    }
    merged
}

/// The document to store over `old`: its masks are replaced by the secrets of `old`, or removed.
pub(crate) fn unmask(mut new: Value, old: Option<&Value>) -> Value {
    let old = old.and_then(servers);
    let map = match new.get("mcpServers") {
        Some(Value::Object(_)) => new.get_mut("mcpServers").and_then(Value::as_object_mut),
        _ => new.as_object_mut(),
    };
    for (name, server) in map.into_iter().flatten() {
        let before = old
            .and_then(|servers| servers.get(name))
            .filter(|before| same_url(before.get("url"), server.get("url")));
        restore(server, before);
        if let Some(Value::String(url)) = server.get_mut("url") {
            let before = before.and_then(|before| before.get("url")?.as_str());
            *url = server_url::unmasked(url, before);
        }
    }
    new
}

fn same_url(left: Option<&Value>, right: Option<&Value>) -> bool {
    match (left, right) {
        (Some(Value::String(left)), Some(Value::String(right))) => server_url::is_same(left, right),
        _ => left == right,
    }
}

/// The value with masks replaced by the values at the same positions of `before`, or removed.
pub(crate) fn with_masks_restored(mut value: Value, before: Option<&Value>) -> Value {
    restore(&mut value, before);
    value
}

/// Replaces masks by the values at the same positions; masks without one are removed.
fn restore(value: &mut Value, before: Option<&Value>) {
    match value {
        Value::Object(map) => {
            map.retain(|key, child| {
                let before = before.and_then(|b| b.get(key));
                if child.as_str() == Some(MASK) {
                    match before.filter(|b| !b.is_object() && !b.is_array()) {
                        Some(kept) => {
                            *child = kept.clone();
                            true
                        }
                        None => false,
                    }
                } else {
                    restore(child, before);
                    true
                }
            });
        }
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                let before = before.and_then(|b| b.get(index));
                if item.as_str() == Some(MASK) {
                    *item = before.cloned().unwrap_or(Value::Null);
                } else {
                    restore(item, before);
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn secrets_are_masked_and_masks_come_back() {
        let stored = json!({
            "remote": {"url": "https://h/mcp", "headers": {"X-Any": "s1"}, "timeout": 5,
                       "auth": {"strategy": "bearer", "value": "s2"}},
            "local": {"command": "npx", "args": ["-y", "x"], "env": {"USER": "s3"}},
            "keyed": {"url": "https://k", "api_key": "s4"},
        });
        let shown = masked(&stored);
        assert_eq!(
            shown,
            json!({
                "remote": {"url": "https://h/mcp", "headers": {"X-Any": MASK}, "timeout": 5,
                           "auth": {"strategy": "bearer", "value": MASK}},
                "local": {"command": "npx", "args": ["-y", "x"], "env": {"USER": MASK}},
                "keyed": {"url": "https://k", "api_key": MASK},
            })
        );
        assert_eq!(unmask(shown.clone(), Some(&stored)), stored);
        // In the older envelope, and back.
        let wrapped = json!({"mcpServers": shown});
        assert_eq!(unmask(wrapped, Some(&stored))["mcpServers"], stored);
        // Another URL does not get the secrets.
        let moved = json!({"keyed": {"url": "https://evil", "api_key": MASK}});
        assert_eq!(
            unmask(moved, Some(&stored)),
            json!({"keyed": {"url": "https://evil"}})
        );
        assert_eq!(
            unmask(json!({"new": {"env": {"K": MASK}}}), None),
            json!({"new": {"env": {}}})
        );
    }

    #[test]
    fn numbers_and_switches_of_a_secret_group_are_secret() {
        let stored = json!({
            "local": {"command": "x", "env": {"PIN": 1234, "ON": true, "NONE": null, "LIST": [7, "a"]}},
            "remote": {"url": "https://h", "timeout": 5, "api_key": 99, "max_tokens": 3, "enabled": true,
                       "auth": {"strategy": "bearer", "value": 12}},
        });
        let shown = masked(&stored);
        assert_eq!(
            shown,
            json!({
                "local": {"command": "x", "env": {"PIN": MASK, "ON": MASK, "NONE": null, "LIST": [MASK, MASK]}},
                "remote": {"url": "https://h", "timeout": 5, "api_key": MASK, "max_tokens": 3, "enabled": true,
                           "auth": {"strategy": "bearer", "value": MASK}},
            })
        );
        assert_eq!(unmask(shown, Some(&stored)), stored);
    }

    #[test]
    fn numbers_in_a_list_with_a_secret_name_are_secret() {
        let stored = json!({
            "remote": {"url": "https://h", "api_key": [1234, "a", [5], {"id": 6, "on": true}], "max_tokens": [3],
                       "auth": {"type": "x"}},
        });
        let shown = masked(&stored);
        assert_eq!(
            shown,
            json!({
                "remote": {"url": "https://h", "api_key": [MASK, MASK, [MASK], {"id": 6, "on": true}], "max_tokens": [3],
                           "auth": {"type": "x"}},
            })
        );
        assert_eq!(unmask(shown, Some(&stored)), stored);
    }

    #[test]
    fn keys_in_urls_are_masked_and_come_back() {
        let stored = json!({"r": {"url": "https://h/mcp?a=1&apiKey=s1#x", "headers": {"X": "s2"}}});
        let shown = masked(&stored);
        assert_eq!(
            shown,
            json!({"r": {"url": format!("https://h/mcp?a=1&apiKey={MASK}#x"), "headers": {"X": MASK}}})
        );
        assert_eq!(unmask(shown, Some(&stored)), stored);
        // A URL with a new key is the same server and keeps its headers. Another host gets neither key nor headers.
        let rotated =
            json!({"r": {"url": "https://h/mcp?a=1&apiKey=new#x", "headers": {"X": MASK}}});
        assert_eq!(unmask(rotated, Some(&stored))["r"]["headers"]["X"], "s2");
        let moved = json!({"r": {"url": format!("https://evil/mcp?a=1&apiKey={MASK}#x"), "headers": {"X": MASK}}});
        assert_eq!(
            unmask(moved, Some(&stored)),
            json!({"r": {"url": "https://evil/mcp?a=1#x", "headers": {}}})
        );
    }
}
