//! Redirects a path with a trailing slash to the route without it.

use actix_web::HttpResponse;
use actix_web::dev::ServiceRequest;
use actix_web::http::header::LOCATION;

use crate::openapi::RouteSurface;

/// 307 to the path without its trailing slash, if that is a route. The target is a path on this host: it matches a route
/// pattern of this service, so it cannot name another host (`//evil/`). `prefix` is the path of the public URL.
pub(super) fn redirect(
    req: &ServiceRequest,
    surface: &RouteSurface,
    prefix: &str,
) -> Option<HttpResponse> {
    let target = target(req.path(), surface)?;
    let query = req.query_string();
    let location = if query.is_empty() {
        format!("{prefix}{target}")
    } else {
        format!("{prefix}{target}?{query}")
    };
    Some(
        HttpResponse::TemporaryRedirect()
            .insert_header((LOCATION, location))
            .finish(),
    )
}

fn target<'a>(path: &'a str, surface: &RouteSurface) -> Option<&'a str> {
    let meant = path.strip_suffix('/')?;
    (meant.starts_with('/') && !meant.starts_with("//") && surface.has_route(meant))
        .then_some(meant)
}
