//! Signing in at an identity provider, and links between users and their identities there.
//!
//! ```text
//!   start ──sealed login to the browser──► provider ──state, code──► resume (same browser, once) ──► complete: session or link
//! ```
//!
//! The service stores nothing of a login that has begun: the browser keeps it, sealed. Each change is one transaction. A crash
//! after the creation of a user and before the session leaves a user whom the next login finds.

mod pending_login;
pub(crate) mod rules;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use domain::audit::AuditActor;
use domain::encryption::cipher::Cipher;
use domain::error::{Classify as _, Entity, ErrorClass, StoreError, chain};
use domain::id::{IdGenerator, IdentityId, ProviderName, UserId};
use domain::user::identity::Role;
use domain::user::sign_in::{SignInChange, UserEmail};
use domain::user::single_sign_on::{
    AuthorizationResponse, AuthorizationSecrets, IdentityProviders, IdentityRepository,
    LinkedIdentity, ProvenIdentity, ProviderDescription, ProviderError,
};
use secrecy::SecretString;
use url::Url;

use self::pending_login::UsedStates;
pub use self::pending_login::{PENDING_LOGIN_TTL, PendingLogin};
pub use self::rules::{NewUserRule, ProviderRules};
use super::authenticate::AuthenticatedUser;
use super::changes::Origin;
use super::sign_in::{LoginClient, NewSession, SignInService};
use super::single_user::SingleUserCheck;
pub use crate::policy::SingleSignOnPolicy;
use crate::{AppError, Policy, Ports};

const RESTART: &str = "This login is not valid any more, or began in another browser. Try again.";
const REFUSED: &str = "The provider did not sign you in.";
const LINKED_ELSEWHERE: &str = "This login belongs to another account of this service.";
const AMBIGUOUS: &str =
    "Several accounts have your e-mail address. Sign in with a password, then link this login.";

/// A login that begins: where the browser goes, and what it keeps.
#[derive(Debug)]
pub struct StartedLogin {
    pub url: Url,
    pub sealed: SecretString,
}

/// What the provider gave the browser for this service.
#[derive(Debug, Clone)]
pub struct LoginAnswer {
    pub state: String,
    /// `None` if the provider refused.
    pub code: Option<SecretString>,
    pub issuer: Option<String>,
}

/// A login that has succeeded.
#[derive(Debug)]
pub enum CompletedLogin {
    SignedIn(NewSession),
    /// The identity is linked to the user who was signed in.
    Linked,
}

/// Logins by identity providers, and the identities of users.
pub struct SingleSignOnService {
    providers: Arc<dyn IdentityProviders>,
    identities: Arc<dyn IdentityRepository>,
    cipher: Arc<dyn Cipher>,
    ids: Arc<dyn IdGenerator>,
    sign_in: SignInService,
    single_user: SingleUserCheck,
    policy: SingleSignOnPolicy,
    used: UsedStates,
}

impl SingleSignOnService {
    pub(crate) fn new(
        ports: &Ports,
        policy: &Policy,
        sign_in: SignInService,
        single_user: SingleUserCheck,
    ) -> Self {
        Self {
            providers: Arc::clone(&ports.identity_providers),
            identities: Arc::clone(&ports.identities),
            cipher: Arc::clone(&ports.cipher),
            ids: Arc::clone(&ports.ids),
            sign_in,
            single_user,
            policy: policy.single_sign_on.clone(),
            used: UsedStates::default(),
        }
    }

    /// The providers, for the login page.
    pub fn providers(&self) -> Vec<ProviderDescription> {
        self.providers.list()
    }

    /// Begins a login, or the link of an identity to `link_for`, who has a session.
    pub async fn start(
        &self,
        provider: &ProviderName,
        return_to: Option<&str>,
        link_for: Option<&AuthenticatedUser>,
        client: &LoginClient,
    ) -> Result<StartedLogin, AppError> {
        let redirect = self.redirect_url(provider)?;
        self.sign_in.count_attempt(None, client.network)?;
        let secrets = AuthorizationSecrets {
            state: self.ids.secret(),
            nonce: self.ids.secret(),
            verifier: self.ids.secret(),
        };
        let url = self
            .providers
            .authorization_url(provider, &redirect, &secrets);
        let url = url.await.map_err(|error| {
            // The client has done nothing wrong.
            self.sign_in.forgive_attempt(client.network);
            self.failure(provider, &error)
        })?;
        let now = self.sign_in.now();
        let mut login = PendingLogin::new(provider.clone(), secrets, return_to, now);
        login.link_for = link_for.and_then(|user| user.session);
        let sealed = login.seal(self.cipher.as_ref())?;
        Ok(StartedLogin { url, sealed })
    }

