//! Filters headers in both directions.

use actix_web::HttpResponseBuilder;
use actix_web::http::header::{HeaderMap, HeaderName as OurName, HeaderValue as OurValue};
use actix_web::web::Bytes;
use hyper::header::{HeaderMap as TheirMap, HeaderName, HeaderValue};
use url::{Position, Url};

use crate::{ForwardError, ForwardTarget, forward};

/// Headers about one connection (RFC 9110, section 7.6.1, and what servers treat alike). The bodies set the length.
const HOP_BY_HOP: &[&str] = &[
    "connection",
    "content-length",
    "expect",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authentication-info",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Request headers that the service consumes: keys, and what proxies say about the client. The target sets the host.
const CONSUMED_HEADERS: &[&str] = &[
    "authorization",
    "cf-connecting-ip",
    "forwarded",
    "host",
    "true-client-ip",
    "via",
    "x-access-token",
    "x-client-ip",
    "x-id-token",
    "x-real-ip",
    "x-refresh-token",
    "x-request-id",
    "x-session-api-key",
    "x-userinfo",
];

/// Prefixes of such headers. Proxies that authenticate users put the identity in these headers, many also the user's token,
/// and the sandbox may belong to another user (oauth2-proxy, Keycloak's and Authelia's proxies, Cloudflare Access, AWS,
/// Google, Azure, authentik, Pomerium, Vouch, Tailscale).
const CONSUMED_PREFIXES: &[&str] = &[
    "cf-access-",
    "remote-",
    "tailscale-",
    "x-amzn-oidc-",
    "x-auth-",
    "x-authentik-",
    "x-forwarded-",
    "x-goog-authenticated-user-",
    "x-goog-iap-",
    "x-ms-client-principal",
    "x-ms-token-",
    "x-pomerium-",
    "x-remote-",
    "x-vouch-",
    "x-webauth-",
];

/// A request header that an agent server does not get, because the target sets its key. A server with its own path prefix
/// may use such keys.
const SHARED_KEY_HEADER: &str = "x-api-key";

/// Response headers that an upstream must not set: they would affect the browser, the proxies in front or other pages of
/// this origin.
const BLOCKED_RESPONSE_HEADERS: &[&str] = &[
    "alt-svc",
    "clear-site-data",
    "expect-ct",
    "nel",
    "public-key-pins",
    "report-to",
    "reporting-endpoints",
    "service-worker-allowed",
    "strict-transport-security",
    "x-request-id",
    "x-sendfile",
];

fn is_consumed(name: &str) -> bool {
    CONSUMED_HEADERS.contains(&name) || CONSUMED_PREFIXES.iter().any(|it| name.starts_with(it))
}

fn is_blocked_in_responses(name: &str) -> bool {
    BLOCKED_RESPONSE_HEADERS.contains(&name)
        || name.starts_with("access-control-")
        || name.ends_with("cdn-cache-control")
        || name.starts_with("surrogate-")
        || name.starts_with("x-accel-")
}

/// Headers that the message itself declares hop-by-hop.
fn connection_options<'a>(connection: impl Iterator<Item = &'a [u8]>) -> Vec<String> {
    let values = connection.filter_map(|value| std::str::from_utf8(value).ok());
    let names = values.flat_map(|value| value.split(','));
    names.map(|name| name.trim().to_ascii_lowercase()).collect()
}

/// The headers of the upstream request. `is_upgrade`: the connection becomes a tunnel.
pub(crate) fn request_headers(
    sent: &HeaderMap,
    target: &ForwardTarget,
    is_upgrade: bool,
) -> Result<TheirMap, ForwardError> {
    let mut headers = TheirMap::with_capacity(sent.len() + target.headers.len() + 2);
    let host =
        HeaderValue::from_str(forward::server(target)).map_err(|_| ForwardError::BadRequest)?;
    headers.insert("host", host);
    for (name, value) in forwarded_headers(sent, target) {
        append(&mut headers, name, value)?;
    }
    if is_upgrade {
        headers.insert("connection", HeaderValue::from_static("Upgrade"));
        for value in sent.get_all("upgrade") {
            append(&mut headers, &OurName::from_static("upgrade"), value)?;
        }
    }
    Ok(headers)
}

