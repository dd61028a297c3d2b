//! The opaque form: what is secret in it, and how masks come back.

use serde_json::{Map, Value};

use super::super::model::MASK;

/// Everything below these keys of a server is secret.
fn is_secret_group(key: &str) -> bool {
    matches!(
        key,
        "env" | "headers" | "auth" | "authentication" | "credentials"
    )
}

/// Keys that name a secret wherever they stand.
fn is_secret_name(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    [
        "key",
        "token",
        "secret",
        "password",
        "authorization",
        "credential",
    ]
    .iter()
    .any(|word| key.contains(word))
        && !matches!(
            key.as_str(),
            "header_name" | "token_url" | "token_endpoint" | "token_type"
        )
}

/// Members of a secret group that say how, not what.
fn is_plain_in_group(group: &str, key: &str) -> bool {
    group != "env"
        && group != "headers"
        && matches!(
            key,
            "strategy" | "type" | "header_name" | "username" | "scopes"
        )
}

fn walk(
    value: &Value,
    secret: bool,
    group: &str,
    mask: &mut dyn FnMut(&str) -> Option<Value>,
) -> Option<Value> {
    Some(match value {
        Value::Object(map) => {
            let mut out = Map::new();
            for (key, child) in map {
                let inner_group = if is_secret_group(key) {
                    key.as_str()
                } else {
                    group
                };
                let inner_secret = is_secret_group(key)
                    || (secret && !is_plain_in_group(group, key))
                    || is_secret_name(key);
                if let Some(child) = walk(child, inner_secret, inner_group, mask) {
                    out.insert(key.clone(), child);
                }
            }
            Value::Object(out)
        }
        Value::Array(items) => Value::Array(
            items
                .iter()
                .filter_map(|item| walk(item, secret, group, mask))
                .collect(),
        ),
        Value::String(text) if secret && !text.is_empty() => return mask(text),
        other => other.clone(),
    })
}

/// The document with every secret of its servers masked.
pub(crate) fn masked(document: &Value) -> Value {
    let Value::Object(map) = document else {
        return masked_members(document);
    };
    let members = map.iter().map(|(name, server)| {
        let shown = match name.as_str() {
            "mcpServers" => masked(server),
            _ => masked_members(server),
        };
        (name.clone(), shown)
    });
    Value::Object(members.collect())
}

/// A value with every member masked whose name says that it is secret.
pub(crate) fn masked_members(value: &Value) -> Value {
    walk(value, false, "", &mut |_| Some(Value::from(MASK))).unwrap_or(Value::Null)
}

/// The servers of a document, also inside the older `mcpServers` envelope.
pub(super) fn servers(document: &Value) -> Option<&Map<String, Value>> {
    match document.get("mcpServers") {
        Some(Value::Object(inner)) => Some(inner),
        _ => document.as_object(),
    }
}

/// The document to store when `new` came in and `old` is there.
pub(crate) fn unmask(mut new: Value, old: Option<&Value>) -> Value {
    let old = old.and_then(servers);
    let map = match new.get("mcpServers") {
        Some(Value::Object(_)) => new.get_mut("mcpServers").and_then(Value::as_object_mut),
        _ => new.as_object_mut(),
    };
    for (name, server) in map.into_iter().flatten() {
        let before = old
            .and_then(|servers| servers.get(name))
            .filter(|before| before.get("url") == server.get("url"));
        restore(server, before);
    }
    new
}

/// The value without its masks: what is merged over the stored one leaves the secrets as they are.
pub(crate) fn without_masks(mut value: Value) -> Value {
    restore(&mut value, None);
    value
}

/// Replaces masks by what stands at the same place; a mask with nothing behind it is removed.
fn restore(value: &mut Value, before: Option<&Value>) {
    match value {
        Value::Object(map) => {
            map.retain(|key, child| {
                let before = before.and_then(|b| b.get(key));
                if child.as_str() == Some(MASK) {
                    match before.filter(|b| b.is_string()) {
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
}
