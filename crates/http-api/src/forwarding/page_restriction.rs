//! Restricts what a browser and caches may do with the responses of agent servers.

use actix_web::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderMap, HeaderValue, REFERRER_POLICY, VARY,
};

use super::path_owner::PathOwner;

/// Forbids scripts, an origin, and fetching anything.
const RESTRICTED_PAGE_POLICY: HeaderValue = HeaderValue::from_static(
    "sandbox; default-src 'none'; img-src data:; style-src 'unsafe-inline'",
);
/// The headers that the response depends on.
const VARY_BY_KEY: HeaderValue = HeaderValue::from_static("X-Session-API-Key, Authorization");

/// Restricts a sandbox's response, should a browser show it as a page: it gets no rights of this origin and sends no
/// referrer, and caches keep it per key.
pub(super) fn restrict_page(headers: &mut HeaderMap, place: PathOwner) {
    headers.append(CONTENT_SECURITY_POLICY, RESTRICTED_PAGE_POLICY);
    // The URL may contain a key.
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.append(VARY, VARY_BY_KEY);
    let kept = match place {
        // With another key, the same URL belongs to the service, and not every cache heeds `Vary`.
        PathOwner::Shared => HeaderValue::from_static("no-store"),
        _ => private_cache_control(headers),
    };
    headers.insert(CACHE_CONTROL, kept);
}

/// The agent server's cache directives, restricted to the browser's private cache.
fn private_cache_control(headers: &HeaderMap) -> HeaderValue {
    if !headers.contains_key(CACHE_CONTROL) {
        return HeaderValue::from_static("private");
    }
    let values = headers
        .get_all(CACHE_CONTROL)
        .filter_map(|value| value.to_str().ok());
    let words = values.flat_map(|value| value.split(',')).map(str::trim);
    let is_for_others = |word: &&str| {
        let name = word.split('=').next().unwrap_or_default().trim();
        let others = ["public", "private", "s-maxage", "proxy-revalidate"];
        others.iter().any(|other| name.eq_ignore_ascii_case(other))
    };
    let mut words: Vec<&str> = words
        .filter(|word| !word.is_empty() && !is_for_others(word))
        .collect();
    words.push("private");
    // The directives come from valid header values.
    HeaderValue::from_str(&words.join(", ")).unwrap_or(HeaderValue::from_static("no-store"))
}
