//! Generates requests, most of them almost valid.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::random::Random;
use super::surface::{ApiSurface, Operation, Parameter};
use super::values::{BodyValues, string};
use super::wire::Request;
use super::world::KnownIds;

const PATHS: &[&str] = &[
    "..",
    "%2e%2e",
    "%2e%2e%2f%2e%2e%2fetc%2fpasswd",
    "a%2Fb",
    "%00",
    "a%00b",
    "%ff%fe",
    "%zz",
    "%",
    "%F0%9F%99%82",
    "%E2%80%AE",
    ";a=b",
    "nan",
    "-1",
    "{id}",
    "*",
    "%20",
    "%0d%0aX-Injected:%20yes",
    "00000000-0000-0000-0000-000000000000",
    "00000000000000000000000000000001",
    "urn:uuid:00000000-0000-0000-0000-000000000001",
    "search",
    "count",
];

const METHODS: &[&str] = &[
    "HEAD", "OPTIONS", "PUT", "PATCH", "DELETE", "TRACE", "CONNECT", "PROPFIND", "get", "QUERY",
];

const TYPES: &[&str] = &[
    "text/plain",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
    "application/json; charset=utf-16",
    "application/vnd.api+json",
    "application/json, text/html",
    "*/*",
    "",
    "json",
    "application/octet-stream",
];

/// Header lines that change the meaning of a request.
const HEADERS: &[(&str, &str)] = &[
    ("Accept", "text/html"),
    ("Accept", "*/*;q=-1"),
    ("Accept-Encoding", "br;q=1.0, gzip;q=0.8, *;q=0.1"),
    ("Content-Encoding", "gzip"),
    ("Content-Language", "\u{e4}"),
    ("Cookie", "a=b; session=x"),
    ("Expect", "100-continue"),
    ("Forwarded", "for=\"_gazonk\""),
    ("Host", "evil.example"),
    ("Host", "[::1"),
    ("If-Match", "*"),
    ("Origin", "null"),
    ("Origin", "http://evil.example"),
    ("Origin", "http://localhost:3001"),
    ("Range", "bytes=0-1"),
    ("Upgrade", "websocket"),
    ("X-Forwarded-For", "1.2.3.4, ::1, x"),
    ("X-Forwarded-Proto", "javascript"),
    ("X-HTTP-Method-Override", "DELETE"),
    ("X-Request-Id", "a b\tc"),
    ("X-Request-Id", "<script>alert(1)</script>"),
];

/// The keys of the callers.
pub(super) struct RequestKeys {
    pub(super) user: String,
    pub(super) sandbox: Option<String>,
}

/// The next request.
pub(super) fn request(
    surface: &ApiSurface,
    random: &mut Random,
    known: &KnownIds,
    keys: &RequestKeys,
) -> Request {
    if let Some(again) = known.to_repeat(random) {
        return again;
    }
    let Some(operation) = random.pick(surface.operations()) else {
        unreachable!("a surface has operations")
    };
    let mut method = operation.method.clone();
    if random.percent(4) {
        random.word(METHODS).clone_into(&mut method);
    }
    let mut request = Request {
        target: target(operation, random, known),
        headers: Vec::new(),
        body: body(surface, operation, random, known),
        method,
    };
    headers(&mut request, operation, random, keys);
    request
}

fn target(operation: &Operation, random: &mut Random, known: &KnownIds) -> String {
    let mut target = String::new();
    for segment in operation.path.split('/').skip(1) {
        target.push('/');
        if segment.starts_with('{') {
            target.push_str(&in_path(random, known));
        } else {
            target.push_str(segment);
        }
    }
    match random.below(150) {
        0 => target.push('/'),
        1 => target = target.replace("/api", "//api"),
        2 => target = target.replace("/v1", "/v1/./../v1"),
        3 => target.push_str("%2f"),
        4 => target = target.to_uppercase(),
        5 => target = target.replace('a', "%61"),
        _ => {}
    }
    let query = query(operation, random, known);
    if !query.is_empty() {
        let _ = write!(target, "?{}", query.join("&"));
    }
    target
}

fn in_path(random: &mut Random, known: &KnownIds) -> String {
    match random.below(10) {
        0..=5 => known.id(random),
        6 => encoded(&string(random).chars().take(300).collect::<String>()),
        7 => known.id(random).to_uppercase(),
        8 if random.percent(5) => "z".repeat(5_000),
        _ => random.word(PATHS).to_owned(),
    }
}

fn query(operation: &Operation, random: &mut Random, known: &KnownIds) -> Vec<String> {
    let mut pairs = Vec::new();
    for parameter in operation.parameters.iter().filter(|p| !p.in_path) {
        let chance = if parameter.is_required { 92 } else { 30 };
        while random.percent(chance) {
            pairs.push(pair(parameter, random, known));
            // Sometimes repeated.
            if !random.percent(15) {
                break;
            }
        }
    }
    match random.below(60) {
        0 => pairs.push(format!(
            "{}={}",
            encoded(&string(random)),
            encoded(&string(random))
        )),
        1 => pairs.push("%zz=%&&==&".to_owned()),
        2 => pairs.push("limit=1;limit=2&limit[]=3".to_owned()),
        3 => pairs.push(format!("sandbox_id={}", known.id(random))),
        4 => pairs.extend((0..120).map(|number| format!("ids={number:032x}&id={number}"))),
        5 => pairs.push("x=%ff%fe%00".to_owned()),
        _ => {}
    }
    pairs
}

