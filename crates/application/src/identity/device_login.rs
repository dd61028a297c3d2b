//! Device login: a program without a browser gets an API key of the person who confirms its code in theirs.
//!
//! The program polls with a code of its own, of which the store has the hash. A crash between the commit of the key and the
//! answer loses the key's text: the program begins again, and the key expires unused.

use std::net::IpAddr;
use std::sync::Arc;

use domain::audit::AuditActor;
use domain::clock::{Clock, Timestamp};
use domain::error::{Classify as _, ErrorClass, StoreError};
use domain::id::IdGenerator;
use domain::user::administration::{AdminChange, AdministrationRepository};
use domain::user::device_login::{
    DEVICE_KEY_TTL, DEVICE_LOGIN_TTL, DeviceLogin, DeviceLoginRepository, UserCode,
};
use domain::user::identity::{ApiKeyRepository, KeyHash, MAX_KEYS_PER_USER};
use domain::user::sign_in::SignInChange;
use secrecy::{ExposeSecret as _, SecretString};

use super::administration::check_key_count;
use super::authenticate::AuthenticatedUser;
use super::changes::{Origin, administer};
use super::login_attempts::LoginAttempts;
use super::new_keys::{KeyOptions, new_key};
use crate::{AppError, AuthMode, Policy, Ports};

const CODE_REFUSED: &str = "This code is not valid. It may have expired, or have been confirmed or denied already: begin again in \
                            the program that showed it.";
const TOO_MANY_CODES: &str = "Too many codes from this address. Try again in a few minutes.";
/// Attempts to find a code that nothing uses. Two are enough.
const CODE_ATTEMPTS: usize = 4;

/// A device login that has begun, with the program's own code.
#[derive(Debug)]
pub struct NewDeviceLogin {
    pub login: DeviceLogin,
    pub token: SecretString,
}

/// The answer to a program that polls.
#[derive(Debug)]
pub enum DeviceAnswer {
    /// No person has answered yet.
    Pending,
    /// The same, and the program asks too often.
    SlowDown,
    /// The code is unknown or has expired, or its key was issued.
    Expired,
    /// The person denied the code, or cannot have another key.
    Denied,
    /// The API key.
    Issued(SecretString),
}

pub struct DeviceLoginService {
    logins: Arc<dyn DeviceLoginRepository>,
    keys: Arc<dyn ApiKeyRepository>,
    administration: Arc<dyn AdministrationRepository>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdGenerator>,
    begun: LoginAttempts,
    answered: LoginAttempts,
    polls: LoginAttempts,
    is_enabled: bool,
}

impl DeviceLoginService {
    pub(crate) fn new(ports: &Ports, policy: &Policy) -> Self {
        Self {
            logins: Arc::clone(&ports.device_logins),
            keys: Arc::clone(&ports.api_keys),
            administration: Arc::clone(&ports.administration),
            clock: Arc::clone(&ports.clock),
            ids: Arc::clone(&ports.ids),
            begun: LoginAttempts::default(),
            answered: LoginAttempts::default(),
            polls: LoginAttempts::default(),
            is_enabled: policy.auth == AuthMode::Accounts,
        }
    }

    /// Begins a device login. Not found where users do not sign in.
    pub async fn begin(&self, network: Option<IpAddr>) -> Result<NewDeviceLogin, AppError> {
        if !self.is_enabled {
            return Err(AppError::not_found(
                "People do not sign in to this service in a browser: use an API key",
            ));
        }
        let now = self.clock.now();
        count(&self.begun, None, network, now)?;
        let token = self.ids.secret();
        for _ in 0..CODE_ATTEMPTS {
            let login = DeviceLogin {
                hash: KeyHash::of(token.expose_secret()),
                code: UserCode::of(self.ids.uuid()),
                created_at: now,
                expires_at: now.plus(DEVICE_LOGIN_TTL),
                user: None,
                is_denied: false,
            };
            match self.logins.begin(&login).await {
                Ok(()) => return Ok(NewDeviceLogin { login, token }),
                Err(StoreError::Conflict { .. }) => {}
                Err(StoreError::Full { .. }) => return Err(too_many()),
                Err(error) => return Err(error.into()),
            }
        }
        Err(too_many())
    }

