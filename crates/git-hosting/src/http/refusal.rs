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
/// Shorter parts of a credential occur in ordinary words.
const MIN_SECRET_CHARS: usize = 4;
/// A part of this length is no ordinary word.
const MIN_OPAQUE_PART_CHARS: usize = 12;

const NO_REASON: &str = "it does not say why";

/// Reads reasons in the answers to one user's requests.
pub(crate) struct RefusalReader<'a> {
    token: &'a SecretString,
}

impl<'a> RefusalReader<'a> {
    pub(crate) fn of(token: &'a SecretString) -> Self {
        Self { token }
    }

    /// The reason in a body, or a fixed text.
    pub(crate) fn reason(&self, body: &[u8]) -> String {
        if body.len() > MAX_BODY_BYTES {
            return NO_REASON.to_owned();
        }
        let value: Value = serde_json::from_slice(body).unwrap_or_default();
        let mut texts = Vec::new();
        // GitHub, Forgejo, Azure DevOps and GitLab; GitLab and Bitbucket; GitHub and Bitbucket Data Center.
        for member in ["message", "error", "errors"] {
            if let Some(found) = value.get(member) {
                gather(found, &mut texts);
            }
        }
        texts.dedup();
        texts.truncate(MAX_REASON_TEXTS);
        let whole = texts.join("; ");
        if whole.is_empty() || self.is_repeated_in(&whole) {
            return NO_REASON.to_owned();
        }
        whole.chars().take(MAX_REASON_CHARS).collect()
    }

    /// Whether the token is in it: whole, as it is sent, or (however it is quoted) a long part of letters and digits.
    fn is_repeated_in(&self, text: &str) -> bool {
        let token = self.token.expose_secret();
        let secret = token.split_once(':').map_or(token, |(_, secret)| secret);
        let encoded = [STANDARD.encode(token), STANDARD.encode(format!(":{token}"))];
        let whole = [token, secret, &encoded[0], &encoded[1]];
        let whole = whole.iter().filter(|one| one.len() >= MIN_SECRET_CHARS);
        let is_other = |c: char| !c.is_ascii_alphanumeric();
        let parts = secret
            .split(is_other)
            .filter(|one| one.len() >= MIN_OPAQUE_PART_CHARS);
        whole.copied().chain(parts).any(|one| text.contains(one))
    }
}

/// All texts in the value, in their order: of an object its `message`, else each member behind its name.
fn gather(value: &Value, into: &mut Vec<String>) {
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
        Value::Array(all) => all.iter().for_each(|one| gather(one, into)),
        Value::Object(map) => match (map.get("message"), map.get("field"), map.get("code")) {
            (Some(message), ..) if message.as_str().is_some_and(|text| !text.is_empty()) => {
                gather(message, into);
            }
            (_, Some(Value::String(field)), Some(Value::String(code))) => {
                gather(&Value::from(format!("{field} is {code}")), into);
            }
            _ => {
                for (name, one) in map {
                    let mut found = Vec::new();
                    gather(one, &mut found);
                    into.extend(found.into_iter().map(|text| format!("{name}: {text}")));
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
        RefusalReader::of(&token).reason(body.to_string().as_bytes())
    }

    #[test]
    fn every_providers_words() {
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
        let none = SecretString::from("t");
        assert_eq!(RefusalReader::of(&none).reason(b"<html>"), NO_REASON);
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
        assert_eq!(
            RefusalReader::of(&token).reason(quoted.as_bytes()),
            NO_REASON
        );
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
