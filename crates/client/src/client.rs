//! The client.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use hyper::header::{HeaderMap, HeaderValue, RETRY_AFTER};
use secrecy::{ExposeSecret as _, SecretString};
use serde::de::DeserializeOwned;
use url::Url;

use crate::call::Call;
use crate::error::{Error, Refusal};
use crate::resources::{
    Administration, Audit, Automations, Conversations, DeviceLogins, EgressRequests, Events,
    Health, Keys, Organizations, Sandboxes, Secrets, Settings, Specs, StartTasks, Users,
};
use crate::transport::{Http, Reply, RootCertificates};

/// Maximum number of attempts of a request with an `Idempotency-Key`.
const MAX_ATTEMPTS: u32 = 5;
/// Backoff before the second attempt; doubles for each further one.
const MIN_RETRY_BACKOFF: Duration = Duration::from_millis(200);

/// Time-outs of a client.
#[derive(Debug, Clone, Copy)]
pub struct ClientTimeouts {
    /// Establishing a connection.
    pub connect: Duration,
    /// A request, from its first byte to the end of the response, or to the start of a streamed one.
    pub request: Duration,
    /// Between two chunks of a streamed response: a download, or events.
    pub idle: Duration,
}

impl Default for ClientTimeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            request: Duration::from_secs(30),
            idle: Duration::from_secs(60),
        }
    }
}

/// A response as it was received.
#[derive(Debug)]
pub struct ObservedResponse<'a> {
    /// The method of the request.
    pub method: &'static str,
    /// The path and query of the request.
    pub path_and_query: &'a str,
    /// The status code.
    pub status: u16,
    /// The response headers.
    pub headers: &'a HeaderMap,
    /// The body; empty for streamed responses.
    pub body: &'a [u8],
}

/// Observes every response, e.g. to record it. Responses may contain secrets.
pub trait Observer: Send + Sync {
    /// Called for each response.
    fn on_response(&self, answer: &ObservedResponse<'_>);
}

/// Calls one service with one key. Clones are cheap and share connections.
#[derive(Clone)]
pub struct Client {
    pub(crate) http: Http,
    pub(crate) timeouts: ClientTimeouts,
    observer: Option<Arc<dyn Observer>>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("url", &self.url().as_str())
            .field("timeouts", &self.timeouts)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// Creates a client for the service at `url` (http or https, optionally with a path). Without a key the service
    /// must run in open mode. For https the client reads the system's certificate authorities.
    ///
    /// # Errors
    /// The URL or the key is invalid.
    pub fn new(url: &str, key: Option<SecretString>) -> Result<Self, Error> {
        Self::with_timeouts(url, key, ClientTimeouts::default())
    }

    /// The same with other time-outs.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_timeouts(
        url: &str,
        key: Option<SecretString>,
        timeouts: ClientTimeouts,
    ) -> Result<Self, Error> {
        Self::with_roots(RootCertificates::System, url, key, timeouts)
    }

    /// The same for https with these certificate authorities (PEM, one or more) instead of the system's: for a service
    /// whose proxy has a private certificate.
    ///
    /// # Errors
    /// As [`Self::new`]; or `authorities` contains no certificate.
    pub fn trusting(
        authorities: &str,
        url: &str,
        key: Option<SecretString>,
        timeouts: ClientTimeouts,
    ) -> Result<Self, Error> {
        Self::with_roots(RootCertificates::Given(authorities), url, key, timeouts)
    }

    fn with_roots(
        roots: RootCertificates<'_>,
        url: &str,
        key: Option<SecretString>,
        timeouts: ClientTimeouts,
    ) -> Result<Self, Error> {
        let base = base(url)?;
        let key = key.map(|key| {
            let value = HeaderValue::from_str(key.expose_secret().trim());
            let mut value = value
                .map_err(|_| Error::Unusable("the API key contains invalid characters".into()))?;
            value.set_sensitive(true);
            Ok(value)
        });
        Ok(Self {
            http: Http::new(roots, base, key.transpose()?, timeouts.connect)?,
            timeouts,
            observer: None,
        })
    }

    /// The same client with an observer.
    #[must_use]
    pub fn observed(&self, observer: Arc<dyn Observer>) -> Self {
        Self {
            observer: Some(observer),
            ..self.clone()
        }
    }

    /// The service's URL.
    pub fn url(&self) -> &Url {
        self.http.base()
    }

    /// The events of a conversation.
    pub fn events(&self, conversation: &str) -> Events {
        Events(self.clone(), conversation.to_owned())
    }

    /// The user's API keys.
    pub fn keys(&self) -> Keys {
        Keys(self.clone(), None)
    }

    /// Sends a request and decodes the response.
    pub(crate) async fn ask<T: DeserializeOwned>(&self, call: &Call) -> Result<T, Error> {
        let reply = self.http.exchange(call, self.timeouts.request).await?;
        self.see(call, reply.status, &reply.headers, &reply.body);
        if !(200..300).contains(&reply.status) {
            return Err(refused(&reply));
        }
        read(call, &reply.body)
    }

