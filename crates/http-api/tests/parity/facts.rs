//! The facts of every operation in an `OpenAPI` document, as short comparable lines: parameters, members of bodies and
//! responses by their path (`200 items[].id`) with their types, and statuses.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

/// Lines by their subject.
pub(crate) type Facts = BTreeMap<String, String>;

/// Depth to which members are followed.
const DEEPEST: usize = 4;
/// Constraints that are compared.
const BOUNDS: [&str; 9] = [
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "pattern",
];

/// The facts of every operation (`GET /path`).
pub(crate) fn of(document: &Value) -> BTreeMap<String, Facts> {
    let reader = Reader { document };
    let mut all = BTreeMap::new();
    for (path, item) in entries(&document["paths"]) {
        for (method, operation) in entries(item) {
            let name = format!("{} {path}", method.to_ascii_uppercase());
            all.insert(name, reader.operation(operation));
        }
    }
    all
}

fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

/// A member of several alternatives has the types of all of them.
fn add(facts: &mut Facts, place: &str, fact: String) {
    let known = facts.remove(place).filter(|known| *known != fact);
    let both = known.map(|known| {
        let split = |fact: &str| -> BTreeSet<String> {
            let types = fact.split(' ').next().unwrap_or_default();
            types.split('|').map(str::to_owned).collect()
        };
        let all: Vec<String> = split(&known).union(&split(&fact)).cloned().collect();
        all.join("|")
    });
    facts.insert(place.to_owned(), both.unwrap_or(fact));
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

struct Reader<'a> {
    document: &'a Value,
}

impl<'a> Reader<'a> {
    fn operation(&self, operation: &'a Value) -> Facts {
        let mut facts = Facts::new();
        for parameter in list(&operation["parameters"]) {
            let place = parameter["in"].as_str().unwrap();
            let name = parameter["name"].as_str().unwrap().to_ascii_lowercase();
            let is_required = parameter["required"] == true;
            let fact = self.fact(&parameter["schema"], is_required, true);
            // A query cannot contain null: a nullable parameter is an optional one.
            let fact = fact.replace("null|", "").replace("|null", "");
            facts.insert(format!("{place} {name}"), fact);
        }
        let body = &operation["requestBody"];
        if let Some(schema) = body.pointer("/content/application~1json/schema") {
            let fact = self.fact(schema, body["required"] == true, true);
            facts.insert("body".to_owned(), fact);
            self.members(schema, "body ", DEEPEST, true, &mut facts);
        }
        for (status, answer) in entries(&operation["responses"]) {
            facts.insert(status.clone(), String::new());
            for (kind, content) in entries(&answer["content"]) {
                let schema = &content["schema"];
                if status.starts_with('2') {
                    facts.insert(format!("{status} {kind}"), self.fact(schema, false, false));
                    self.members(schema, &format!("{status} "), DEEPEST, false, &mut facts);
                }
            }
        }
        facts
    }

    /// The alternatives of a schema, with references resolved.
    fn alternatives(&self, schema: &'a Value) -> Vec<&'a Value> {
        if let Some(target) = schema["$ref"].as_str() {
            let target = target.trim_start_matches('#');
            return self.alternatives(self.document.pointer(target).unwrap());
        }
        for several in ["anyOf", "oneOf"] {
            if schema.get(several).is_some() {
                let arms = list(&schema[several]).iter();
                return arms.flat_map(|arm| self.alternatives(arm)).collect();
            }
        }
        match list(&schema["allOf"]) {
            [only] => self.alternatives(only),
            _ => vec![schema],
        }
    }

    /// Types, enumerated words and `null`, sorted.
    fn types(&self, schema: &'a Value) -> String {
        let mut all = BTreeSet::new();
        for arm in self.alternatives(schema) {
            let words = arm.get("const").map(std::slice::from_ref);
            let words = words.or_else(|| arm.get("enum").map(list));
            if let Some(words) = words {
                all.extend(
                    words
                        .iter()
                        .filter_map(|word| word.as_str().map(str::to_owned)),
                );
                if words.contains(&Value::Null) {
                    all.insert("null".to_owned());
                }
                continue;
            }
            let names: Vec<&str> = match &arm["type"] {
                Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
                Value::String(name) => vec![name.as_str()],
                _ if arm.get("allOf").is_some() => vec!["object"],
                _ => vec!["any"],
            };
            for name in names {
                all.insert(match (name, arm["format"].as_str()) {
                    ("string", Some(format @ ("date-time" | "uuid"))) => format.to_owned(),
                    _ => name.to_owned(),
                });
            }
        }
        if all.contains("any") {
            return "any".to_owned();
        }
        all.into_iter().collect::<Vec<_>>().join("|")
    }

    /// Types, and for input whether it is required, its bounds and its default.
    fn fact(&self, schema: &'a Value, is_required: bool, is_input: bool) -> String {
        let mut fact = self.types(schema);
        if !is_input {
            return fact;
        }
        if is_required {
            fact.push_str(" required");
        }
        let mut arms = self.alternatives(schema);
        arms.push(schema);
        let mut bounds = BTreeSet::new();
        for bound in BOUNDS {
            let found = arms.iter().find_map(|arm| arm.get(bound));
            bounds.extend(found.map(|found| match (bound, found) {
                // "More than 0" equals "at least 1".
                ("exclusiveMinimum", zero) if *zero == json!(0) => " minimum=1".to_owned(),
                (_, Value::Number(number)) => {
                    format!(" {bound}={}", number.as_f64().unwrap_or_default())
                }
                _ => format!(" {bound}={found}"),
            }));
        }
        fact.extend(bounds);
        match schema.get("default") {
            None | Some(Value::Null) => fact,
            Some(default) => format!("{fact} default={default}"),
        }
    }

    fn members(
        &self,
        schema: &'a Value,
        at: &str,
        depth: usize,
        is_input: bool,
        facts: &mut Facts,
    ) {
        if depth == 0 {
            return;
        }
        for arm in self.alternatives(schema) {
            // Borrowed from the document, so that members can be followed.
            for object in std::iter::once(arm).chain(self.parts(arm)) {
                for (name, member) in entries(&object["properties"]) {
                    let dot = if at.ends_with(' ') { "" } else { "." };
                    let place = format!("{at}{dot}{name}");
                    let is_required = list(&object["required"]).contains(&json!(name));
                    let fact = self.fact(member, is_required, is_input);
                    add(facts, &place, fact);
                    self.members(member, &place, depth - 1, is_input, facts);
                }
            }
            if let Some(items) = arm.get("items") {
                let place = format!("{at}[]");
                add(facts, &place, self.fact(items, false, is_input));
                self.members(items, &place, depth - 1, is_input, facts);
            }
        }
    }

    /// The schemas that an object is composed of.
    fn parts(&self, schema: &'a Value) -> Vec<&'a Value> {
        let parts = list(&schema["allOf"]).iter();
        parts.flat_map(|part| self.alternatives(part)).collect()
    }
}
