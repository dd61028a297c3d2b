//! The headers that pass. All others stay behind: cookies, headers of one hop, the sandbox's token.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use domain::git::CloneSource;
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use secrecy::ExposeSecret as _;

/// Headers that git and git-lfs set. Some hosts answer by the name of the client.
const FROM_SANDBOX: [&str; 8] = [
    "accept",
    "accept-encoding",
    "accept-language",
    "content-encoding",
    "content-type",
    "git-protocol",
    "range",
    "user-agent",
];

/// Headers of answers.
const FROM_HOST: [&str; 8] = [
    "cache-control",
    "content-encoding",
    "content-range",
    "content-type",
    "expires",
    "pragma",
    "retry-after",
    "x-request-id",
];

/// The value of the header with the host's credentials.
pub(super) fn credentials(host: &CloneSource) -> Option<String> {
    let token = host.token.as_ref()?.expose_secret();
    let pair = BASE64_STANDARD.encode(format!("{}:{token}", host.username));
    Some(format!("Basic {pair}"))
}

/// The headers of a call. `None` if one of them is not valid.
pub(super) fn of_call(credentials: Option<&str>, given: &[(String, Vec<u8>)]) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    for (name, value) in given {
        let name = name.to_ascii_lowercase();
        if FROM_SANDBOX.contains(&name.as_str()) {
            let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
            headers.insert(name, HeaderValue::from_bytes(value).ok()?);
        }
    }
    if let Some(credentials) = credentials {
        let mut value = HeaderValue::from_str(credentials).ok()?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    Some(headers)
}

/// The headers of an answer that pass.
pub(super) fn of_answer(headers: &HeaderMap) -> Vec<(String, Vec<u8>)> {
    headers
        .iter()
        .filter(|(name, _)| FROM_HOST.contains(&name.as_str()))
        .map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec()))
        .collect()
}
