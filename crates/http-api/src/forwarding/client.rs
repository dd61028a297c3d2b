//! What a server behind is told about the client.

use actix_web::HttpRequest;
use actix_web::http::header::{HeaderName, HeaderValue};

use crate::extract::ClientAddress;

/// `X-Forwarded-For`, `-Proto` and `-Host`, as far as trusted proxies or the connection say it. What the client itself sent
/// under these names is taken off by the gateway.
pub(crate) fn forwarded(req: &HttpRequest) -> Vec<(HeaderName, HeaderValue)> {
    let client = ClientAddress::of(req);
    let scheme = if client.is_https { "https" } else { "http" };
    let said = [
        ("x-forwarded-for", client.address.map(|it| it.to_string())),
        ("x-forwarded-proto", Some(scheme.to_owned())),
        ("x-forwarded-host", client.host),
    ];
    let mut headers = Vec::with_capacity(said.len() + 2);
    for (name, value) in said {
        // A name that is no header is not passed on.
        if let Some(Ok(value)) = value.map(|value| HeaderValue::from_str(&value)) {
            headers.push((HeaderName::from_static(name), value));
        }
    }
    headers
}
