//! Filters headers in both directions.

use actix_web::HttpResponseBuilder;
use actix_web::http::StatusCode as OurStatus;
use actix_web::http::header::{HeaderMap, HeaderName as OurName, HeaderValue as OurValue};
use hyper::StatusCode;
use hyper::header::{HeaderMap as UpstreamHeaders, HeaderName, HeaderValue};
use url::{Position, Url};

use crate::error::ForwardError;
use crate::target::ForwardTarget;

/// Headers about one connection (RFC 9110, section 7.6.1, and others that servers treat alike). `content-length` is here because
/// the body sets it.
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

/// Request headers that the service consumes: keys, and headers in which proxies describe the client. The target sets the host.
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

/// Prefixes of headers in which authenticating proxies put the user's identity, and often the user's token. They are removed
/// because the sandbox may belong to another user (oauth2-proxy, Keycloak's and Authelia's proxies, Cloudflare Access, AWS,
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

/// A request header that an agent server does not get, because its target carries the agent server's key. A server with its own
/// path prefix may use this header for its own keys.
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
    CONSUMED_HEADERS.contains(&name)
        || CONSUMED_PREFIXES
            .iter()
            .any(|prefix| name.starts_with(prefix))
}

fn is_blocked_in_responses(name: &str) -> bool {
    BLOCKED_RESPONSE_HEADERS.contains(&name)
        || name.starts_with("access-control-")
        || name.ends_with("cdn-cache-control")
        || name.starts_with("surrogate-")
        || name.starts_with("x-accel-")
}

/// The items of a header that is a list, in lower case. The items of `Connection` are hop-by-hop headers.
pub(crate) fn list_items<'a>(
    values: impl Iterator<Item = &'a [u8]>,
) -> impl Iterator<Item = String> {
    let values = values.filter_map(|value| std::str::from_utf8(value).ok());
    let items = values.flat_map(|value| value.split(','));
    items.map(|item| item.trim().to_ascii_lowercase())
}

/// The headers of the upstream request. `is_upgrade`: the connection becomes a tunnel.
pub(crate) fn request_headers(
    received: &HeaderMap,
    target: &ForwardTarget,
    is_upgrade: bool,
) -> Result<UpstreamHeaders, ForwardError> {
    let mut headers = UpstreamHeaders::with_capacity(received.len() + target.headers.len() + 2);
    let host = HeaderValue::from_str(target.server()).map_err(|_| ForwardError::BadRequest)?;
    headers.insert("host", host);
    for (name, value) in forwarded_headers(received, target) {
        append(&mut headers, name, value)?;
    }
    if is_upgrade {
        headers.insert("connection", HeaderValue::from_static("Upgrade"));
        for value in received.get_all("upgrade") {
            append(&mut headers, &OurName::from_static("upgrade"), value)?;
        }
    }
    Ok(headers)
}

/// The client's headers without the consumed and hop-by-hop ones, and those that the target sets, without the host.
fn forwarded_headers<'a>(
    received: &'a HeaderMap,
    target: &'a ForwardTarget,
) -> impl Iterator<Item = (&'a OurName, &'a OurValue)> {
    let connection = received.get_all("connection").map(OurValue::as_bytes);
    let connection_options: Vec<String> = list_items(connection).collect();
    let is_forwarded = move |name: &OurName| {
        let text = name.as_str();
        let is_cookie = text == "cookie" && !target.cookies;
        let is_replaced = target.headers.iter().any(|(set, _)| set == name);
        let is_key = text == SHARED_KEY_HEADER && !target.cookies;
        let is_removed = is_cookie || is_replaced || is_key || is_consumed(text);
        let is_hop_by_hop =
            HOP_BY_HOP.contains(&text) || connection_options.iter().any(|option| option == text);
        !is_removed && !is_hop_by_hop
    };
    let of_client = received.iter().filter(move |(name, _)| is_forwarded(name));
    of_client.chain(target.headers.iter().map(|(name, value)| (name, value)))
}

fn append(
    headers: &mut UpstreamHeaders,
    name: &OurName,
    value: &OurValue,
) -> Result<(), ForwardError> {
    // actix and hyper use different major versions of the `http` crate.
    let name =
        HeaderName::from_bytes(name.as_str().as_bytes()).map_err(|_| ForwardError::BadRequest)?;
    let value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| ForwardError::BadRequest)?;
    headers.append(name, value);
    Ok(())
}

/// Copies the response headers that a client may see.
pub(crate) fn copy_response_headers(
    response: &mut HttpResponseBuilder,
    headers: &UpstreamHeaders,
    target: &ForwardTarget,
) {
    let connection = headers.get_all("connection").iter();
    let connection_options: Vec<String> =
        list_items(connection.map(HeaderValue::as_bytes)).collect();
    for (name, value) in headers {
        let name = name.as_str();
        let is_cookie = matches!(name, "set-cookie" | "set-cookie2") && !target.cookies;
        let is_hop_by_hop =
            HOP_BY_HOP.contains(&name) || connection_options.iter().any(|option| option == name);
        if is_cookie || is_hop_by_hop || is_blocked_in_responses(name) {
            continue;
        }
        let location = (name == "location").then(|| public_location(value.as_bytes(), target));
        let location = location.flatten();
        let value = location.as_ref().map_or(value.as_bytes(), String::as_bytes);
        response.append_header((name, value));
    }
}

/// Maps a location on the upstream to its public path; `None` for other locations.
fn public_location(value: &[u8], target: &ForwardTarget) -> Option<String> {
    let text = std::str::from_utf8(value).ok()?;
    let is_path = text.starts_with('/') && !text.starts_with("//");
    if is_path {
        return Some(format!("{}{text}", target.prefix));
    }
    let url = Url::parse(text).ok()?;
    let is_on_upstream = url.host_str() == target.base_url.host_str()
        && url.port_or_known_default() == target.base_url.port_or_known_default();
    is_on_upstream.then(|| format!("{}{}", target.prefix, &url[Position::BeforePath..]))
}

/// The status of a response for the client.
pub(crate) fn status(status: StatusCode) -> OurStatus {
    OurStatus::from_u16(status.as_u16()).unwrap_or(OurStatus::BAD_GATEWAY)
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
    fn keys_cookies_hop_by_hop_and_proxy_headers_are_not_forwarded() {
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
    fn headers_of_authenticating_proxies_are_not_forwarded() {
        let proxy_headers = sent(&[
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
            let headers = request_headers(&proxy_headers, &target(cookies), false).unwrap();
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
    fn response_headers_for_browsers_and_proxies_are_blocked() {
        let mut headers = UpstreamHeaders::new();
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
        let mut response = HttpResponse::Ok();
        copy_response_headers(&mut response, &headers, &target(false));
        let response = response.finish();
        let mut seen: Vec<_> = response.headers().keys().map(OurName::as_str).collect();
        seen.sort_unstable();
        assert_eq!(seen, ["content-type", "etag"]);
    }

    #[test]
    fn locations_on_the_upstream_get_the_public_prefix() {
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
        for (sent, expected) in table {
            let location = public_location(sent.as_bytes(), &target(false));
            assert_eq!(location.as_deref(), expected, "{sent}");
        }
    }
}
