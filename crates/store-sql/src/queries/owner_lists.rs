//! The lists that front ends ask for all the time: a user's conversations, and their sandboxes, from the newest one on.
//!
//! Nothing comes and goes in its statement, so its text is put together once ([`crate::queries::cached_statement`]), and diesel finds it by its type,
//! where it would write the text of any other list anew to see whether it is prepared; and rows are read with the types of the
//! one database. What it finds is what `ConversationRepository::search` finds without a filter.

use diesel::prelude::*;
use domain::conversation::ConversationFilter;
use domain::id::UserId;
use domain::sandbox::DesiredState;
use domain::scope::Scope;

use crate::database::connection::{AnyConnection, on_backend};
use crate::conversations::rows::{self, Children, ConversationRow, JoinedRow};
use crate::error::TransactionError;
use crate::queries::cached_statement::{StatementParts, cached_statement};
use crate::sandboxes::rows::{SandboxRow, ViewRow};
use crate::schema::{conversations, sandboxes};

/// Whose list it is, if that is what is asked for.
pub(crate) fn owner_of<'a>(scope: &'a Scope, filter: &ConversationFilter) -> Option<&'a str> {
    let user = scope.user().map(UserId::as_str);
    user.filter(|_| *filter == ConversationFilter::default())
}

/// So many rows of a user's, from the newest one on.
pub(crate) fn first(
    conn: &mut AnyConnection,
    user: &str,
    limit: i64,
) -> Result<Vec<JoinedRow>, TransactionError> {
    let children = Children::on(conn);
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

/// The same of a user's sandboxes, but for those that are to be deleted.
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
