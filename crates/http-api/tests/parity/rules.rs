//! Deliberate differences between error responses and the reference's. A rule that explains no difference fails the test.

use serde_json::{Value, json};

/// A request and the reference's response.
pub(crate) struct Case {
    /// Method and target.
    pub(crate) ask: String,
    pub(crate) content_type: Option<String>,
    pub(crate) body: Option<Vec<u8>>,
    pub(crate) status: u64,
    /// Empty if the reference did not answer 422.
    pub(crate) detail: Vec<Value>,
}

impl Case {
    pub(crate) fn new(fact: &Value) -> Self {
        let text = |name: &str| fact[name].as_str().map(str::to_owned);
        let bytes = text("hex").map(|hex| {
            let pairs = hex.as_bytes().chunks(2);
            let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
            pairs.map(byte).collect()
        });
        let body = bytes.or_else(|| text("body").map(String::into_bytes));
        Self {
            ask: text("ask").unwrap(),
            content_type: match &fact["type"] {
                Value::String(kind) => Some(kind.clone()),
                // Absent means the default content type; null means none.
                Value::Null if fact.get("type").is_none() => Some("application/json".to_owned()),
                _ => None,
            },
            body,
            status: fact["status"].as_u64().unwrap(),
            detail: fact["detail"].as_array().cloned().unwrap_or_default(),
        }
    }

    /// Whether a route of this service matches. (The test of the document ensures that none is missing.)
    pub(crate) fn is_routed(&self, document: &Value) -> bool {
        let (method, target) = self.ask.split_once(' ').unwrap();
        let path = target.split('?').next().unwrap_or_default();
        let takes = |route: &str| {
            let (route, path) = (route.split('/'), path.split('/'));
            route.clone().count() == path.clone().count()
                && route
                    .zip(path)
                    .all(|(name, part)| name.starts_with('{') || name == part)
        };
        let paths = document["paths"].as_object().unwrap();
        paths
            .iter()
            .any(|(route, item)| takes(route) && item.get(method.to_ascii_lowercase()).is_some())
    }

    fn is(&self, start: &str) -> bool {
        self.ask.starts_with(start)
    }

    fn says(&self, text: &str) -> bool {
        let body = self.body.as_deref().unwrap_or_default();
        String::from_utf8_lossy(body).contains(text) || self.ask.contains(text)
    }
}

/// A difference and its reason. `holds` examines a request and an error item.
pub(crate) struct Rule {
    pub(crate) name: &'static str,
    pub(crate) why: &'static str,
    pub(crate) holds: fn(&Case, &Value) -> bool,
}

const fn rule(name: &'static str, why: &'static str, holds: fn(&Case, &Value) -> bool) -> Rule {
    Rule { name, why, holds }
}

fn kind(item: &Value) -> &str {
    item["type"].as_str().unwrap()
}

fn msg(item: &Value) -> &str {
    item["msg"].as_str().unwrap()
}

fn is_at(item: &Value, place: &[&str]) -> bool {
    let loc = item["loc"].as_array().unwrap();
    loc.len() >= place.len() && loc.iter().zip(place).all(|(step, name)| step == name)
}

/// Items of this service that replace the whole error response: further errors are unknown or irrelevant.
pub(crate) const WHOLE: &[Rule] = &[
    rule(
        "texts with NUL are refused",
        "neither a database nor an environment variable can hold one",
        |_, item| msg(item).ends_with("the character NUL"),
    ),
    rule(
        "`NaN` and `Infinity` are not JSON",
        "RFC 8259 excludes them, and no response could repeat them",
        |case, item| kind(item) == "json_invalid" && (case.says("NaN") || case.says("Infinity")),
    ),
    rule(
        "JSON is UTF-8",
        "the reference also guesses UTF-16 and UTF-32, which RFC 8259 rules out",
        |case, item| kind(item) == "json_invalid" && case.says("\0"),
    ),
    rule(
        "numbers beyond a double and halves of surrogate pairs are not JSON",
        "nothing could store or repeat them",
        |_, item| item["ctx"]["error"] == "Value out of range",
    ),
];

/// Items that only the reference reports.
pub(crate) const FEWER: &[Rule] = &[
    rule(
        "`GET /api/v1/app-conversations` without `ids` is not an error",
        "it lists conversations, as the API documentation says",
        |case, item| {
            kind(item) == "missing"
                && case.ask == "GET /api/v1/app-conversations"
                && is_at(item, &["query", "ids"])
        },
    ),
    rule(
        "`URN:UUID:` in capitals starts a UUID",
        "any spelling of a UUID is taken",
        |case, item| kind(item) == "uuid_parsing" && case.says("URN"),
    ),
    rule(
        "a profile's `llm` without a model misses a member",
        "`missing` at `model` says which",
        |_, item| msg(item) == "Value error, model must be specified in LLM",
    ),
    rule(
        "the source of a marketplace may be any path",
        "it is answered with a note instead: paths are read where conversations run",
        |_, item| msg(item).starts_with("Value error, source must be"),
    ),
];

