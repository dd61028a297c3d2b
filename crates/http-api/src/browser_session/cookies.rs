//! The cookies of sessions and of logins at identity providers.

use actix_web::http::header::{COOKIE, HeaderMap, HeaderName, HeaderValue, ORIGIN};
use application::single_sign_on::PENDING_LOGIN_TTL;
use domain::clock::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};
use url::Url;

use crate::extract::keys::MAX_KEY_BYTES;
use crate::problem::Problem;

/// With this prefix, browsers take the cookie from this host only: over TLS, for all paths, and not from a subdomain.
const SECURE_COOKIE_NAME: &str = "__Host-aw_session";
/// On loopback without TLS.
const LOOPBACK_COOKIE_NAME: &str = "aw_session";
/// The login that the browser began at an identity provider.
const SECURE_LOGIN_COOKIE_NAME: &str = "__Host-aw_login";
const LOOPBACK_LOGIN_COOKIE_NAME: &str = "aw_login";
/// Browsers refuse longer cookies.
const MAX_LOGIN_COOKIE_BYTES: usize = 4096;
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// How sessions work on a service whose users sign in.
#[derive(Debug)]
pub(crate) struct BrowserSessions {
    /// The origin of the service's pages, as browsers send it.
    public_origin: String,
    is_secure: bool,
}

impl BrowserSessions {
    pub(crate) fn new(public_url: Option<&Url>) -> Self {
        let origin = public_url.map(|url| url.origin().ascii_serialization());
        Self {
            public_origin: origin.unwrap_or_default(),
            is_secure: public_url.is_some_and(|url| url.scheme() == "https"),
        }
    }

    fn cookie_name(&self) -> &'static str {
        if self.is_secure {
            SECURE_COOKIE_NAME
        } else {
            LOOPBACK_COOKIE_NAME
        }
    }

    fn login_cookie_name(&self) -> &'static str {
        if self.is_secure {
            SECURE_LOGIN_COOKIE_NAME
        } else {
            LOOPBACK_LOGIN_COOKIE_NAME
        }
    }

    /// The value of `Set-Cookie` that keeps a login while the person is at an identity provider.
    pub(crate) fn set_login_cookie(&self, sealed: &SecretString) -> Result<HeaderValue, Problem> {
        let seconds = PENDING_LOGIN_TTL.as_secs();
        let name = self.login_cookie_name();
        secret_cookie(&self.cookie(name, sealed.expose_secret(), seconds))
    }

    /// The value of `Set-Cookie` that removes that cookie.
    pub(crate) fn clear_login_cookie(&self) -> HeaderValue {
        plain_cookie(&self.cookie(self.login_cookie_name(), "", 0))
    }

    /// The login in that cookie.
    pub(crate) fn login_token(&self, headers: &HeaderMap) -> Option<SecretString> {
        cookie_value(headers, self.login_cookie_name(), MAX_LOGIN_COOKIE_BYTES)
    }

    /// The value of `Set-Cookie` that begins a session.
    pub(crate) fn set_cookie(
        &self,
        token: &SecretString,
        now: Timestamp,
        end: Timestamp,
    ) -> Result<HeaderValue, Problem> {
        let seconds = end.since(now).as_secs();
        secret_cookie(&self.cookie(self.cookie_name(), token.expose_secret(), seconds))
    }

    /// The value of `Set-Cookie` that removes the cookie.
    pub(crate) fn clear_cookie(&self) -> HeaderValue {
        plain_cookie(&self.cookie(self.cookie_name(), "", 0))
    }

    fn cookie(&self, name: &str, value: &str, seconds: u64) -> String {
        let secure = if self.is_secure { "; Secure" } else { "" };
        format!("{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure}")
    }

    /// The token in the session cookie. An empty one, and one that cannot be a token, counts as none.
    pub(super) fn token(&self, headers: &HeaderMap) -> Option<SecretString> {
        cookie_value(headers, self.cookie_name(), MAX_KEY_BYTES)
    }

    /// Whether the browser says that a page of this service sent the request, or the person did (by the address bar).
    pub(super) fn is_same_origin(&self, headers: &HeaderMap) -> bool {
        let mut sites = headers.get_all(SEC_FETCH_SITE);
        if let Some(site) = sites.next() {
            return matches!(site.as_bytes(), b"same-origin" | b"none") && sites.next().is_none();
        }
        // Browsers that do not send it yet.
        let mut origins = headers.get_all(ORIGIN);
        let origin = origins.next();
        origin.is_some_and(|it| it.as_bytes() == self.public_origin.as_bytes())
            && origins.next().is_none()
    }
}

