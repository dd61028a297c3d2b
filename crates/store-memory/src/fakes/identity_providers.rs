//! An identity provider without a network.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use domain::id::ProviderName;
use domain::user::single_sign_on::{
    AuthorizationResponse, AuthorizationSecrets, IdentityProviders, ProvenIdentity,
    ProviderDescription, ProviderError,
};
use secrecy::ExposeSecret as _;
use url::Url;

/// Providers that prove the identities that a test has stored under a code. Each code works once.
#[derive(Debug, Default)]
pub struct FakeIdentityProviders {
    names: Vec<ProviderName>,
    people: Mutex<BTreeMap<String, ProvenIdentity>>,
    is_away: AtomicBool,
}

impl FakeIdentityProviders {
    /// Providers of these names.
    ///
    /// # Panics
    /// If one is no name of a provider.
    pub fn new(names: &[&str]) -> Self {
        let parse = |name: &&str| ProviderName::parse(name).expect("a name of a provider");
        Self {
            names: names.iter().map(parse).collect(),
            ..Self::default()
        }
    }

    /// Lets the provider exchange this code for an identity.
    pub fn add(&self, code: &str, person: ProvenIdentity) {
        let mut people = self.people.lock().unwrap_or_else(PoisonError::into_inner);
        people.insert(code.to_owned(), person);
    }

    /// Makes the providers answer or not.
    pub fn set_away(&self, is_away: bool) {
        self.is_away.store(is_away, Ordering::SeqCst);
    }

    fn check(&self, provider: &ProviderName) -> Result<(), ProviderError> {
        if self.is_away.load(Ordering::SeqCst) {
            return Err(ProviderError::Unavailable {
                what: "it is away",
                source: None,
            });
        }
        let is_known = self.names.contains(provider);
        is_known.then_some(()).ok_or(ProviderError::Unknown)
    }
}

#[async_trait]
impl IdentityProviders for FakeIdentityProviders {
    fn list(&self) -> Vec<ProviderDescription> {
        let names = self.names.iter();
        let descriptions = names.map(|name| ProviderDescription {
            name: name.clone(),
            label: name.to_string(),
        });
        descriptions.collect()
    }

    async fn authorization_url(
        &self,
        provider: &ProviderName,
        redirect: &Url,
        secrets: &AuthorizationSecrets,
    ) -> Result<Url, ProviderError> {
        self.check(provider)?;
        let mut url: Url = "https://provider.example/authorize"
            .parse()
            .expect("a constant URL");
        url.query_pairs_mut()
            .append_pair("redirect_uri", redirect.as_str())
            .append_pair("state", secrets.state.expose_secret());
        Ok(url)
    }

    async fn prove(
        &self,
        provider: &ProviderName,
        _: &Url,
        _: &AuthorizationSecrets,
        response: &AuthorizationResponse,
    ) -> Result<ProvenIdentity, ProviderError> {
        self.check(provider)?;
        let mut people = self.people.lock().unwrap_or_else(PoisonError::into_inner);
        let person = people.remove(response.code.expose_secret());
        person.ok_or_else(|| ProviderError::Invalid("the code is unknown".to_owned()))
    }
}
