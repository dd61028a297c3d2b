//! Deletes a bounded number of rows with one statement.

use diesel::prelude::*;
use diesel::sql_types::{BigInt, Text};
use domain::clock::Timestamp;
use domain::error::StoreError;

use crate::database::connection::{AnyConnection, on_backend};
use crate::database::pool::{JobMode, Workload};
use crate::error::TransactionError;
use crate::schema::codec::row_limit;
use crate::schema::column_types::{Instant, TimestampCol};
use crate::store::SqlStore;

impl SqlStore {
    /// Deletes at most `limit` rows from before `before`, oldest first. Returns their number. The rows are those of a table with
    /// this primary key, and age from the time in the third column on.
    pub(crate) async fn prune_rows(
        &self,
        (table, key, time): (&'static str, &'static str, &'static str),
        before: Timestamp,
        limit: usize,
    ) -> Result<u64, StoreError> {
        self.run(Workload::Background, JobMode::Write, move |conn| {
            let selected = format!("{time} < $1 ORDER BY {time}");
            let statement = diesel::sql_query(statement(table, key, &selected));
            Ok(on_backend!(conn, |c| statement
                .bind::<Instant, _>(TimestampCol(before))
                .bind::<BigInt, _>(row_limit(limit))
                .execute(c)?) as u64)
        })
        .await
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
