//! Deletes a bounded number of rows with one statement.

use diesel::prelude::*;
use diesel::sql_types::{BigInt, Text};
use domain::clock::Timestamp;

use crate::database::connection::{AnyConnection, on_backend};
use crate::error::TransactionError;
use crate::schema::column_types::{Instant, TimestampCol};

/// Rows that become outdated.
pub(crate) struct OutdatedRows {
    pub(crate) table: &'static str,
    /// The columns of the primary key.
    pub(crate) key: &'static str,
    /// The column with the time from which on a row ages.
    pub(crate) time: &'static str,
}

impl OutdatedRows {
    /// Deletes at most `limit` rows from before `before`, oldest first. Returns their number.
    pub(crate) fn delete(
        &self,
        conn: &mut AnyConnection,
        before: Timestamp,
        limit: usize,
    ) -> Result<u64, TransactionError> {
        let Self { table, key, time } = self;
        let selected = format!("{time} < $1 ORDER BY {time}");
        let statement = diesel::sql_query(statement(table, key, &selected));
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        Ok(on_backend!(conn, |c| statement
            .bind::<Instant, _>(TimestampCol(before))
            .bind::<BigInt, _>(limit)
            .execute(c)?) as u64)
    }
}

/// Deletes at most `limit` rows to which `condition` applies; `$1` in it is the user. Returns their number.
pub(crate) fn delete_of_user(
    conn: &mut AnyConnection,
    (table, key, condition): (&str, &str, &str),
    user: &str,
    limit: i64,
) -> Result<usize, TransactionError> {
    let statement = diesel::sql_query(statement(table, key, condition));
    Ok(on_backend!(conn, |c| statement
        .bind::<Text, _>(user)
        .bind::<BigInt, _>(limit)
        .execute(c)?))
}

/// Both databases accept `$1` for the first parameter.
fn statement(table: &str, key: &str, selected: &str) -> String {
    format!(
        "DELETE FROM {table} WHERE ({key}) IN (SELECT {key} FROM {table} WHERE {selected} LIMIT $2)"
    )
}
