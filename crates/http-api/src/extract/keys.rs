//! The keys that a request has.

use actix_web::HttpRequest;
use actix_web::http::header::{AUTHORIZATION, HeaderName};
use secrecy::SecretString;

/// The header with the key of a user or a sandbox. A constant text would be parsed for each request.
pub(crate) static KEY_HEADER: HeaderName = HeaderName::from_static("x-session-api-key");
/// Longest key; longer texts are not hashed.
pub(crate) const MAX_KEY_BYTES: usize = 512;

/// The key of a request: `X-Session-API-Key`, else `Authorization: Bearer`. An empty one counts as none. One that cannot be
/// a key (not text, too long) counts as a wrong key.
pub fn key_of(req: &HttpRequest) -> Option<SecretString> {
    key_text(req).map(SecretString::from)
}

/// The key in `Authorization: Bearer`.
pub(crate) fn bearer_of(req: &HttpRequest) -> Option<SecretString> {
    bearer_text(req).map(SecretString::from)
}

/// Like [`key_of`], borrowed from the request.
pub(super) fn key_text(req: &HttpRequest) -> Option<&str> {
    match req.headers().get(&KEY_HEADER) {
        Some(value) if !value.is_empty() => key(value.to_str().unwrap_or("?")),
        _ => bearer_text(req),
    }
}

/// Like [`bearer_of`], borrowed from the request.
pub(crate) fn bearer_text(req: &HttpRequest) -> Option<&str> {
    key(bearer(req.headers().get(AUTHORIZATION)?.to_str().ok()?)?)
}

fn key(text: &str) -> Option<&str> {
    let text = text.trim();
    let text = if text.len() > MAX_KEY_BYTES {
        "?"
    } else {
        text
    };
    (!text.is_empty()).then_some(text)
}

fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token)
}
