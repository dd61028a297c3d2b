//! Checks within transactions of other repositories: whether a user may act.

use diesel::prelude::*;
use domain::error::Entity;
use domain::id::{OwnerId, UserId};
use domain::user::identity::{Role, User};
use domain::user::sign_in::PasswordHash;

use crate::database::connection::AnyConnection;
use crate::error::{QueryResultExt, TransactionError, not_found};
use crate::schema::column_types::{TextCol, TimestampCol};
use crate::schema::rows::same_fields;
use crate::schema::users;
use crate::users::organizations;

#[derive(Queryable, Selectable)]
#[diesel(table_name = users)]
pub(super) struct UserRow {
    pub(super) id: TextCol<UserId>,
    pub(super) created_at: TimestampCol,
    pub(super) deleted_at: Option<TimestampCol>,
    pub(super) role: TextCol<Role>,
    pub(super) disabled_at: Option<TimestampCol>,
}

same_fields! {
    read UserRow, User, [
        id, created_at, deleted_at, role, disabled_at,
    ]
}

pub(super) fn load(
    conn: &mut AnyConnection,
    user: &str,
) -> Result<Option<UserRow>, TransactionError> {
    users::table
        .find(user)
        .select(UserRow::as_select())
        .first(conn)
        .optional()
        .map_decode_error(Entity::User)
}

/// Returns an error if the user was deleted or disabled, or is no member of the organization. In the caller's serializable
/// transaction, a concurrent deletion either comes first or also deletes what the caller stores.
pub(crate) fn check_active_owner(
    conn: &mut AnyConnection,
    owner: &OwnerId,
) -> Result<(), TransactionError> {
    let user = owner.user();
    match load(conn, user.as_str())? {
        Some(row) if row.deleted_at.is_some() => return Err(not_found(Entity::DeletedUser)),
        Some(row) if row.disabled_at.is_some() => return Err(not_found(Entity::DisabledUser)),
        _ => {}
    }
    match owner.shared_organization() {
        Some(id) if organizations::membership(conn, id, user.as_str())?.is_none() => {
            Err(not_found(Entity::Member))
        }
        _ => Ok(()),
    }
}

/// Whether the user can sign in: they exist, are not disabled, and their deletion has not begun.
pub(super) fn is_active(conn: &mut AnyConnection, user: &str) -> Result<bool, TransactionError> {
    let row = load(conn, user)?;
    Ok(row.is_some_and(|row| row.deleted_at.is_none() && row.disabled_at.is_none()))
}

/// Loads the password of a user who is not disabled and whose deletion has not begun.
pub(super) fn password_of(
    conn: &mut AnyConnection,
    user: &str,
) -> Result<Option<PasswordHash>, TransactionError> {
    let hash: Option<Option<String>> = users::table
        .find(user)
        .filter(users::deleted_at.is_null())
        .filter(users::disabled_at.is_null())
        .select(users::password_hash)
        .first(conn)
        .optional()?;
    Ok(hash.flatten().map(PasswordHash::from_text))
}
