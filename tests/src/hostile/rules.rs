//! Rules that every response must keep.

use serde_json::Value;

use super::surface::ApiSurface;
use super::values::CANARY;
use super::wire::{ExchangeError, Request, Response};

/// A text in another user's objects.
pub(super) const OTHER_USERS_CANARY: &str = "canary-of-another-user";

/// Statuses of paths and methods that the document does not have. They include the paths of agent servers, where wrong
/// keys are limited (429).
const UNMATCHED: &[u16] = &[307, 400, 401, 403, 404, 405, 429];

/// Operations whose 401 is a JSON string when a git provider has no token or refuses it.
const BARE_TEXTS: [&str; 2] = ["/api/user/", "/api/v1/git/"];

/// A broken rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BrokenRule {
    pub(super) rule: &'static str,
    pub(super) detail: String,
}

fn broken(rule: &'static str, detail: impl Into<String>) -> BrokenRule {
    BrokenRule {
        rule,
        detail: detail.into(),
    }
}

/// The first rule that an exchange breaks.
pub(super) fn judge(
    surface: &ApiSurface,
    request: &Request,
    outcome: &Result<Response, ExchangeError>,
) -> Option<BrokenRule> {
    let response = match outcome {
        Ok(response) => response,
        Err(ExchangeError::TimedOut(received)) if received.is_empty() => {
            return Some(broken("hangs", "no answer within the deadline"));
        }
        Err(ExchangeError::TimedOut(received)) => {
            return Some(broken("keeps the connection open", received));
        }
        Err(ExchangeError::Closed(why)) => return Some(broken("answers nothing", why)),
        // Known limitation: actix closes the connection of a request for an upgrade after its body, which truncates a stream.
        // Started work continues.
        Err(ExchangeError::Garbled(_) | ExchangeError::Cut(_)) if request.has_header("upgrade") => {
            return None;
        }
        // Another request may delete the conversation meanwhile. The truncation shows the client that the download is
        // incomplete.
        Err(ExchangeError::Cut(_)) if request.path().ends_with("/download") => return None,
        Err(ExchangeError::Garbled(what) | ExchangeError::Cut(what)) => {
            return Some(broken("answers no HTTP", what));
        }
    };
    let text = response.text();
    if response.status == 500 {
        return Some(broken("500", text));
    }
    if response.status == 408 {
        return Some(broken("waits for more of a request that is complete", text));
    }
    let head = response.headers.iter().map(|(_, value)| value.as_str());
    let has_secret = head
        .chain([text.as_str()])
        .any(|part| part.contains(CANARY));
    if has_secret && !is_for_a_sandbox(request, response) {
        return Some(broken("answers a secret", text));
    }
    if text.contains(OTHER_USERS_CANARY) {
        return Some(broken("answers what is another user's", text));
    }
    status(surface, request, response)
        .or_else(|| form(request, response, &text))
        .or_else(|| check_required_headers(response))
}

/// Whether this is the one response that contains a secret: to a sandbox that requests it by name.
fn is_for_a_sandbox(request: &Request, response: &Response) -> bool {
    let kind = response.header("content-type").unwrap_or_default();
    request.path().contains("/settings/secrets/")
        && response.status == 200
        && kind.starts_with("text/plain")
}

fn status(surface: &ApiSurface, request: &Request, response: &Response) -> Option<BrokenRule> {
    let status = response.status;
    let Some(operation) = surface.find(&request.method, request.path()) else {
        let is_preflight = request.method == "OPTIONS" && status == 200;
        if UNMATCHED.contains(&status) || is_preflight {
            return None;
        }
        // Another spelling of an existing path.
        let is_path_alike = request.path().contains('%') || request.path().contains("//");
        return (!is_path_alike)
            .then(|| broken("answers what is not documented", status.to_string()));
    };
    if !operation.statuses.contains(&status) {
        let detail = format!("{status} of {} {}", operation.method, operation.path);
        return Some(broken("answers a status that is not documented", detail));
    }
    let has_key = request.has_header("x-session-api-key") || request.has_header("authorization");
    if status < 300 && operation.is_keyed() && !has_key {
        return Some(broken("answers without a key", status.to_string()));
    }
    None
}

