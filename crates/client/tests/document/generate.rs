//! Documents that a schema allows.

use serde_json::{Map, Value, json};

/// Which of the documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemberSelection {
    /// All members, none null.
    All,
    /// All members, null where they may be.
    Null,
    /// Only those that are always there.
    Required,
}

/// Different numbers choose different words and alternatives.
pub(crate) struct Generator<'a> {
    pub(crate) schemas: &'a Value,
    pub(crate) members: MemberSelection,
    pub(crate) choice: usize,
}

impl Generator<'_> {
    pub(crate) fn of(&self, schema: &Value) -> Value {
        if let Some(name) = schema["$ref"].as_str() {
            let name = name.rsplit('/').next().unwrap_or(name);
            let found = &self.schemas[name];
            assert!(found.is_object(), "no schema {name}");
            return self.of(found);
        }
        if let Some(parts) = schema["allOf"].as_array() {
            let parts = parts.iter().map(|part| self.of(part));
            let members = parts.filter_map(|part| part.as_object().cloned()).flatten();
            return Value::Object(members.collect());
        }
        let alternatives = schema["oneOf"].as_array().or(schema["anyOf"].as_array());
        if let Some(alternatives) = alternatives {
            let (null, real): (Vec<&Value>, Vec<&Value>) =
                alternatives.iter().partition(|it| it["type"] == "null");
            if self.members == MemberSelection::Null && !null.is_empty() {
                return Value::Null;
            }
            return self.of(real[self.choice % real.len()]);
        }
        if let Some(string_enums) = schema["enum"].as_array() {
            return string_enums[self.choice % string_enums.len()].clone();
        }
        match &schema["type"] {
            Value::String(kind) => self.typed(kind, schema),
            Value::Array(kinds) => {
                let is_nullable = kinds.iter().any(|kind| kind == "null");
                if self.members == MemberSelection::Null && is_nullable {
                    return Value::Null;
                }
                let mut kind = kinds.iter().filter_map(Value::as_str);
                let kind = kind.find(|kind| *kind != "null").unwrap_or("null");
                self.typed(kind, schema)
            }
            // Anything.
            _ => json!("anything"),
        }
    }

    fn typed(&self, kind: &str, schema: &Value) -> Value {
        match kind {
            "string" if schema["format"] == "date-time" => json!("2026-01-02T03:04:05.120000Z"),
            "string" => json!(format!("text {}", self.choice)),
            "integer" => json!(7 + self.choice),
            "number" => json!(1.5),
            "boolean" => json!(self.choice.is_multiple_of(2)),
            "array" => json!([self.of(&schema["items"])]),
            "object" => self.object(schema),
            other => panic!("a schema of type {other}"),
        }
    }

    fn object(&self, schema: &Value) -> Value {
        let mut members = Map::new();
        let required: Vec<&str> = schema["required"].as_array().map_or(Vec::new(), |names| {
            names.iter().filter_map(Value::as_str).collect()
        });
        for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
            if self.members != MemberSelection::Required || required.contains(&name.as_str()) {
                members.insert(name.clone(), self.of(schema));
            }
        }
        if schema["additionalProperties"].is_object() {
            members.insert("a key".into(), self.of(&schema["additionalProperties"]));
        } else if schema["properties"].is_null() {
            members.insert("any".into(), json!({"thing": [1]}));
        }
        Value::Object(members)
    }
}

/// A member that is null says no more than one that is not there.
pub(crate) fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(members) => members
            .into_iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| (name, without_nulls(value)))
            .collect::<Map<_, _>>()
            .into(),
        Value::Array(items) => items.into_iter().map(without_nulls).collect(),
        other => other,
    }
}

/// Where two documents begin to differ.
pub(crate) fn difference(at: &str, one: &Value, other: &Value) -> Option<String> {
    match (one, other) {
        (Value::Object(a), Value::Object(b)) => {
            let names = a.keys().chain(b.keys());
            names
                .into_iter()
                .find_map(|name| difference(&format!("{at}.{name}"), &one[name], &other[name]))
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            let mut pairs = a.iter().zip(b);
            pairs.find_map(|(a, b)| difference(&format!("{at}[]"), a, b))
        }
        _ => (one != other).then(|| format!("{at}: {one} became {other}")),
    }
}
