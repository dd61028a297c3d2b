//! One user's access to one provider's API: requests with the user's token, responses as JSON or as a [`GitError`].

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use domain::git::{GitAccess, GitError, GitProvider};
use domain::json::estimate_memory_bytes;
use hyper::Method;
use hyper::body::Bytes;
use hyper::header::HeaderValue;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;
use url::Url;

use super::paging::Paging;
use crate::http::client::{Http, HttpReply, unavailable};
use crate::http::refusal::refusal_reason;
use crate::repository_url::{join_segments, web_base};

/// Memory that parsed JSON may take, in bytes: several times that of any provider's longest page.
const MAX_JSON_MEMORY_BYTES: usize = 12 << 20;
/// Redirects within one host, such as those after a repository was renamed.
const MAX_REDIRECTS: usize = 3;

/// What distinguishes the API of one provider from the others.
#[derive(Debug)]
pub(crate) struct ApiSpec {
    pub(crate) provider: GitProvider,
    pub(crate) scheme: TokenScheme,
    /// The first word of the ids of lists.
    pub(crate) name: &'static str,
    pub(crate) paging: Paging,
}

#[derive(Debug)]
pub(crate) struct ProviderSession {
    http: Http,
    pub(crate) spec: &'static ApiSpec,
    /// URL of the web pages.
    pub(crate) web: Url,
    /// Base URL of the API.
    pub(crate) base: Url,
    credentials: HeaderValue,
    /// For [`refusal_reason`], which withholds reasons that contain the token.
    token: SecretString,
}

/// The authentication scheme of a token.
#[derive(Debug, Clone, Copy)]
pub(crate) enum TokenScheme {
    Bearer,
    /// `token …`, for Forgejo and Gitea.
    Token,
    /// Basic for `user:secret`, Bearer for other tokens.
    Pair,
    /// Bearer for a JSON web token; other tokens are a Basic password with an empty user name.
    Azure,
}

impl TokenScheme {
    fn header_value(self, token: &SecretString) -> String {
        let text = token.expose_secret();
        let basic = |pair: &str| format!("Basic {}", STANDARD.encode(pair));
        let is_jwt = text.starts_with("ey") && text.split('.').count() == 3;
        match self {
            Self::Token => format!("token {text}"),
            Self::Pair if text.contains(':') => basic(text),
            Self::Azure if !is_jwt => basic(&format!(":{text}")),
            Self::Bearer | Self::Pair | Self::Azure => format!("Bearer {text}"),
        }
    }
}

impl ProviderSession {
    pub(crate) fn new(
        http: &Http,
        access: &GitAccess,
        spec: &'static ApiSpec,
        base: impl FnOnce(&Url) -> Result<Url, GitError>,
    ) -> Result<Self, GitError> {
        let provider = spec.provider;
        let web = web_base(access)?;
        let base = base(&web)?;
        let value = SecretString::from(spec.scheme.header_value(&access.token));
        let mut credentials = HeaderValue::from_str(value.expose_secret())
            .map_err(|_| GitError::Denied { provider })?;
        credentials.set_sensitive(true);
        Ok(Self {
            http: http.clone(),
            spec,
            web,
            base,
            credentials,
            token: access.token.clone(),
        })
    }

    /// Builds a URL of the API, without the parameters that have no value.
    pub(crate) fn url(&self, segments: &[&str], query: &[(&str, &str)]) -> Result<Url, GitError> {
        let mut url = join_segments(self.spec.provider, &self.base, segments)?;
        for (name, value) in query.iter().filter(|(_, value)| !value.is_empty()) {
            url.query_pairs_mut().append_pair(name, value);
        }
        Ok(url)
    }

    /// Sends a GET request and returns any response.
    pub(crate) async fn send_get(&self, url: Url) -> Result<HttpReply, GitError> {
        self.send(Method::GET, url, None).await
    }

    /// Sends a GET request. A response without success is an error.
    pub(crate) async fn get(
        &self,
        segments: &[&str],
        query: &[(&str, &str)],
    ) -> Result<ProviderResponse, GitError> {
        let reply = self.send_get(self.url(segments, query)?).await?;
        self.parse(reply)
    }

    /// Sends a POST request that only reads (GraphQL and query languages).
    pub(crate) async fn post_query(
        &self,
        url: Url,
        body: &Value,
    ) -> Result<ProviderResponse, GitError> {
        self.parse(self.post(url, body).await?)
    }

    /// Sends a POST request that creates something, once and without following redirects.
    pub(crate) async fn create(
        &self,
        url: Url,
        body: &Value,
    ) -> Result<ProviderResponse, GitError> {
        let reply = self.post(url, body).await?;
        let reason = match reply.status {
            301 | 302 | 307 | 308 => {
                "the repository has another name or address now; use that one".into()
            }
            400 | 405 | 409 | 412 | 422 => refusal_reason(&reply.body, &self.token),
            _ => return self.parse(reply),
        };
        let provider = self.spec.provider;
        Err(GitError::Refused { provider, reason })
    }

