//! Skill marketplaces that a user registers.

use serde_json::{Map, Value, json};

/// Maximum number of marketplaces of one user.
const MAX_MARKETPLACES: usize = 100;
/// Longest text of a marketplace in bytes.
pub(crate) const MAX_TEXT_BYTES: usize = 2_048;

/// Errors about a name, a source or a path, as clients know them.
pub(crate) const NAME_RULE: &str =
    "name must start with a letter and contain only letters, numbers, hyphens, and underscores";
pub(crate) const SOURCE_RULE: &str =
    "source must be 'github:owner/repo', a git URL or a relative path";
pub(crate) const PATH_RULE: &str = "repo_path must be a relative path without '..'";

/// Normalises the list, or returns an error as clients know it. Errors quote only names, which are not secret.
pub(super) fn normalise(list: &Value) -> Result<Vec<Value>, String> {
    let items = match list {
        Value::Null => return Ok(Vec::new()),
        Value::Array(items) => items,
        _ => return Err("registered_marketplaces: Input should be a valid list".to_owned()),
    };
    if items.len() > MAX_MARKETPLACES {
        return Err(format!(
            "registered_marketplaces: At most {MAX_MARKETPLACES} marketplaces"
        ));
    }
    let mut out: Vec<Value> = Vec::new();
    let mut twice: Vec<&str> = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let entry = normalise_one(item)
            .map_err(|why| format!("Invalid marketplace at index {index}: {why}"))?;
        if out.iter().any(|other| other["name"] == entry["name"]) {
            twice.extend(item["name"].as_str());
        }
        out.push(entry);
    }
    if twice.is_empty() {
        Ok(out)
    } else {
        twice.sort_unstable();
        twice.dedup();
        Err(format!(
            "Marketplace name(s) already in use or duplicated: {}",
            twice.join(", ")
        ))
    }
}

fn normalise_one(item: &Value) -> Result<Value, String> {
    let broken = |rule: &str| Err(format!("Value error, {rule}"));
    let map = item
        .as_object()
        .ok_or("Input should be a valid dictionary")?;
    let name = text(map, "name")?.ok_or("name: Field required")?;
    if !is_name(name) {
        return broken(NAME_RULE);
    }
    let source = text(map, "source")?.ok_or("source: Field required")?;
    if !is_source(source) {
        return broken(SOURCE_RULE);
    }
    let repo_path = text(map, "repo_path")?;
    if repo_path.is_some_and(|path| !is_relative(path)) {
        return broken(PATH_RULE);
    }
    let auto_load = match map.get("auto_load") {
        None | Some(Value::Null) => Value::Bool(false),
        Some(flag @ Value::Bool(_)) => flag.clone(),
        // Other releases send a short text with the names to load.
        Some(Value::String(which)) if which.len() <= 64 => Value::from(which.as_str()),
        Some(_) => return Err("auto_load: Input should be a valid boolean".to_owned()),
    };
    Ok(
        json!({"name": name, "source": source, "ref": text(map, "ref")?, "repo_path": repo_path,
              "auto_load": auto_load, "scope": "personal"}),
    )
}

fn text<'a>(map: &'a Map<String, Value>, key: &str) -> Result<Option<&'a str>, &'static str> {
    match map.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text))
            if text.len() <= MAX_TEXT_BYTES && !text.contains(char::is_control) =>
        {
            Ok(Some(text))
        }
        Some(_) => Err("Input should be a valid string"),
    }
}

pub(crate) fn is_name(name: &str) -> bool {
    name.len() <= 128
        && name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
}

pub(crate) fn is_source(source: &str) -> bool {
    if let Some(repository) = source.strip_prefix("github:") {
        let mut parts = repository.split('/');
        let part = |p: Option<&str>| {
            p.is_some_and(|p| {
                !p.is_empty()
                    && p.chars()
                        .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
            })
        };
        return part(parts.next()) && part(parts.next()) && parts.next().is_none();
    }
    let is_url = ["https://", "http://", "ssh://", "git://", "git@"]
        .iter()
        .any(|scheme| {
            source
                .strip_prefix(scheme)
                .is_some_and(|rest| !rest.is_empty())
        });
    is_url && !source.contains(char::is_whitespace) || is_relative(source)
}

pub(crate) fn is_relative(path: &str) -> bool {
    !path.is_empty()
        && !path.starts_with(['/', '\\', '~', '-'])
        && !path.contains(':')
        && path.split(['/', '\\']).all(|part| part != "..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_normalised_or_refused_as_clients_know_it() {
        assert_eq!(
            normalise(&json!([{"name": "team", "source": "github:acme/x", "scope": "org"}])),
            Ok(vec![
                json!({"name": "team", "source": "github:acme/x", "ref": null,
                           "repo_path": null, "auto_load": false, "scope": "personal"})
            ])
        );
        for (list, expected) in [
            (
                json!([{"name": "1bad", "source": "x"}]),
                "Invalid marketplace at index 0: Value error, name must start with a letter and contain only letters, numbers, hyphens, and underscores",
            ),
            (
                json!([{"name": "a", "source": "github:a/b"}, {"name": "a", "source": "github:a/c"}]),
                "Marketplace name(s) already in use or duplicated: a",
            ),
        ] {
            assert_eq!(normalise(&list), Err(expected.to_owned()));
        }
        for source in [
            "../x",
            "/etc",
            "github:a",
            "github:a/b/c",
            "file:///x",
            "https://a b",
            "",
        ] {
            assert!(
                normalise(&json!([{"name": "a", "source": source}])).is_err(),
                "{source}"
            );
        }
        for source in [
            "https://git.example/a.git",
            "git@host:a/b.git",
            "skills/own",
        ] {
            assert!(
                normalise(&json!([{"name": "a", "source": source}])).is_ok(),
                "{source}"
            );
        }
        assert!(normalise(&json!({})).is_err());
    }
}
