//! Constraints, query parameters, partial updates and bounds.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use domain::page::PageLimit;
use regex::Regex;
use serde_json::{Value, json};

use super::super::{
    Decode, ErrorFormat, FieldErrors, Object, Patch, Path, characters, decode, model, pattern,
};
use super::refused;

#[model]
#[derive(Debug, PartialEq)]
struct Search {
    ids: Vec<String>,
    #[decode(default = PageLimit::MAX)]
    limit: PageLimit,
    #[decode(default = false)]
    flag: bool,
}

#[test]
fn lists_take_all_repeated_query_parameters_and_others_the_last() {
    let query =
        json!({"ids": ["a", "b"], "limit": ["x", "5.0"], "flag": ["Yes"], "unknown": ["1"]});
    let search = decode::<Search>(&query, &Path::query()).unwrap();
    assert_eq!(
        search,
        Search {
            limit: PageLimit::new(5).unwrap(),
            ids: vec!["a".into(), "b".into()],
            flag: true
        }
    );
}

#[test]
fn query_errors_are_those_of_recordings_015_016_033() {
    let table = [
        (
            "101",
            json!({"type": "less_than_equal", "loc": ["query", "limit"], "msg": "Input should be less than or equal to 100", "input": "101", "ctx": {"le": 100}}),
        ),
        (
            "0",
            json!({"type": "greater_than", "loc": ["query", "limit"], "msg": "Input should be greater than 0", "input": "0", "ctx": {"gt": 0}}),
        ),
        (
            "abc",
            json!({"type": "int_parsing", "loc": ["query", "limit"], "msg": "Input should be a valid integer, unable to parse string as an integer", "input": "abc"}),
        ),
    ];
    let missing =
        json!({"type": "missing", "loc": ["query", "ids"], "msg": "Field required", "input": null});
    for (limit, expected) in table {
        let errors = decode::<Search>(&json!({"limit": [limit]}), &Path::query())
            .err()
            .unwrap();
        assert_eq!(errors.detail(ErrorFormat::V1), json!([missing, expected]));
    }
}

static NAME: LazyLock<Regex> = LazyLock::new(|| Regex::new("^[a-z]{1,4}$").unwrap());

struct Named;

impl Decode for Named {
    fn decode(value: &Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Self> {
        let mut object = Object::<Self>::open(value, at, errors)?;
        let name = object.required::<String>("name");
        object.rule("name", name.as_ref(), pattern(&NAME));
        object.rule("name", name.as_ref(), characters(2..=3));
        let port = object.optional::<i64>("port");
        object.convert("port", port, |port| {
            if port > Some(9) {
                Err("too high")
            } else {
                Ok(port)
            }
        });
        Some(Self)
    }
}

#[test]
fn constraint_errors_have_pydantics_texts() {
    let fault = |body: Value| {
        let item = refused::<Named>(&body)[0].clone();
        (
            item["type"].as_str().unwrap().to_owned(),
            item["msg"].as_str().unwrap().to_owned(),
            item["ctx"].clone(),
        )
    };
    let table = [
        (
            json!({"name": "A"}),
            "string_pattern_mismatch",
            "String should match pattern '^[a-z]{1,4}$'",
            json!({"pattern": "^[a-z]{1,4}$"}),
        ),
        (
            json!({"name": "a"}),
            "string_too_short",
            "String should have at least 2 characters",
            json!({"min_length": 2}),
        ),
        (
            json!({"name": "abcd"}),
            "string_too_long",
            "String should have at most 3 characters",
            json!({"max_length": 3}),
        ),
        (
            json!({"name": "abc", "port": "10"}),
            "value_error",
            "Value error, too high",
            json!({"error": {}}),
        ),
    ];
    for (body, kind, msg, ctx) in table {
        assert_eq!(fault(body), (kind.to_owned(), msg.to_owned(), ctx));
    }
}

#[test]
fn a_patch_tells_absent_from_null() {
    #[model]
    struct Change {
        title: Patch<String>,
    }
    let read = |body: Value| {
        decode::<Change>(&body, &Path::body(false))
            .ok()
            .map(|change| change.title)
    };
    assert_eq!(read(json!({})), Some(Patch::Keep));
    assert_eq!(read(json!({"title": null})), Some(Patch::Clear));
    assert_eq!(read(json!({"title": "a"})), Some(Patch::Set("a".into())));
    assert_eq!(read(json!({"title": 5})), None);
}

#[test]
fn an_answer_stays_small_whatever_was_sent() {
    let many = refused::<Vec<String>>(&json!(vec![1; 100_000]));
    assert_eq!(many.as_array().unwrap().len(), 100);
    let long = "x".repeat(1_000_000);
    for body in [
        json!([{"a": long}]),
        json!([[long]]),
        json!([{long.as_str(): "x"}]),
    ] {
        let detail = refused::<Vec<BTreeMap<String, i64>>>(&body);
        assert!(
            detail.to_string().len() < 6_000,
            "{}",
            detail.to_string().len()
        );
    }
}