    /// The login that this browser began and the provider answers. Each is resumed once.
    pub fn resume(
        &self,
        provider: &ProviderName,
        sealed: Option<&SecretString>,
        answer: &LoginAnswer,
    ) -> Result<PendingLogin, AppError> {
        let now = self.sign_in.now();
        let login = sealed.and_then(|text| PendingLogin::open(self.cipher.as_ref(), text));
        let login = login.filter(|login| {
            login.provider == *provider
                && login.expires_at > now
                && login.has_state(&answer.state)
                && self.used.take(login, now)
        });
        login.ok_or_else(|| refused(RESTART))
    }

    /// Verifies the answer, and begins a session or links the identity to the caller.
    pub async fn complete(
        &self,
        origin: Origin,
        login: &PendingLogin,
        answer: LoginAnswer,
        client: &LoginClient,
        caller: Option<&AuthenticatedUser>,
    ) -> Result<CompletedLogin, AppError> {
        let code = answer.code.ok_or_else(|| refused(REFUSED))?;
        let response = AuthorizationResponse {
            code,
            issuer: answer.issuer,
        };
        let redirect = self.redirect_url(&login.provider)?;
        let proven = self
            .providers
            .prove(&login.provider, &redirect, &login.secrets, &response);
        let proven = proven.await;
        let proven = proven.map_err(|error| self.failure(&login.provider, &error))?;
        let completed = match login.link_for {
            Some(session) => {
                let caller = caller.filter(|caller| caller.session == Some(session));
                let caller = caller.ok_or_else(|| refused(RESTART))?;
                self.link(&origin, &login.provider, &proven, &caller.user)
                    .await?;
                CompletedLogin::Linked
            }
            None => CompletedLogin::SignedIn(self.log_in(origin, login, &proven, client).await?),
        };
        self.sign_in.forgive_attempt(client.network);
        Ok(completed)
    }

    /// Links a proven identity to a user who is signed in.
    async fn link(
        &self,
        origin: &Origin,
        provider: &ProviderName,
        proven: &ProvenIdentity,
        user: &UserId,
    ) -> Result<(), AppError> {
        match self.identities.find(provider, &proven.subject).await? {
            Some(known) if known.user == *user => return Ok(()),
            Some(_) => return Err(linked_elsewhere()),
            None => {}
        }
        let identity = self.new_identity(provider, proven, user.clone());
        let linked = self.insert(origin, identity, None).await;
        linked.map(|_| ()).map_err(|error| match error {
            AppError::Store(StoreError::Conflict { .. }) => linked_elsewhere(),
            error => error,
        })
    }

    async fn log_in(
        &self,
        origin: Origin,
        login: &PendingLogin,
        proven: &ProvenIdentity,
        client: &LoginClient,
    ) -> Result<NewSession, AppError> {
        let rules = self.policy.rules.get(&login.provider);
        let rules = rules.ok_or_else(|| unknown(&login.provider))?;
        let role = rules.role(&proven.groups);
        let known = self
            .identities
            .find(&login.provider, &proven.subject)
            .await?;
        let known = match known {
            Some(known) => known,
            None => self.enrol(&origin, login, proven, (rules, role)).await?,
        };
        let new = self.sign_in.new_session(known.user.clone(), client);
        let change = SignInChange::BeginIdentitySession {
            session: new.session.clone(),
            identity: known.id,
            email: proven.email.clone(),
            role,
        };
        let origin = acting(origin, known.user);
        match self.sign_in.administer(&origin, change).await {
            Ok(()) => Ok(new),
            // Unlinked or deleted at the same time, or the user is disabled.
            Err(error) if error.class() == ErrorClass::NotFound => Err(refused(RESTART)),
            Err(error) => Err(error),
        }
    }

    /// Links an unknown identity to the user of its address, where the operator allows this, or to a new user.
    async fn enrol(
        &self,
        origin: &Origin,
        login: &PendingLogin,
        proven: &ProvenIdentity,
        (rules, role): (&ProviderRules, Option<Role>),
    ) -> Result<LinkedIdentity, AppError> {
        let verified = proven.email.as_ref().filter(|email| email.is_verified);
        if let Some(email) = verified.filter(|_| rules.link_verified_email)
            && let Some(user) = self.user_of_address(email).await?
        {
            let identity = self.new_identity(&login.provider, proven, user.clone());
            return self
                .insert(&acting(origin.clone(), user), identity, None)
                .await;
        }
        rules.check_new_user(proven.email.as_ref())?;
        let role = role.unwrap_or_default();
        for user in rules::user_names(proven, self.ids.as_ref()) {
            self.single_user.check_new_user(&user).await?;
            let identity = self.new_identity(&login.provider, proven, user.clone());
            let inserted = self
                .insert(&acting(origin.clone(), user), identity, Some(role))
                .await;
            match inserted {
                Err(AppError::Store(StoreError::Conflict {
                    entity: Entity::Identity,
                })) => {
                    // A second login at the same time was first.
                    let known = self
                        .identities
                        .find(&login.provider, &proven.subject)
                        .await?;
                    return known.ok_or_else(|| refused(RESTART));
                }
                Err(AppError::Store(
                    StoreError::Conflict { .. } | StoreError::UserNameReserved,
                )) => {}
                inserted => return inserted,
            }
        }
        Err(AppError::conflict(
            "All names for your account are taken. Ask an administrator for an account.",
        ))
    }

