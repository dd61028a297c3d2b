//! The forwarding headers of requests to servers in sandboxes.

use actix_web::http::header::{HOST, HeaderName, HeaderValue};
use actix_web::{HttpMessage as _, HttpRequest};

use crate::extract::ClientAddress;

/// `X-Forwarded-For`, `-Proto` and `-Host`, from trusted proxies or the connection. The gateway removes what the client
/// itself sent under these names.
pub(crate) fn forwarding_headers(req: &HttpRequest) -> Vec<(HeaderName, HeaderValue)> {
    let parts = req.extensions();
    let read;
    let client = if let Some(noted) = parts.get::<ClientAddress>() {
        noted
    } else {
        read = ClientAddress::of(req);
        &read
    };
    let own = || {
        let host = req.headers().get(HOST)?.to_str().ok()?;
        Some(host.to_ascii_lowercase())
    };
    let host = client.host.clone().or_else(own);
    let scheme = if client.is_https { "https" } else { "http" };
    let values = [
        (
            "x-forwarded-for",
            client
                .address
                .map(|value| HeaderValue::try_from(value.to_string())),
        ),
        (
            "x-forwarded-proto",
            Some(Ok(HeaderValue::from_static(scheme))),
        ),
        ("x-forwarded-host", host.map(HeaderValue::try_from)),
    ];
    let mut headers = Vec::with_capacity(values.len() + 2);
    for (name, value) in values {
        // A host that is not a valid header value is not passed on.
        if let Some(Ok(value)) = value {
            headers.push((HeaderName::from_static(name), value));
        }
    }
    headers
}
