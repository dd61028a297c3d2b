//! The headers that pass. All others stay behind: cookies, headers of one hop, the sandbox's token.

use domain::agent::model_endpoint::ModelProtocol;
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use secrecy::{ExposeSecret as _, SecretString};

const AGENT_NAME: HeaderValue =
    HeaderValue::from_static(concat!("agent-workspace/", env!("CARGO_PKG_VERSION")));

/// Headers that the agent may set.
const FROM_AGENT: [&str; 9] = [
    "accept",
    "anthropic-beta",
    "anthropic-version",
    "content-type",
    "http-referer",
    "openai-beta",
    "openai-organization",
    "openai-project",
    "x-title",
];

/// Headers of answers, and beginnings of their names. Those end with a dash.
const FROM_ENDPOINT: [&str; 11] = [
    "anthropic-ratelimit-",
    "cache-control",
    "content-encoding",
    "content-type",
    "openai-",
    "request-id",
    "retry-after",
    "retry-after-ms",
    "x-ratelimit-",
    "x-request-id",
    "x-should-retry",
];

/// The headers of a call: those of the agent that pass, and the key. `None` if the key cannot be a header's value.
pub(crate) fn of_call(
    protocol: ModelProtocol,
    key: &SecretString,
    given: &[(String, Vec<u8>)],
) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    for (name, value) in given {
        let name = name.to_ascii_lowercase();
        if FROM_AGENT.contains(&name.as_str()) {
            let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
            headers.insert(name, HeaderValue::from_bytes(value).ok()?);
        }
    }
    let key = key.expose_secret().trim();
    let (name, text) = match protocol {
        ModelProtocol::OpenAi | ModelProtocol::Proxy => (AUTHORIZATION, format!("Bearer {key}")),
        ModelProtocol::Anthropic => (HeaderName::from_static("x-api-key"), key.to_owned()),
        ModelProtocol::Azure => (HeaderName::from_static("api-key"), key.to_owned()),
        ModelProtocol::Gemini => (HeaderName::from_static("x-goog-api-key"), key.to_owned()),
    };
    let mut value = HeaderValue::from_str(&text).ok()?;
    value.set_sensitive(true);
    headers.insert(name, value);
    headers.insert(USER_AGENT, AGENT_NAME);
    Some(headers)
}

/// The headers of an answer that pass.
pub(crate) fn of_answer(headers: &HeaderMap) -> Vec<(String, Vec<u8>)> {
    let passes = |name: &str| {
        FROM_ENDPOINT
            .iter()
            .any(|it| *it == name || (it.ends_with('-') && name.starts_with(it)))
    };
    headers
        .iter()
        .filter(|(name, _)| passes(name.as_str()))
        .map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listed_headers_pass_and_the_key_replaces_the_token() {
        let given = |name: &str, value: &str| (name.to_owned(), value.as_bytes().to_vec());
        let all = [
            given("Authorization", "Bearer token"),
            given("x-api-key", "token"),
            given("x-goog-api-key", "token"),
            given("api-key", "token"),
            given("Cookie", "a=b"),
            given("Host", "elsewhere"),
            given("Connection", "close"),
            given("Transfer-Encoding", "chunked"),
            given("Content-Length", "7"),
            given("X-Forwarded-For", "10.0.0.1"),
            given("Content-Type", "application/json"),
            given("anthropic-version", "2023-06-01"),
        ];
        for (protocol, name, value) in [
            (ModelProtocol::OpenAi, "authorization", "Bearer sk"),
            (ModelProtocol::Proxy, "authorization", "Bearer sk"),
            (ModelProtocol::Anthropic, "x-api-key", "sk"),
            (ModelProtocol::Gemini, "x-goog-api-key", "sk"),
            (ModelProtocol::Azure, "api-key", "sk"),
        ] {
            let headers = of_call(protocol, &"sk".into(), &all).unwrap();
            assert_eq!(headers[name], value);
            let mut names: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
            names.sort_unstable();
            let mut expected = ["anthropic-version", "content-type", "user-agent", name];
            expected.sort_unstable();
            assert_eq!(names, expected);
            assert!(!format!("{headers:?}").contains("sk\""));
        }
        let broken = given("content-type", "a\r\nx-api-key: b");
        assert!(of_call(ModelProtocol::OpenAi, &"sk".into(), &[broken]).is_none());
        assert!(of_call(ModelProtocol::OpenAi, &"sk\r\nx: y".into(), &[]).is_none());
    }

    #[test]
    fn only_listed_headers_of_answers_pass() {
        let mut headers = HeaderMap::new();
        for name in [
            "set-cookie",
            "location",
            "connection",
            "transfer-encoding",
            "content-length",
            "strict-transport-security",
            "content-type",
            "retry-after",
            "x-ratelimit-remaining-tokens",
            "anthropic-ratelimit-tokens-reset",
        ] {
            headers.insert(name, HeaderValue::from_static("1"));
        }
        let passed = of_answer(&headers);
        let mut names: Vec<&str> = passed.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        let expected = [
            "anthropic-ratelimit-tokens-reset",
            "content-type",
            "retry-after",
            "x-ratelimit-remaining-tokens",
        ];
        assert_eq!(names, expected);
    }
}
