//! Compares the document with the reference's, and checks it on its own.
//!
//! `tests/fixtures/openapi-reference.json` contains the facts of the reference's document. To write it from that document, run
//! `PARITY_REFERENCE=<its path> cargo test -p http-api --test parity`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde_json::Value;

use crate::differences::{DIFFERENCES, Difference, OPAQUE};
use crate::docs;
use crate::facts::{self, Facts};

const FIXTURE: &str = "tests/fixtures/openapi-reference.json";

/// The reference's facts. Documents that are passed on unread are not followed.
fn reference() -> BTreeMap<String, Facts> {
    let path = docs::in_repository(FIXTURE);
    if let Some(document) = docs::switch("PARITY_REFERENCE") {
        let text = std::fs::read_to_string(document).expect("the reference's document can be read");
        let mut all = facts::of(&serde_json::from_str(&text).expect("it is JSON"));
        for (operation, facts) in &mut all {
            facts.retain(|fact, _| !is_opaque(operation, fact));
        }
        let lines: Vec<String> = all
            .iter()
            .map(|(operation, facts)| {
                let (name, facts) = (
                    Value::from(operation.as_str()),
                    serde_json::to_value(facts).unwrap(),
                );
                format!("{name}:{facts}")
            })
            .collect();
        std::fs::write(&path, format!("{{\n{}\n}}\n", lines.join(",\n")))
            .expect("the facts can be written");
    }
    let text = std::fs::read_to_string(&path).expect("the facts can be read");
    serde_json::from_str(&text).expect("the facts are JSON")
}

fn is_opaque(operation: &str, fact: &str) -> bool {
    OPAQUE.iter().any(|(start, place, _)| {
        let inside = fact.split(' ').nth(1).unwrap_or_default();
        operation.starts_with(start)
            && (fact
                .strip_prefix(place)
                .is_some_and(|rest| !rest.is_empty() && !rest.starts_with(char::is_alphanumeric))
                || inside
                    .split_once(place)
                    .is_some_and(|(_, rest)| rest.starts_with(['.', '['])))
    })
}

/// What this document has in place of a fact; `None` if it is equivalent.
fn instead(fact: &str, expected: &str, ours: Option<&String>) -> Option<String> {
    // Where the reference documents no response, any response is fine.
    if expected == "any" && fact.ends_with(" application/json") {
        return None;
    }
    let Some(ours) = ours else {
        return Some("–".to_owned());
    };
    let as_good = if fact.starts_with('2') {
        // A client that reads `a|null` also reads `a`.
        let expected: Vec<&str> = expected.split('|').collect();
        ours.split('|').all(|one| {
            let is_text = matches!(one, "uuid" | "date-time");
            expected.contains(&one)
                || expected.contains(&"any")
                || (is_text && expected.contains(&"string"))
        })
    } else {
        expected == ours || expected.is_empty()
    };
    (!as_good).then(|| ours.clone())
}

fn rule(operation: &str, fact: &str) -> Option<usize> {
    let fits = |pattern: &str, text: &str| match pattern.split_once('*') {
        Some((start, end)) => {
            text.starts_with(start) && text.ends_with(end) && text.len() >= start.len() + end.len()
        }
        None => pattern == text,
    };
    DIFFERENCES.iter().position(
        |Difference {
             operation: o,
             fact: f,
             ..
         }| fits(o, operation) && fits(f, fact),
    )
}

#[test]
fn the_document_matches_the_reference_except_for_listed_differences() {
    let reference = reference();
    let ours = facts::of(&http_api::openapi_document());
    let (mut missing, mut explained) = (Vec::new(), vec![BTreeSet::new(); DIFFERENCES.len()]);
    for (operation, facts) in &reference {
        let Some(our_facts) = ours.get(operation) else {
            match rule(operation, "operation") {
                Some(index) => drop(explained[index].insert((operation.clone(), String::new()))),
                None => missing.push(operation.clone()),
            }
            continue;
        };
        for (fact, expected) in facts {
            let Some(instead) = instead(fact, expected, our_facts.get(fact)) else {
                continue;
            };
            match rule(operation, fact) {
                Some(index) => drop(explained[index].insert((operation.clone(), fact.clone()))),
                None => missing.push(format!("{operation}: {fact}: `{expected}` is `{instead}`")),
            }
        }
    }
    for (difference, found) in DIFFERENCES.iter().zip(&explained) {
        if found.is_empty() {
            missing.push(format!(
                "listed and no difference: {} {}",
                difference.operation, difference.fact
            ));
        }
    }
    assert!(
        missing.is_empty(),
        "{} missing:\n{}",
        missing.len(),
        missing.join("\n")
    );
    docs::says("openapi", &table(&explained));
}