/// The first cookie of this name. An empty or longer one counts as none.
fn cookie_value(headers: &HeaderMap, name: &str, max_bytes: usize) -> Option<SecretString> {
    let lines = headers.get_all(COOKIE);
    let cookies = lines
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(';'));
    let mut values = cookies.filter_map(|cookie| {
        let (known, value) = cookie.trim().split_once('=')?;
        (known == name).then_some(value)
    });
    let value = values.next()?;
    let fits = !value.is_empty() && value.len() <= max_bytes;
    fits.then(|| SecretString::from(value))
}

fn secret_cookie(text: &str) -> Result<HeaderValue, Problem> {
    let cookie = HeaderValue::from_str(text);
    let mut cookie = cookie.map_err(|_| Problem::internal("a token is no cookie value"))?;
    cookie.set_sensitive(true);
    Ok(cookie)
}

/// The name and the attributes are plain ASCII.
fn plain_cookie(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(list: &[(HeaderName, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in list {
            headers.append(name.clone(), HeaderValue::from_static(value));
        }
        headers
    }

    fn sessions(url: &str) -> BrowserSessions {
        BrowserSessions::new(Some(&url.parse().unwrap()))
    }

    #[test]
    fn the_browser_must_vouch_for_the_origin() {
        let it = sessions("https://agents.example/prefix/");
        let fetch = SEC_FETCH_SITE;
        let table: &[(&[(HeaderName, &str)], bool)] = &[
            (&[(fetch.clone(), "same-origin")], true),
            (&[(fetch.clone(), "none")], true),
            (&[(fetch.clone(), "same-site")], false),
            (&[(fetch.clone(), "cross-site")], false),
            (&[(fetch.clone(), "")], false),
            (&[(fetch.clone(), "Same-Origin")], false),
            (
                &[
                    (fetch.clone(), "same-origin"),
                    (fetch.clone(), "cross-site"),
                ],
                false,
            ),
            // The browser's word counts, not a header that older browsers send.
            (
                &[(fetch, "cross-site"), (ORIGIN, "https://agents.example")],
                false,
            ),
            (&[(ORIGIN, "https://agents.example")], true),
            (&[(ORIGIN, "https://agents.example:8443")], false),
            (&[(ORIGIN, "http://agents.example")], false),
            (&[(ORIGIN, "https://agents.example.evil.example")], false),
            (&[(ORIGIN, "null")], false),
            (&[(ORIGIN, "")], false),
            (
                &[
                    (ORIGIN, "https://agents.example"),
                    (ORIGIN, "https://evil.example"),
                ],
                false,
            ),
            (&[], false),
        ];
        for (list, expected) in table {
            assert_eq!(it.is_same_origin(&headers(list)), *expected, "{list:?}");
        }
        assert!(!BrowserSessions::new(None).is_same_origin(&headers(&[])));
    }

    #[test]
    fn cookies_have_the_strictest_form_that_works() {
        let at = |seconds: i64| Timestamp::from_micros(seconds * 1_000_000);
        let set = |url: &str| {
            let set = sessions(url).set_cookie(&"t0ken".into(), at(10), at(70));
            set.unwrap().to_str().unwrap().to_owned()
        };
        assert_eq!(
            set("https://agents.example/"),
            "__Host-aw_session=t0ken; Path=/; Max-Age=60; HttpOnly; SameSite=Lax; Secure"
        );
        assert_eq!(
            set("http://127.0.0.1:3000/"),
            "aw_session=t0ken; Path=/; Max-Age=60; HttpOnly; SameSite=Lax"
        );
        let it = sessions("https://agents.example/");
        assert_eq!(
            it.clear_cookie(),
            "__Host-aw_session=; Path=/; Max-Age=0; HttpOnly; SameSite=Lax; Secure"
        );
    }

    #[test]
    fn only_the_cookie_of_this_service_counts() {
        let it = sessions("https://agents.example/");
        let token = |lines: &[&'static str]| {
            let lines: Vec<_> = lines.iter().map(|line| (COOKIE, *line)).collect();
            let token = it.token(&headers(&lines));
            token.map(|token| token.expose_secret().to_owned())
        };
        let found = Some("abc".to_owned());
        assert_eq!(token(&["a=1; __Host-aw_session=abc; b=2"]), found);
        assert_eq!(token(&["a=1", "__Host-aw_session=abc"]), found);
        for none in [
            "aw_session=abc",
            "__Host-aw_session=",
            "x__Host-aw_session=abc",
            "__host-aw_session=abc",
            "__Host-aw_session",
            "",
        ] {
            assert_eq!(token(&[none]), None, "{none}");
        }
        let long = format!("__Host-aw_session={}", "a".repeat(MAX_KEY_BYTES + 1));
        let mut map = HeaderMap::new();
        map.insert(COOKIE, HeaderValue::from_str(&long).unwrap());
        assert!(it.token(&map).is_none());
    }
}
