//! The paths of calls.

use std::borrow::Cow;

use domain::agent::model_endpoint::ModelProtocol;
use url::Url;

/// Why no endpoint has this path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathRefusal {
    /// No call has this path.
    NotFound,
    /// A call with this path has another method.
    MethodNotAllowed,
}

/// The paths of calls below the service's own address, with their methods, and the paths below the endpoint.
const PATHS: &[(ModelProtocol, &str, &str, &str)] = &[
    (
        ModelProtocol::OpenAi,
        "POST",
        "v1/chat/completions",
        "chat/completions",
    ),
    (ModelProtocol::OpenAi, "POST", "v1/responses", "responses"),
    (
        ModelProtocol::Proxy,
        "POST",
        "v1/chat/completions",
        "chat/completions",
    ),
    (ModelProtocol::Proxy, "POST", "v1/responses", "responses"),
    (
        ModelProtocol::Proxy,
        "GET",
        "v1/v1/model/info",
        "v1/model/info",
    ),
    (
        ModelProtocol::Anthropic,
        "POST",
        "v1/messages",
        "v1/messages",
    ),
];

/// The path below an endpoint for a path below the service's own address, with a query where the protocol has one.
///
/// # Errors
/// The path or the method is none of this protocol.
pub fn check_path(
    protocol: ModelProtocol,
    method: &str,
    path: &str,
    query: &str,
) -> Result<Cow<'static, str>, PathRefusal> {
    let with_name = match protocol {
        ModelProtocol::Gemini => Some(gemini_path(path, query)),
        ModelProtocol::Azure => Some(azure_path(path, query)),
        ModelProtocol::OpenAi | ModelProtocol::Proxy | ModelProtocol::Anthropic => None,
    };
    if let Some(with_name) = with_name {
        let path = with_name.ok_or(PathRefusal::NotFound)?;
        let is_post = method == "POST";
        return is_post
            .then_some(path.into())
            .ok_or(PathRefusal::MethodNotAllowed);
    }
    let mut known = PATHS.iter().filter(|it| it.0 == protocol && it.2 == path);
    let Some(found) = known.clone().find(|it| it.1 == method) else {
        return Err(match known.next() {
            Some(_) => PathRefusal::MethodNotAllowed,
            None => PathRefusal::NotFound,
        });
    };
    Ok(found.3.into())
}

/// `v1/models/NAME:ACTION`. A stream has events instead of one document with `alt=sse`.
fn gemini_path(path: &str, query: &str) -> Option<String> {
    let path = path.strip_prefix("v1/")?;
    let (name, action) = path.strip_prefix("models/")?.split_once(':')?;
    let is_action = matches!(action, "generateContent" | "streamGenerateContent");
    let query = if query == "alt=sse" { "?alt=sse" } else { "" };
    (is_name(name) && is_action).then(|| format!("{path}{query}"))
}

/// `openai/deployments/NAME/chat/completions`, `openai/responses`, or the same calls below `openai/v1`, with a version.
fn azure_path(path: &str, query: &str) -> Option<String> {
    let words: Vec<&str> = path.split('/').collect();
    let is_call = match words[..] {
        ["openai", "deployments", name, "chat", "completions"] => is_name(name),
        ["openai", "v1", "chat", "completions"]
        | ["openai", "responses"]
        | ["openai", "v1", "responses"] => true,
        _ => false,
    };
    let version = query.strip_prefix("api-version=");
    let version = version.filter(|version| is_name(version));
    let query = version.map_or_else(String::new, |it| format!("?api-version={it}"));
    is_call.then(|| format!("{path}{query}"))
}

/// Whether this part of a path or a query stands for itself.
fn is_name(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !text.is_empty() && !text.starts_with('.') && text.chars().all(is_plain)
}

/// The URL of a call.
pub(crate) fn call_url(base: &Url, path: &str) -> Option<Url> {
    let base = base.as_str().trim_end_matches('/');
    Url::parse(&format!("{base}/{path}")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_other_path_is_called() {
        use ModelProtocol::{Anthropic, Azure, Gemini, OpenAi, Proxy};
        use PathRefusal::{MethodNotAllowed, NotFound};
        for (protocol, method, path, refusal) in [
            (OpenAi, "GET", "v1/chat/completions", MethodNotAllowed),
            (OpenAi, "DELETE", "v1/responses", MethodNotAllowed),
            (OpenAi, "POST", "v1/messages", NotFound),
            (OpenAi, "GET", "v1/v1/model/info", NotFound),
            (OpenAi, "POST", "v1/files", NotFound),
            (OpenAi, "POST", "v1/chat/completions/", NotFound),
            (OpenAi, "POST", "v1/../v1/chat/completions", NotFound),
            (OpenAi, "POST", "chat/completions", NotFound),
            (OpenAi, "POST", "", NotFound),
            (Anthropic, "POST", "v1/chat/completions", NotFound),
            (Anthropic, "POST", "v1/messages/batches", NotFound),
            (Proxy, "POST", "v1/key/generate", NotFound),
            (
                Gemini,
                "GET",
                "v1/models/m:generateContent",
                MethodNotAllowed,
            ),
            (Gemini, "POST", "v1/models/m:embedContent", NotFound),
            (
                Gemini,
                "POST",
                "v1/models/m:generateContent?key=1",
                NotFound,
            ),
            (Gemini, "POST", "v1/models/a/b:generateContent", NotFound),
            (Gemini, "POST", "v1/models/..:generateContent", NotFound),
            (Gemini, "POST", "v1/models/:generateContent", NotFound),
            (Gemini, "POST", "v1/models", NotFound),
            (Gemini, "POST", "v1/chat/completions", NotFound),
            (Azure, "POST", "openai/deployments/m/embeddings", NotFound),
            (
                Azure,
                "POST",
                "openai/deployments/../chat/completions",
                NotFound,
            ),
            (Azure, "POST", "openai/files", NotFound),
            (Azure, "GET", "openai/responses", MethodNotAllowed),
        ] {
            let checked = check_path(protocol, method, path, "");
            assert_eq!(checked, Err(refusal), "{path}");
        }
    }

    #[test]
    fn only_known_queries_pass() {
        use ModelProtocol::{Azure, Gemini, Proxy};
        let models = check_path(Proxy, "GET", "v1/v1/model/info", "a=b");
        assert_eq!(models.as_deref(), Ok("v1/model/info"));
        let path = "openai/responses";
        for (query, expected) in [
            (
                "api-version=2025-03-01-preview",
                "openai/responses?api-version=2025-03-01-preview",
            ),
            ("api-version=1&api-key=2", "openai/responses"),
            ("", "openai/responses"),
        ] {
            let checked = check_path(Azure, "POST", path, query);
            assert_eq!(checked.as_deref(), Ok(expected));
        }
        let stream = "v1/models/m:streamGenerateContent";
        for (query, expected) in [
            ("alt=sse", "models/m:streamGenerateContent?alt=sse"),
            ("key=1&alt=sse", "models/m:streamGenerateContent"),
        ] {
            let checked = check_path(Gemini, "POST", stream, query);
            assert_eq!(checked.as_deref(), Ok(expected));
        }
    }
}
