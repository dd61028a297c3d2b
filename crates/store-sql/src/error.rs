//! The one place where a driver's error becomes a [`StoreError`].

use diesel::result::{DatabaseErrorKind, Error as DriverError};
use domain::error::StoreError;

/// What a job may fail with before it is translated. Never leaves the crate.
#[derive(Debug)]
pub(crate) enum Fault {
    /// Already in the port's words.
    Store(StoreError),
    /// The driver's.
    Driver(DriverError),
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<DriverError> for Fault {
    fn from(error: DriverError) -> Self {
        Self::Driver(error)
    }
}

impl Fault {
    /// Names what a broken unique constraint means here; other failures stay what they are.
    pub(crate) fn taken(entity: &'static str) -> impl Fn(DriverError) -> Self {
        move |error| match error {
            DriverError::DatabaseError(DatabaseErrorKind::UniqueViolation, _) => {
                Self::Store(StoreError::Conflict { entity })
            }
            other => Self::Driver(other),
        }
    }

    /// Whether the same transaction may succeed when it is tried again (Postgres: serializable, or a deadlock).
    pub(crate) fn is_lost_race(&self) -> bool {
        match self {
            Self::Driver(DriverError::DatabaseError(kind, info)) => {
                matches!(kind, DatabaseErrorKind::SerializationFailure)
                    || info.message().contains("deadlock detected")
            }
            _ => false,
        }
    }

    /// Whether the connection is gone; `None`: the connection must be asked.
    pub(crate) const fn is_cut(&self) -> Option<bool> {
        match self {
            Self::Driver(
                DriverError::DatabaseError(
                    DatabaseErrorKind::ClosedConnection | DatabaseErrorKind::UnableToSendCommand,
                    _,
                )
                | DriverError::BrokenTransactionManager,
            ) => Some(true),
            // What libpq itself has to say may be in any language.
            Self::Driver(DriverError::DatabaseError(DatabaseErrorKind::Unknown, _)) => None,
            _ => Some(false),
        }
    }

    /// As an answer to the caller, now that the connection is known to be gone.
    pub(crate) fn of_cut(self) -> Self {
        match self {
            Self::Driver(error) => Self::Store(unavailable("database", error)),
            Self::Store(_) => self,
        }
    }

    /// In the port's words.
    pub(crate) fn into_store(self) -> StoreError {
        match self {
            Self::Store(error) => error,
            Self::Driver(error) => translate(error),
        }
    }
}

/// Shorthand for the answers of the ports.
pub(crate) const fn not_found(entity: &'static str) -> Fault {
    Fault::Store(StoreError::NotFound { entity })
}

/// Shorthand for the answers of the ports.
pub(crate) const fn conflict(entity: &'static str) -> Fault {
    Fault::Store(StoreError::Conflict { entity })
}

/// Shorthand for the answers of the ports.
pub(crate) const fn stale(entity: &'static str) -> Fault {
    Fault::Store(StoreError::Stale { entity })
}

/// `Unavailable` with its cause.
pub(crate) fn unavailable(
    what: &'static str,
    source: impl Into<domain::error::Cause>,
) -> StoreError {
    StoreError::Unavailable {
        what,
        source: Some(source.into()),
    }
}

fn translate(error: DriverError) -> StoreError {
    match error {
        DriverError::DatabaseError(DatabaseErrorKind::UniqueViolation, _) => {
            StoreError::Conflict { entity: "record" }
        }
        DriverError::DatabaseError(
            DatabaseErrorKind::ClosedConnection
            | DatabaseErrorKind::UnableToSendCommand
            // A standby that is about to take over, or a primary that was one.
            | DatabaseErrorKind::ReadOnlyTransaction
            | DatabaseErrorKind::SerializationFailure,
            _,
        )
        | DriverError::BrokenTransactionManager => unavailable("database", error),
        DriverError::DatabaseError(_, ref info) => match passing_trouble(info.message()) {
            Some(what) => unavailable(what, error),
            None => StoreError::Other(error.into()),
        },
        DriverError::DeserializationError(cause) => StoreError::Corrupt {
            entity: "row",
            what: cause.to_string(),
        },
        other => StoreError::Other(other.into()),
    }
}

/// `SQLite` tells these only by their text (`sqlite3_errmsg`), and diesel hands on Postgres' text but not its codes; none of
/// them is our fault and all of them may pass.
fn passing_trouble(message: &str) -> Option<&'static str> {
    [
        ("database is locked", "database lock"),
        ("database table is locked", "database lock"),
        ("database or disk is full", "disk space"),
        ("disk I/O error", "disk"),
        ("unable to open database file", "database file"),
        ("canceling statement due to lock timeout", "database lock"),
        ("canceling statement due to", "statement"),
        ("deadlock detected", "database lock"),
        ("No space left on device", "disk space"),
        ("out of shared memory", "database memory"),
        ("terminating connection", "database"),
        ("the database system is", "database"),
    ]
    .into_iter()
    .find_map(|(text, what)| message.contains(text).then_some(what))
}
