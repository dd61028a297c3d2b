//! The origin that a page is bound to. The page compares it with its own and works only where both are equal.

use std::net::IpAddr;

use actix_web::HttpRequest;
use actix_web::http::header::HOST;
use url::Url;
use web_app::PageOrigins;

use crate::extract::ClientAddress;
use crate::middleware::is_service_host;
use crate::state::{HttpState, WebAppSite};

/// What to answer to the load of a page.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PageTarget {
    Page(PageOrigins),
    /// The same path at the public URL.
    Redirect(String),
}

/// Decides by the host that the browser asked for.
pub(super) fn page_target(req: &HttpRequest, state: &HttpState, site: &WebAppSite) -> PageTarget {
    let client = ClientAddress::of(req);
    let host = req.headers().get(HOST).and_then(|host| host.to_str().ok());
    let host = client.host.as_deref().or(host);
    // Other names are not this service's, whatever a client sends.
    let host = host.filter(|host| is_service_host(host, &state.addresses));
    let scheme = if client.is_https { "https" } else { "http" };
    let asked = host.and_then(|host| Url::parse(&format!("{scheme}://{host}")).ok());
    let path = req.uri().path_and_query().map_or("/", |path| path.as_str());
    target(site, asked.as_ref(), path)
}

fn target(site: &WebAppSite, asked: Option<&Url>, path: &str) -> PageTarget {
    let public = origin_of(&site.public_url);
    let asked = asked.filter(|asked| origin_of(asked) != public);
    if asked.is_some_and(|asked| is_same_service(asked, &site.public_url)) {
        return PageTarget::Redirect(format!("{public}{path}"));
    }
    // A proxy may ask for an inner name, so a configured URL wins.
    let own = asked.filter(|_| !site.is_url_configured);
    PageTarget::Page(PageOrigins {
        own: own.map_or_else(|| public.clone(), origin_of),
        conversations: public,
        sandboxes: site.sandbox_url.as_ref().map(origin_of),
    })
}

/// Whether both are names of this machine with the same port: `localhost` and `127.0.0.1` are two origins, and conversations
/// are reached under the public one.
fn is_same_service(asked: &Url, public: &Url) -> bool {
    is_loopback(asked)
        && is_loopback(public)
        && asked.scheme() == public.scheme()
        && asked.port_or_known_default() == public.port_or_known_default()
}

fn is_loopback(url: &Url) -> bool {
    let name = url.host_str().unwrap_or_default();
    let address = name.trim_start_matches('[').trim_end_matches(']');
    name == "localhost" || address.parse::<IpAddr>().is_ok_and(|it| it.is_loopback())
}

fn origin_of(url: &Url) -> String {
    url.origin().ascii_serialization()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(public: &str, is_url_configured: bool) -> WebAppSite {
        WebAppSite {
            slot: web_app::WebAppSlot::default(),
            public_url: public.parse().unwrap(),
            is_url_configured,
            sandbox_url: None,
        }
    }

    #[test]
    fn a_page_is_bound_to_the_public_url_or_to_the_host_asked_for() {
        let derived = site("http://127.0.0.1:3000/", false);
        let configured = site("https://agents.example/", true);
        let on_this_machine = site("http://127.0.0.1:3000/", true);
        for (site, asked, expected) in [
            (
                &derived,
                Some("http://127.0.0.1:3000"),
                "http://127.0.0.1:3000",
            ),
            (
                &derived,
                Some("http://192.168.1.5:3000"),
                "http://192.168.1.5:3000",
            ),
            (
                &derived,
                Some("http://localhost:8080"),
                "http://localhost:8080",
            ),
            (&derived, None, "http://127.0.0.1:3000"),
            (
                &configured,
                Some("https://agents.example"),
                "https://agents.example",
            ),
            // A proxy that passes on neither host nor scheme.
            (
                &configured,
                Some("http://127.0.0.1:3000"),
                "https://agents.example",
            ),
            (
                &on_this_machine,
                Some("http://10.0.0.1:3000"),
                "http://127.0.0.1:3000",
            ),
        ] {
            let asked: Option<Url> = asked.map(|asked| asked.parse().unwrap());
            let PageTarget::Page(origins) = target(site, asked.as_ref(), "/") else {
                panic!("{asked:?} is redirected");
            };
            assert_eq!(origins.own, expected, "{asked:?}");
        }
    }

    #[test]
    fn another_name_of_this_machine_is_redirected() {
        let site = site("http://127.0.0.1:3000/", false);
        for asked in ["http://localhost:3000", "http://[::1]:3000"] {
            let asked = asked.parse().unwrap();
            let expected = "http://127.0.0.1:3000/conversations/1?a=b";
            assert_eq!(
                target(&site, Some(&asked), "/conversations/1?a=b"),
                PageTarget::Redirect(expected.to_owned())
            );
        }
    }
}
