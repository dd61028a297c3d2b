//! Generates JSON texts from schemas, valid and invalid ones.

use serde_json::{Map, Value, json};

use super::random::Random;
use super::surface::ApiSurface;

/// Planted in place of every secret. No response may contain it.
pub(super) const CANARY: &str = "canary-9b1c6f0e-never-answered";

/// Names whose values are secrets.
const SECRETS: &[&str] = &[
    "api_key",
    "aws_secret_access_key",
    "llm_api_key",
    "sandbox_api_key",
    "search_api_key",
    "token",
    "value",
];

/// Names whose values are maps of secrets.
const SECRET_MAPS: &[&str] = &["env", "secrets"];

/// Nesting deep enough to overflow the stack of a recursive parser.
const DEEP: usize = 20_000;
/// Levels of generated values; deeper values become null.
const LEVELS: usize = 7;

const STRINGS: &[&str] = &[
    "",
    " ",
    "a",
    "null",
    "true",
    "0",
    "-1",
    "5.0",
    "1e400",
    "NaN",
    "../../../etc/passwd",
    "..\\..\\x",
    "/dev/null",
    "~root",
    "%00",
    "%2e%2e%2f",
    "${jndi:ldap://x}",
    "{{7*7}}",
    "$(touch x)",
    "; rm -rf x",
    "' OR 1=1 --",
    "\"); DROP TABLE conversations; --",
    "%%%_%",
    "\u{0}",
    "a\u{0}b",
    "\r\nSet-Cookie: a=b",
    "\u{202e}evil\u{202c}",
    "\u{feff}bom",
    "\u{fffe}\u{ffff}",
    "e\u{301}\u{301}\u{301}",
    "🙂👩‍👩‍👧‍👦日本語",
    "https://user:pass@127.0.0.1:1/",
    "http://[::1]:99999/",
    "file:///etc/passwd",
    "javascript:alert(1)",
    "2026-02-30T25:61:61Z",
    "99999999999999999999",
    "+262144-12-31T23:59:59Z",
    "00000000-0000-0000-0000-000000000000",
    "{00000000-0000-0000-0000-000000000001}",
    "urn:uuid:00000000-0000-0000-0000-000000000001",
    "00000000-0000-0000-0000-00000000000g",
];

/// JSON texts that may break a parser.
const TEXTS: &[&str] = &[
    "NaN",
    "-Infinity",
    "Infinity",
    "1e999",
    "-0",
    "-0.0",
    "1.0",
    "0.1e-400",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775809",
    "123456789012345678901234567890123456789012345678901234567890",
    "true",
    "null",
    "{}",
    "[]",
    "[[]]",
    "[null]",
    "{\"\":{}}",
    "{\"a\":1,\"a\":{\"a\":2}}",
    "\"\\ud800\"",
    "\"\\udc00\\ud800\"",
    "\"\\u0000\"",
    "\"\\ud83d\\ude42\"",
    "\"\\x\"",
    "'single'",
    "01",
    "+1",
    ".5",
    "1.",
    "tru",
    "\"unfinished",
    "\"tab\there\"",
    "{\"__proto__\":{\"x\":1}}",
    "{\"$ref\":\"#\"}",
    "/*c*/1",
];

/// An arbitrary text.
pub(super) fn string(random: &mut Random) -> String {
    match random.below(12) {
        0 => "x".repeat(random.below(3_000)),
        1 => "\u{10ffff}".repeat(random.below(300)),
        2 if random.percent(10) => "y".repeat(300_000),
        3 | 4 => {
            let any = |random: &mut Random| {
                char::from_u32(u32::try_from(random.below(0x11_0000)).unwrap_or(0))
                    .unwrap_or('\u{fffd}')
            };
            (0..random.below(20)).map(|_| any(random)).collect()
        }
        _ => random.word(STRINGS).to_owned(),
    }
}

/// An unexpected JSON text, valid or not.
fn odd_text(random: &mut Random) -> String {
    match random.below(24) {
        0 => format!("{}{}", "[".repeat(DEEP), "]".repeat(DEEP)),
        1 => format!("{}1{}", "{\"a\":".repeat(DEEP), "}".repeat(DEEP)),
        2 => "[".repeat(DEEP),
        3 => format!("[{}0]", "0,".repeat(20_000)),
        4 => format!("1{}", "0".repeat(2_000)),
        5 => json!(string(random)).to_string(),
        _ => random.word(TEXTS).to_owned(),
    }
}

