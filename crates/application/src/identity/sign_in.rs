//! Signing in with a password, the sessions that this begins, and one-time links that set a password.
//!
//! Unknown names, users without a password and wrong passwords take the same steps, the slow hash included, and get the
//! same answer. Each change is one transaction with its audit entry. A crash between the use of a link and its answer
//! leaves a user who can sign in with the new password.

use std::net::IpAddr;
use std::sync::Arc;

use domain::audit::{AuditActor, sanitize_text};
use domain::clock::{Clock, Timestamp};
use domain::error::{Classify as _, ErrorClass, chain};
use domain::id::{IdGenerator, SessionId, UserId};
use domain::sandbox::SingleUserRule;
use domain::user::administration::{AdminChange, AdministrationRepository};
use domain::user::identity::{KeyHash, UserRepository};
use domain::user::organization::OrganizationRepository;
use domain::user::sign_in::{
    MAX_PASSWORD_CHARS, MIN_PASSWORD_CHARS, ONE_TIME_LINK_TTL, OneTimeLink, PasswordHash,
    PasswordRepository, Session, SessionRepository, SessionWithRole, SignInChange,
};
use domain::user::single_sign_on::IdentityRepository;
use secrecy::{ExposeSecret as _, SecretString};

use super::authenticate::{AuthenticatedUser, LAST_USED_INTERVAL, looks_like_key};
use super::changes::{Origin, administer};
use super::key_cache::KeyCache;
use super::login_attempts::LoginAttempts;
use super::mail::MailService;
use super::password_work::PasswordWork;
use crate::policy::SessionLifetimes;
use crate::{AppError, AuthMode, BackgroundTasks, Policy, Ports};

mod enrolment;
mod forgotten_password;
pub(super) mod texts;

/// The one answer to every failed login.
const LOGIN_REFUSED: &str = "The name or the password is wrong.";
const LINK_REFUSED: &str =
    "This link is not valid. It may have been used or have expired: ask for a new one.";
const TOO_MANY_ATTEMPTS: &str = "Too many attempts to sign in. Try again in a few minutes.";

/// The browser that signs in.
#[derive(Debug, Clone, Default)]
pub struct LoginClient {
    /// The address by which attempts are counted: for IPv6 the network.
    pub network: Option<IpAddr>,
    pub address: Option<IpAddr>,
    pub user_agent: Option<String>,
}

/// A session that has begun, with the token for its cookie. The store has only the hash.
#[derive(Debug)]
pub struct NewSession {
    pub token: SecretString,
    pub session: Session,
}

/// A new link and its token, which is shown once.
#[derive(Debug)]
pub struct NewLink {
    pub link: OneTimeLink,
    pub token: SecretString,
}

/// Generates a link by which the user sets a password; the caller stores it.
pub fn new_link(ids: &dyn IdGenerator, now: Timestamp, user: &UserId) -> NewLink {
    let token = ids.secret();
    let link = OneTimeLink {
        hash: KeyHash::of(token.expose_secret()),
        user: user.clone(),
        created_at: now,
        expires_at: now.plus(ONE_TIME_LINK_TTL),
    };
    NewLink { link, token }
}

/// Refuses a password that is too short or too long.
pub fn check_new_password(password: &SecretString) -> Result<(), AppError> {
    let chars = password.expose_secret().chars().count();
    if (MIN_PASSWORD_CHARS..=MAX_PASSWORD_CHARS).contains(&chars) {
        return Ok(());
    }
    Err(AppError::invalid(format!(
        "The password must have {MIN_PASSWORD_CHARS} to {MAX_PASSWORD_CHARS} characters; this one has {chars}."
    )))
}

/// Begins, finds and ends sessions, and changes passwords.
#[derive(Clone)]
pub struct SignInService {
    sessions: Arc<dyn SessionRepository>,
    passwords: Arc<dyn PasswordRepository>,
    administration: Arc<dyn AdministrationRepository>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdGenerator>,
    cache: KeyCache<SessionWithRole>,
    work: PasswordWork,
    attempts: Arc<LoginAttempts>,
    lifetimes: SessionLifetimes,
    is_enabled: bool,
    organizations: Arc<dyn OrganizationRepository>,
    users: Arc<dyn UserRepository>,
    identities: Arc<dyn IdentityRepository>,
    mail: Option<MailService>,
    single_user: Option<SingleUserRule>,
    tasks: BackgroundTasks,
}

