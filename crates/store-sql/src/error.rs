//! Translates driver errors to [`StoreError`]s.

use diesel::result::{DatabaseErrorKind, Error as DriverError};
use domain::error::StoreError;

/// Retries of a Postgres transaction after a serialization failure or deadlock: a second or two in all.
const MAX_RETRIES: u32 = 50;
/// Retries when the cause is unknown: it may be a time-out of many seconds.
const MAX_RETRIES_OF_UNKNOWN_ERRORS: u32 = 2;

/// Error of a job before translation. Never leaves the crate.
#[derive(Debug)]
pub(crate) enum TransactionError {
    /// Already translated.
    Store(StoreError),
    /// An error of the driver.
    Driver(DriverError),
    /// An error of the driver in another language than English, which is not a mistake of this program.
    Untranslated(DriverError),
}

impl From<StoreError> for TransactionError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<DriverError> for TransactionError {
    fn from(error: DriverError) -> Self {
        Self::Driver(error)
    }
}

impl TransactionError {
    /// Maps a violated unique constraint to a conflict of this entity. Leaves other errors as they are.
    pub(crate) fn taken(entity: &'static str) -> impl Fn(DriverError) -> Self {
        move |error| match error {
            DriverError::DatabaseError(DatabaseErrorKind::UniqueViolation, _) => {
                Self::Store(StoreError::Conflict { entity })
            }
            other => Self::Driver(other),
        }
    }

    /// Maps a decoding error to a corrupt row of this entity. Leaves other errors as they are.
    pub(crate) fn damaged(entity: &'static str) -> impl Fn(DriverError) -> Self {
        move |error| match error {
            DriverError::DeserializationError(cause) => Self::Store(StoreError::Corrupt {
                entity,
                what: cause.to_string(),
            }),
            other => Self::Driver(other),
        }
    }

    /// Whether a retry of the transaction may succeed (Postgres: serialization failure or deadlock).
    pub(crate) fn is_lost_race(&self) -> bool {
        match self {
            Self::Driver(DriverError::DatabaseError(kind, info)) => {
                matches!(kind, DatabaseErrorKind::SerializationFailure)
                    || info.message().contains("deadlock detected")
            }
            // It may be a deadlock. The transaction was rolled back, so a retry is safe.
            Self::Untranslated(_) => true,
            Self::Store(_) | Self::Driver(_) => false,
        }
    }

    /// Maximum number of retries.
    pub(crate) const fn max_retries(&self) -> u32 {
        match self {
            Self::Untranslated(_) => MAX_RETRIES_OF_UNKNOWN_ERRORS,
            Self::Store(_) | Self::Driver(_) => MAX_RETRIES,
        }
    }

    /// Classifies an error of a server that does not answer in English. Diesel does not pass on Postgres' codes. An error
    /// without a known kind, a statement position and a schema object is a lock, a time-out, a full disk or the like.
    pub(crate) fn in_another_language(self) -> Self {
        match self {
            Self::Driver(DriverError::DatabaseError(DatabaseErrorKind::Unknown, info))
                if info.statement_position().is_none()
                    && info.table_name().is_none()
                    && info.column_name().is_none()
                    && info.constraint_name().is_none()
                    && temporary_failure(info.message()).is_none() =>
            {
                Self::Untranslated(DriverError::DatabaseError(DatabaseErrorKind::Unknown, info))
            }
            other => other,
        }
    }

    /// Whether the connection is lost. `None`: only a ping can tell.
    pub(crate) const fn is_connection_lost(&self) -> Option<bool> {
        match self {
            Self::Driver(
                DriverError::DatabaseError(
                    DatabaseErrorKind::ClosedConnection | DatabaseErrorKind::UnableToSendCommand,
                    _,
                )
                | DriverError::BrokenTransactionManager,
            ) => Some(true),
            // libpq's own messages may be in any language.
            Self::Driver(DriverError::DatabaseError(DatabaseErrorKind::Unknown, _)) => None,
            _ => Some(false),
        }
    }

    /// Converts the error after the connection was found to be lost.
    pub(crate) fn into_connection_lost(self) -> Self {
        match self {
            Self::Driver(error) | Self::Untranslated(error) => {
                Self::Store(unavailable("database", error))
            }
            Self::Store(_) => self,
        }
    }

    /// Converts to the error of the ports.
    pub(crate) fn into_store(self) -> StoreError {
        match self {
            Self::Store(error) => error,
            Self::Driver(error) => translate(error),
            Self::Untranslated(error) => unavailable("database", error),
        }
    }
}

pub(crate) const fn not_found(entity: &'static str) -> TransactionError {
    TransactionError::Store(StoreError::NotFound { entity })
}

pub(crate) const fn conflict(entity: &'static str) -> TransactionError {
    TransactionError::Store(StoreError::Conflict { entity })
}

pub(crate) const fn stale(entity: &'static str) -> TransactionError {
    TransactionError::Store(StoreError::Stale { entity })
}

/// `Unavailable` with its cause.
pub(crate) fn unavailable(
    what: &'static str,
    source: impl Into<domain::error::BoxError>,
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
            // A standby before its promotion, or a demoted primary.
            | DatabaseErrorKind::ReadOnlyTransaction
            | DatabaseErrorKind::SerializationFailure,
            _,
        )
        | DriverError::BrokenTransactionManager => unavailable("database", error),
        DriverError::DatabaseError(_, ref info) => match temporary_failure(info.message()) {
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

/// Recognises temporary failures by their message: `SQLite` has only a text (`sqlite3_errmsg`), and diesel passes on
/// Postgres' text but not its codes.
fn temporary_failure(message: &str) -> Option<&'static str> {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// An error of Postgres in German.
    struct Said {
        text: &'static str,
        position: Option<i32>,
    }

    impl diesel::result::DatabaseErrorInformation for Said {
        fn message(&self) -> &str {
            self.text
        }
        fn details(&self) -> Option<&str> {
            None
        }
        fn hint(&self) -> Option<&str> {
            None
        }
        fn table_name(&self) -> Option<&str> {
            None
        }
        fn column_name(&self) -> Option<&str> {
            None
        }
        fn constraint_name(&self) -> Option<&str> {
            None
        }
        fn statement_position(&self) -> Option<i32> {
            self.position
        }
    }

    fn said(text: &'static str, position: Option<i32>) -> TransactionError {
        let said = Box::new(Said { text, position });
        TransactionError::from(DriverError::DatabaseError(DatabaseErrorKind::Unknown, said))
    }

    #[test]
    fn what_is_not_understood_may_pass_and_what_is_our_mistake_may_not() {
        for (text, position, may_pass) in [
            ("Verklemmung (Deadlock) entdeckt", None, true),
            (
                "storniere Anfrage wegen Zeitüberschreitung einer Sperre",
                None,
                true,
            ),
            ("Relation »x« existiert nicht", Some(15), false),
        ] {
            let fault = said(text, position).in_another_language();
            assert_eq!(fault.is_lost_race(), may_pass, "{text}");
            let class = matches!(fault.into_store(), StoreError::Unavailable { .. });
            assert_eq!(class, may_pass, "{text}");
            let english = said(text, position);
            assert!(!english.is_lost_race(), "{text}");
            assert!(
                matches!(english.into_store(), StoreError::Other(_)),
                "{text}"
            );
        }
        let read = said("deadlock detected", None).in_another_language();
        assert!(read.is_lost_race());
    }
}
