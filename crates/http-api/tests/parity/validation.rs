//! Thousands of requests, most of them invalid, with the reference's responses: `tests/fixtures/validation.json`. The
//! responses of this service must equal them in text and order, except for the rules in [`rules`].
//!
//! The facts were recorded from release 1.11.0. A generator filled every parameter and member with values of every other
//! type, in many spellings; of requests with the same response some were kept.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use actix_web::http::Method;
use actix_web::test::TestRequest;
use http_api::Listener;
use serde_json::{Value, json};

use crate::docs;
use crate::fixture::{ADA, TestResponse, World};
use crate::rules::{CHANGED, Case, FEWER, MORE, Rule, WHOLE};

const FACTS: &str = "tests/fixtures/validation.json";
/// Fewer requests than a user may send per second; the clock of the fixture stands still.
const BURST: usize = 500;

fn cases() -> Vec<Case> {
    let text = std::fs::read_to_string(docs::in_repository(FACTS)).expect("the facts can be read");
    let facts: Vec<Value> = serde_json::from_str(&text).expect("the facts are JSON");
    let document = http_api::openapi_document();
    let cases = facts.iter().map(Case::new);
    cases.filter(|case| case.is_routed(&document)).collect()
}

fn request(case: &Case) -> TestRequest {
    let (method, path) = case.ask.split_once(' ').unwrap();
    let mut request = TestRequest::with_uri(path)
        .method(Method::from_bytes(method.as_bytes()).unwrap())
        .insert_header(("X-Session-API-Key", ADA));
    if let Some(kind) = &case.content_type {
        request = request.insert_header(("Content-Type", kind.as_str()));
    }
    match &case.body {
        Some(body) => request.set_payload(body.clone()),
        None => request,
    }
}

/// Stores settings first, because most of their routes need some.
async fn answers(cases: &[Case]) -> Vec<TestResponse> {
    let world = World::idle().await;
    let settings = json!({"agent_settings_diff": {"llm": {"model": "openai/gpt-5"}}});
    world.post(ADA, "/api/v1/settings", &settings).await.ok();
    let mut answers = Vec::new();
    for burst in cases.chunks(BURST) {
        world.clock.advance(Duration::from_secs(2));
        answers.extend(
            world
                .send_all(Listener::Public, burst.iter().map(request))
                .await,
        );
    }
    answers
}

/// The unexplained differences of one response.
fn difference(
    case: &Case,
    answer: &TestResponse,
    used: &mut BTreeMap<&str, usize>,
) -> Option<String> {
    let mut use_rule = |rule: &Rule| *used.entry(rule.name).or_default() += 1;
    if answer.status >= 500 {
        return Some(format!("we answer {}", answer.status));
    }
    let ours: Vec<Value> = if answer.status == 422 {
        answer.json()["detail"]
            .as_array()
            .cloned()
            .unwrap_or_default()
    } else {
        Vec::new()
    };
    let whole = |item: &Value| WHOLE.iter().find(|rule| (rule.holds)(case, item));
    if let Some(rule) = ours.iter().find_map(whole) {
        use_rule(rule);
        return None;
    }
    let mut expected = Vec::new();
    for item in &case.detail {
        if let Some(rule) = FEWER.iter().find(|rule| (rule.holds)(case, item)) {
            use_rule(rule);
            continue;
        }
        let mut item = item.clone();
        for (rule, change) in CHANGED {
            if (rule.holds)(case, &item) {
                use_rule(rule);
                change(&mut item);
            }
        }
        expected.push(item);
    }
    let full = ours.len() == 100 && expected.len() > 100;
    expected.truncate(100);
    let mut left = Vec::new();
    for item in ours {
        let known = expected.iter().any(|expected| same(expected, &item));
        match MORE.iter().find(|rule| !known && (rule.holds)(case, &item)) {
            Some(rule) => use_rule(rule),
            None => left.push(item),
        }
    }
    if full {
        *used.entry("at most 100").or_default() += 1;
    }
    let same = expected.len() == left.len()
        && expected
            .iter()
            .zip(&left)
            .all(|(expected, ours)| same(expected, ours));
    (!same).then(|| format!("expected {}\n     but got {}", json!(expected), answer.text))
}

/// With the members in the same order.
fn same(one: &Value, other: &Value) -> bool {
    let (one, other) = (one.to_string(), other.to_string());
    one == other
}

#[actix_web::test]
async fn errors_equal_those_of_the_reference() {
    let cases = cases();
    assert!(cases.len() > 500);
    let answers = answers(&cases).await;
    let (mut used, mut failures) = (BTreeMap::new(), Vec::new());
    for (case, answer) in cases.iter().zip(&answers) {
        if let Some(difference) = difference(case, answer, &mut used) {
            let body = case.body.as_deref().map(String::from_utf8_lossy);
            failures.push(format!("{} {body:?}\n     {difference}", case.ask));
        }
    }
    let rules = || {
        let plain = WHOLE.iter().chain(FEWER).chain(MORE);
        plain.chain(CHANGED.iter().map(|(rule, _)| rule))
    };
    for rule in rules() {
        if !used.contains_key(rule.name) {
            failures.push(format!("the rule `{}` explains nothing", rule.name));
        }
    }
    assert!(
        failures.is_empty(),
        "{} of {} differ:\n{}",
        failures.len(),
        cases.len(),
        failures.join("\n")
    );
    let mut table = String::from("| difference | why |\n|---|---|\n");
    for rule in rules() {
        let _ = writeln!(table, "| {} | {} |", rule.name, rule.why);
    }
    docs::says("validation", &table);
}
