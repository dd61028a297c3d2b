//! CORS: which origins may call from a browser, and the headers that allow it.

use actix_web::HttpResponse;
use actix_web::http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE,
    ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, CONTENT_TYPE, HeaderMap,
    HeaderValue, ORIGIN, VARY,
};

use crate::rate_limit;

const ALLOWED_METHODS: &str = "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT";
/// Seconds for which a browser may cache a preflight.
const PREFLIGHT_MAX_AGE_SECONDS: &str = "600";

/// The configured origins. Without any, no page of another origin may call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Cors {
    exact: Vec<String>,
    /// Origins without their port, from entries that end in `:*`.
    any_port: Vec<String>,
}

impl Cors {
    /// Accepts exact origins (`https://host`, `http://host:8080`) and entries with any port (`http://localhost:*`).
    pub(crate) fn new(origins: &[String]) -> Self {
        let mut all = Self::default();
        for origin in origins {
            let origin = origin.trim().trim_end_matches('/').to_ascii_lowercase();
            match origin.strip_suffix(":*") {
                Some(host) => all.any_port.push(host.to_owned()),
                None => all.exact.push(origin),
            }
        }
        all
    }

    /// Whether pages of this origin may call.
    pub(super) fn admits(&self, origin: &HeaderValue) -> bool {
        let Ok(origin) = origin.to_str() else {
            return false;
        };
        let of_any_port = |host: &String| match origin.strip_prefix(host.as_str()) {
            Some("") => true,
            Some(rest) => rest.strip_prefix(':').is_some_and(|port| {
                (1..=5).contains(&port.len()) && port.bytes().all(|b| b.is_ascii_digit())
            }),
            None => false,
        };
        self.exact.iter().any(|allowed| allowed == origin) || self.any_port.iter().any(of_any_port)
    }

    /// The response to a preflight request; `None` for any other request.
    pub(super) fn preflight(&self, headers: &HeaderMap) -> Option<HttpResponse> {
        let origin = origin_of(headers)?;
        headers.get(ACCESS_CONTROL_REQUEST_METHOD)?;
        if !self.admits(origin) {
            let mut refusal = HttpResponse::BadRequest();
            return Some(
                refusal
                    .insert_header(plain_text())
                    .body("Disallowed CORS origin"),
            );
        }
        let mut answer = HttpResponse::Ok();
        answer.insert_header(plain_text());
        answer.insert_header((ACCESS_CONTROL_ALLOW_METHODS, ALLOWED_METHODS));
        answer.insert_header((ACCESS_CONTROL_MAX_AGE, PREFLIGHT_MAX_AGE_SECONDS));
        if let Some(wanted) = headers.get(ACCESS_CONTROL_REQUEST_HEADERS) {
            answer.insert_header((ACCESS_CONTROL_ALLOW_HEADERS, wanted.clone()));
        }
        Some(answer.body("OK"))
    }

    /// Adds the headers that let a browser pass the response to the page. Errors get them, too: a page must be able to read a
    /// 401.
    pub(super) fn decorate(&self, origin: Option<&HeaderValue>, headers: &mut HeaderMap) {
        if self.exact.is_empty() && self.any_port.is_empty() {
            return;
        }
        headers.append(VARY, HeaderValue::from_static("Origin"));
        let Some(origin) = origin.filter(|origin| self.admits(origin)) else {
            return;
        };
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
        // Front ends of other origins send their requests with credentials. The session cookie opens none of them
        // (`browser_session::check_sender`).
        headers.insert(
            ACCESS_CONTROL_ALLOW_CREDENTIALS,
            HeaderValue::from_static("true"),
        );
        // Appended to the headers that an agent server exposes.
        let exposed = HeaderValue::from_static(rate_limit::EXPOSED_HEADERS);
        headers.append(ACCESS_CONTROL_EXPOSE_HEADERS, exposed);
    }
}

fn plain_text() -> (actix_web::http::header::HeaderName, &'static str) {
    (CONTENT_TYPE, "text/plain; charset=utf-8")
}

pub(super) fn origin_of(headers: &HeaderMap) -> Option<&HeaderValue> {
    headers.get(ORIGIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cors() -> Cors {
        Cors::new(&[
            "https://app.example".into(),
            "http://localhost:*".into(),
            "http://127.0.0.1:*".into(),
        ])
    }

    #[test]
    fn only_configured_origins_are_admitted() {
        let table = [
            ("https://app.example", true),
            ("http://localhost:3001", true),
            ("http://localhost", true),
            ("http://127.0.0.1:1", true),
            ("http://app.example", false),
            ("https://app.example.evil", false),
            ("https://app.example:8443", false),
            ("http://localhost.evil", false),
            ("http://localhost:3001.evil", false),
            ("http://localhost:", false),
            ("http://localhost:123456", false),
            ("null", false),
            ("", false),
        ];
        for (origin, admitted) in table {
            let value = HeaderValue::from_str(origin).unwrap();
            assert_eq!(cors().admits(&value), admitted, "{origin}");
        }
        assert!(!Cors::new(&[]).admits(&HeaderValue::from_static("http://localhost:3000")));
    }
}