/// Makes bodies for schemas.
pub(super) struct BodyValues<'a> {
    pub(super) surface: &'a ApiSurface,
    pub(super) random: &'a mut Random,
    /// Ids that exist.
    pub(super) ids: &'a [String],
    /// Chance in percent that a value is replaced by an unexpected one.
    pub(super) oddness: usize,
    /// The texts that replace `"@n@"`.
    texts: Vec<String>,
}

impl<'a> BodyValues<'a> {
    pub(super) fn new(surface: &'a ApiSurface, random: &'a mut Random, ids: &'a [String]) -> Self {
        let oddness = random.word(&["", "1", "22", "333333"]).len() * 3;
        Self {
            surface,
            random,
            ids,
            oddness,
            texts: Vec::new(),
        }
    }

    /// A body for this schema, with some deviations.
    pub(super) fn body(&mut self, schema: &Value) -> Vec<u8> {
        let value = self.value(schema, "", 0);
        self.written(&value)
    }

    /// The text of a value. Inserts the unexpected texts, which `Value` cannot represent.
    pub(super) fn written(&mut self, value: &Value) -> Vec<u8> {
        let mut text = value.to_string();
        for (number, odd) in self.texts.iter().enumerate() {
            text = text.replace(&format!("\"@{number}@\""), odd);
        }
        if self.oddness > 0 && self.random.percent(10) {
            return self.broken(text.into_bytes());
        }
        text.into_bytes()
    }

    /// A placeholder for an unexpected text.
    pub(super) fn odd(&mut self) -> Value {
        let text = odd_text(self.random);
        self.texts.push(text);
        json!(format!("@{}@", self.texts.len() - 1))
    }

