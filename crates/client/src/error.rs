//! Errors of the client, described for a person.

use std::fmt::{self, Write as _};
use std::io;
use std::time::Duration;

use serde_json::Value;

/// Longest kept text of a refusal, in characters.
const MAX_ERROR_TEXT_CHARS: usize = 1000;

/// Why there is no usable response. No variant contains the key or the request.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The arguments do not form a valid request.
    #[error("{0}")]
    Unusable(String),
    /// No connection to the service: it is not running, runs elsewhere, or its certificate is not trusted.
    #[error("cannot reach {origin}")]
    Unreachable {
        /// Scheme, host and port.
        origin: String,
        /// The cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The connection ended before the response did. The service may have executed the request.
    #[error("the connection to {origin} broke before the response was complete")]
    Interrupted {
        /// Scheme, host and port.
        origin: String,
        /// The cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// No response within the time-out. The service may have executed the request.
    #[error("{origin} did not answer within {} s", .after.as_secs())]
    TimedOut {
        /// Scheme, host and port.
        origin: String,
        /// The time-out.
        after: Duration,
    },
    /// The service refused the request.
    #[error("{0}")]
    Refused(Refusal),
    /// The response does not match the service's API document.
    #[error(
        "response to {path} does not match the API. Check that the URL is that of an agent-workspace service, and that its \
         version is near this program's"
    )]
    Unreadable {
        /// The path of the operation, with the names of its parameters.
        path: &'static str,
        /// What is wrong.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The response is longer than the limit in bytes.
    #[error(
        "the service's response is larger than the {0} bytes that this program accepts: ask for less"
    )]
    TooLarge(usize),
    /// The downloaded data cannot be written.
    #[error("cannot write the downloaded data")]
    Write(#[source] io::Error),
}

impl Error {
    /// The refusal, if the service refused the request.
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }

    /// Whether the connection was lost, so that the service may have executed the request.
    pub fn is_uncertain(&self) -> bool {
        matches!(self, Self::Interrupted { .. } | Self::TimedOut { .. })
    }

    /// Whether a later attempt may succeed.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Unreachable { .. } => true,
            Self::Refused(refusal) => matches!(refusal.status, 429 | 502..=504),
            other => other.is_uncertain(),
        }
    }
}

/// One problem of a request (status 422).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The location: `body`, `query`, `path` or `header`, then each member.
    pub at: Vec<String>,
    /// The description.
    pub message: String,
    /// The rule's name, e.g. `missing`.
    pub kind: String,
}

/// A refusal in any of the documented formats.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// HTTP status.
    pub status: u16,
    /// The service's message; empty if the body has none, or an undocumented format.
    pub message: String,
    /// All problems of the input.
    pub problems: Vec<Problem>,
    /// When another attempt makes sense.
    pub retry_after: Option<Duration>,
}

impl Refusal {
    /// Reads a body of one of the formats `{"detail": text}`, `{"detail": [problem, …]}`, `{"error": text}`, `{"message":
    /// text}`, a bare JSON text, or plain text.
    pub fn read(status: u16, retry_after: Option<&str>, body: &[u8]) -> Self {
        let (message, problems) = match serde_json::from_slice(body) {
            Ok(document) => read_document(&document),
            Err(_) => (read_text(body), Vec::new()),
        };
        let seconds = retry_after.and_then(|text| text.trim().parse().ok());
        Self {
            status,
            message: shortened(&message),
            problems,
            retry_after: seconds.map(Duration::from_secs),
        }
    }

    fn hint(&self) -> Option<&'static str> {
        match self.status {
            401 => Some("the API key is missing, wrong, expired or revoked"),
            301..=308 => Some("the service has moved: use the URL in `Location`"),
            413 if self.message.is_empty() => Some("the request is too large"),
            502..=504 if self.message.is_empty() => Some("the service is not available right now"),
            _ => None,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        if !self.message.is_empty() {
            text.push_str(&self.message);
        }
        for problem in &self.problems {
            let separator = if text.is_empty() { "" } else { "; " };
            write!(
                text,
                "{separator}{}: {}",
                problem.at.join("."),
                problem.message
            )?;
        }
        match self.hint() {
            Some(hint) if text.is_empty() => text.push_str(hint),
            Some(hint) => write!(text, " ({hint})")?,
            None => {}
        }
        if text.is_empty() {
            text.push_str("no reason given");
        }
        write!(f, "refused with status {}: {text}", self.status)?;
        match self.retry_after {
            Some(after) => write!(f, "; try again in {} s", after.as_secs()),
            None => Ok(()),
        }
    }
}

