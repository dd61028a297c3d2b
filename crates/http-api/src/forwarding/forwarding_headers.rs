//! The forwarding headers of requests to servers in sandboxes.

use actix_web::HttpRequest;
use actix_web::http::header::{HOST, HeaderName, HeaderValue};

use crate::extract::ClientAddress;

/// `X-Forwarded-For`, `-Proto` and `-Host`, from trusted proxies or the connection. The gateway removes what the client
/// itself sent under these names.
pub(crate) fn forwarding_headers(req: &HttpRequest) -> Vec<(HeaderName, HeaderValue)> {
    let client = ClientAddress::of(req);
    let own = || {
        let host = req.headers().get(HOST)?.to_str().ok()?;
        Some(host.to_ascii_lowercase())
    };
    let scheme = if client.is_https { "https" } else { "http" };
    let values = [
        ("x-forwarded-for", client.address.map(|it| it.to_string())),
        ("x-forwarded-proto", Some(scheme.to_owned())),
        ("x-forwarded-host", client.host.or_else(own)),
    ];
    // A host that is not a valid header value is not passed on.
    let header = |(name, value): (&'static str, Option<String>)| {
        let value = HeaderValue::try_from(value?).ok()?;
        Some((HeaderName::from_static(name), value))
    };
    values.into_iter().filter_map(header).collect()
}