    /// Damages a text.
    fn broken(&mut self, mut bytes: Vec<u8>) -> Vec<u8> {
        let at = self.random.below(bytes.len() + 1);
        match self.random.below(8) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, 0xff),
            2 => bytes.insert(at, 0),
            3 => bytes.splice(..0, *b"\xef\xbb\xbf").for_each(drop),
            4 => bytes.extend(b" {}"),
            5 => bytes = [&[0xff, 0xfe][..], &bytes].concat(),
            6 if bytes.first() == Some(&b'{') => {
                bytes
                    .splice(1..1, *b"\"title\":1,\"title\":\"twice\",")
                    .for_each(drop);
            }
            _ => bytes = bytes.iter().flat_map(|byte| [0, *byte]).collect(),
        }
        bytes
    }

    /// A value for a schema; `name` is the property it is for.
    pub(super) fn value(&mut self, schema: &Value, name: &str, level: usize) -> Value {
        if self.random.percent(self.oddness) {
            return self.odd();
        }
        if SECRETS.contains(&name) && self.random.percent(80) {
            return json!(CANARY);
        }
        if SECRET_MAPS.contains(&name) && self.random.percent(60) {
            return json!({"NAME": CANARY, "OTHER_NAME": CANARY});
        }
        let schema = self.surface.resolve(schema);
        if level > LEVELS {
            return Value::Null;
        }
        for choices in ["oneOf", "anyOf", "allOf"] {
            if let Some(choice) = schema[choices]
                .as_array()
                .and_then(|of| self.random.pick(of))
            {
                return self.value(choice, name, level + 1);
            }
        }
        if let Some(of) = schema["enum"]
            .as_array()
            .or_else(|| schema["examples"].as_array())
        {
            return self.random.pick(of).cloned().unwrap_or_default();
        }
        if !schema["const"].is_null() {
            return schema["const"].clone();
        }
        let kinds: Vec<&str> = match &schema["type"] {
            Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
            kind => kind.as_str().into_iter().collect(),
        };
        match self.random.word(&kinds) {
            "null" => Value::Null,
            "boolean" => json!(self.random.percent(50)),
            "integer" => json!(
                *self
                    .random
                    .pick(&[0_i64, 1, 7, 100, -1, i64::MAX])
                    .unwrap_or(&0)
            ),
            "number" => json!(*self.random.pick(&[0.0, 0.5, -1.0, 1e308]).unwrap_or(&0.0)),
            "string" => json!(self.text(schema, name)),
            "array" => {
                let length = self.random.below(4);
                (0..length)
                    .map(|_| self.value(&schema["items"], "", level + 1))
                    .collect()
            }
            "object" => self.object(schema, level),
            _ => self.anything(level),
        }
    }

    fn text(&mut self, schema: &Value, name: &str) -> String {
        let is_id = name.ends_with("id") || schema["format"] == "uuid";
        if is_id && self.random.percent(60) {
            return self.random.pick(self.ids).cloned().unwrap_or_default();
        }
        match schema["format"].as_str() {
            Some("uuid") => format!("{:032x}", self.random.next()),
            Some("date-time") => "2026-11-21T10:00:00.000001Z".to_owned(),
            _ => string(self.random),
        }
    }

    fn object(&mut self, schema: &Value, level: usize) -> Value {
        let mut object = Map::new();
        let required = schema["required"].as_array();
        for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
            let is_required = required.is_some_and(|names| names.iter().any(|known| known == name));
            if self.random.percent(if is_required { 95 } else { 40 }) {
                let value = self.value(schema, name, level + 1);
                object.insert(name.clone(), value);
            }
        }
        if schema["additionalProperties"].is_object() {
            for _ in 0..self.random.below(3) {
                let value = self.value(&schema["additionalProperties"], "", level + 1);
                object.insert(string(self.random), value);
            }
        }
        let is_free = schema["properties"].is_null() && schema["additionalProperties"].is_null();
        if is_free || self.random.percent(self.oddness) {
            let value = self.anything(level + 1);
            object.insert(string(self.random), value);
        }
        Value::Object(object)
    }

    /// A value where the schema permits any.
    fn anything(&mut self, level: usize) -> Value {
        match self.random.below(5) {
            0 => json!(string(self.random)),
            1 if level < LEVELS => json!({string(self.random): self.anything(level + 1)}),
            2 if level < LEVELS => json!([self.anything(level + 1)]),
            3 => json!(self.random.below(1000)),
            _ => Value::Null,
        }
    }

    /// Documents within settings, which have no schema in the document.
    pub(super) fn settings_difference(&mut self) -> Value {
        let odd = |bodies: &mut Self| {
            if bodies.random.percent(50) {
                bodies.odd()
            } else {
                json!(string(bodies.random))
            }
        };
        match self.random.below(6) {
            0 => json!({"llm": {"model": odd(self), "api_key": CANARY, "base_url": odd(self)}}),
            1 => json!({"llm": odd(self)}),
            2 => json!({"mcp_config": {"mcpServers": {string(self.random): {
                "command": odd(self), "env": {"NAME": CANARY}, "headers": odd(self)}}}}),
            3 => json!({"condenser": odd(self), "max_iterations": odd(self)}),
            4 => json!({"agent_kind": odd(self)}),
            _ => json!({"confirmation_mode": odd(self), "security_analyzer": odd(self)}),
        }
    }

    /// A report of events, similar to those of agent servers.
    pub(super) fn events(&mut self) -> Vec<u8> {
        let events: Vec<Value> = (0..self.random.below(6)).map(|_| self.event()).collect();
        let value = if self.random.percent(4) {
            self.odd()
        } else {
            json!(events)
        };
        self.written(&value)
    }

    fn event(&mut self) -> Value {
        let kinds = [
            "MessageEvent",
            "ConversationStateUpdateEvent",
            "ActionEvent",
            "ObservationEvent",
            "UnheardOfEvent",
        ];
        let id = if self.random.percent(30) {
            string(self.random)
        } else {
            format!("00000000-0000-0000-0000-{:012x}", self.random.below(5_000))
        };
        let mut event = json!({
            "kind": self.random.word(&kinds),
            "id": id,
            "timestamp": "2026-11-21T10:00:00.123456",
            "source": self.random.word(&["user", "agent", "environment"]),
        });
        let extra = match self.random.below(5) {
            0 => json!({"key": "execution_status", "value": self.random.word(
                &["running", "finished", "idle", "deleting", "error", "stuck", "unheard of"])}),
            1 => json!({"key": "stats", "value": {"usage_to_metrics": {"agent": self.odd()}}}),
            2 => json!({"key": "full_state", "value": self.odd()}),
            3 => {
                json!({"llm_message": {"role": "user", "content": [{"type": "text", "text": string(self.random)}]}})
            }
            _ => json!({"tool_name": string(self.random), "nested": self.anything(0)}),
        };
        if let (Some(event), Value::Object(extra)) = (event.as_object_mut(), extra) {
            event.extend(extra);
            if self.random.percent(10) {
                let name = self.random.word(&["kind", "id", "timestamp", "source"]);
                let odd = self.odd();
                event.insert(name.to_owned(), odd);
            }
            if self.random.percent(5) {
                event.remove(self.random.word(&["kind", "id", "timestamp", "source"]));
            }
        }
        event
    }
}
