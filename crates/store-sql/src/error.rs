//! Translates driver errors to [`StoreError`]s.

use diesel::result::{DatabaseErrorKind, Error as DriverError};
use domain::error::{Entity, StoreError};

/// Retries of a Postgres transaction after a serialization failure or deadlock. The backoffs add up to one or two seconds.
const MAX_RETRIES: u32 = 50;
/// Retries after an error with an unknown cause, which may be a timeout of many seconds.
const MAX_RETRIES_OF_UNKNOWN_ERRORS: u32 = 2;

/// Error of a job, before [`TransactionError::into_store`] translates it for the ports.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TransactionError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// A driver's error whose message is not in English. It is temporary as far as its fields tell.
    #[error(transparent)]
    Untranslated(DriverError),
}

impl TransactionError {
    /// Whether a retry of the transaction may succeed (Postgres: serialization failure or deadlock).
    pub(crate) fn is_retryable(&self) -> bool {
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

    pub(crate) const fn max_retries(&self) -> u32 {
        match self {
            Self::Untranslated(_) => MAX_RETRIES_OF_UNKNOWN_ERRORS,
            Self::Store(_) | Self::Driver(_) => MAX_RETRIES,
        }
    }

    /// Classifies an error of a server whose messages are not in English. Diesel does not pass on Postgres' codes. An error
    /// without a known kind, a statement position and a schema object is a lock, a timeout, a full disk or the like.
    pub(crate) fn classify_untranslated(self) -> Self {
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

    /// Whether the connection is lost. `None` if only a ping can tell.
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

    pub(crate) fn into_store(self) -> StoreError {
        match self {
            Self::Store(error) => error,
            Self::Driver(error) => translate(error),
            Self::Untranslated(error) => unavailable("database", error),
        }
    }
}

/// Replaces the error of a violated unique constraint. Leaves other errors as they are.
pub(crate) fn map_unique_violation(
    instead: TransactionError,
) -> impl FnOnce(DriverError) -> TransactionError {
    move |error| match error {
        DriverError::DatabaseError(DatabaseErrorKind::UniqueViolation, _) => instead,
        other => other.into(),
    }
}

/// Names the entity that a query reads.
pub(crate) trait QueryResultExt<T> {
    /// Maps a decoding error to a corrupt row of this entity. Leaves other errors as they are.
    fn map_decode_error(self, entity: Entity) -> Result<T, TransactionError>;
}

impl<T> QueryResultExt<T> for diesel::QueryResult<T> {
    fn map_decode_error(self, entity: Entity) -> Result<T, TransactionError> {
        self.map_err(|error| match error {
            DriverError::DeserializationError(cause) => {
                let what = cause.to_string();
                StoreError::Corrupt { entity, what }.into()
            }
            other => other.into(),
        })
    }
}

pub(crate) const fn not_found(entity: Entity) -> TransactionError {
    TransactionError::Store(StoreError::NotFound { entity })
}

pub(crate) const fn conflict(entity: Entity) -> TransactionError {
    TransactionError::Store(StoreError::Conflict { entity })
}

pub(crate) const fn stale(entity: Entity) -> TransactionError {
    TransactionError::Store(StoreError::Stale { entity })
}

/// `Unavailable` with its cause. Clients see `what`.
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
            StoreError::Conflict { entity: Entity::Record }
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
            entity: Entity::Record,
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
        ("canceling statement due to", "cancelled statement"),
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

    /// An error with this message, as Postgres reports it.
    struct ServerMessage {
        text: &'static str,
        position: Option<i32>,
    }

    impl diesel::result::DatabaseErrorInformation for ServerMessage {
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

    fn server_error(text: &'static str, position: Option<i32>) -> TransactionError {
        let message = Box::new(ServerMessage { text, position });
        TransactionError::from(DriverError::DatabaseError(
            DatabaseErrorKind::Unknown,
            message,
        ))
    }

    #[test]
    fn untranslated_errors_are_temporary_unless_they_name_a_position() {
        for (text, position, is_temporary) in [
            ("Verklemmung (Deadlock) entdeckt", None, true),
            (
                "storniere Anfrage wegen Zeitüberschreitung einer Sperre",
                None,
                true,
            ),
            ("Relation »x« existiert nicht", Some(15), false),
        ] {
            let error = server_error(text, position).classify_untranslated();
            assert_eq!(error.is_retryable(), is_temporary, "{text}");
            let is_unavailable = matches!(error.into_store(), StoreError::Unavailable { .. });
            assert_eq!(is_unavailable, is_temporary, "{text}");
            let unclassified = server_error(text, position);
            assert!(!unclassified.is_retryable(), "{text}");
            assert!(
                matches!(unclassified.into_store(), StoreError::Other(_)),
                "{text}"
            );
        }
        let deadlock = server_error("deadlock detected", None).classify_untranslated();
        assert!(deadlock.is_retryable());
    }
}
