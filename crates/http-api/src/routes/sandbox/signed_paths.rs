//! Forwards to the ports that sandboxes expose beside the agent server (editor, worker ports), under signed paths:
//! `/s/{sandbox}/{name}/{signature}/…`. The URL alone gives access, without a key, as long as the sandbox keeps the session
//! key that it was signed with. docs/reference/gateway.md describes how such pages are isolated.

use actix_web::http::header::{
    CONTENT_SECURITY_POLICY, COOKIE, HeaderName, HeaderValue, REFERRER_POLICY, SET_COOKIE,
};
use actix_web::{HttpRequest, HttpResponse, web};
use domain::id::SandboxId;
use domain::sandbox::{AGENT_SERVER, DesiredState, Sandbox, SandboxStatus};
use domain::user::scope::Scope;
use futures::FutureExt as _;
use futures::future::LocalBoxFuture;
use gateway::{ForwardTarget, Gateway};
use url::Url;

use crate::access_recheck::poll_until_refused;
use crate::addresses::{Addresses, SIGNED};
use crate::extract::{Application, State};
use crate::forwarding;
use crate::problem::Problem;

/// Prefix of the names of cookies that a sandbox sets. Only these are sent to it, and the service's own have no such prefix.
const COOKIE_PREFIX: &str = "sandbox.";
/// The port whose pages need a stable origin, for storage and workers. Only on a separate host for sandboxes, and only this
/// port, because all ports share one origin there: other ports are what users show each other.
const EDITOR_PORT: &str = "VSCODE";
/// Gives pages an opaque origin, which cannot reach the pages, cookies and storage of this service.
const ISOLATED_PAGE_POLICY: HeaderValue = HeaderValue::from_static(
    "sandbox allow-scripts allow-forms allow-popups allow-modals allow-downloads",
);
/// The URL is as powerful as a key, so other hosts must not see it.
const SAME_ORIGIN_REFERRER: HeaderValue = HeaderValue::from_static("same-origin");

pub(crate) fn register(config: &mut web::ServiceConfig) {
    let path = format!("/{SIGNED}/{{sandbox}}/{{name}}/{{signature}}/{{rest:.*}}");
    config.service(web::resource(path).to(forward)).service(
        web::resource(format!("/{SIGNED}/{{sandbox}}/{{name}}/{{signature}}")).to(forward),
    );
}

async fn forward(
    req: HttpRequest,
    payload: web::Payload,
    app: Application,
    state: State,
    gateway: web::Data<Gateway>,
) -> Result<HttpResponse, Problem> {
    if !forwarding::is_forwarded_method(req.method()) {
        return Err(Problem::not_found());
    }
    let signed = SignedPath::of(req.uri().path()).ok_or_else(Problem::not_found)?;
    let addresses = &state.addresses;
    let ids = [SandboxId::parse(signed.sandbox).map_err(|_| Problem::not_found())?];
    let found = app.sandboxes.find_many(&Scope::System, &ids).await?;
    let sandbox = found.into_iter().flatten().next();
    // Without a valid signature, callers do not even learn whether the sandbox exists.
    let sandbox = sandbox
        .filter(|sandbox| signed.opens(sandbox, addresses))
        .ok_or_else(Problem::not_found)?;
    let base_url = address(&sandbox, signed.name).ok_or_else(Problem::not_found)?;
    let path = addresses.signed_path(&sandbox.id, signed.name, signed.signature);
    let Some(rest) = signed.rest else {
        // Relative URLs of the page must resolve below this path.
        let root = forwarding::without_keys(&format!("{path}/"), req.query_string());
        return Ok(HttpResponse::TemporaryRedirect()
            .insert_header(("Location", root))
            .finish());
    };
    let target = ForwardTarget {
        sandbox: sandbox.id.as_str().into(),
        owner: sandbox.owner.as_str().into(),
        unauthenticated: None,
        base_url,
        path_and_query: forwarding::without_keys(rest, req.query_string()),
        headers: headers(&req, &path),
        cookies: true,
        prefix: path.clone(),
    };
    let asked = (app.clone(), state.clone(), req.uri().path().to_owned());
    let end = wait_until_closed(asked, sandbox.id);
    let payload = payload.into_inner();
    let answer = gateway.forward(&req, payload, &target, end).await;
    let mut answer = answer.map_err(|failure| forwarding::forward_problem(&failure))?;
    let keeps_origin = keeps_origin(signed.name, addresses.has_own_host());
    isolate_page(&mut answer, &path, keeps_origin);
    Ok(answer)
}