fn table(explained: &[BTreeSet<(String, String)>]) -> String {
    let mut table = String::from("| operation | what | times | why |\n|---|---|---|---|\n");
    for (difference, found) in DIFFERENCES.iter().zip(explained) {
        let Difference {
            operation,
            fact,
            why,
        } = difference;
        let _ = writeln!(
            table,
            "| `{operation}` | `{fact}` | {} | {why} |",
            found.len()
        );
    }
    for (operation, place, why) in OPAQUE {
        let operation = if operation.is_empty() { "*" } else { operation };
        let _ = writeln!(
            table,
            "| `{operation}` | inside `{place}` | not compared | {why} |"
        );
    }
    table
}

fn operations(document: &Value) -> impl Iterator<Item = (String, &Value)> {
    let paths = document["paths"].as_object().unwrap();
    paths.iter().flat_map(|(path, item)| {
        let item = item.as_object().unwrap();
        item.iter()
            .map(move |(method, operation)| (format!("{method} {path}"), operation))
    })
}

#[test]
fn every_operation_documents_summary_security_and_errors() {
    let document = http_api::openapi_document();
    let mut faults = Vec::new();
    for (name, operation) in operations(&document) {
        let mut holds = |holds: bool, what: &str| {
            if !holds {
                faults.push(format!("{name}: {what}"));
            }
        };
        let text = |member: &str| {
            operation[member]
                .as_str()
                .is_some_and(|text| !text.is_empty())
        };
        holds(text("summary"), "no summary");
        holds(text("operationId"), "no operationId");
        holds(
            operation["tags"]
                .as_array()
                .is_some_and(|tags| tags.len() == 1),
            "not one tag",
        );
        let security = operation.get("security").unwrap_or(&document["security"]);
        holds(
            security.as_array().is_some_and(|all| !all.is_empty()),
            "no security requirement",
        );
        let answers = operation["responses"].as_object().unwrap();
        // One operation always answers 410.
        let ends_well = |status: &String| status.starts_with(['2', '3']) || status == "410";
        holds(
            answers.keys().any(ends_well),
            "no response documents a success",
        );
        for (status, answer) in answers {
            holds(
                answer["description"].is_string(),
                "an answer without description",
            );
            let content = answer["content"].as_object();
            let has_schema = content.is_some_and(|all| {
                !all.is_empty() && all.values().all(|kind| kind["schema"].is_object())
            });
            let is_error = status.starts_with(['4', '5']);
            holds(has_schema || !is_error, "an error without schema");
        }
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            holds(
                parameter["description"].is_string(),
                &format!("{} without description", parameter["name"]),
            );
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn every_schema_and_every_member_is_described() {
    let document = http_api::openapi_document();
    let mut silent = Vec::new();
    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        if !schema["description"].is_string() {
            silent.push(name.clone());
        }
        undescribed(name, schema, &mut silent);
    }
    for (name, operation) in operations(&document) {
        undescribed(&name, operation, &mut silent);
    }
    silent.sort();
    silent.dedup();
    assert!(
        silent.is_empty(),
        "{} without description:\n{}",
        silent.len(),
        silent.join("\n")
    );
}

fn undescribed(at: &str, value: &Value, silent: &mut Vec<String>) {
    if let Value::Object(map) = value {
        for (name, member) in map
            .get("properties")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            if !member["description"].is_string() {
                silent.push(format!("{at}.{name}"));
            }
        }
        map.values()
            .for_each(|inner| undescribed(at, inner, silent));
    }
    if let Value::Array(list) = value {
        for inner in list {
            undescribed(at, inner, silent);
        }
    }
}
