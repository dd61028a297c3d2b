//! Identity providers by OpenID Connect: discovery, the authorization code flow with PKCE, and the verification of ID tokens.
//!
//! **Knows** the protocol, JSON Web Tokens and keys, and how to call a provider. **Must never know** users, sessions or browsers:
//! it turns the answer of a provider into a proven identity.
//!
//! Signatures are verified by `ring`, which is here for TLS anyway. The libraries for OpenID Connect bring a second set of
//! cryptography, with an RSA implementation that has a known weakness without a fix (RUSTSEC-2023-0071).

mod claims;
mod config;
mod discovery;
mod http;
mod id_token;
mod jwk;
mod provider;

use std::sync::Arc;

use async_trait::async_trait;
use domain::clock::Clock;
use domain::id::ProviderName;
use domain::user::single_sign_on::{
    AuthorizationResponse, AuthorizationSecrets, IdentityProviders, ProvenIdentity,
    ProviderDescription, ProviderError,
};
use outbound_http::{CaCertificates, ClientOptions, HttpClient};
use url::Url;

pub use config::{InvalidIssuer, Issuer, ProviderConfig};
use http::{CONNECT_TIMEOUT, ProviderHttp};
use provider::Provider;

/// The configured providers. They share connections.
pub struct OidcProviders(Vec<Provider>);

impl OidcProviders {
    /// Providers with these configurations. Sends nothing.
    ///
    /// # Errors
    /// TLS is not available.
    pub fn new(configs: Vec<ProviderConfig>, clock: &Arc<dyn Clock>) -> std::io::Result<Self> {
        let is_encrypted = configs.iter().any(|config| config.issuer.is_https());
        let client = HttpClient::new(ClientOptions {
            authorities: if is_encrypted {
                CaCertificates::of_system()
            } else {
                CaCertificates::default()
            },
            // The operator names the issuers, and an issuer could name any identity anyway.
            guard: None,
            connect_timeout: CONNECT_TIMEOUT,
            idle_timeout: std::time::Duration::from_secs(30),
            max_idle_per_host: 2,
        });
        let http = ProviderHttp::new(client.map_err(std::io::Error::other)?);
        let provider = |config| Provider::new(config, http.clone(), Arc::clone(clock));
        Ok(Self(configs.into_iter().map(provider).collect()))
    }

    fn find(&self, name: &ProviderName) -> Result<&Provider, ProviderError> {
        let found = self.0.iter().find(|it| it.config().name == *name);
        found.ok_or(ProviderError::Unknown)
    }
}

#[async_trait]
impl IdentityProviders for OidcProviders {
    fn list(&self) -> Vec<ProviderDescription> {
        let configs = self.0.iter().map(Provider::config);
        let descriptions = configs.map(|config| ProviderDescription {
            name: config.name.clone(),
            label: config.label.clone(),
        });
        descriptions.collect()
    }

    async fn authorization_url(
        &self,
        provider: &ProviderName,
        redirect: &Url,
        secrets: &AuthorizationSecrets,
    ) -> Result<Url, ProviderError> {
        self.find(provider)?
            .authorization_url(redirect, secrets)
            .await
    }

    async fn prove(
        &self,
        provider: &ProviderName,
        redirect: &Url,
        secrets: &AuthorizationSecrets,
        response: &AuthorizationResponse,
    ) -> Result<ProvenIdentity, ProviderError> {
        self.find(provider)?
            .prove(redirect, secrets, response)
            .await
    }
}

#[cfg(test)]
mod tests;
