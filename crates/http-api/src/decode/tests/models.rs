//! Whole bodies: order and locations of errors, and what they quote.

use std::collections::BTreeMap;

use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};

use super::super::{Choice, Decode, ErrorFormat, Path, Sensitive, decode, model};
use super::refused;
use crate::dto::enums::choice;

#[model]
#[derive(Debug)]
#[expect(dead_code, reason = "only decoded")]
enum Content {
    TextContent(Text),
    ImageContent(Image),
}

#[model(deny_unknown_fields)]
#[derive(Debug)]
#[expect(dead_code, reason = "only decoded")]
struct Text {
    r#type: TextKind,
    text: String,
}

#[model(deny_unknown_fields)]
#[derive(Debug)]
#[expect(dead_code, reason = "only decoded")]
struct Image {
    r#type: ImageKind,
    image_urls: Vec<String>,
}

choice!(Literal TextKind, "The type of a text." { Text = "text", });
choice!(Literal ImageKind, "The type of an image." { Image = "image", });
choice!(Literal UserRole, "The role." { User = "user", });

#[model]
#[derive(Debug)]
struct Message {
    #[decode(default = UserRole::User)]
    #[expect(dead_code, reason = "only decoded")]
    role: UserRole,
    #[validate(length(min = 1))]
    content: Vec<Content>,
    #[decode(default = true)]
    run: bool,
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
    assert!(
        message.run
            && matches!(
                message.content[..],
                [Content::TextContent(_), Content::ImageContent(_)]
            )
    );
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

#[model(deny_unknown_fields)]
#[derive(Debug)]
struct ProviderEntry {
    token: Option<SecretString>,
    #[validate(length(max = 5))]
    host: Option<String>,
    #[expect(dead_code, reason = "only decoded")]
    name: String,
}

type Tokens = BTreeMap<Provider, ProviderEntry>;

#[test]
fn unknown_keys_of_a_map_are_reported_at_the_key() {
    let body = json!({"svn": {"name": "x"}});
    assert_eq!(
        decode::<Tokens>(&body, &Path::body(true).key("provider_tokens"))
            .err()
            .unwrap()
            .detail(ErrorFormat::V1),
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
fn the_legacy_format_has_three_members_and_only_strings_in_loc() {
    let errors = decode::<Vec<String>>(&json!(["a", 5]), &Path::body(false))
        .err()
        .unwrap();
    assert_eq!(
        errors.detail(ErrorFormat::Legacy),
        json!([{"loc": ["body", "1"], "msg": "Input should be a valid string", "type": "string_type"}])
    );
}

#[test]
fn a_model_is_sensitive_exactly_if_a_member_is() {
    let found = [
        ProviderEntry::SENSITIVE,
        Tokens::SENSITIVE,
        Message::SENSITIVE,
    ];
    assert_eq!(found, [true, true, false]);
}

#[model(shorthand = "url")]
#[derive(Debug, PartialEq)]
struct Remote {
    #[decode(with = trimmed)]
    url: String,
    #[decode(flatten)]
    options: RemoteOptions,
}

#[model]
#[derive(Debug, PartialEq)]
struct RemoteOptions {
    #[decode(not_null)]
    verify: Option<bool>,
    #[decode(rename = "timeout", default = Some(60))]
    #[validate(range(min = 1))]
    seconds: Option<i64>,
}

#[expect(clippy::needless_pass_by_value, reason = "what `with` takes")]
fn trimmed(text: String) -> Result<String, &'static str> {
    match text.trim() {
        "" => Err("empty"),
        text => Ok(text.to_owned()),
    }
}

#[test]
fn members_may_be_absent_null_or_elsewhere() {
    let read = |body: Value| decode::<Remote>(&body, &Path::body(false)).unwrap();
    let remote = |verify, seconds| Remote {
        url: "a".to_owned(),
        options: RemoteOptions { verify, seconds },
    };
    assert_eq!(read(json!(" a ")), remote(None, Some(60)));
    let body = json!({"url": "a", "verify": true, "timeout": null});
    assert_eq!(read(body), remote(Some(true), None));
    let detail = refused::<Remote>(&json!({"url": " ", "verify": null, "timeout": 0}));
    let items = detail.as_array().unwrap().iter();
    let found: Vec<_> = items.map(|item| (&item["loc"][1], &item["type"])).collect();
    let expected = [
        (json!("url"), json!("value_error")),
        (json!("verify"), json!("bool_type")),
        (json!("timeout"), json!("greater_than_equal")),
    ];
    let expected: Vec<_> = expected.iter().map(|(loc, kind)| (loc, kind)).collect();
    assert_eq!(found, expected);
}
