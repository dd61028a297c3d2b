//! Whole bodies: order and locations of errors, and what they quote.

use std::collections::BTreeMap;

use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};

use super::super::{
    Choice, Decode, FieldErrors, Flavour, Object, Path, Sensitive, characters, decode, items, union,
};
use super::refused;

#[derive(Debug)]
enum Content {
    Text,
    Image,
}

fn text(value: &Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Content> {
    let mut object = Object::<Content>::open(value, at, errors)?;
    let kind = object.required::<TextKind>("type");
    let text = object.required::<String>("text");
    object.forbid_extra();
    kind.zip(text).map(|_| Content::Text)
}

fn image(value: &Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Content> {
    let mut object = Object::<Content>::open(value, at, errors)?;
    let kind = object.required::<ImageKind>("type");
    let urls = object.required::<Vec<String>>("image_urls");
    object.forbid_extra();
    kind.zip(urls).map(|_| Content::Image)
}

impl Decode for Content {
    fn decode(value: &Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Self> {
        union(
            value,
            at,
            errors,
            &[("TextContent", text), ("ImageContent", image)],
        )
    }
}

macro_rules! literal {
    ($name:ident, $word:literal) => {
        #[derive(Clone, Copy)]
        struct $name;
        impl Choice for $name {
            const KIND: super::super::ChoiceKind = super::super::ChoiceKind::Literal;
            const CHOICES: &'static [(&'static str, Self)] = &[($word, Self)];
        }
    };
}

literal!(TextKind, "text");
literal!(ImageKind, "image");
literal!(User, "user");

#[derive(Debug)]
struct Message {
    content: Vec<Content>,
    run: bool,
}

impl Decode for Message {
    fn decode(value: &Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Self> {
        let mut object = Object::<Self>::open(value, at, errors)?;
        let role = object.default("role", || User);
        let content = object.required::<Vec<Content>>("content");
        object.rule("content", content.as_ref(), items(1..));
        let run = object.default("run", || true);
        role.zip(content)
            .zip(run)
            .map(|((_, content), run)| Self { content, run })
    }
}

#[test]
fn recording_074_bad_item() {
    assert_eq!(
        refused::<Message>(&json!({"content": [{"type": "text"}]})),
        json!([
            {"type": "missing", "loc": ["body", "content", 0, "TextContent", "text"], "msg": "Field required", "input": {"type": "text"}},
            {"type": "literal_error", "loc": ["body", "content", 0, "ImageContent", "type"], "msg": "Input should be 'image'", "input": "text", "ctx": {"expected": "'image'"}},
            {"type": "missing", "loc": ["body", "content", 0, "ImageContent", "image_urls"], "msg": "Field required", "input": {"type": "text"}},
        ])
    );
}

#[test]
fn recording_070_empty_content() {
    assert_eq!(
        refused::<Message>(&json!({"content": []})),
        json!([{"type": "too_short", "loc": ["body", "content"], "msg": "List should have at least 1 item after validation, not 0", "input": [], "ctx": {"field_type": "List", "min_length": 1, "actual_length": 0}}])
    );
}

#[test]
fn structure_and_constraints_are_reported_together_in_declared_order() {
    let body = json!({"role": "assistant", "content": [], "run": "perhaps"});
    let detail = refused::<Message>(&body);
    let kinds: Vec<_> = detail
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["type"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["literal_error", "too_short", "bool_parsing"]);
}

#[test]
fn extra_members_are_refused_in_content_and_ignored_in_messages() {
    let body = json!({"content": [{"type": "video", "x": 1}], "other": 1});
    let detail = refused::<Message>(&body);
    assert_eq!(
        detail[2],
        json!({"type": "extra_forbidden", "loc": ["body", "content", 0, "TextContent", "x"], "msg": "Extra inputs are not permitted", "input": 1})
    );
    assert_eq!(detail.as_array().unwrap().len(), 6);
    let fine = json!({"content": [{"type": "text", "text": "x"}, {"type": "image", "image_urls": []}], "other": 1});
    let message = decode::<Message>(&fine, &Path::body(false)).unwrap();
    assert!(message.run && matches!(message.content[..], [Content::Text, Content::Image]));
}

#[test]
fn values_that_are_not_objects_or_lists() {
    let msg = "Input should be a valid dictionary or object to extract fields from";
    for body in [json!("hello"), json!([]), json!(5)] {
        assert_eq!(
            refused::<Message>(&body),
            json!([{"type": "model_attributes_type", "loc": ["body"], "msg": msg, "input": body}])
        );
    }
    assert_eq!(
        refused::<Vec<String>>(&json!({})),
        json!([{"type": "list_type", "loc": ["body"], "msg": "Input should be a valid list", "input": {}}])
    );
    assert_eq!(
        refused::<BTreeMap<String, String>>(&json!([1])),
        json!([{"type": "dict_type", "loc": ["body"], "msg": "Input should be a valid dictionary", "input": [1]}])
    );
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Provider {
    Github,
    Gitlab,
}

impl Choice for Provider {
    const CHOICES: &'static [(&'static str, Self)] =
        &[("github", Self::Github), ("gitlab", Self::Gitlab)];
}

#[derive(Debug)]
struct Token {
    token: Option<SecretString>,
    host: Option<String>,
}

impl Decode for Token {
    const SENSITIVE: bool = true;

    fn decode(value: &Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Self> {
        let mut object = Object::<Self>::open(value, at, errors)?;
        let token = object.optional("token");
        let host = object.optional::<String>("host");
        object.rule("host", host.as_ref(), characters(..=5));
        object.required::<String>("name");
        object.forbid_extra();
        Some(Self {
            token: token?,
            host: host?,
        })
    }
}

type Tokens = BTreeMap<Provider, Token>;

#[test]
fn unknown_keys_of_a_map_are_reported_at_the_key() {
    let body = json!({"svn": {"name": "x"}});
    assert_eq!(
        decode::<Tokens>(&body, &Path::body(true).key("provider_tokens"))
            .err()
            .unwrap()
            .detail(Flavour::V1),
        json!([{"type": "enum", "loc": ["body", "provider_tokens", "svn", "[key]"], "msg": "Input should be 'github' or 'gitlab'", "input": "svn", "ctx": {"expected": "'github' or 'gitlab'"}}])
    );
}

#[test]
fn no_error_quotes_a_secret() {
    let canary = "ghp_topsecret";
    let bodies = [
        json!(canary),
        json!([canary]),
        json!({"github": canary}),
        json!({"github": [canary]}),
        json!({"github": {"token": [canary]}}),
        json!({"github": {"token": {"v": canary}, "name": 5}}),
        json!({"github": {"token": canary}}),
        json!({"github": {"tokne": canary, "name": "x"}}),
        json!({"github": {"host": canary, "name": "x"}}),
        json!({"svn": {"token": canary, "name": "x"}}),
    ];
    for body in bodies {
        let detail = refused::<Tokens>(&body);
        assert!(!detail.to_string().contains(canary), "{body} -> {detail}");
    }
    let env =
        refused::<Sensitive<BTreeMap<String, String>>>(&json!({"A": [canary], "B": {canary: 1}}));
    assert_eq!(env.as_array().unwrap().len(), 2);
    assert!(!env.to_string().contains(canary), "{env}");
    let fine = decode::<Tokens>(
        &json!({"github": {"token": canary, "host": null, "name": ""}}),
        &Path::body(true),
    )
    .unwrap();
    let token = &fine[&Provider::Github];
    assert_eq!(
        token.token.as_ref().map(ExposeSecret::expose_secret),
        Some(canary)
    );
    assert_eq!(token.host, None);
    assert!(!format!("{token:?} {:?}", Sensitive(canary)).contains(canary));
}

#[test]
fn the_legacy_flavour_has_three_members_and_only_strings_in_loc() {
    let errors = decode::<Vec<String>>(&json!(["a", 5]), &Path::body(false))
        .err()
        .unwrap();
    assert_eq!(
        errors.detail(Flavour::Legacy),
        json!([{"loc": ["body", "1"], "msg": "Input should be a valid string", "type": "string_type"}])
    );
}
