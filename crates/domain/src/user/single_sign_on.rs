//! Single sign-on: identity providers (OpenID Connect), and links between users and their identities there.
//!
//! An identity is known by provider and subject. An e-mail address never identifies a user by itself: people change
//! addresses, and providers give them to others.

use std::collections::BTreeMap;
use std::fmt;

use async_trait::async_trait;
use secrecy::SecretString;
use url::Url;

use crate::clock::Timestamp;
use crate::error::{BoxError, StoreError};
use crate::id::{IdentityId, ProviderName, UserId};
use crate::user::email::UserEmail;

/// Maximum number of identities that are linked to one user.
pub const MAX_IDENTITIES_PER_USER: usize = 20;

/// Longest subject, in characters, as OpenID Connect limits it.
pub const MAX_SUBJECT_CHARS: usize = 255;

/// An identity at a provider that is linked to a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkedIdentity {
    pub id: IdentityId,
    pub provider: ProviderName,
    /// The provider's id of the person: unique there, and never given to another person.
    pub subject: String,
    pub user: UserId,
    /// The address that the provider named at the last login, for the user to recognise the identity by.
    pub email: Option<String>,
    pub created_at: Timestamp,
    /// Time of the last login.
    pub last_used_at: Timestamp,
}

/// Identities and the addresses of users. [`crate::user::administration::AdministrationRepository`] changes them.
#[async_trait]
pub trait IdentityRepository: Send + Sync + 'static {
    /// The identity of this subject at this provider. Those of users whose deletion has begun are not found.
    async fn find(
        &self,
        provider: &ProviderName,
        subject: &str,
    ) -> Result<Option<LinkedIdentity>, StoreError>;
    /// The identities of a user, oldest first.
    async fn list(&self, user: &UserId) -> Result<Vec<LinkedIdentity>, StoreError>;
    /// The e-mail address of a user. `None` without one, and for users whose deletion has begun.
    async fn email(&self, user: &UserId) -> Result<Option<UserEmail>, StoreError>;
    /// The verified addresses of those of these users who have one; without those whose deletion has begun.
    async fn verified_emails(
        &self,
        users: &[UserId],
    ) -> Result<BTreeMap<UserId, String>, StoreError>;
    /// At most `limit` users with this address, by name; without those whose deletion has begun.
    async fn find_by_email(
        &self,
        address: &str,
        limit: usize,
    ) -> Result<Vec<(UserId, UserEmail)>, StoreError>;
}

/// A provider as the login page shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderDescription {
    pub name: ProviderName,
    /// The text of its button.
    pub label: String,
}

/// The values of one login that only the browser that began it may have.
#[derive(Clone)]
pub struct AuthorizationSecrets {
    /// Returned by the provider with the answer.
    pub state: SecretString,
    /// Returned by the provider in the ID token.
    pub nonce: SecretString,
    /// Proves to the provider that the caller of its token endpoint began the login (PKCE).
    pub verifier: SecretString,
}

impl fmt::Debug for AuthorizationSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AuthorizationSecrets(…)")
    }
}

/// What a provider sent back to the browser after a login.
#[derive(Debug, Clone)]
pub struct AuthorizationResponse {
    pub code: SecretString,
    /// The issuer that the response names (RFC 9207), if it names one.
    pub issuer: Option<String>,
}

/// An identity that a provider has proven.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProvenIdentity {
    pub subject: String,
    pub email: Option<UserEmail>,
    /// A name that the person uses at the provider.
    pub preferred_name: Option<String>,
    pub groups: Vec<String>,
}

/// Why a provider proved no identity. No text contains a secret.
#[derive(Debug, thiserror::Error)]
pub enum ProviderError {
    #[error("there is no identity provider of this name")]
    Unknown,
    /// The provider does not answer, or not as OpenID Connect says.
    #[error("the identity provider is not available: {what}")]
    Unavailable {
        what: &'static str,
        #[source]
        source: Option<BoxError>,
    },
    /// The provider refused the code, or its answer proves nothing.
    #[error("the login is not valid: {0}")]
    Invalid(String),
}

/// The configured identity providers.
#[async_trait]
pub trait IdentityProviders: Send + Sync + 'static {
    /// In the order of the configuration.
    fn list(&self) -> Vec<ProviderDescription>;
    /// The address at which the provider asks the person. It returns the browser to `redirect`.
    async fn authorization_url(
        &self,
        provider: &ProviderName,
        redirect: &Url,
        secrets: &AuthorizationSecrets,
    ) -> Result<Url, ProviderError>;
    /// Exchanges the provider's response for a proven identity. All checks of the protocol are made, but for the `state`,
    /// which the caller compares.
    async fn prove(
        &self,
        provider: &ProviderName,
        redirect: &Url,
        secrets: &AuthorizationSecrets,
        response: &AuthorizationResponse,
    ) -> Result<ProvenIdentity, ProviderError>;
}
