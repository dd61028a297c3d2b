//! Classification of failures, free of transport: the HTTP crate holds the only table from class to status.

use std::borrow::Cow;
use std::error::Error;
use std::time::Duration;

/// An error and everything that caused it, outermost first: for the log, never for a client.
pub fn chain(error: &dyn Error) -> String {
    let (mut text, mut cause) = (error.to_string(), error.source());
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// What kind of failure it is, seen from the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorClass {
    /// The request cannot be honoured as it stands (400).
    Invalid,
    /// No or unknown credentials (401).
    Unauthenticated,
    /// Credentials of somebody else (403).
    Forbidden,
    /// Outside the scope or unknown (404).
    NotFound,
    /// In the way of another state (409).
    Conflict,
    /// Was there and cannot come back (410).
    Gone,
    /// Too large (413).
    TooLarge,
    /// Well-formed, but a value is refused (422).
    Unprocessable,
    /// A cap or a rate was reached (429).
    RateLimited,
    /// A quota of the user is used up; waiting does not help (507).
    QuotaExceeded,
    /// This backend cannot do that (501).
    Unsupported,
    /// A sandbox's agent server failed or refused (502).
    Upstream,
    /// A sandbox's agent server waited in vain for something behind it (504).
    TimedOut,
    /// Try again later (503).
    Unavailable,
    /// Our own fault (500).
    Internal,
}

/// Implemented by every port's error: the class, and the text a client may read.
pub trait Classify: std::error::Error {
    /// The kind of failure.
    fn class(&self) -> ErrorClass;
    /// What a client may read: no secret, no internal address, no driver text.
    fn public(&self) -> Cow<'_, str>;
    /// When trying again makes sense.
    fn retry_after(&self) -> Option<Duration> {
        None
    }
}

/// Boxed cause for the operator's log.
pub type BoxError = Box<dyn std::error::Error + Send + Sync + 'static>;

/// Which cap was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReachedCap {
    /// Running sandboxes of one user.
    PerUser(u32),
    /// Running sandboxes of the whole installation.
    Overall(u32),
    /// Unfinished start tasks of one user.
    Starts(u32),
}

impl std::fmt::Display for ReachedCap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::PerUser(n) => write!(
                f,
                "You already have {n} running sandboxes, the most one user may have"
            ),
            Self::Overall(n) => write!(
                f,
                "This service already runs {n} sandboxes, the most it may run"
            ),
            Self::Starts(n) => write!(
                f,
                "You already have {n} conversations starting, the most one user may have"
            ),
        }
    }
}

/// Failure of a store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The id (or another unique value) is taken.
    #[error("{entity} already exists")]
    Conflict {
        /// What exists.
        entity: &'static str,
    },
    /// The thing that the command is about is not there (or not in the scope).
    #[error("{entity} not found")]
    NotFound {
        /// What was looked for.
        entity: &'static str,
    },
    /// Somebody else was faster: a lost lease, a lost update, an illegal transition.
    #[error("{entity} was changed by someone else")]
    Stale {
        /// What changed.
        entity: &'static str,
    },
    /// The page token was not minted by this store.
    #[error("page token was not issued by this server")]
    InvalidPageToken,
    /// A cap on running sandboxes would be exceeded.
    #[error("{0}")]
    CapReached(ReachedCap),
    /// The owner has as many of them as one may have.
    #[error("you already have {limit} {entity}, the most one user may have")]
    Full {
        /// Of what.
        entity: &'static str,
        /// The limit.
        limit: usize,
    },
    /// Pool exhausted, database busy or gone: try again.
    #[error("store unavailable: {what}")]
    Unavailable {
        /// What was waited for.
        what: &'static str,
        /// The driver's error.
        #[source]
        source: Option<BoxError>,
    },
    /// A row does not decode: a bug or a damaged database.
    #[error("corrupt {entity}: {what}")]
    Corrupt {
        /// Which row.
        entity: &'static str,
        /// What is wrong with it.
        what: String,
    },
    /// Anything else of the driver.
    #[error("store failed")]
    Other(#[source] BoxError),
}

impl Classify for StoreError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Conflict { .. } | Self::Stale { .. } | Self::Full { .. } => ErrorClass::Conflict,
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
                    ReachedCap::PerUser(_) | ReachedCap::Overall(_) => "Pause or delete one, or try again later.",
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