fn pair(parameter: &Parameter, random: &mut Random, known: &KnownIds) -> String {
    let name = &parameter.name;
    let value = match name.as_str() {
        "page_id" => known.page(random),
        "limit" => random
            .word(&[
                "1",
                "2",
                "100",
                "5.0",
                "0",
                "101",
                "-1",
                "1e2",
                "",
                "\u{661}",
                "9999999999999999999999",
                " 7 ",
            ])
            .to_owned(),
        name if name.contains("at__") || name.contains("timestamp") => random
            .word(&[
                "2026-01-01",
                "1700000000",
                "1e10",
                "2026-11-21T10:00:00+14:00",
                "2026-11-21T10:00:00.1234567Z",
                "-99999999999999",
                "99999999999999999999999",
                "2026-02-30",
                "0001-01-01T00:00:00+23:59",
                "9999-12-31T23:59:59-23:59",
                "infinity",
                "",
            ])
            .to_owned(),
        name if name.contains("id") => known.id(random),
        _ if random.percent(40) => {
            let schema = &parameter.schema;
            let fitting = schema["enum"].as_array().and_then(|of| random.pick(of));
            let fitting = fitting.and_then(Value::as_str).unwrap_or("true");
            fitting.to_owned()
        }
        _ => string(random),
    };
    if random.percent(5) {
        return format!("{name}={}", encoded(&string(random)));
    }
    format!("{name}={}", encoded(&value))
}

/// Percent-encodes a text for a path or a query. Cuts it after 4,000 bytes.
pub(super) fn encoded(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes().take(4_000) {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
                out.push(char::from(byte));
            }
            _ => {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    out
}

fn body(
    surface: &ApiSurface,
    operation: &Operation,
    random: &mut Random,
    known: &KnownIds,
) -> Option<Vec<u8>> {
    let ids = known.ids();
    let Some(schema) = &operation.body else {
        // A body although the operation takes none.
        return random.percent(5).then(|| b"{\"sandbox_id\":1}".to_vec());
    };
    if random.percent(2) {
        return random.percent(50).then(Vec::new);
    }
    let mut bodies = BodyValues::new(surface, random, &ids);
    if operation.is_webhook() && bodies.random.percent(80) {
        if operation.path.contains("events") {
            return Some(bodies.events());
        }
        let report = json!({
            "id": known.id(bodies.random),
            "workspace": {"kind": "LocalWorkspace", "working_dir": "/w"},
            "agent": {"kind": "Agent", "llm": {"model": "m", "api_key": "**********"}},
            "execution_status": bodies.random.word(&["idle", "running", "finished", "deleting", "odd"]),
            "title": string(bodies.random),
            "stats": bodies.odd(),
            "tags": bodies.odd(),
            "created_at": "1970-01-01T00:00:00",
        });
        return Some(bodies.written(&report));
    }
    let is_settings = operation.path.ends_with("/v1/settings");
    if is_settings && bodies.random.percent(50) {
        let difference = bodies.settings_difference();
        let part = bodies
            .random
            .word(&["agent_settings_diff", "conversation_settings_diff"]);
        return Some(bodies.written(&json!({part: difference})));
    }
    Some(bodies.body(schema))
}

fn headers(request: &mut Request, operation: &Operation, random: &mut Random, keys: &RequestKeys) {
    let mut add = |name: &str, value: String| request.headers.push((name.to_owned(), value));
    let sandbox = keys.sandbox.as_ref().filter(|_| random.percent(90));
    let key = match sandbox {
        Some(key) if operation.is_webhook() => key.clone(),
        _ => keys.user.clone(),
    };
    match random.below(100) {
        0..=2 => {}
        3 => add("X-Session-API-Key", String::new()),
        4 => add("X-Session-API-Key", "aw_wrong".to_owned()),
        5 => add("X-Session-API-Key", "k".repeat(600)),
        6 => add("X-Session-API-Key", "\u{fc}\u{1f642}".to_owned()),
        7..=9 => add("Authorization", format!("Bearer {key}")),
        10 => {
            add("X-Session-API-Key", key.clone());
            add("X-Session-API-Key", "aw_second".to_owned());
        }
        _ => add("X-Session-API-Key", key),
    }
    if random.percent(10)
        && let Some((name, value)) = random.pick(HEADERS)
    {
        add(name, (*value).to_owned());
    }
    if random.percent(8) {
        let number = random.below(8);
        add("Idempotency-Key", format!("replay-{number}"));
    } else if random.percent(2) {
        let odd = [
            "",
            "\u{0430}",
            "a b",
            "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk",
        ];
        add("Idempotency-Key", random.word(&odd).repeat(5));
    }
    if request.body.is_some() {
        let kind = if random.percent(94) {
            "application/json"
        } else {
            random.word(TYPES)
        };
        if !random.percent(2) {
            request
                .headers
                .push(("Content-Type".to_owned(), kind.to_owned()));
        }
    }
}
