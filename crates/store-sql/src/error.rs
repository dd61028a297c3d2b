//! The one place where a driver's error becomes a [`StoreError`].

use diesel::result::{DatabaseErrorKind, Error as DriverError};
use domain::error::StoreError;

/// How often a Postgres transaction that lost a race is tried again: a second or two in all.
const ATTEMPTS: u32 = 50;
/// The same if it is not known whether it was a race: it may be a time-out of many seconds.
const UNREAD_ATTEMPTS: u32 = 2;

/// What a job may fail with before it is translated. Never leaves the crate.
#[derive(Debug)]
pub(crate) enum TransactionError {
    /// Already in the port's words.
    Store(StoreError),
    /// The driver's.
    Driver(DriverError),
    /// The driver's, which says in a language we cannot read what is not our mistake.
    Unread(DriverError),
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
    /// Names what a broken unique constraint means here; other failures stay what they are.
    pub(crate) fn taken(entity: &'static str) -> impl Fn(DriverError) -> Self {
        move |error| match error {
            DriverError::DatabaseError(DatabaseErrorKind::UniqueViolation, _) => {
                Self::Store(StoreError::Conflict { entity })
            }
            other => Self::Driver(other),
        }
    }

    /// Names what a row is of whose columns do not decode; other failures stay what they are.
    pub(crate) fn damaged(entity: &'static str) -> impl Fn(DriverError) -> Self {
        move |error| match error {
            DriverError::DeserializationError(cause) => Self::Store(StoreError::Corrupt {
                entity,
                what: cause.to_string(),
            }),
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
            // It may be a deadlock, and the transaction left nothing behind.
            Self::Unread(_) => true,
            Self::Store(_) | Self::Driver(_) => false,
        }
    }

    /// How often it is tried again, at most.
    pub(crate) const fn attempts(&self) -> u32 {
        match self {
            Self::Unread(_) => UNREAD_ATTEMPTS,
            Self::Store(_) | Self::Driver(_) => ATTEMPTS,
        }
    }

    /// Of a server that does not speak English to us: what has neither a code that diesel hands on nor a place in our
    /// statement, nor anything in the schema that it is about, is a lock, a time-out, a full disk or the like.
    pub(crate) fn in_another_language(self) -> Self {
        match self {
            Self::Driver(DriverError::DatabaseError(DatabaseErrorKind::Unknown, info))
                if info.statement_position().is_none()
                    && info.table_name().is_none()
                    && info.column_name().is_none()
                    && info.constraint_name().is_none()
                    && passing_trouble(info.message()).is_none() =>
            {
                Self::Unread(DriverError::DatabaseError(DatabaseErrorKind::Unknown, info))
            }
            other => other,
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
            Self::Driver(error) | Self::Unread(error) => {
                Self::Store(unavailable("database", error))
            }
            Self::Store(_) => self,
        }
    }

    /// In the port's words.
    pub(crate) fn into_store(self) -> StoreError {
        match self {
            Self::Store(error) => error,
            Self::Driver(error) => translate(error),
            Self::Unread(error) => unavailable("database", error),
        }
    }
}

/// Shorthand for the answers of the ports.
pub(crate) const fn not_found(entity: &'static str) -> TransactionError {
    TransactionError::Store(StoreError::NotFound { entity })
}

/// Shorthand for the answers of the ports.
pub(crate) const fn conflict(entity: &'static str) -> TransactionError {
    TransactionError::Store(StoreError::Conflict { entity })
}

/// Shorthand for the answers of the ports.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// What Postgres says in German.
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