    async fn post(&self, url: Url, body: &Value) -> Result<HttpReply, GitError> {
        self.send(Method::POST, url, Some(body.to_string().into()))
            .await
    }

    /// Sends a request and follows redirects of GET requests within one host. Credentials never go to another one.
    async fn send(
        &self,
        method: Method,
        mut url: Url,
        body: Option<Bytes>,
    ) -> Result<HttpReply, GitError> {
        let provider = self.spec.provider;
        for _ in 0..=MAX_REDIRECTS {
            let request = (&method, &url, body.as_ref());
            let reply = self.http.send(provider, request, &self.credentials).await?;
            if !matches!(reply.status, 301 | 302 | 307 | 308) || method != Method::GET {
                return Ok(reply);
            }
            let to = reply.header("location").and_then(|to| url.join(to).ok());
            match to.filter(|to| to.origin() == url.origin()) {
                Some(to) => url = to,
                None => break,
            }
        }
        let what =
            format!("the provider redirects to another host, or more than {MAX_REDIRECTS} times");
        Err(unavailable(provider, what))
    }

    /// Parses the JSON of a success, or converts the status to an error.
    pub(crate) fn parse(&self, reply: HttpReply) -> Result<ProviderResponse, GitError> {
        let provider = self.spec.provider;
        match reply.status {
            // 203: Azure DevOps answers with its sign-in page when it does not accept a token.
            203 | 401 => Err(GitError::Denied { provider }),
            200..=299 if estimate_memory_bytes(&reply.body) > MAX_JSON_MEMORY_BYTES => {
                Err(unavailable(provider, "the response has too many values"))
            }
            200..=299 => {
                let body = serde_json::from_slice(&reply.body).map_err(|error| {
                    unavailable(provider, format!("the response is not valid JSON: {error}"))
                })?;
                Ok(ProviderResponse { body, reply })
            }
            status @ (403 | 429) if status == 429 || reply.is_rate_limited() => {
                let retry_after = reply.header("retry-after");
                Err(GitError::Limited {
                    provider,
                    retry_after: retry_after.and_then(|text| text.parse().ok()),
                })
            }
            403 => Err(GitError::NotAllowed { provider }),
            404 | 410 => Err(GitError::NotFound { provider }),
            // The body may repeat the request, so the error omits it.
            other => Err(unavailable(
                provider,
                format!("the response has status {other}"),
            )),
        }
    }
}

/// A successful response with its parsed body.
#[derive(Debug, Default)]
pub(crate) struct ProviderResponse {
    pub(crate) body: Value,
    reply: HttpReply,
}

impl ProviderResponse {
    /// The value of a header, unless it is empty.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.reply.header(name).filter(|text| !text.is_empty())
    }

    /// Whether the `Link` header names a next page.
    pub(crate) fn has_next_link(&self) -> bool {
        let link = self.header("link").unwrap_or_default();
        link.split(',').any(|link| link.contains("rel=\"next\""))
    }

    /// Takes the list out of this member of the body, or out of the body itself.
    pub(crate) fn list(&mut self, member: Option<&str>) -> Vec<Value> {
        let list = match member {
            Some(member) => self.body.get_mut(member).map(Value::take),
            None => Some(self.body.take()),
        };
        match list {
            Some(Value::Array(list)) => list,
            _ => Vec::new(),
        }
    }
}

/// The items of a member that is a list.
pub(crate) fn items<'a>(value: &'a Value, path: &str) -> impl Iterator<Item = &'a Value> {
    let list = value.pointer(path).and_then(Value::as_array);
    list.into_iter().flatten()
}

/// A member that is a string and not empty. `path` is a JSON pointer, as in the functions below.
pub(crate) fn text(value: &Value, path: &str) -> Option<String> {
    let text = value.pointer(path)?.as_str()?;
    (!text.is_empty()).then(|| text.to_owned())
}

/// A member that is a number or a string, as text.
pub(crate) fn id(value: &Value, path: &str) -> Option<String> {
    match value.pointer(path)? {
        Value::Number(number) => Some(number.to_string()),
        Value::String(text) => Some(text.clone()),
        _ => None,
    }
}

/// A member that is a whole number, or a string with one.
pub(crate) fn number(value: &Value, path: &str) -> Option<i64> {
    match value.pointer(path)? {
        Value::Number(number) => number.as_i64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}

pub(crate) fn flag(value: &Value, path: &str) -> Option<bool> {
    value.pointer(path)?.as_bool()
}