fn read_document(document: &Value) -> (String, Vec<Problem>) {
    if let Some(text) = document.as_str() {
        return (text.to_owned(), Vec::new());
    }
    if let Some(list) = document["detail"].as_array() {
        return (String::new(), list.iter().map(read_problem).collect());
    }
    let mut texts = ["detail", "error", "message"].into_iter();
    let text = texts.find_map(|name| document[name].as_str());
    (text.unwrap_or_default().to_owned(), Vec::new())
}

fn read_problem(document: &Value) -> Problem {
    let text = |name: &str| shortened(document[name].as_str().unwrap_or_default());
    let at = document["loc"].as_array().into_iter().flatten();
    Problem {
        at: at
            .map(|part| part.as_str().map_or_else(|| part.to_string(), shortened))
            .collect(),
        message: text("msg"),
        kind: text("type"),
    }
}

/// The text of a proxy or a failing service. HTML pages are dropped.
fn read_text(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(4 * MAX_ERROR_TEXT_CHARS)]);
    if text.trim_start().starts_with('<') {
        return String::new();
    }
    text.trim().to_owned()
}

/// Truncates the text and removes terminal escape sequences: refusals may repeat texts of agents and providers.
fn shortened(text: &str) -> String {
    let is_steering = |c: char| c.is_control() && c != '\n';
    let plain = text.chars().map(|c| if is_steering(c) { ' ' } else { c });
    if text.chars().count() <= MAX_ERROR_TEXT_CHARS {
        return plain.collect();
    }
    plain
        .take(MAX_ERROR_TEXT_CHARS)
        .chain("…".chars())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_error_has_a_description() {
        for (status, body, expected) in [
            (
                404,
                r#"{"detail":"No such sandbox"}"#,
                "refused with status 404: No such sandbox",
            ),
            (
                422,
                r#"{"detail":[{"type":"missing","loc":["body","content"],"msg":"Field required","input":{}},{"type":"x","loc":["query","ids",3],"msg":"Bad"}]}"#,
                "refused with status 422: body.content: Field required; query.ids.3: Bad",
            ),
            (
                500,
                r#"{"error":"Conversation gone"}"#,
                "refused with status 500: Conversation gone",
            ),
            (
                429,
                r#"{"message":"Too many requests"}"#,
                "refused with status 429: Too many requests; try again in 7 s",
            ),
            (
                401,
                r#""No token""#,
                "refused with status 401: No token (the API key is missing, wrong, expired or revoked)",
            ),
            (
                500,
                "Internal Server Error",
                "refused with status 500: Internal Server Error",
            ),
            (
                502,
                "<html><body>Bad gateway",
                "refused with status 502: the service is not available right now",
            ),
            (400, "", "refused with status 400: no reason given"),
            (400, "[1]", "refused with status 400: no reason given"),
        ] {
            let after = (status == 429).then_some("7");
            assert_eq!(
                Refusal::read(status, after, body.as_bytes()).to_string(),
                expected
            );
        }
    }

    #[test]
    fn control_characters_of_refusals_are_removed() {
        for body in [
            r#"{"detail":"a\u001b[2Jb\u009bc\nd"}"#,
            r#"{"detail":[{"loc":["a\u001b[2Jb\u009bc\nd"],"msg":"a\u001b[2Jb\u009bc\nd"}]}"#,
            "a\u{1b}[2Jb\u{9b}c\nd",
        ] {
            let expected = Refusal::read(400, None, body.as_bytes()).to_string();
            assert!(expected.contains("a [2Jb c\nd"), "{expected:?}");
            assert!(!expected.contains(['\u{1b}', '\u{9b}']), "{expected:?}");
        }
    }

    #[test]
    fn a_long_text_is_cut() {
        let body = format!(r#"{{"detail":"{}"}}"#, "ä".repeat(5000));
        let read = Refusal::read(400, Some("soon"), body.as_bytes());
        assert_eq!(read.message.chars().count(), MAX_ERROR_TEXT_CHARS + 1);
        assert_eq!(read.retry_after, None);
        let plain = Refusal::read(400, None, "ä".repeat(5000).as_bytes());
        assert!(plain.message.chars().count() <= MAX_ERROR_TEXT_CHARS + 1);
    }
}
