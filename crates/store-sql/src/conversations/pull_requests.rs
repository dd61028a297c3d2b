//! The pull requests of a conversation.

use diesel::prelude::*;
use domain::clock::Timestamp;
use domain::conversation::add_pull_request_number;
use domain::id::ConversationId;
use domain::user::scope::Scope;

use crate::conversations::rows::ENTITY;
use crate::database::connection::AnyConnection;
use crate::error::{QueryResultExt, TransactionError};
use crate::schema::column_types::{JsonCol, TimestampCol, UuidCol};
use crate::schema::conversations;

/// Records a pull request. `false` if the conversation is not visible in the scope.
pub(crate) fn add(
    conn: &mut AnyConnection,
    scope: &Scope,
    id: ConversationId,
    number: i64,
    at: Timestamp,
) -> Result<bool, TransactionError> {
    let columns = (conversations::owner, conversations::pr_numbers);
    let row = conversations::table.find(UuidCol::from(id)).select(columns);
    // The row lock serializes additions to the list.
    let locked: Option<(String, JsonCol<Vec<i64>>)> = match conn {
        AnyConnection::Sqlite(conn) => row.first(conn).optional(),
        #[cfg(feature = "postgres")]
        AnyConnection::Postgres(conn) => row.for_no_key_update().first(conn).optional(),
    }
    .reading(ENTITY)?;
    let Some((owner, JsonCol(mut numbers))) = locked else {
        return Ok(false);
    };
    if scope.user().is_some_and(|user| user.as_str() != owner) {
        return Ok(false);
    }
    if add_pull_request_number(&mut numbers, number) {
        diesel::update(conversations::table.find(UuidCol::from(id)))
            .set((
                conversations::pr_numbers.eq(JsonCol(numbers)),
                conversations::updated_at.eq(TimestampCol(at)),
            ))
            .execute(conn)?;
    }
    Ok(true)
}
