//! `config/schema.json`: the JSON Schema of a configuration file, for editors. It is made from `config/default.toml`: a value
//! has the type of its default, and a key's comment is its description.

use serde_json::{Map, Value, json};

/// The first key of the settings that a further template may have; the ones above belong to the engine.
const FIRST_TEMPLATE_KEY: &str = "id";
/// The backends with templates.
const TEMPLATE_SECTIONS: [&str; 2] = ["docker", "kubernetes"];
/// Settings of the section `sandbox` that a further template may have, too.
const TEMPLATE_KEYS_OF_SANDBOX: [&str; 3] = ["idle_stop", "lifetime", "conversation_budget"];

/// The schema of files with the shape of `toml`.
pub(crate) fn schema(toml: &str) -> String {
    let mut top = Map::new();
    let mut section: Option<String> = None;
    let mut comment: Vec<&str> = Vec::new();
    let mut comment_was_used = false;
    for line in toml.lines() {
        if let Some(text) = line.strip_prefix('#') {
            if std::mem::take(&mut comment_was_used) {
                comment.clear();
            }
            comment.push(text.trim_start());
        } else if let Some(name) = line.strip_prefix('[').and_then(|it| it.strip_suffix(']')) {
            top.insert(name.to_owned(), object(&Map::new()));
            section = Some(name.to_owned());
            comment.clear();
        } else if let Some((key, default)) = line.split_once(" = ") {
            let value = value(default, &comment.join(" "));
            match &section {
                Some(section) => properties(&mut top[section]).insert(key.to_owned(), value),
                None => top.insert(key.to_owned(), value),
            };
            comment_was_used = true;
        } else {
            comment.clear();
        }
    }
    for section in TEMPLATE_SECTIONS {
        if top.contains_key(section) {
            add_templates(&mut top, section);
        }
    }
    nest_list(&mut top, "auth", "oidc");
    let mut schema = object(&top);
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("Configuration of agent-workspace");
    format!("{schema:#}\n")
}

fn object(properties: &Map<String, Value>) -> Value {
    json!({"type": "object", "additionalProperties": false, "properties": properties})
}

fn properties(object: &mut Value) -> &mut Map<String, Value> {
    let properties = object["properties"].as_object_mut();
    properties.expect("an object's schema has properties")
}

/// The schema of one setting.
fn value(default: &str, description: &str) -> Value {
    let mut schema = match default.chars().next() {
        Some('"') if is_duration(default.trim_matches('"')) => {
            json!({"type": "string", "pattern": "^(0|[0-9]+(ms|s|m|h|d))$"})
        }
        Some('"') => json!({"type": "string"}),
        Some('[') => json!({"type": "array", "items": {"type": "string"}}),
        Some('t' | 'f') => json!({"type": "boolean"}),
        _ => json!({"type": "integer"}),
    };
    schema["description"] = json!(description);
    if let Ok(default) = serde_json::from_str::<Value>(default) {
        schema["default"] = default;
    }
    schema
}

fn is_duration(text: &str) -> bool {
    let unit = text.trim_start_matches(|it: char| it.is_ascii_digit());
    let is_counted = unit.len() < text.len();
    is_counted && (matches!(unit, "ms" | "s" | "m" | "h" | "d") || text == "0")
}

/// `[[auth.oidc]]` is a list of tables.
fn nest_list(top: &mut Map<String, Value>, section: &str, name: &str) {
    if let Some(table) = top.remove(&format!("{section}.{name}")) {
        let list = json!({"type": "array", "items": table});
        properties(&mut top[section]).insert(name.to_owned(), list);
    }
}

/// A section with templates has a list of tables, such as `[[docker.templates]]`, with the keys of the default template.
fn add_templates(top: &mut Map<String, Value>, section: &str) {
    let mut keys = Map::new();
    for (key, value) in properties(&mut top["sandbox"]).clone() {
        if TEMPLATE_KEYS_OF_SANDBOX.contains(&key.as_str()) {
            keys.insert(key, value);
        }
    }
    let section = properties(&mut top[section]);
    let of_template = section
        .iter()
        .skip_while(|(key, _)| *key != FIRST_TEMPLATE_KEY);
    keys.extend(of_template.map(|(key, value)| (key.clone(), value.clone())));
    for schema in keys.values_mut() {
        // What a template leaves out comes from the default template.
        schema
            .as_object_mut()
            .expect("a schema is an object")
            .remove("default");
    }
    section.insert(
        "templates".to_owned(),
        json!({"type": "array", "items": object(&keys)}),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_has_the_type_of_its_default() {
        let toml = "# About the file.\n\n# Where.\ndir = \"\"\n\n[sandbox]\n# Time to\n# stop.\nidle_stop = \"30m\"\nmax = 3\n\
                    [auth]\nmode = \"x\"\n[auth.oidc]\nname = \"\"\n[docker]\nnetwork = []\n# Which.\nid = \"a\"\nis_open = false\n";
        let schema: Value = serde_json::from_str(&schema(toml)).unwrap();
        let of = |pointer: &str| schema.pointer(pointer).cloned().unwrap_or_default();
        assert_eq!(
            of("/properties/dir"),
            json!({"type": "string", "description": "Where.", "default": ""})
        );
        let idle_stop = of("/properties/sandbox/properties/idle_stop");
        assert_eq!(idle_stop["description"], "Time to stop.");
        assert_eq!(idle_stop["pattern"], "^(0|[0-9]+(ms|s|m|h|d))$");
        assert_eq!(of("/properties/sandbox/properties/max/type"), "integer");
        let template = of("/properties/docker/properties/templates/items/properties");
        let keys: Vec<_> = template.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["idle_stop", "id", "is_open"]);
        let of_list = of("/properties/auth/properties/oidc/items/properties/name/type");
        assert_eq!(of_list, "string");
        assert_eq!(of("/additionalProperties"), false);
    }
}
