//! Descriptions of members that occur in many schemas with one meaning.
//!
//! A member's own documentation takes precedence. Tests ensure that every member of the document has a description, and that
//! every entry here is used.

use std::collections::HashMap;

use serde_json::{Map, Value};

/// Lines `name: meaning`, of members and parameters, and of schemas (whose names start with a capital letter).
const GLOSSARY: &str = include_str!("glossary.txt");

type Meanings = HashMap<&'static str, &'static str>;

fn entries() -> impl Iterator<Item = (&'static str, &'static str)> {
    GLOSSARY.lines().filter_map(|line| line.split_once(": "))
}

/// Describes every member, schema and parameter that has no description.
pub(super) fn explain(document: &mut Value) {
    let meanings: Meanings = entries().collect();
    let schemas = document.pointer_mut("/components/schemas");
    for (name, schema) in schemas.and_then(Value::as_object_mut).into_iter().flatten() {
        describe(name, schema, &meanings);
    }
    members(document, &meanings);
}

fn members(value: &mut Value, meanings: &Meanings) {
    match value {
        Value::Object(map) => {
            let named = map.get_mut("properties").and_then(Value::as_object_mut);
            for (name, member) in named.into_iter().flatten() {
                describe(name, member, meanings);
            }
            let parameters = map.get_mut("parameters").and_then(Value::as_array_mut);
            for parameter in parameters.into_iter().flatten() {
                if let Some(name) = parameter["name"].as_str().map(str::to_owned) {
                    describe(&name, parameter, meanings);
                }
            }
            map.values_mut().for_each(|value| members(value, meanings));
        }
        Value::Array(list) => list.iter_mut().for_each(|value| members(value, meanings)),
        _ => {}
    }
}

fn describe(name: &str, what: &mut Value, meanings: &Meanings) {
    let Value::Object(what) = what else { return };
    let silent = |what: &Map<String, Value>| {
        let text = what.get("description").and_then(Value::as_str);
        text.is_none_or(str::is_empty)
    };
    if silent(what)
        && let Some(meaning) = meanings.get(name)
    {
        what.insert("description".to_owned(), (*meaning).into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meanings_are_sorted_and_used() {
        let names: Vec<_> = entries().map(|(name, _)| name).collect();
        assert_eq!(names.len(), GLOSSARY.lines().count());
        assert!(names.is_sorted_by(|one, other| one < other));
        let document = crate::openapi_document().to_string();
        for (name, meaning) in entries() {
            let used = document.contains(&Value::from(meaning).to_string());
            assert!(used, "`{name}` is explained, and nothing needs it");
        }
    }
}