/// The parts of a signed path, as they stand in the request.
#[derive(Debug, PartialEq, Eq)]
struct SignedPath<'a> {
    sandbox: &'a str,
    name: &'a str,
    signature: &'a str,
    /// The path on the sandbox's port; `None` if even the slash of its root is missing.
    rest: Option<&'a str>,
}

impl<'a> SignedPath<'a> {
    fn of(path: &'a str) -> Option<Self> {
        let path = path
            .strip_prefix('/')?
            .strip_prefix(SIGNED)?
            .strip_prefix('/')?;
        let (sandbox, path) = path.split_once('/')?;
        let (name, path) = path.split_once('/')?;
        let (signature, rest) = match path.find('/') {
            Some(at) => (&path[..at], Some(&path[at..])),
            None => (path, None),
        };
        Some(Self {
            sandbox,
            name,
            signature,
            rest,
        })
    }
}

impl SignedPath<'_> {
    /// Whether the signature is valid for this sandbox, and the sandbox runs.
    fn opens(&self, sandbox: &Sandbox, addresses: &Addresses) -> bool {
        addresses.is_signed(sandbox, self.name, self.signature)
            && sandbox.desired == DesiredState::Running
            && sandbox.status == SandboxStatus::Running
    }
}

/// Returns when a socket on this path could not be opened any more.
fn wait_until_closed(
    (app, state, path): (Application, State, String),
    id: SandboxId,
) -> LocalBoxFuture<'static, ()> {
    let interval = state.limits.access_recheck_interval;
    let recheck = async move {
        let is_closed = async || {
            let ids = std::slice::from_ref(&id);
            let found = app.sandboxes.find_many(&Scope::System, ids).await;
            let opens = |sandbox: &Sandbox| {
                SignedPath::of(&path).is_some_and(|path| path.opens(sandbox, &state.addresses))
            };
            // An unavailable store closes nothing.
            found.is_ok_and(|found| !found.iter().flatten().any(opens))
        };
        poll_until_refused(interval, || is_closed().boxed_local()).await;
    };
    recheck.boxed_local()
}

/// The URL at which the service reaches this port. Clients may see another host with the same port.
/// Not for the agent server, which has its own paths and keys.
fn address(sandbox: &Sandbox, name: &str) -> Option<Url> {
    let mut urls = sandbox.exposed_urls.iter();
    let exposed = urls.find(|url| url.name == name && name != AGENT_SERVER)?;
    let mut url = sandbox.agent_url.as_deref()?.clone();
    url.set_port(exposed.url.port_or_known_default()).ok()?;
    Some(url)
}

/// Headers for the sandbox: the client, the public path of the port, and the sandbox's own cookies.
fn headers(req: &HttpRequest, path: &str) -> Vec<(HeaderName, HeaderValue)> {
    let mut headers = forwarding::forwarding_headers(req);
    let sent = req.headers().get_all(COOKIE);
    let cookies: Vec<_> = sent.filter_map(|value| value.to_str().ok()).collect();
    let cookies = cookies_to_sandbox(&cookies.join(";"));
    for (name, value) in [("x-forwarded-prefix", path), ("cookie", &cookies)] {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.push((HeaderName::from_static(name), value));
        }
    }
    headers
}

/// The cookies that the sandbox set, under their original names.
fn cookies_to_sandbox(sent: &str) -> String {
    let ours = sent.split(';').map(str::trim);
    let theirs: Vec<_> = ours
        .filter_map(|cookie| cookie.strip_prefix(COOKIE_PREFIX))
        .collect();
    theirs.join("; ")
}

