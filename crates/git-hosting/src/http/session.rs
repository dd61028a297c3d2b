//! One user's access to one provider's API: requests with its credentials, answers as JSON or as a [`GitError`].

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use domain::conversation::GitProvider;
use domain::git::{GitAccess, GitError};
use domain::json::estimate_memory_bytes;
use hyper::Method;
use hyper::header::HeaderValue;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;
use url::Url;

use crate::http::client::{Http, HttpCall, HttpReply};
use crate::http::refusal::RefusalReader;
use crate::repository_url::below;

const JSON: &str = "application/json";
/// Memory that parsed JSON may take, in bytes: several times that of the longest pages of any provider.
const MAX_JSON_MEMORY_BYTES: usize = 12 << 20;

/// Access of one user to one provider.
#[derive(Debug)]
pub(crate) struct ProviderSession {
    http: Http,
    pub(crate) provider: GitProvider,
    /// Base URL of the API.
    pub(crate) base: Url,
    credentials: HeaderValue,
    /// Reads error messages and withholds those that contain the token.
    token: SecretString,
}

/// The authentication scheme of a token.
#[derive(Debug, Clone, Copy)]
pub(crate) enum TokenScheme {
    Bearer,
    /// `token …`, of Forgejo and Gitea.
    Token,
    /// `user:secret` by Basic, anything else by Bearer.
    Pair,
    /// A JSON web token by Bearer, anything else as a Basic password with an empty user name.
    Azure,
}

impl TokenScheme {
    fn value(self, token: &SecretString) -> String {
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
        base: Url,
        scheme: TokenScheme,
    ) -> Result<Self, GitError> {
        let provider = access.provider;
        let value = SecretString::from(scheme.value(&access.token));
        let mut credentials = HeaderValue::from_str(value.expose_secret())
            .map_err(|_| GitError::Denied { provider })?;
        credentials.set_sensitive(true);
        Ok(Self {
            http: http.clone(),
            provider,
            base,
            credentials,
            token: access.token.clone(),
        })
    }

    /// Builds a URL of the API.
    pub(crate) fn url(&self, segments: &[&str], query: &[(&str, &str)]) -> Result<Url, GitError> {
        let mut url = below(self.provider, &self.base, segments)?;
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        Ok(url)
    }

    /// Sends a GET request and returns any response.
    pub(crate) async fn read(&self, url: Url) -> Result<HttpReply, GitError> {
        self.send(Method::GET, url, None).await
    }

    /// Sends a GET request. A response without success is an error.
    pub(crate) async fn get(
        &self,
        segments: &[&str],
        query: &[(&str, &str)],
    ) -> Result<ProviderResponse, GitError> {
        let reply = self.read(self.url(segments, query)?).await?;
        self.understand(reply)
    }

    /// Sends a reading POST request with a JSON body (GraphQL and query languages).
    pub(crate) async fn ask(&self, url: Url, body: &Value) -> Result<ProviderResponse, GitError> {
        let body = Some(body.to_string().into_bytes());
        let reply = self.send(Method::POST, url, body).await?;
        self.understand(reply)
    }

    /// Sends a creating POST request, once and without following redirects.
    pub(crate) async fn create(
        &self,
        url: Url,
        body: &Value,
    ) -> Result<ProviderResponse, GitError> {
        let body = Some(body.to_string().into_bytes());
        let reply = self.send(Method::POST, url, body).await?;
        let reason = match reply.status {
            301 | 302 | 307 | 308 => {
                "the repository has another name or address now; use that one".into()
            }
            400 | 405 | 409 | 412 | 422 => RefusalReader::of(&self.token).reason(&reply.body),
            _ => return self.understand(reply),
        };
        let provider = self.provider;
        Err(GitError::Refused { provider, reason })
    }

    async fn send(
        &self,
        method: Method,
        url: Url,
        body: Option<Vec<u8>>,
    ) -> Result<HttpReply, GitError> {
        let call = HttpCall { method, url, body };
        let reply = self.http.exchange(&call, &self.credentials, JSON).await;
        reply.map_err(|fault| fault.into_error(self.provider))
    }

    /// Parses the JSON of a success, or converts the status to an error.
    pub(crate) fn understand(&self, reply: HttpReply) -> Result<ProviderResponse, GitError> {
        let provider = self.provider;
        let retry_after = || {
            reply
                .header("retry-after")
                .and_then(|text| text.parse().ok())
        };
        match reply.status {
            // 203: Azure DevOps shows its sign-in page instead of refusing a token.
            203 | 401 => Err(GitError::Denied { provider }),
            200..=299 if estimate_memory_bytes(&reply.body) > MAX_JSON_MEMORY_BYTES => {
                Err(unavailable(provider, "an answer of too many values".into()))
            }
            200..=299 => match serde_json::from_slice(&reply.body) {
                Ok(body) => Ok(ProviderResponse { body, reply }),
                Err(error) => Err(unavailable(provider, format!("no JSON: {error}"))),
            },
            429 => Err(GitError::Limited {
                provider,
                retry_after: retry_after(),
            }),
            403 if reply.is_limit() => Err(GitError::Limited {
                provider,
                retry_after: retry_after(),
            }),
            403 => Err(GitError::NotAllowed { provider }),
            404 | 410 => Err(GitError::NotFound { provider }),
            // The body may repeat the request, so the error omits it.
            other => Err(unavailable(provider, format!("status {other}"))),
        }
    }
}

/// Error for a response that differs from the provider's documentation.
pub(crate) fn unavailable(provider: GitProvider, what: String) -> GitError {
    GitError::Unavailable {
        provider,
        source: what.into(),
    }
}

/// A successful response.
#[derive(Debug)]
pub(crate) struct ProviderResponse {
    pub(crate) body: Value,
    reply: HttpReply,
}

impl ProviderResponse {
    /// A header that is there and not empty.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.reply.header(name).filter(|text| !text.is_empty())
    }

    /// Whether the `Link` header names a next page.
    pub(crate) fn has_next_link(&self) -> bool {
        let link = self.header("link").unwrap_or_default();
        link.split(',').any(|link| link.contains("rel=\"next\""))
    }

    /// The items of a list, at this member or of the body itself.
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

/// A member that is a string, not empty.
pub(crate) fn text(value: &Value, path: &str) -> Option<String> {
    let found = value.pointer(path)?.as_str()?;
    (!found.is_empty()).then(|| found.to_owned())
}

/// A member that is a number or a string, as text.
pub(crate) fn id(value: &Value, path: &str) -> Option<String> {
    match value.pointer(path)? {
        Value::Number(number) => Some(number.to_string()),
        Value::String(text) => Some(text.clone()),
        _ => None,
    }
}

/// A member that is a whole number, also as a string.
pub(crate) fn number(value: &Value, path: &str) -> Option<i64> {
    match value.pointer(path)? {
        Value::Number(number) => number.as_i64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}

/// A member that is a boolean.
pub(crate) fn flag(value: &Value, path: &str) -> Option<bool> {
    value.pointer(path)?.as_bool()
}