/// The client's headers that pass, and those that the target sets, without the host.
pub(crate) fn forwarded_headers<'a>(
    sent: &'a HeaderMap,
    target: &'a ForwardTarget,
) -> impl Iterator<Item = (&'a OurName, &'a OurValue)> {
    let connection_options = connection_options(sent.get_all("connection").map(OurValue::as_bytes));
    let passes = move |name: &OurName| {
        let text = name.as_str();
        let is_cookie = text == "cookie" && !target.cookies;
        let is_set = target.headers.iter().any(|(set, _)| set == name);
        let is_key = text == SHARED_KEY_HEADER && !target.cookies;
        let is_ours = is_cookie || is_set || is_key || is_consumed(text);
        let is_of_hop =
            HOP_BY_HOP.contains(&text) || connection_options.iter().any(|it| it == text);
        !is_ours && !is_of_hop
    };
    let theirs = sent.iter().filter(move |(name, _)| passes(name));
    theirs.chain(target.headers.iter().map(|(name, value)| (name, value)))
}

fn append(headers: &mut TheirMap, name: &OurName, value: &OurValue) -> Result<(), ForwardError> {
    // actix and hyper use different major versions of the `http` crate.
    let name =
        HeaderName::from_bytes(name.as_str().as_bytes()).map_err(|_| ForwardError::BadRequest)?;
    let value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| ForwardError::BadRequest)?;
    headers.append(name, value);
    Ok(())
}

/// Copies the response headers for the client. A tunnel keeps the upgrade header.
pub(crate) fn copy_response_headers(
    answer: &mut HttpResponseBuilder,
    headers: &TheirMap,
    target: &ForwardTarget,
    keep_length: bool,
) {
    let connection_options = connection_options(
        headers
            .get_all("connection")
            .iter()
            .map(HeaderValue::as_bytes),
    );
    for (name, value) in headers {
        let text = name.as_str();
        let is_length = keep_length && text == "content-length";
        if (is_returned(text, target) || is_length)
            && !connection_options.iter().any(|it| it == text)
        {
            let value = OurValue::from_bytes(value.as_bytes());
            if let (Ok(name), Ok(value)) = (OurName::from_bytes(text.as_bytes()), value) {
                answer.append_header((name, shown(text, value, target)));
            }
        }
    }
}

/// The same for a response without connection options. Drops invalid values.
pub(crate) fn copy_complete_response_headers(
    answer: &mut HttpResponseBuilder,
    headers: impl Iterator<Item = (OurName, Bytes)>,
    target: &ForwardTarget,
) {
    for (name, value) in headers {
        if is_returned(name.as_str(), target)
            && let Ok(value) = OurValue::from_maybe_shared(value)
        {
            let value = shown(name.as_str(), value, target);
            answer.append_header((name, value));
        }
    }
}

/// Whether a client may see a response header.
fn is_returned(name: &str, target: &ForwardTarget) -> bool {
    let is_cookie = matches!(name, "set-cookie" | "set-cookie2") && !target.cookies;
    !is_cookie && !HOP_BY_HOP.contains(&name) && !is_blocked_in_responses(name)
}

/// The value for the client.
fn shown(name: &str, value: OurValue, target: &ForwardTarget) -> OurValue {
    let place = (name == "location")
        .then(|| location(value.as_bytes(), target))
        .flatten();
    let place = place.and_then(|place| OurValue::from_str(&place).ok());
    place.unwrap_or(value)
}

/// Maps a location on the upstream to its public path. Other locations stay as they are.
fn location(value: &[u8], target: &ForwardTarget) -> Option<String> {
    let text = std::str::from_utf8(value).ok()?;
    let is_path = text.starts_with('/') && !text.starts_with("//");
    if is_path {
        return Some(format!("{}{text}", target.prefix));
    }
    let url = Url::parse(text).ok()?;
    let is_theirs = url.host_str() == target.base_url.host_str()
        && url.port_or_known_default() == target.base_url.port_or_known_default();
    is_theirs.then(|| format!("{}{}", target.prefix, &url[Position::BeforePath..]))
}

#[cfg(test)]
mod tests {
    use actix_web::HttpResponse;

    use super::*;

    fn target(cookies: bool) -> ForwardTarget {
        ForwardTarget {
            sandbox: "a".into(),
            owner: "a".into(),
            unauthenticated: None,
            base_url: Url::parse("http://127.0.0.1:4321").unwrap(),
            path_and_query: "/api/file".into(),
            headers: vec![(
                OurName::from_static("x-session-api-key"),
                OurValue::from_static("theirs"),
            )],
            cookies,
            prefix: "/agents".into(),
        }
    }