/// Checks that errors have a documented form, and that responses with a JSON content type are JSON.
fn form(request: &Request, response: &Response, text: &str) -> Option<BrokenRule> {
    if request.method == "HEAD" || response.status == 307 {
        return None;
    }
    let kind = response.header("content-type").unwrap_or_default();
    let is_json = kind.starts_with("application/json");
    if response.status < 400 {
        let is_fine = !is_json || serde_json::from_str::<Value>(text).is_ok();
        return (!is_fine).then(|| broken("answers broken JSON", text));
    }
    if request.method == "OPTIONS" && response.status == 400 {
        return None;
    }
    let document: Value = serde_json::from_str(text).unwrap_or_default();
    let is_family = is_json
        && (document["detail"].is_string()
            || document["error"].is_string()
            || document["message"].is_string()
            // The form of JSON-RPC.
            || (document["jsonrpc"] == "2.0" && document["error"]["message"].is_string())
            || (response.status == 503 && document.is_object())
            || (document.is_string() && has_bare_texts(request, response))
            || document["detail"]
                .as_array()
                .is_some_and(|list| is_validation(list)));
    let detail = format!("{} {kind}: {text}", response.status);
    (!is_family).then(|| broken("answers an error of no known form", detail))
}

fn has_bare_texts(request: &Request, response: &Response) -> bool {
    // `requests` also spells paths with `%61`.
    let path = request.path().replace("%61", "a");
    response.status == 401 && BARE_TEXTS.iter().any(|under| path.starts_with(under))
}

fn is_validation(list: &[Value]) -> bool {
    !list.is_empty()
        && list.iter().all(|item| {
            item["type"].is_string() && item["msg"].is_string() && item["loc"].is_array()
        })
}

fn check_required_headers(response: &Response) -> Option<BrokenRule> {
    let missing = |header: &'static str| {
        let detail = format!("{} without {header}", response.status);
        response
            .header(header)
            .is_none()
            .then(|| broken("leaves a header out", detail))
    };
    match response.status {
        405 => missing("allow"),
        429 | 503 => missing("retry-after"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn verdict(status: u16, body: &str) -> Option<&'static str> {
        verdict_at("/a", status, body)
    }

    fn verdict_at(path: &str, status: u16, body: &str) -> Option<&'static str> {
        let responses = json!({"200": {}, "401": {}, "404": {}, "422": {}});
        let surface = ApiSurface::read(json!({"paths": {path: {"get": {"responses": responses}}}}));
        let request = Request {
            method: "GET".to_owned(),
            target: format!("{path}?b"),
            headers: vec![("X-Session-API-Key".to_owned(), "k".to_owned())],
            body: None,
        };
        let response = Response {
            status,
            headers: vec![("content-type".to_owned(), "application/json".to_owned())],
            body: body.as_bytes().to_owned(),
        };
        judge(&surface, &request, &Ok(response)).map(|broken| broken.rule)
    }

    #[test]
    fn each_rule_can_be_broken() {
        assert_eq!(verdict(200, "{}"), None);
        assert_eq!(verdict(404, r#"{"detail":"Not Found"}"#), None);
        assert_eq!(verdict(500, "{}"), Some("500"));
        assert_eq!(verdict(200, "{"), Some("answers broken JSON"));
        assert_eq!(
            verdict(404, "{}"),
            Some("answers an error of no known form")
        );
        let unknown = Some("answers an error of no known form");
        assert_eq!(verdict(401, "\"no token\""), unknown);
        assert_eq!(verdict_at("/api/user/info", 401, "\"no token\""), None);
        assert_eq!(verdict_at("/%61pi/user/info", 401, "\"no token\""), None);
        assert_eq!(verdict_at("/api/user/info", 404, "\"no\""), unknown);
        assert_eq!(
            verdict(422, r#"{"detail":[{"loc":[]}]}"#),
            Some("answers an error of no known form")
        );
        assert_eq!(
            verdict(418, "{}"),
            Some("answers a status that is not documented")
        );
        assert_eq!(
            verdict(200, &json!(CANARY).to_string()),
            Some("answers a secret")
        );
        assert_eq!(
            verdict(200, &json!(OTHER_USERS_CANARY).to_string()),
            Some("answers what is another user's")
        );
    }
}
