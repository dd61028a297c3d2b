//! Errors of the ports and their classes. The HTTP crate maps classes to status codes.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::time::Duration;

/// The texts of an error and its sources, outermost first. For the log, never for a client.
pub fn chain(error: &dyn Error) -> String {
    let (mut text, mut cause) = (error.to_string(), error.source());
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// The class of a failure, as the client sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorClass {
    /// The request cannot be carried out (400).
    Invalid,
    /// Credentials are missing or unknown (401).
    Unauthenticated,
    /// The credentials do not allow the request (403).
    Forbidden,
    /// The object does not exist or is outside the scope (404).
    NotFound,
    /// The request conflicts with the present state (409).
    Conflict,
    /// The object existed and cannot come back (410).
    Gone,
    /// The request is too large (413).
    TooLarge,
    /// The request is well-formed, but a value is not allowed (422).
    Unprocessable,
    /// A cap or a rate limit was reached (429).
    RateLimited,
    /// A quota of the user is used up; waiting does not help (507).
    QuotaExceeded,
    /// The backend does not support the request (501).
    Unsupported,
    /// A sandbox's agent server failed or refused (502).
    Upstream,
    /// A sandbox's agent server timed out on something behind it (504).
    TimedOut,
    /// The client should try again later (503).
    Unavailable,
    /// The service failed (500).
    Internal,
}

/// The class of a port's error, and its text for clients.
pub trait Classify: std::error::Error {
    fn class(&self) -> ErrorClass;
    /// The text for clients: no secrets, no internal addresses, no texts of drivers.
    fn public(&self) -> Cow<'_, str>;
    /// How long the client should wait before it tries again.
    fn retry_after(&self) -> Option<Duration> {
        None
    }
}

/// A boxed source error, for the operator's log.
pub type BoxError = Box<dyn std::error::Error + Send + Sync + 'static>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReachedCap {
    #[error("You already have {0} running sandboxes, the most one user may have")]
    PerUser(u32),
    #[error("This service already runs {0} sandboxes, the most it may run")]
    Overall(u32),
    #[error("You already have {0} conversations starting, the most one user may have")]
    Starts(u32),
}

/// The object of a [`StoreError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entity {
    ApiKey,
    AuditEntry,
    Conversation,
    DeletedUser,
    DeviceLogin,
    DisabledUser,
    EgressRequest,
    Event,
    Identity,
    Invitation,
    Lease,
    Member,
    OneTimeLink,
    Organization,
    /// The parent of a new conversation.
    ParentConversation,
    PendingMessage,
    /// An object of unknown kind.
    Record,
    Sandbox,
    SealedRecord,
    Secret,
    Session,
    Settings,
    StartTask,
    User,
    Vault,
    WarmSandbox,
}

impl Entity {
    /// The name in messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ApiKey => "API key",
            Self::AuditEntry => "audit entry",
            Self::Conversation => "conversation",
            Self::DeletedUser => "deleted user",
            Self::DeviceLogin => "device login",
            Self::DisabledUser => "disabled user",
            Self::EgressRequest => "request",
            Self::Event => "event",
            Self::Identity => "identity",
            Self::Invitation => "invitation",
            Self::Lease => "lease",
            Self::Member => "member",
            Self::OneTimeLink => "one-time link",
            Self::Organization => "organization",
            Self::ParentConversation => "parent conversation",
            Self::PendingMessage => "pending message",
            Self::Record => "record",
            Self::Sandbox => "sandbox",
            Self::SealedRecord => "sealed record",
            Self::Secret => "secret",
            Self::Session => "session",
            Self::Settings => "settings",
            Self::StartTask => "start task",
            Self::User => "user",
            Self::Vault => "vault",
            Self::WarmSandbox => "warm sandbox",
        }
    }
}

impl fmt::Display for Entity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The id or another unique value is taken.
    #[error("{entity} already exists")]
    Conflict { entity: Entity },
    /// The object of the command does not exist or is outside the scope.
    #[error("{entity} not found")]
    NotFound { entity: Entity },
    /// A concurrent change came first: a lost lease, a lost update, an illegal transition.
    #[error("{entity} was changed by another request: read it again and repeat the change")]
    Stale { entity: Entity },
    /// The key of the caller is not valid any more.
    #[error("The API key has been revoked or has expired")]
    CallerRevoked,
    /// The caller must be an administrator and is not one any more.
    #[error("Only administrators may do this")]
    CallerNotAdministrator,
    /// The caller's role in the organization does not allow the change.
    #[error("Your role in this organization does not allow this")]
    MemberNotPermitted,
    /// The key of the caller acts in one organization only.
    #[error("This API key is bound to an organization and may not do this: use another key")]
    KeyBoundElsewhere,
    /// An organization has always at least one owner.
    #[error(
        "{user} is the last owner of the organization {organization}: make another member an owner first"
    )]
    LastOwner { user: String, organization: String },
    /// The name belongs to a deleted user.
    #[error(
        "A user of this name was deleted: the name is free again once their sandboxes are gone, and not before ten \
         minutes have passed"
    )]
    UserNameReserved,
    /// This store did not issue the page token.
    #[error("page token is invalid: repeat the search without `page_id`")]
    InvalidPageToken,
    /// The cap on running sandboxes or on unfinished starts is reached.
    #[error("{0}")]
    CapReached(ReachedCap),
    /// The owner has the maximum number of these objects.
    #[error("limit of {limit} {entity} reached: delete one first")]
    Full {
        /// The objects.
        entity: &'static str,
        limit: usize,
    },
    /// The pool is exhausted, or the database is busy or gone. The caller may try again.
    #[error("store unavailable: {what}")]
    Unavailable {
        /// The unavailable resource, or the reason; clients see it.
        what: &'static str,
        #[source]
        source: Option<BoxError>,
    },
    /// A row cannot be decoded: a bug or a damaged database.
    #[error("corrupt {entity}: {what}")]
    Corrupt { entity: Entity, what: String },
    #[error("store failed")]
    Other(#[source] BoxError),
}

impl Classify for StoreError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Conflict { .. }
            | Self::Stale { .. }
            | Self::Full { .. }
            | Self::LastOwner { .. }
            | Self::UserNameReserved => ErrorClass::Conflict,
            Self::CallerRevoked => ErrorClass::Unauthenticated,
            Self::CallerNotAdministrator | Self::MemberNotPermitted | Self::KeyBoundElsewhere => {
                ErrorClass::Forbidden
            }
            Self::NotFound { .. } => ErrorClass::NotFound,
            Self::InvalidPageToken => ErrorClass::Unprocessable,
            Self::CapReached(_) => ErrorClass::RateLimited,
            Self::Unavailable { .. } => ErrorClass::Unavailable,
            Self::Corrupt { .. } | Self::Other(_) => ErrorClass::Internal,
        }
    }

    fn public(&self) -> Cow<'_, str> {
        match self {
            Self::Unavailable { what, .. } => {
                format!("The store is not available right now ({what}). Try again.").into()
            }
            Self::Corrupt { .. } | Self::Other(_) => "Internal Server Error".into(),
            Self::CapReached(cap) => {
                let advice = match cap {
                    ReachedCap::Starts(_) => "Wait for one of them.",
                    ReachedCap::PerUser(_) | ReachedCap::Overall(_) => {
                        "Pause or delete one, or try again later."
                    }
                };
                format!("{cap}. {advice}").into()
            }
            other => other.to_string().into(),
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::CapReached(_) => Some(Duration::from_secs(30)),
            Self::Unavailable { .. } => Some(Duration::from_secs(1)),
            _ => None,
        }
    }
}
