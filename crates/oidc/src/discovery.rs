//! What a provider publishes about itself: its endpoints and its keys. Both are kept for a while.
//!
//! A token with an unknown key makes the keys be read again, but not more often than once in [`MIN_KEYS_INTERVAL`], so that
//! made-up tokens cause no requests. A failure is remembered for a moment, so that waiting logins do not repeat it in a row.

use std::sync::Arc;
use std::time::Duration;

use domain::user::single_sign_on::ProviderError;
use hyper::header::HeaderMap;
use serde::Deserialize;
use tokio::sync::Mutex;
use tokio::time::Instant;
use url::Url;

use crate::config::Issuer;
use crate::http::{ProviderHttp, unavailable};
use crate::jwk::{Jwk, JwkSet};

const DOCUMENT_TTL: Duration = Duration::from_secs(60 * 60);
const MIN_KEYS_INTERVAL: Duration = Duration::from_secs(30);
const FAILURE_TTL: Duration = Duration::from_secs(3);
/// Longest time that a login waits for these documents, behind others too.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(15);

const DISCOVERY: &str = "its discovery document cannot be read";
const KEYS: &str = "its keys cannot be read";
const BUSY: &str = "other logins wait for it";

/// The provider's endpoints.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct ProviderMetadata {
    pub(crate) issuer: String,
    pub(crate) authorization_endpoint: Url,
    pub(crate) token_endpoint: Url,
    jwks_uri: Url,
    pub(crate) userinfo_endpoint: Option<Url>,
    #[serde(default)]
    pub(crate) token_endpoint_auth_methods_supported: Vec<String>,
    /// Whether every response names the issuer (RFC 9207).
    #[serde(default)]
    pub(crate) authorization_response_iss_parameter_supported: bool,
}

#[derive(Debug)]
struct CachedDocument<T> {
    value: Option<Arc<T>>,
    /// Time of the last attempt to read it.
    read_at: Option<Instant>,
}

impl<T> Default for CachedDocument<T> {
    fn default() -> Self {
        Self {
            value: None,
            read_at: None,
        }
    }
}

impl<T> CachedDocument<T> {
    fn is_within(&self, time: Duration) -> bool {
        self.read_at.is_some_and(|at| at.elapsed() < time)
    }

    /// The value if it is still good. An error if reading it has just failed.
    fn get(&self, what: &'static str) -> Result<Option<Arc<T>>, ProviderError> {
        match &self.value {
            Some(value) if self.is_within(DOCUMENT_TTL) => Ok(Some(Arc::clone(value))),
            None if self.is_within(FAILURE_TTL) => {
                Err(unavailable(what, Some("it failed a moment ago".into())))
            }
            _ => Ok(None),
        }
    }

    fn set(&mut self, read: Result<T, ProviderError>) -> Result<Arc<T>, ProviderError> {
        self.read_at = Some(Instant::now());
        match read {
            Ok(value) => Ok(Arc::clone(self.value.insert(Arc::new(value)))),
            Err(error) => {
                self.value = None;
                Err(error)
            }
        }
    }
}

/// The documents of one provider.
#[derive(Debug, Default)]
pub(crate) struct Discovery {
    metadata: Mutex<CachedDocument<ProviderMetadata>>,
    keys: Mutex<CachedDocument<Vec<Jwk>>>,
}

async fn in_time<T>(
    work: impl Future<Output = Result<T, ProviderError>>,
) -> Result<T, ProviderError> {
    let in_time = tokio::time::timeout(DISCOVERY_TIMEOUT, work).await;
    in_time.unwrap_or_else(|elapsed| Err(unavailable(BUSY, Some(elapsed.into()))))
}

impl Discovery {
    pub(crate) async fn metadata(
        &self,
        http: &ProviderHttp,
        issuer: &Issuer,
    ) -> Result<Arc<ProviderMetadata>, ProviderError> {
        in_time(async {
            let mut cached = self.metadata.lock().await;
            match cached.get(DISCOVERY)? {
                Some(known) => Ok(known),
                None => cached.set(read_metadata(http, issuer).await),
            }
        })
        .await
    }

    pub(crate) async fn keys(
        &self,
        http: &ProviderHttp,
        metadata: &ProviderMetadata,
    ) -> Result<Arc<Vec<Jwk>>, ProviderError> {
        in_time(async {
            let mut cached = self.keys.lock().await;
            match cached.get(KEYS)? {
                Some(known) => Ok(known),
                None => cached.set(read_keys(http, metadata).await),
            }
        })
        .await
    }

    /// Reads the keys again because `known` lack one. Returns them unchanged if they were read a moment ago.
    pub(crate) async fn newer_keys(
        &self,
        http: &ProviderHttp,
        metadata: &ProviderMetadata,
        known: Arc<Vec<Jwk>>,
    ) -> Result<Arc<Vec<Jwk>>, ProviderError> {
        in_time(async {
            let mut cached = self.keys.lock().await;
            match &cached.value {
                Some(present) if !Arc::ptr_eq(present, &known) => Ok(Arc::clone(present)),
                _ if cached.is_within(MIN_KEYS_INTERVAL) => Ok(known),
                _ => cached.set(read_keys(http, metadata).await),
            }
        })
        .await
    }
}

async fn read_metadata(
    http: &ProviderHttp,
    issuer: &Issuer,
) -> Result<ProviderMetadata, ProviderError> {
    let url = format!("{}/.well-known/openid-configuration", issuer.base());
    let url = Url::parse(&url).map_err(|error| unavailable(DISCOVERY, Some(error.into())))?;
    let metadata: ProviderMetadata = http.get(&url, HeaderMap::new(), DISCOVERY).await?;
    if !issuer.is(&metadata.issuer) {
        let reason = "its discovery document names another issuer than the configuration";
        return Err(unavailable(reason, None));
    }
    let endpoints = [
        Some(&metadata.authorization_endpoint),
        Some(&metadata.token_endpoint),
        Some(&metadata.jwks_uri),
        metadata.userinfo_endpoint.as_ref(),
    ];
    if !endpoints
        .into_iter()
        .flatten()
        .all(|url| issuer.permits(url))
    {
        return Err(unavailable(
            "one of its endpoints is not an https URL",
            None,
        ));
    }
    Ok(metadata)
}

async fn read_keys(
    http: &ProviderHttp,
    metadata: &ProviderMetadata,
) -> Result<Vec<Jwk>, ProviderError> {
    let set: JwkSet = http.get(&metadata.jwks_uri, HeaderMap::new(), KEYS).await?;
    Ok(set.signing_keys())
}