/// Restricts a cookie of a sandbox to its own path.
fn cookie_from_sandbox(set: &str, path: &str) -> String {
    let mut parts = set.split(';').map(str::trim);
    let mut cookie = format!("{COOKIE_PREFIX}{}", parts.next().unwrap_or_default());
    for part in parts {
        let name = part.split('=').next().unwrap_or_default().trim();
        if !name.eq_ignore_ascii_case("domain") && !name.eq_ignore_ascii_case("path") {
            cookie = format!("{cookie}; {part}");
        }
    }
    format!("{cookie}; Path={path}/")
}

fn keeps_origin(name: &str, has_own_host: bool) -> bool {
    has_own_host && name == EDITOR_PORT
}

fn isolate_page(answer: &mut HttpResponse, path: &str, keeps_origin: bool) {
    let headers = answer.headers_mut();
    let set: Vec<_> = headers.remove(SET_COOKIE).collect();
    for cookie in set.iter().filter_map(|value| value.to_str().ok()) {
        if let Ok(value) = HeaderValue::from_str(&cookie_from_sandbox(cookie, path)) {
            headers.append(SET_COOKIE, value);
        }
    }
    headers.insert(REFERRER_POLICY, SAME_ORIGIN_REFERRER);
    if !keeps_origin {
        headers.append(CONTENT_SECURITY_POLICY, ISOLATED_PAGE_POLICY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signed_paths_are_split_without_decoding() {
        let of = |path| {
            SignedPath::of(path)
                .map(|signed| (signed.sandbox, signed.name, signed.signature, signed.rest))
        };
        for (path, expected) in [
            ("/s/a/W/f00/", Some(("a", "W", "f00", Some("/")))),
            ("/s/a/W/f00", Some(("a", "W", "f00", None))),
            (
                "/s/a/W/f00//x/%2e%2e/y%20z",
                Some(("a", "W", "f00", Some("//x/%2e%2e/y%20z"))),
            ),
            ("/s/a/W", None),
            ("/sx/a/W/f00/", None),
        ] {
            assert_eq!(of(path), expected, "{path}");
        }
    }

    #[test]
    fn cookies_of_sandboxes_are_separated() {
        assert_eq!(
            cookies_to_sandbox("mine=1; sandbox.tkn=a=b; x=2;sandbox.c=d"),
            "tkn=a=b; c=d"
        );
        assert_eq!(cookies_to_sandbox("mine=1; xsandbox.tkn=1"), "");
        assert_eq!(
            cookie_from_sandbox("tkn=a=b; Domain=h; PATH=/; HttpOnly; Max-Age=5", "/s/a/W/f"),
            "sandbox.tkn=a=b; HttpOnly; Max-Age=5; Path=/s/a/W/f/"
        );
    }

    #[test]
    fn pages_on_a_shared_origin_are_isolated() {
        let shut = |keeps_origin| {
            let mut answer = HttpResponse::Ok()
                .append_header(("set-cookie", "a=1; Path=/"))
                .append_header(("set-cookie", "b=2"))
                .insert_header(("content-security-policy", "default-src *"))
                .finish();
            isolate_page(&mut answer, "/s/x", keeps_origin);
            let all = |name| {
                let values = answer.headers().get_all(name);
                values
                    .map(|it| it.to_str().unwrap().to_owned())
                    .collect::<Vec<_>>()
            };
            assert_eq!(
                all("set-cookie"),
                ["sandbox.a=1; Path=/s/x/", "sandbox.b=2; Path=/s/x/"]
            );
            assert_eq!(all("referrer-policy"), ["same-origin"]);
            all("content-security-policy")
        };
        assert_eq!(
            shut(true),
            ["default-src *"],
            "a sandbox's own policy is kept"
        );
        assert_eq!(
            shut(false),
            ["default-src *", ISOLATED_PAGE_POLICY.to_str().unwrap()]
        );
        for (name, has_own_host, keeps) in [
            ("VSCODE", true, true),
            ("VSCODE", false, false),
            ("WORKER_1", true, false),
        ] {
            assert_eq!(keeps_origin(name, has_own_host), keeps, "{name}");
        }
    }
}
