//! Converts failures to [`AgentError`] without secrets.

use std::cmp::Reverse;
use std::time::Duration;

use domain::agent::{AgentError, LaunchRequest, LaunchSecret, LlmConfig, McpServer};
use domain::error::BoxError;
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

/// Longest reason kept from an error response.
const MAX_REASON_CHARS: usize = 500;
/// Shorter values are not redacted, because they occur in ordinary text.
const MIN_SECRET_CHARS: usize = 4;

/// An exchange that ended without a usable response.
#[derive(Debug)]
pub(crate) enum CallError {
    /// The connection could not be made.
    NoConnection(BoxError),
    /// The connection broke during the exchange. An idempotent request is repeated once.
    Broken(BoxError),
    /// No complete response within this time.
    TimedOut(Duration),
    /// The response, or the memory for its parsed JSON, is larger than this number of bytes.
    TooLarge(usize),
    /// The URL or the key is not valid in an HTTP request.
    InvalidRequest(&'static str),
}

impl From<CallError> for AgentError {
    fn from(error: CallError) -> Self {
        match error {
            CallError::NoConnection(cause) | CallError::Broken(cause) => Self::Unreachable(cause),
            CallError::TimedOut(limit) => Self::TimedOut(limit),
            CallError::TooLarge(limit) => {
                Self::Malformed(format!("the response has more than {limit} bytes"))
            }
            CallError::InvalidRequest(reason) => Self::Malformed(reason.to_owned()),
        }
    }
}

/// A response that is not what the protocol says.
pub(crate) fn malformed(what: &str) -> AgentError {
    AgentError::Malformed(what.to_owned())
}

/// The secrets of a model.
pub(crate) fn secrets_of_llm(llm: &LlmConfig) -> impl Iterator<Item = &str> {
    let secrets = llm.api_key.iter().chain(llm.secret_options.values());
    secrets.map(ExposeSecret::expose_secret)
}

/// The secrets of a launch.
pub(crate) fn secrets_of_launch(request: &LaunchRequest) -> Vec<&str> {
    let mut url_values = Vec::new();
    let mut secrets: Vec<&SecretString> = request.search_api_key.iter().collect();
    for secret in request.secrets.values() {
        match secret {
            LaunchSecret::Value(value) => secrets.push(value),
            LaunchSecret::LookUp { headers, .. } => secrets.extend(headers.values()),
        }
    }
    for server in &request.mcp {
        match server {
            McpServer::Remote { api_key, url, .. } => {
                secrets.extend(api_key);
                url_values.extend(query_values(url));
            }
            McpServer::Stdio { env, .. } => secrets.extend(env.values()),
        }
    }
    let secrets = secrets.into_iter().map(ExposeSecret::expose_secret);
    let secrets = secrets.chain(secrets_of_llm(&request.llm));
    secrets.chain(url_values).collect()
}

/// The values of a URL's query, percent-encoded. Any of them may be secret.
fn query_values(url: &str) -> impl Iterator<Item = &str> {
    let query = url.split_once('?').map_or("", |(_, query)| query);
    let query = query.split_once('#').map_or(query, |(query, _)| query);
    let values = query.split('&').filter_map(|pair| pair.split_once('='));
    values.map(|(_, value)| value)
}

/// A printable text of bounded length, without the secrets, both verbatim and JSON-escaped.
fn redacted(text: &str, secrets: &[&str]) -> String {
    let mut forms = Vec::new();
    for secret in secrets {
        let quoted = Value::from(*secret).to_string();
        forms.extend([quoted[1..quoted.len() - 1].to_owned(), (*secret).to_owned()]);
    }
    forms.retain(|form| form.len() >= MIN_SECRET_CHARS);
    // Longest first, so that a secret that contains another is redacted as a whole.
    forms.sort_by_key(|form| Reverse(form.len()));
    let mut text = text.to_owned();
    for form in forms {
        text = text.replace(&form, "**********");
    }
    // Control characters could manipulate a terminal or a log.
    let printable = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    printable.take(MAX_REASON_CHARS).collect()
}

/// Converts an error response: 404 is `NotFound`, other statuses keep a short reason without the secrets of the request.
pub(crate) fn refused(status: u16, body: &[u8], secrets: &[&str]) -> AgentError {
    if status == 404 {
        return AgentError::NotFound;
    }
    AgentError::Rejected {
        status,
        reason: redacted(&reason(body), secrets),
    }
}

/// `detail` as text or as a list of validation errors (without their `input`, which echoes the request), plus the
/// `exception` that a 500 names.
fn reason(body: &[u8]) -> String {
    const NO_REASON: &str = "the response names no reason";
    let Ok(document) = serde_json::from_slice::<Value>(body) else {
        return NO_REASON.to_owned();
    };
    let detail = match &document["detail"] {
        Value::String(text) => text.clone(),
        Value::Array(entries) => {
            let errors: Vec<_> = entries.iter().map(validation_error).collect();
            errors.join("; ")
        }
        _ => NO_REASON.to_owned(),
    };
    match document["exception"].as_str() {
        Some(exception) => format!("{detail}: {exception}"),
        None => detail,
    }
}

fn validation_error(entry: &Value) -> String {
    let path = entry["loc"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|part| match part {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        });
    let path = path.collect::<Vec<_>>().join(".");
    format!("{path}: {}", entry["msg"].as_str().unwrap_or("invalid"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_of_a_reason_become_spaces() {
        let body = br#"{"detail": "x\n2026 INFO forged\r\u001b[2K"}"#;
        let error = refused(500, body, &["session-key-1"]);
        let AgentError::Rejected { reason, .. } = error else {
            panic!("{error:?}");
        };
        assert_eq!(reason, "x 2026 INFO forged  [2K");
    }

    #[test]
    fn a_reason_is_truncated_and_contains_no_secret_and_no_input() {
        let secrets = ["session-key-1"];
        let body =
            br#"{"detail":[{"loc":["body","agent",0],"msg":"bad session-key-1","input":"hush"}]}"#;
        let AgentError::Rejected { status, reason } = refused(422, body, &secrets) else {
            panic!()
        };
        assert_eq!(
            (status, reason.as_str()),
            (422, "body.agent.0: bad **********")
        );
        let long = format!(r#"{{"detail":"{}","exception":"x"}}"#, "é".repeat(4000));
        let AgentError::Rejected { reason, .. } = refused(500, long.as_bytes(), &secrets) else {
            panic!()
        };
        assert_eq!(reason.chars().count(), MAX_REASON_CHARS);
    }

    #[test]
    fn json_escaped_secrets_and_query_values_are_redacted() {
        let key = "a\"b\\c-é";
        let body = serde_json::json!({"detail": key, "exception": r#"{"k":"a\"b\\c-é"}"#});
        let refusal = refused(500, body.to_string().as_bytes(), &[key]);
        let AgentError::Rejected { reason, .. } = refusal else {
            panic!()
        };
        assert_eq!(reason, r#"**********: {"k":"**********"}"#);
        let values: Vec<_> = query_values("https://h/mcp?token=s%2B1&x=&y#z=1").collect();
        assert_eq!(values, ["s%2B1", ""]);
        assert_eq!(query_values("https://h/a=b").count(), 0);
    }

    #[test]
    fn status_404_is_not_found_and_malformed_bodies_are_accepted() {
        let secrets = [""];
        assert!(matches!(refused(404, b"x", &secrets), AgentError::NotFound));
        for body in [&b""[..], b"[]", b"{\"detail\":[1,{\"loc\":5}]}", b"\xff"] {
            assert!(matches!(
                refused(503, body, &secrets),
                AgentError::Rejected { status: 503, .. }
            ));
        }
    }
}