    fn sent(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(OurName::from_static(name), OurValue::from_static(value));
        }
        headers
    }

    #[test]
    fn keys_cookies_hops_and_what_proxies_said_stay_here() {
        let sent = sent(&[
            ("host", "agents.example"),
            ("x-session-api-key", "mine"),
            ("authorization", "Bearer mine"),
            ("proxy-authorization", "Basic mine"),
            ("cookie", "mine=1"),
            ("forwarded", "for=1.2.3.4"),
            ("x-forwarded-for", "1.2.3.4"),
            ("x-forwarded-host", "evil"),
            ("x-real-ip", "1.2.3.4"),
            ("connection", "keep-alive, X-Secret"),
            ("x-secret", "1"),
            ("transfer-encoding", "chunked"),
            ("content-length", "5"),
            ("te", "trailers"),
            ("upgrade", "h2c"),
            ("expect", "100-continue"),
            ("accept", "a"),
            ("accept", "b"),
        ]);
        let headers = request_headers(&sent, &target(false), false).unwrap();
        let mut seen: Vec<_> = headers
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
            .collect();
        seen.sort();
        assert_eq!(
            seen,
            [
                "accept: a",
                "accept: b",
                "host: 127.0.0.1:4321",
                "x-session-api-key: theirs"
            ]
        );
        assert!(
            request_headers(&sent, &target(true), false)
                .unwrap()
                .contains_key("cookie")
        );
        let upgrading = request_headers(&sent, &target(false), true).unwrap();
        assert_eq!(upgrading["connection"], "Upgrade");
        assert_eq!(upgrading["upgrade"], "h2c");
    }

    #[test]
    fn what_login_proxies_say_stays_here() {
        let said = sent(&[
            ("x-auth-request-access-token", "t"),
            ("x-auth-token", "t"),
            ("x-forwarded-access-token", "t"),
            ("cf-access-jwt-assertion", "t"),
            ("cf-connecting-ip", "1.2.3.4"),
            ("x-amzn-oidc-accesstoken", "t"),
            ("x-amzn-oidc-data", "t"),
            ("x-goog-iap-jwt-assertion", "t"),
            ("x-ms-token-aad-access-token", "t"),
            ("x-ms-client-principal", "t"),
            ("remote-user", "a"),
            ("x-remote-user", "a"),
            ("x-access-token", "t"),
            ("x-authentik-jwt", "t"),
            ("x-pomerium-jwt-assertion", "t"),
            ("tailscale-user-login", "a"),
        ]);
        for cookies in [false, true] {
            let headers = request_headers(&said, &target(cookies), false).unwrap();
            let names: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
            assert_eq!(names, ["host", "x-session-api-key"], "{cookies}");
        }
        let key = sent(&[("x-api-key", "k")]);
        for cookies in [false, true] {
            let headers = request_headers(&key, &target(cookies), false).unwrap();
            assert_eq!(headers.contains_key("x-api-key"), cookies);
        }
    }

    #[test]
    fn a_server_behind_governs_neither_browsers_nor_proxies() {
        let mut headers = TheirMap::new();
        for (name, value) in [
            ("set-cookie", "a=1"),
            ("access-control-allow-origin", "*"),
            ("strict-transport-security", "max-age=1"),
            ("x-accel-redirect", "/secret"),
            ("cdn-cache-control", "max-age=9"),
            ("cloudflare-cdn-cache-control", "max-age=9"),
            ("surrogate-control", "max-age=9"),
            ("connection", "close, x-hop"),
            ("x-hop", "1"),
            ("keep-alive", "timeout=5"),
            ("transfer-encoding", "chunked"),
            ("content-type", "text/plain"),
            ("etag", "\"1\""),
        ] {
            headers.append(name, HeaderValue::from_static(value));
        }
        let mut answer = HttpResponse::Ok();
        copy_response_headers(&mut answer, &headers, &target(false), false);
        let answer = answer.finish();
        let mut seen: Vec<_> = answer.headers().keys().map(OurName::as_str).collect();
        seen.sort_unstable();
        assert_eq!(seen, ["content-type", "etag"]);
    }

    #[test]
    fn places_on_the_server_behind_are_shown_where_clients_find_them() {
        let table = [
            (
                "http://127.0.0.1:4321/docs/?a=1#b",
                Some("/agents/docs/?a=1#b"),
            ),
            ("/docs", Some("/agents/docs")),
            ("http://127.0.0.1:4322/", None),
            ("//other.example/x", None),
            ("https://other.example/x", None),
            ("docs", None),
        ];
        for (sent, shown) in table {
            let found = location(sent.as_bytes(), &target(false));
            assert_eq!(found.as_deref(), shown, "{sent}");
        }
    }
}