    /// Sends a request that may be repeated: its idempotency key makes the service execute it once.
    pub(crate) async fn ask_once<T: DeserializeOwned>(&self, call: &Call) -> Result<T, Error> {
        let mut pause = MIN_RETRY_BACKOFF;
        for attempt in 1.. {
            let error = match self.ask(call).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            // The first attempt is still in progress, its response was lost, or the service restarts.
            let is_under_way = matches!(&error, Error::Refused(no) if no.status == 409 && no.retry_after.is_some());
            let is_down = attempt > 1 && matches!(error, Error::Unreachable { .. });
            if attempt == MAX_ATTEMPTS || !(is_under_way || is_down || error.is_uncertain()) {
                return Err(error);
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
        Err(Error::Unusable("the request was not sent".into()))
    }

    /// Starts a streamed response.
    pub(crate) async fn open(
        &self,
        call: &Call,
        accept: &'static str,
    ) -> Result<hyper::body::Incoming, Error> {
        let response = self.http.open(call, accept, self.timeouts.request).await?;
        let status = response.status().as_u16();
        if response.status().is_success() {
            self.see(call, status, response.headers(), &[]);
            return Ok(response.into_body());
        }
        let reply = self.http.rest(response, self.timeouts.request).await?;
        self.see(call, status, &reply.headers, &reply.body);
        Err(refused(&reply))
    }

    fn see(&self, call: &Call, status: u16, headers: &HeaderMap, body: &[u8]) {
        let Some(observer) = &self.observer else {
            return;
        };
        let path = call.url(self.url());
        let path = path.map_or_else(
            |_| call.operation.path.to_owned(),
            |url| url[url::Position::BeforePath..].to_owned(),
        );
        observer.on_response(&ObservedResponse {
            method: call.operation.method,
            path_and_query: &path,
            status,
            headers,
            body,
        });
    }
}

macro_rules! resources {
    ($($(#[$doc:meta])* $name:ident: $resource:ident,)*) => {
        impl Client {
            $($(#[$doc])* pub fn $name(&self) -> $resource {
                $resource(self.clone())
            })*
        }
    };
}

resources! {
    /// Conversations.
    conversations: Conversations,
    /// Starts of conversations.
    start_tasks: StartTasks,
    /// Sandboxes.
    sandboxes: Sandboxes,
    /// Hosts that the egress policy refused to the user's sandboxes.
    egress_requests: EgressRequests,
    /// Templates of sandboxes.
    specs: Specs,
    /// The user's automations, and their runs.
    automations: Automations,
    /// The user's settings.
    settings: Settings,
    /// The user's secrets.
    secrets: Secrets,
    /// The user.
    users: Users,
    /// Logins in a browser elsewhere.
    device_logins: DeviceLogins,
    /// The user's organizations, and their members.
    organizations: Organizations,
    /// All users, for administrators.
    administration: Administration,
    /// The audit log, for administrators.
    audit: Audit,
    /// Health of the service.
    health: Health,
}

pub(crate) fn read<T: DeserializeOwned>(call: &Call, body: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(body).map_err(|error| unreadable(call, error))
}

pub(crate) fn unreadable(
    call: &Call,
    source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> Error {
    Error::Unreadable {
        path: call.operation.path,
        source: source.into(),
    }
}

fn refused(reply: &Reply) -> Error {
    let after = reply.headers.get(RETRY_AFTER);
    let after = after.and_then(|value| value.to_str().ok());
    Error::Refused(Refusal::read(reply.status, after, &reply.body))
}

/// Refuses URLs with a secret, or in which a path would change its meaning.
fn base(text: &str) -> Result<Url, Error> {
    let unusable = |why: &str| Error::Unusable(format!("the service's URL {why}"));
    let url: Url = text
        .trim()
        .parse()
        .map_err(|_| unusable("must be like https://host.example or http://127.0.0.1:3000"))?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err(unusable("must begin with http:// or https://"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(unusable(
            "must not contain a user name or a password: pass the API key separately",
        ));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(unusable("must have no query and no fragment"));
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authorities_without_a_certificate_are_refused_where_they_are_needed() {
        let made = |url| Client::trusting("none", url, None, ClientTimeouts::default());
        assert!(matches!(made("https://h"), Err(Error::Unusable(_))));
        assert!(made("http://h").is_ok());
    }

    #[test]
    fn urls_and_keys_that_cannot_be_used_are_refused_without_the_key() {
        for url in [
            "",
            "host:3000",
            "ftp://h",
            "http://u:p@h",
            "http://h/?a=1",
            "http://h/#x",
        ] {
            assert!(
                matches!(Client::new(url, None), Err(Error::Unusable(_))),
                "{url}"
            );
        }
        let error = Client::new("http://h", Some("ca\nnary".into())).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("nary"));
    }

    #[test]
    fn debug_shows_no_key() {
        let client = Client::new("http://h/sub", Some("canary-4711".into())).unwrap();
        let shown = format!("{client:?} {:?} {:?}", client.http, client.conversations());
        assert!(
            shown.contains("http://h/sub") && !shown.contains("canary"),
            "{shown}"
        );
    }
}
