//! Reads the reason from an error response of a provider, for users.
//!
//! The text is untrusted: it is bounded, reduced to one line, and withheld when it contains a credential.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;

/// Largest body that is parsed.
const MAX_BODY_BYTES: usize = 64 * 1024;
/// Longest reason, in characters.
const MAX_REASON_CHARS: usize = 300;
/// Texts that are joined to one reason.
const MAX_REASON_TEXTS: usize = 5;
/// Shorter tokens are not looked for: they occur in ordinary words.
const MIN_SECRET_CHARS: usize = 4;
/// A part of a token with this length is not an ordinary word.
const MIN_OPAQUE_PART_CHARS: usize = 12;

const NO_REASON: &str = "it does not say why";

/// The reason in the body of a response to a request with this token, or [`NO_REASON`].
pub(crate) fn refusal_reason(body: &[u8], token: &SecretString) -> String {
    if body.len() > MAX_BODY_BYTES {
        return NO_REASON.to_owned();
    }
    let value: Value = serde_json::from_slice(body).unwrap_or_default();
    let mut texts = Vec::new();
    // `message`: GitHub, Forgejo, Azure DevOps and GitLab. `error`: GitLab and Bitbucket. `errors`: GitHub and Bitbucket
    // Data Center.
    for member in ["message", "error", "errors"] {
        if let Some(part) = value.get(member) {
            collect_texts(part, &mut texts);
        }
    }
    texts.dedup();
    texts.truncate(MAX_REASON_TEXTS);
    let whole = texts.join("; ");
    if whole.is_empty() || contains_token(&whole, token.expose_secret()) {
        return NO_REASON.to_owned();
    }
    whole.chars().take(MAX_REASON_CHARS).collect()
}

/// Whether the text contains the token: whole, as the `Authorization` header carries it, or one of its long parts of letters
/// and digits, which survive any quoting.
fn contains_token(text: &str, token: &str) -> bool {
    let secret = token.split_once(':').map_or(token, |(_, secret)| secret);
    let encoded = [STANDARD.encode(token), STANDARD.encode(format!(":{token}"))];
    let whole = [token, secret, &encoded[0], &encoded[1]];
    let whole = whole.iter().filter(|form| form.len() >= MIN_SECRET_CHARS);
    let parts = secret
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|part| part.len() >= MIN_OPAQUE_PART_CHARS);
    whole.copied().chain(parts).any(|part| text.contains(part))
}

/// Collects all texts in the value, in their order. An object counts with its `message`, or with each member after its name.
fn collect_texts(value: &Value, into: &mut Vec<String>) {
    if into.len() > MAX_REASON_TEXTS {
        return;
    }
    match value {
        Value::String(text) => {
            let text: String = text
                .chars()
                .map(|c| if c.is_control() { ' ' } else { c })
                .collect();
            let text = text.trim().trim_end_matches('.');
            if !text.is_empty() {
                into.push(text.to_owned());
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect_texts(item, into)),
        Value::Object(map) => match (map.get("message"), map.get("field"), map.get("code")) {
            (Some(message), ..) if message.as_str().is_some_and(|text| !text.is_empty()) => {
                collect_texts(message, into);
            }
            (_, Some(Value::String(field)), Some(Value::String(code))) => {
                collect_texts(&Value::from(format!("{field} is {code}")), into);
            }
            _ => {
                for (name, member) in map {
                    let mut texts = Vec::new();
                    collect_texts(member, &mut texts);
                    into.extend(texts.into_iter().map(|text| format!("{name}: {text}")));
                }
            }
        },
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn reason(body: &Value) -> String {
        let token = SecretString::from("ada:hush-hush");
        refusal_reason(body.to_string().as_bytes(), &token)
    }

    #[test]
    fn reasons_of_all_providers_are_read() {
        for (body, expected) in [
            (
                json!({"message": "Validation Failed", "errors": [{"resource": "PullRequest", "code": "custom",
                    "message": "A pull request already exists for o:b."}]}),
                "Validation Failed; A pull request already exists for o:b",
            ),
            (
                json!({"message": "Validation Failed", "errors": [{"resource": "PullRequest", "field": "head",
                    "code": "invalid"}]}),
                "Validation Failed; head is invalid",
            ),
            (
                json!({"message": ["Another open merge request: !5"]}),
                "Another open merge request: !5",
            ),
            (
                json!({"message": {"source_branch": ["does not exist"]}}),
                "source_branch: does not exist",
            ),
            (json!({"error": "title is missing"}), "title is missing"),
            (
                json!({"type": "error", "error": {"message": "There are no changes"}}),
                "There are no changes",
            ),
            (
                json!({"errors": [{"context": null, "message": "Only one may be open"}]}),
                "Only one may be open",
            ),
            (
                json!({"message": "TF401179: active\nalready"}),
                "TF401179: active already",
            ),
            (json!({}), NO_REASON),
            (json!([]), NO_REASON),
            (json!({"message": ""}), NO_REASON),
        ] {
            assert_eq!(reason(&body), expected, "{body}");
        }
        let token = SecretString::from("t");
        assert_eq!(refusal_reason(b"<html>", &token), NO_REASON);
    }

    #[test]
    fn credentials_are_not_repeated_and_long_texts_are_cut() {
        for echo in [
            "you sent hush-hush".to_owned(),
            format!("Basic {}", STANDARD.encode("ada:hush-hush")),
            format!("Basic {}", STANDARD.encode(":ada:hush-hush")),
        ] {
            assert_eq!(reason(&json!({ "message": echo })), NO_REASON);
        }
        let token = SecretString::from("glpat-\"a b\"0123456789abcdef");
        let quoted = json!({"message": "glpat-%22a%20b%220123456789abcdef"}).to_string();
        assert_eq!(refusal_reason(quoted.as_bytes(), &token), NO_REASON);
        let long = reason(&json!({"errors": vec!["é".repeat(200); 40]}));
        assert_eq!(long.chars().count(), 200, "repetitions are listed once");
        let long = reason(&json!({"message": "é".repeat(1000)}));
        assert_eq!(long.chars().count(), MAX_REASON_CHARS);
        assert_eq!(
            reason(&json!({"message": "x".repeat(MAX_BODY_BYTES)})),
            NO_REASON
        );
    }
}