    /// The one user with this verified address, if there is one.
    async fn user_of_address(&self, email: &UserEmail) -> Result<Option<UserId>, AppError> {
        // Users may enter any address, so that unverified ones say nothing, and do not count.
        let found = self.identities.find_by_email(&email.address, 100).await?;
        let mut verified = found.into_iter().filter(|(_, email)| email.is_verified);
        let user = verified.next().map(|(user, _)| user);
        if verified.next().is_some() {
            return Err(AppError::conflict(AMBIGUOUS));
        }
        Ok(user)
    }

    fn new_identity(
        &self,
        provider: &ProviderName,
        proven: &ProvenIdentity,
        user: UserId,
    ) -> LinkedIdentity {
        let now = self.sign_in.now();
        LinkedIdentity {
            id: IdentityId::new(self.ids.uuid()),
            provider: provider.clone(),
            subject: proven.subject.clone(),
            user,
            email: proven.email.as_ref().map(|email| email.address.clone()),
            created_at: now,
            last_used_at: now,
        }
    }

    async fn insert(
        &self,
        origin: &Origin,
        identity: LinkedIdentity,
        new_user: Option<Role>,
    ) -> Result<LinkedIdentity, AppError> {
        let change = SignInChange::LinkIdentity {
            identity: identity.clone(),
            new_user,
        };
        self.sign_in.administer(origin, change).await?;
        Ok(identity)
    }

    /// The identities that are linked to a user, oldest first.
    pub async fn identities(&self, user: &UserId) -> Result<Vec<LinkedIdentity>, AppError> {
        Ok(self.identities.list(user).await?)
    }

    /// Removes the link of an identity of the caller, and ends the caller's other sessions.
    pub async fn unlink(
        &self,
        origin: &Origin,
        caller: &AuthenticatedUser,
        id: IdentityId,
    ) -> Result<(), AppError> {
        let change = SignInChange::UnlinkIdentity {
            id,
            user: caller.user.clone(),
            keep: caller.session,
        };
        let done = self.sign_in.administer(origin, change).await;
        done.map_err(|error| match error {
            AppError::Store(StoreError::Conflict { .. }) => AppError::conflict(
                "This is your only way to sign in: link another login or set a password first",
            ),
            error => error,
        })
    }

    fn redirect_url(&self, provider: &ProviderName) -> Result<Url, AppError> {
        let base = self.policy.public_url.as_ref();
        let base = base.filter(|_| self.policy.rules.contains_key(provider));
        let mut url = base.cloned().ok_or_else(|| unknown(provider))?;
        url.path_segments_mut()
            .map_err(|()| unknown(provider))?
            .pop_if_empty()
            .extend(["oauth", provider.as_str(), "callback"]);
        Ok(url)
    }

    /// The text for the browser. The log has the rest.
    fn failure(&self, provider: &ProviderName, error: &ProviderError) -> AppError {
        let known = self.providers.list().into_iter();
        let label = known
            .filter(|it| it.name == *provider)
            .map(|it| it.label)
            .next();
        let label = label.unwrap_or_default();
        match error {
            ProviderError::Unknown => unknown(provider),
            ProviderError::Unavailable { .. } => {
                tracing::warn!(%provider, error = %chain(error), "an identity provider is not available");
                let detail = format!("{label} does not answer right now. Try again later.");
                AppError::refused(ErrorClass::Unavailable, detail)
            }
            ProviderError::Invalid(_) => {
                tracing::warn!(%provider, error = %chain(error), "a login at an identity provider was refused");
                refused(&format!("The login at {label} was not valid. Try again."))
            }
        }
    }
}

/// The origin of a change that the service makes for a user who has just been identified.
fn acting(origin: Origin, user: UserId) -> Origin {
    Origin {
        actor: AuditActor::User(user),
        key: None,
        session: None,
        ..origin
    }
}

/// Audited, because 403 is.
fn linked_elsewhere() -> AppError {
    AppError::refused(ErrorClass::Forbidden, LINKED_ELSEWHERE)
}

fn refused(detail: &str) -> AppError {
    AppError::refused(ErrorClass::Unauthenticated, detail)
}

fn unknown(provider: &ProviderName) -> AppError {
    AppError::not_found(format!("There is no identity provider {provider}"))
}
