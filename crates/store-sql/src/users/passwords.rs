//! `PasswordRepository`, and the steps of changes to passwords and one-time links.

use async_trait::async_trait;
use diesel::prelude::*;
use domain::clock::Timestamp;
use domain::error::{Entity, StoreError};
use domain::id::{SessionId, UserId};
use domain::user::identity::KeyHash;
use domain::user::sign_in::{MAX_LINKS_PER_USER, OneTimeLink, PasswordHash, PasswordRepository};

use crate::database::connection::AnyConnection;
use crate::database::pool::{JobMode, Workload};
use crate::error::{QueryResultExt, TransactionError, conflict, map_unique_violation};
use crate::schema::column_types::{TextCol, TimestampCol};
use crate::schema::rows::same_fields;
use crate::schema::{one_time_links, users as user_rows};
use crate::store::SqlStore;
use crate::users::activity::password_of;
use crate::users::sessions;

#[derive(Queryable, Selectable, Insertable)]
#[diesel(table_name = one_time_links)]
struct LinkRow {
    hash: TextCol<KeyHash>,
    #[diesel(column_name = user_id)]
    user: TextCol<UserId>,
    created_at: TimestampCol,
    expires_at: TimestampCol,
}

same_fields! {
    LinkRow, OneTimeLink, [
        hash, user, created_at, expires_at,
    ]
}

/// Sets the first password of a user who was created in this transaction.
pub(crate) fn set_first(
    conn: &mut AnyConnection,
    user: &str,
    password: &PasswordHash,
) -> Result<(), TransactionError> {
    set(conn, user, password, None).map(drop)
}

/// Sets a password, ends all sessions of the user but `keep`, and invalidates all links. `false` if the user does not exist.
fn set(
    conn: &mut AnyConnection,
    user: &str,
    password: &PasswordHash,
    keep: Option<SessionId>,
) -> Result<bool, TransactionError> {
    let active = user_rows::table
        .find(user)
        .filter(user_rows::deleted_at.is_null());
    let set = diesel::update(active)
        .set(user_rows::password_hash.eq(password.as_text()))
        .execute(conn)?;
    sessions::end_others(conn, user, keep)?;
    delete_links(conn, user)?;
    Ok(set > 0)
}

/// Changes the password from `before`. `false` if the user has another one.
pub(crate) fn change(
    conn: &mut AnyConnection,
    user: &str,
    (before, password): (&PasswordHash, &PasswordHash),
    keep: Option<SessionId>,
) -> Result<bool, TransactionError> {
    if password_of(conn, user)?.as_ref() != Some(before) {
        return Ok(false);
    }
    set(conn, user, password, keep)
}

/// Stores a link of a user who exists, and deletes the oldest ones above the limit.
pub(crate) fn insert_link(
    conn: &mut AnyConnection,
    link: &OneTimeLink,
) -> Result<(), TransactionError> {
    diesel::insert_into(one_time_links::table)
        .values(LinkRow::from(link))
        .execute(conn)
        .map_err(map_unique_violation(conflict(Entity::OneTimeLink)))?;
    let mut all: Vec<String> = one_time_links::table
        .filter(one_time_links::user_id.eq(link.user.as_str()))
        .order((
            one_time_links::created_at.desc(),
            one_time_links::hash.desc(),
        ))
        .select(one_time_links::hash)
        .load(conn)?;
    let surplus = all.split_off(all.len().min(MAX_LINKS_PER_USER));
    diesel::delete(one_time_links::table.filter(one_time_links::hash.eq_any(surplus)))
        .execute(conn)?;
    Ok(())
}

/// Deletes the one-time links of a user.
pub(crate) fn delete_links(conn: &mut AnyConnection, user: &str) -> Result<(), TransactionError> {
    let links = one_time_links::table.filter(one_time_links::user_id.eq(user));
    diesel::delete(links).execute(conn)?;
    Ok(())
}

/// Consumes a user's link and sets the password. `false` if there is no such link, or it has expired at `now`.
pub(crate) fn redeem(
    conn: &mut AnyConnection,
    link: &KeyHash,
    user: &str,
    password: &PasswordHash,
    now: Timestamp,
) -> Result<bool, TransactionError> {
    let valid = one_time_links::table
        .find(link.to_string())
        .filter(one_time_links::user_id.eq(user))
        .filter(one_time_links::expires_at.gt(TimestampCol(now)));
    if diesel::delete(valid).execute(conn)? == 0 {
        return Ok(false);
    }
    set(conn, user, password, None)
}

#[async_trait]
impl PasswordRepository for SqlStore {
    async fn find(&self, user: &UserId) -> Result<Option<PasswordHash>, StoreError> {
        let user = user.to_string();
        self.run(Workload::Requests, JobMode::Query, move |conn| {
            password_of(conn, &user)
        })
        .await
    }

    async fn find_link(&self, hash: &KeyHash) -> Result<Option<OneTimeLink>, StoreError> {
        let hash = hash.to_string();
        self.run(Workload::Requests, JobMode::Query, move |conn| {
            let row = one_time_links::table
                .inner_join(user_rows::table.on(user_rows::id.eq(one_time_links::user_id)))
                .filter(one_time_links::hash.eq(&hash))
                .filter(user_rows::deleted_at.is_null())
                .filter(user_rows::disabled_at.is_null())
                .select(LinkRow::as_select())
                .first(conn)
                .optional()
                .map_decode_error(Entity::OneTimeLink)?;
            Ok(row.map(OneTimeLink::from))
        })
        .await
    }

    async fn prune_links(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        let rows = ("one_time_links", "hash", "expires_at");
        self.prune_rows(rows, before, limit).await
    }
}
