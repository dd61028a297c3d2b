//! The first pages of the listings that front ends request most: a user's conversations and sandboxes, newest first.
//!
//! The statement has no optional parts, so its SQL text is cached ([`crate::queries::cached_statement`]) and diesel finds the
//! prepared statement by its type. Rows decode with the types of the actual database. The result equals that of
//! `ConversationRepository::search` without a filter.

use diesel::prelude::*;
use domain::conversation::ConversationFilter;
use domain::id::UserId;
use domain::sandbox::DesiredState;
use domain::scope::Scope;

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
pub(crate) fn first(
    conn: &mut AnyConnection,
    user: &str,
    limit: i64,
) -> Result<Vec<JoinedRow>, TransactionError> {
    let children = ChildIdsSql::on(conn);
    let bound = ([DesiredState::Deleted.as_str(), user], limit);
    let loaded: QueryResult<Vec<JoinedRow>> = on_backend!(conn, |c| {
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
        cached_statement(c, &PARTS, query, bound).and_then(|it| it.load(c))
    });
    loaded.map_err(rows::damaged())
}

/// The newest sandboxes of a user, without those whose deletion is requested.
pub(crate) fn first_sandboxes(
    conn: &mut AnyConnection,
    user: &str,
    limit: i64,
) -> Result<Vec<ViewRow>, TransactionError> {
    let bound = ([user, DesiredState::Deleted.as_str()], limit);
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
        cached_statement(c, &PARTS, query, bound)?.load(c)?
    }))
}