/// Items that only this service reports.
pub(crate) const MORE: &[Rule] = &[
    rule(
        "422 where the reference answers 500 or 400",
        "bad input is an error of the client, and the item names it",
        |case, item| case.status >= 500 || (case.status == 400 && kind(item) == "uuid_parsing"),
    ),
    rule(
        "the id of a conversation is a UUID wherever it stands",
        "the reference takes any text on some routes and fails later",
        |_, item| kind(item) == "uuid_parsing" && is_at(item, &["path", "conversation_id"]),
    ),
    rule(
        "page tokens that the service did not issue are refused",
        "starting over would repeat what was read",
        |_, item| is_at(item, &["query", "page_id"]) && kind(item) == "value_error",
    ),
    rule(
        "whole numbers have 64 bits",
        "no store holds more",
        |_, item| kind(item) == "int_parsing_size",
    ),
    rule(
        "sandbox ids and names of secrets are checked with the request",
        "the reference fails later, or at the next start",
        |_, item| msg(item).contains("SandboxId must be") || msg(item).contains("255 characters"),
    ),
    rule(
        "the fields of a profile's `llm` are refused one by one",
        "all errors together; the reference stops at a missing model",
        |_, item| is_at(item, &["body", "llm"]),
    ),
    rule(
        "names of marketplaces have at most 128 characters",
        "the service bounds every value",
        |case, item| {
            case.is("POST /api/v1/skills/marketplace-skills")
                && msg(item).starts_with("Value error, name must")
                && item["input"].as_str().is_some_and(|name| name.len() > 128)
        },
    ),
];

type Change = fn(&mut Value);

/// Items that both report, and the difference.
pub(crate) const CHANGED: &[(Rule, Change)] = &[
    (
        rule(
            "no `input` where a secret may be",
            "an error must not repeat a secret or the text around it",
            may_be_secret,
        ),
        |item| {
            item.as_object_mut().unwrap().shift_remove("input");
        },
    ),
    (
        rule(
            "`input` has at most 1 KiB",
            "longer texts are cut, longer lists and objects left out: the client has them",
            |_, item| item.get("input").is_some_and(|input| size(input) > 1024),
        ),
        shorten,
    ),
    (
        rule(
            "an unknown processor is named without the classes behind it",
            "they are the reference's",
            |_, item| msg(item).contains("Unknown kind"),
        ),
        |item| {
            let text = msg(item).to_owned();
            let (start, rest) = text.split_once(" for ").unwrap();
            let (_, end) = rest.split_once(';').unwrap();
            item["msg"] = format!("{start} for a processor;{end}").into();
        },
    ),
    (
        rule(
            "a refused name of a secret is not repeated",
            "people paste the value into the wrong field",
            |_, item| msg(item).contains("Invalid secret name '"),
        ),
        |item| {
            let text = msg(item).to_owned();
            let (start, rest) = text.split_once(" '").unwrap();
            let (_, end) = rest.rsplit_once("'. ").unwrap();
            item["msg"] = format!("{start}. {end}").into();
            item.as_object_mut().unwrap().shift_remove("input");
        },
    ),
];

fn may_be_secret(case: &Case, item: &Value) -> bool {
    let starts = |start: &str| {
        case.is(&format!("{start} ")) || case.is(&format!("{start}?")) || case.ask == start
    };
    let at = |place| is_at(item, place);
    let whole = item["loc"] == json!(["body"]) && !item["input"].is_null();
    if starts("POST /api/v1/app-conversations")
        || starts("POST /api/v1/app-conversations/stream-start")
    {
        whole || at(&["body", "secrets"])
    } else if starts("POST /api/v1/secrets/git-providers") {
        let key = item["loc"]
            .as_array()
            .unwrap()
            .last()
            .is_some_and(|last| last == "[key]");
        let harmless = ["host", "user_id"]
            .iter()
            .any(|name| item["loc"].as_array().unwrap().contains(&json!(name)));
        whole
            || at(&["body", "mcp_config"])
            || (at(&["body", "provider_tokens"]) && !key && !harmless)
    } else if case.is("POST /api/v1/secrets") || case.is("PUT /api/v1/secrets/") {
        whole
            || at(&["body", "value"])
            || (at(&["body"]) && kind(item) == "missing" && !item["input"].is_null())
    } else if case.is("POST /api/v1/settings/profiles/") && !case.ask.ends_with("/rename") {
        whole || at(&["body", "llm"])
    } else {
        starts("POST /api/v1/settings") && whole && kind(item) != "json_invalid"
    }
}

/// Bytes of the value as JSON, escapes not counted.
fn size(value: &Value) -> usize {
    value.to_string().len()
}

fn shorten(item: &mut Value) {
    let short = item["input"]
        .as_str()
        .map(|text| format!("{}…", &text[..1024]));
    match short {
        Some(short) => item["input"] = short.into(),
        None => {
            item.as_object_mut().unwrap().shift_remove("input");
        }
    }
}
