//! The first pages of the listings that front ends request most: a user's conversations and sandboxes, newest first.
//!
//! These statements have no optional parts, so their SQL text is cached ([`crate::queries::cached_statement`]) and diesel finds
//! the prepared statement by its type. Rows decode with the types of the actual database. The results equal the first page of
//! `ConversationRepository::search` without a filter, and of `SandboxRepository::search`.

use diesel::prelude::*;
use domain::conversation::ConversationFilter;
use domain::id::UserId;
use domain::sandbox::DesiredState;
use domain::user::scope::Scope;

use crate::conversations::rows::{self, ChildIdsSql, ConversationRow, JoinedRow};
use crate::database::connection::{AnyConnection, on_backend};
use crate::error::TransactionError;
use crate::queries::cached_statement::{StatementParts, cached_statement};
use crate::sandboxes::rows::{SandboxRow, ViewRow};
use crate::schema::{conversations, sandboxes};

/// The user of the scope, if the filter is empty.
pub(crate) fn owner_of<'a>(scope: &'a Scope, filter: &ConversationFilter) -> Option<&'a str> {
    let user = scope.user().map(UserId::as_str);
    user.filter(|_| *filter == ConversationFilter::default())
}

/// The newest conversations of a user, at most `limit`.
pub(crate) fn first_conversations(
    conn: &mut AnyConnection,
    user: &str,
    limit: i64,
) -> Result<Vec<JoinedRow>, TransactionError> {
    let children = ChildIdsSql::on(conn);
    let binds = ([DesiredState::Deleted.as_str(), user], limit);
    let rows: QueryResult<Vec<JoinedRow>> = on_backend!(conn, |c| {
        static PARTS: StatementParts = StatementParts::new();
        let query = move || {
            conversations::table
                .left_join(
                    sandboxes::table.on(sandboxes::id
                        .eq(conversations::sandbox_id)
                        .and(sandboxes::desired.ne(""))),
                )
                .filter(conversations::owner.eq(""))
                .filter(conversations::parent.is_null())
                .order((conversations::created_at.desc(), conversations::id.desc()))
                .limit(0)
                .select((
                    ConversationRow::as_select(),
                    Option::<SandboxRow>::as_select(),
                    children,
                ))
        };
        cached_statement(c, &PARTS, query, binds).and_then(|statement| statement.load(c))
    });
    rows.map_err(rows::corrupt_if_undecodable())
}

/// The newest sandboxes of a user, without those whose deletion is requested.
pub(crate) fn first_sandboxes(
    conn: &mut AnyConnection,
    user: &str,
    limit: i64,
) -> Result<Vec<ViewRow>, TransactionError> {
    let binds = ([user, DesiredState::Deleted.as_str()], limit);
    Ok(on_backend!(conn, |c| {
        static PARTS: StatementParts = StatementParts::new();
        let query = || {
            sandboxes::table
                .filter(sandboxes::owner.eq(""))
                .filter(sandboxes::desired.ne(""))
                .order((sandboxes::created_at.desc(), sandboxes::id.desc()))
                .limit(0)
                .select(ViewRow::as_select())
        };
        cached_statement(c, &PARTS, query, binds)?.load(c)?
    }))
}
