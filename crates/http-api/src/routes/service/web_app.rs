//! The web application at `/` (`crates/web-app`): what no route serves, where the service has a web application.

mod origin;
mod pages;

use actix_web::http::Method;
use actix_web::http::header::{
    ACCEPT_ENCODING, AcceptEncoding, CACHE_CONTROL, CONTENT_ENCODING, ContentEncoding, ETAG,
    Header as _, IF_NONE_MATCH, LOCATION, REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS,
};
use actix_web::{HttpRequest, HttpResponse};
use percent_encoding::percent_decode_str;
use web_app::{PathUse, WebApp, WebAppStatus, WebFile};

use self::origin::{PageTarget, page_target};
use super::login_redirect::login_redirect;
use super::{device_login, gzip};
use crate::extract::{Application, unplaced_actor};
use crate::middleware::CACHED_FOREVER;
use crate::page_security;
use crate::problem::Problem;
use crate::state::{HttpState, Listener, WebAppSite};

/// The response of the web application to a request without a route; `None` if the path is not its own.
pub(crate) async fn answer(
    req: &HttpRequest,
    state: &HttpState,
) -> Result<Option<HttpResponse>, Problem> {
    let is_read = matches!(*req.method(), Method::GET | Method::HEAD);
    if !is_read || state.listener != Listener::Public {
        return Ok(None);
    }
    let Some(site) = &state.web_app else {
        let own = device_login::own_page(req).await?;
        return Ok(own.or_else(|| start_page(req, state)));
    };
    let status = site.slot.status();
    if !matches!(status, WebAppStatus::Ready(_))
        && let Some(own) = device_login::own_page(req).await?
    {
        return Ok(Some(own));
    }
    if let WebAppStatus::Ready(app) = &status
        && let Ok(path) = percent_decode_str(req.path()).decode_utf8()
        && let Some(file) = app.file(&path)
    {
        return send_file(req, file, PathUse::is_immutable(&path))
            .await
            .map(Some);
    }
    Ok(match (PathUse::of(req.path()), status) {
        (PathUse::Other, _) => None,
        (PathUse::HostPage, _) => Some(pages::missing()),
        (PathUse::Page, WebAppStatus::Installing { step }) => Some(pages::installing(&step)),
        (PathUse::Page, WebAppStatus::Failed) => Some(pages::failed()),
        (PathUse::Page, WebAppStatus::Ready(app)) => Some(send_page(req, state, site, &app).await?),
    })
}

/// Without the web application, people begin with the console after the login.
fn start_page(req: &HttpRequest, state: &HttpState) -> Option<HttpResponse> {
    let is_start = req.path() == "/" && state.browser_sessions.is_some();
    is_start.then(|| {
        let console = format!("{}/console/", state.addresses.prefix());
        HttpResponse::Found()
            .insert_header((LOCATION, console))
            .finish()
    })
}

/// Sends `index.html`, or the visitor to the login page.
async fn send_page(
    req: &HttpRequest,
    state: &HttpState,
    site: &WebAppSite,
    app: &WebApp,
) -> Result<HttpResponse, Problem> {
    let origins = match page_target(req, state, site) {
        PageTarget::Page(origins) => origins,
        PageTarget::Redirect(location) => {
            return Ok(HttpResponse::TemporaryRedirect()
                .insert_header((LOCATION, location))
                .finish());
        }
    };
    if let Some(login) = login_redirect(req).await? {
        return Ok(login);
    }
    let page = app.index().render(&origins, &organizations(req).await);
    let mut answer = HttpResponse::Ok();
    page_security::add(&mut answer, &page.policy);
    answer
        // The page depends on the host, and its scripts on the build.
        .insert_header((CACHE_CONTROL, "no-cache"))
        .content_type("text/html; charset=utf-8");
    Ok(answer.body(page.html))
}

/// The organizations of the visitor, the current one first. None where the browser sends no identity, or the store is away: the
/// page asks itself then.
async fn organizations(req: &HttpRequest) -> Vec<String> {
    let (Some(app), Ok(actor)) = (req.app_data::<Application>(), unplaced_actor(req).await) else {
        return Vec::new();
    };
    let current = actor.owner.organization();
    let mut found = app.organizations.list(&actor).await.unwrap_or_default();
    found.sort_by_key(|it| it.id != current);
    found.into_iter().map(|it| it.id.to_string()).collect()
}

async fn send_file(
    req: &HttpRequest,
    file: &WebFile,
    is_immutable: bool,
) -> Result<HttpResponse, Problem> {
    let header = |name| {
        req.headers()
            .get(name)
            .and_then(|value| value.to_str().ok())
    };
    let is_known = header(IF_NONE_MATCH).is_some_and(|known| file.matches_etag(known));
    let mut answer = if is_known {
        HttpResponse::NotModified()
    } else {
        HttpResponse::Ok()
    };
    if is_immutable {
        answer.insert_header((CACHE_CONTROL, CACHED_FOREVER));
    } else {
        answer.insert_header((CACHE_CONTROL, "no-cache"));
    }
    answer
        .insert_header((ETAG, file.etag.as_str()))
        .insert_header((VARY, "Accept-Encoding"))
        .insert_header((X_CONTENT_TYPE_OPTIONS, "nosniff"))
        .insert_header((REFERRER_POLICY, "no-referrer"));
    if is_known {
        return Ok(answer.finish());
    }
    answer.content_type(file.content_type);
    if !file.is_gzip {
        return Ok(answer.body(file.content.clone()));
    }
    let accepts_gzip = req.headers().contains_key(ACCEPT_ENCODING)
        && AcceptEncoding::parse(req).is_ok_and(|accepted| gzip::is_accepted(&accepted));
    if accepts_gzip {
        answer.insert_header((CONTENT_ENCODING, ContentEncoding::Gzip));
        return Ok(answer.body(file.content.clone()));
    }
    Ok(answer.body(gzip::unpacked(&file.content).await?))
}