    /// Confirms the code for the caller, who is signed in.
    pub async fn confirm(
        &self,
        origin: &Origin,
        caller: &AuthenticatedUser,
        code: &str,
        network: Option<IpAddr>,
    ) -> Result<(), AppError> {
        let (now, user) = (self.clock.now(), &caller.user);
        count(&self.answered, Some(user.as_str()), network, now)?;
        let code = code.parse().map_err(|_| code_refused())?;
        check_key_count(&self.keys.list(Some(user)).await?, MAX_KEYS_PER_USER, now)?;
        let user = user.clone();
        let change = SignInChange::ConfirmDevice { code, user };
        self.answer(origin, caller, change, network).await
    }

    /// Denies the code: the program that waits gets no key. A code that is denied counts as no wrong attempt.
    pub async fn deny(
        &self,
        origin: &Origin,
        caller: &AuthenticatedUser,
        code: &str,
        network: Option<IpAddr>,
    ) -> Result<(), AppError> {
        let user = caller.user.clone();
        count(
            &self.answered,
            Some(user.as_str()),
            network,
            self.clock.now(),
        )?;
        let code = code.parse().map_err(|_| code_refused())?;
        let change = SignInChange::DenyDevice { code, user };
        self.answer(origin, caller, change, network).await
    }

    async fn answer(
        &self,
        origin: &Origin,
        caller: &AuthenticatedUser,
        change: SignInChange,
        network: Option<IpAddr>,
    ) -> Result<(), AppError> {
        let is_answered = self.change(origin, change).await?;
        is_answered.then_some(()).ok_or_else(code_refused)?;
        self.answered.forgive(Some(caller.user.as_str()), network);
        Ok(())
    }

    /// Issues the key if the code was confirmed.
    pub async fn redeem(
        &self,
        origin: Origin,
        token: &SecretString,
        network: Option<IpAddr>,
    ) -> Result<DeviceAnswer, AppError> {
        let now = self.clock.now();
        if !self.polls.try_count(None, network, now) {
            return Ok(DeviceAnswer::SlowDown);
        }
        let hash = KeyHash::of(token.expose_secret());
        let found = self.logins.find(&hash).await?;
        let Some(login) = found.filter(|it| it.expires_at > now) else {
            return Ok(DeviceAnswer::Expired);
        };
        if login.is_denied {
            return Ok(DeviceAnswer::Denied);
        }
        let Some(user) = login.user else {
            return Ok(DeviceAnswer::Pending);
        };
        let keys = self.keys.list(Some(&user)).await?;
        if check_key_count(&keys, MAX_KEYS_PER_USER, now).is_err() {
            return Ok(DeviceAnswer::Denied);
        }
        let origin = Origin {
            actor: AuditActor::User(user.clone()),
            ..origin
        };
        let options = KeyOptions {
            name: Some(format!("device {}", login.code)),
            expires_in: Some(DEVICE_KEY_TTL),
            organization: None,
            is_automation: false,
        };
        let issued = new_key(self.ids.as_ref(), now, &user, &options, &origin.actor);
        let key = issued.key.clone();
        let is_issued = self.change(&origin, SignInChange::RedeemDevice { hash, key });
        Ok(if is_issued.await? {
            DeviceAnswer::Issued(issued.text)
        } else {
            DeviceAnswer::Expired
        })
    }

    /// Makes a change; `false` if it found no device login.
    async fn change(&self, origin: &Origin, change: SignInChange) -> Result<bool, AppError> {
        let (store, ids) = (self.administration.as_ref(), self.ids.as_ref());
        let change = AdminChange::SignIn(change);
        match administer(store, origin, ids, self.clock.now(), &change).await {
            Ok(_) => Ok(true),
            Err(error) if error.class() == ErrorClass::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn count(
    attempts: &LoginAttempts,
    account: Option<&str>,
    network: Option<IpAddr>,
    now: Timestamp,
) -> Result<(), AppError> {
    let is_admitted = attempts.try_count(account, network, now);
    is_admitted.then_some(()).ok_or_else(too_many)
}

fn too_many() -> AppError {
    AppError::refused(ErrorClass::RateLimited, TOO_MANY_CODES)
}

fn code_refused() -> AppError {
    AppError::invalid(CODE_REFUSED)
}
