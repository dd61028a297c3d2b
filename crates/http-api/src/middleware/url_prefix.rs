//! Strips the path of the public URL, which a proxy may pass on.

use actix_web::dev::ServiceRequest;
use actix_web::http::Uri;

use crate::addresses::Addresses;

/// Turns `/agents/api/v1/…` into `/api/v1/…` for all later layers.
pub(super) fn strip(req: &mut ServiceRequest, addresses: &Addresses) {
    let Some(rest) = addresses.without_prefix(req.uri().path()) else {
        return;
    };
    let rest = match req.uri().query() {
        Some(query) => format!("{rest}?{query}"),
        None => rest.to_owned(),
    };
    let mut parts = req.uri().clone().into_parts();
    // The suffix of a valid path is valid.
    parts.path_and_query = rest.parse().ok();
    if let Ok(uri) = Uri::from_parts(parts) {
        req.match_info_mut().get_mut().update(&uri);
        req.head_mut().uri = uri;
    }
}