impl SignInService {
    pub(crate) fn new(
        ports: &Ports,
        policy: &Policy,
        cache: KeyCache<SessionWithRole>,
        mail: Option<MailService>,
        tasks: BackgroundTasks,
    ) -> Self {
        Self {
            sessions: Arc::clone(&ports.sessions),
            passwords: Arc::clone(&ports.passwords),
            administration: Arc::clone(&ports.administration),
            clock: Arc::clone(&ports.clock),
            ids: Arc::clone(&ports.ids),
            cache,
            work: PasswordWork::new(Arc::clone(&ports.password_hasher)),
            attempts: Arc::default(),
            lifetimes: policy.sessions,
            is_enabled: policy.auth == AuthMode::Accounts,
            organizations: Arc::clone(&ports.organizations),
            users: Arc::clone(&ports.users),
            identities: Arc::clone(&ports.identities),
            mail,
            single_user: policy.single_user,
            tasks,
        }
    }

    /// The user of the session with this token; `None` if it is unknown or has ended, and where users do not sign in. A
    /// session that this process ends is refused at once, one that another process ends within a second.
    pub async fn user(&self, token: &str) -> Result<Option<AuthenticatedUser>, AppError> {
        if !self.is_enabled || !looks_like_key(token) {
            return Ok(None);
        }
        let hash = KeyHash::of(token);
        let answer = self.cache.find(&hash, || self.sessions.find_by_hash(&hash));
        let answer = answer.await?;
        let now = self.clock.now();
        let valid = |it: &Arc<SessionWithRole>| !it.session.is_expired(now, self.lifetimes.idle);
        let Some(found) = answer.found.filter(valid) else {
            return Ok(None);
        };
        let session = &found.session;
        if !answer.is_cached && now.since(session.last_seen_at) >= LAST_USED_INTERVAL {
            self.touch(session.id, now);
        }
        Ok(Some(AuthenticatedUser {
            role: found.role,
            session: Some(session.id),
            ..AuthenticatedUser::member(session.user.clone(), found.membership)
        }))
    }

    fn touch(&self, id: SessionId, now: Timestamp) {
        let sessions = Arc::clone(&self.sessions);
        self.tasks.spawn(async move {
            if let Err(error) = sessions.touch(id, now).await {
                tracing::debug!(error = %chain(&error), "cannot record the use of a session");
            }
        });
    }

    /// Begins a session for the user with this name and password.
    pub async fn log_in(
        &self,
        origin: Origin,
        name: &str,
        password: &SecretString,
        client: &LoginClient,
    ) -> Result<NewSession, AppError> {
        self.count_attempt(Some(name), client.network)?;
        let user = UserId::parse(name).ok();
        let stored = match &user {
            Some(user) => self.passwords.find(user).await?,
            None => None,
        };
        let is_right = self.work.verify(password, stored.clone()).await?;
        let (Some(user), Some(stored), true) = (user, stored, is_right) else {
            return Err(login_refused());
        };
        let begun = self.begin(origin, user, stored, client).await?;
        self.attempts.forgive(Some(name), client.network);
        Ok(begun)
    }

    async fn begin(
        &self,
        origin: Origin,
        user: UserId,
        password: PasswordHash,
        client: &LoginClient,
    ) -> Result<NewSession, AppError> {
        let new = self.new_session(user.clone(), client);
        let change = SignInChange::BeginSession {
            session: new.session.clone(),
            password,
        };
        let origin = Origin {
            actor: AuditActor::User(user),
            ..origin
        };
        match self.administer(&origin, change).await {
            Ok(()) => Ok(new),
            // The password was changed, or the user deleted, since it was verified.
            Err(error) if error.class() == ErrorClass::NotFound => Err(login_refused()),
            Err(error) => Err(error),
        }
    }

