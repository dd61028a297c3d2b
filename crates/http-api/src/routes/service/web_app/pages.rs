//! Small pages while there is no web application, and where it has none.

use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::http::header::{CACHE_CONTROL, RETRY_AFTER};
use actix_web::{HttpResponse, HttpResponseBuilder};

use crate::page_security;

/// Permits nothing: the pages are text.
const POLICY: &str =
    "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";
/// Time after which the page loads itself again.
const REFRESH_INTERVAL: Duration = Duration::from_secs(3);
/// The same after a failure, which the service repeats more slowly.
const FAILED_REFRESH_INTERVAL: Duration = Duration::from_secs(30);

pub(super) fn installing(step: &str) -> HttpResponse {
    unavailable(
        "The web application is being installed",
        &format!(
            "This happens once, at the first start: {step}. This page continues by itself. The log of the service shows the \
             same, and the API and the console at /console/ work already."
        ),
        REFRESH_INTERVAL,
    )
}

pub(super) fn failed() -> HttpResponse {
    unavailable(
        "The web application is not available",
        "The log of the service says why, and the service tries again by itself. An operator without access to the package \
         registry installs it with: agent-workspace web install --from FILE. The API and the console at /console/ work.",
        FAILED_REFRESH_INTERVAL,
    )
}

/// The response to a page that the web application leaves to this service, and that this service does not have.
pub(super) fn missing() -> HttpResponse {
    let mut answer = HttpResponse::NotFound();
    let text = "This service has no page at this address. The web application is at /, and the console at /console/.";
    page(&mut answer, "No such page", text, None)
}

fn unavailable(title: &str, text: &str, refresh: Duration) -> HttpResponse {
    let mut answer = HttpResponse::build(StatusCode::SERVICE_UNAVAILABLE);
    answer.insert_header((RETRY_AFTER, refresh.as_secs()));
    page(&mut answer, title, text, Some(refresh))
}

fn page(
    answer: &mut HttpResponseBuilder,
    title: &str,
    text: &str,
    refresh: Option<Duration>,
) -> HttpResponse {
    let refresh = refresh.map_or_else(String::new, |after| {
        let seconds = after.as_secs();
        format!("<meta http-equiv=\"refresh\" content=\"{seconds}\">")
    });
    let text = text
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;");
    page_security::add(answer, POLICY);
    answer
        .insert_header((CACHE_CONTROL, "no-store"))
        .content_type("text/html; charset=utf-8")
        .body(format!(
            "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\">{refresh}\
             <meta name=\"viewport\" content=\"width=device-width\"><title>{title}</title></head>\
             <body><h1>{title}</h1><p>{text}</p></body></html>\n"
        ))
}