    /// A session that has not been stored yet.
    pub(super) fn new_session(&self, user: UserId, client: &LoginClient) -> NewSession {
        let (now, token) = (self.clock.now(), self.ids.secret());
        let session = Session {
            id: SessionId::new(self.ids.uuid()),
            user,
            hash: KeyHash::of(token.expose_secret()),
            created_at: now,
            last_seen_at: now,
            expires_at: now.plus(self.lifetimes.absolute),
            address: client.address.map(|address| address.to_string()),
            user_agent: client.user_agent.as_deref().map(sanitize_text),
        };
        NewSession { token, session }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Ends the session with this token, if there is one.
    pub async fn log_out(&self, origin: Origin, token: &SecretString) -> Result<(), AppError> {
        let hash = KeyHash::of(token.expose_secret());
        let found = self.sessions.find_by_hash(&hash).await?;
        let Some(SessionWithRole { session, .. }) = found else {
            return Ok(());
        };
        let origin = Origin {
            actor: AuditActor::User(session.user.clone()),
            ..origin
        };
        match self.end(&origin, &session.user, session.id).await {
            Err(error) if error.class() == ErrorClass::NotFound => Ok(()),
            ended => ended,
        }
    }

    /// The sessions of a user that have not ended, oldest first.
    pub async fn sessions(&self, user: &UserId) -> Result<Vec<Session>, AppError> {
        let mut sessions = self.sessions.list(user).await?;
        let now = self.clock.now();
        sessions.retain(|session| !session.is_expired(now, self.lifetimes.idle));
        Ok(sessions)
    }

    /// Ends a session of this user.
    pub async fn end(&self, origin: &Origin, user: &UserId, id: SessionId) -> Result<(), AppError> {
        let user = user.clone();
        self.administer(origin, SignInChange::EndSession { id, user })
            .await
    }

    /// Makes a link by which the user sets a password: an invitation, or a reset.
    pub async fn create_link(&self, origin: &Origin, user: &UserId) -> Result<NewLink, AppError> {
        let new = new_link(self.ids.as_ref(), self.clock.now(), user);
        let change = SignInChange::CreateLink {
            link: new.link.clone(),
            new_user: None,
        };
        self.administer(origin, change).await?;
        Ok(new)
    }

    /// Changes the password of a user who knows the current one. Ends the user's other sessions.
    pub async fn change_password(
        &self,
        origin: &Origin,
        caller: &AuthenticatedUser,
        (current, new): (&SecretString, &SecretString),
        network: Option<IpAddr>,
    ) -> Result<(), AppError> {
        if !self.is_enabled {
            return Err(AppError::not_found(
                "This service has no passwords: auth.mode is not `accounts`",
            ));
        }
        check_new_password(new)?;
        let user = &caller.user;
        let stored = self.passwords.find(user).await?.ok_or_else(|| {
            AppError::conflict(
                "You have no password yet: an operator makes a link with `agent-workspace users link`",
            )
        })?;
        self.count_attempt(Some(user.as_str()), network)?;
        if !self.work.verify(current, Some(stored.clone())).await? {
            let detail = "The current password is wrong";
            return Err(AppError::refused(ErrorClass::Forbidden, detail));
        }
        self.attempts.forgive(Some(user.as_str()), network);
        let change = SignInChange::ChangePassword {
            user: user.clone(),
            before: stored,
            password: self.work.hash(new).await?,
            keep: caller.session,
        };
        match self.administer(origin, change).await {
            Err(error) if error.class() == ErrorClass::NotFound => Err(AppError::conflict(
                "The password was changed at the same time: try again",
            )),
            changed => changed,
        }
    }

    /// Sets the password of the user for whom the link was made, and begins a session.
    pub async fn redeem_link(
        &self,
        origin: Origin,
        token: &str,
        password: &SecretString,
        client: &LoginClient,
    ) -> Result<NewSession, AppError> {
        check_new_password(password)?;
        self.count_attempt(None, client.network)?;
        let hash = KeyHash::of(token);
        let found = self.passwords.find_link(&hash).await?;
        let valid = found.filter(|link| link.expires_at > self.clock.now());
        let user = valid.ok_or_else(link_refused)?.user;
        let password = self.work.hash(password).await?;
        let change = SignInChange::RedeemLink {
            link: hash,
            user: user.clone(),
            password: password.clone(),
        };
        let origin = Origin {
            actor: AuditActor::User(user.clone()),
            ..origin
        };
        match self.administer(&origin, change).await {
            Ok(()) => self.attempts.forgive(None, client.network),
            Err(error) if error.class() == ErrorClass::NotFound => return Err(link_refused()),
            Err(error) => return Err(error),
        }
        self.begin(origin, user, password, client).await
    }

    pub(super) fn count_attempt(
        &self,
        account: Option<&str>,
        network: Option<IpAddr>,
    ) -> Result<(), AppError> {
        if self.attempts.try_count(account, network, self.clock.now()) {
            return Ok(());
        }
        Err(AppError::refused(
            ErrorClass::RateLimited,
            TOO_MANY_ATTEMPTS,
        ))
    }

    /// Takes back the count of an attempt that succeeded.
    pub(super) fn forgive_attempt(&self, network: Option<IpAddr>) {
        self.attempts.forgive(None, network);
    }

    pub(super) async fn administer(
        &self,
        origin: &Origin,
        change: SignInChange,
    ) -> Result<(), AppError> {
        let (ids, now) = (self.ids.as_ref(), self.clock.now());
        let change = AdminChange::SignIn(change);
        let done = administer(self.administration.as_ref(), origin, ids, now, &change).await;
        // After a failure too: the change may have been committed.
        self.cache.clear();
        done.map(|_| ())
    }
}

fn login_refused() -> AppError {
    AppError::refused(ErrorClass::Unauthenticated, LOGIN_REFUSED)
}

fn link_refused() -> AppError {
    AppError::refused(ErrorClass::Unauthenticated, LINK_REFUSED)
}

#[cfg(test)]
pub(crate) mod tests;
