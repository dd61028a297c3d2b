//! `UserRepository`, and checks for deleted users within transactions of other repositories.

pub(crate) mod activity;
pub(crate) mod administration;
pub(crate) mod api_keys;
pub(crate) mod audit_log;
pub(crate) mod device_logins;
mod egress_requests;
pub(crate) mod identities;
mod organization_changes;
mod organization_deletion;
pub(crate) mod organizations;
pub(crate) mod passwords;
pub(crate) mod purge;
pub(crate) mod sessions;
mod settings;
mod spending;
mod usage;

use async_trait::async_trait;
use diesel::prelude::*;
use domain::clock::Timestamp;
use domain::error::{Entity, StoreError};
use domain::id::UserId;
use domain::user::identity::{PurgeCounts, Role, USER_NAME_REUSE_GRACE, User, UserRepository};

use self::activity::{UserRow, load};
use self::purge::{has_rows, is_purged};
use crate::database::connection::{AnyBackend, AnyConnection};
use crate::database::pool::{JobMode, Workload};
use crate::error::{QueryResultExt, TransactionError};
use crate::queries::filter_by;
use crate::schema::codec::row_limit;
use crate::schema::column_types::{TextCol, TimestampCol};
use crate::schema::users;
use crate::store::SqlStore;

/// Ensures in the caller's transaction that the user exists. A new user gets this role. Returns whether the user is new.
pub(crate) fn ensure_exists(
    conn: &mut AnyConnection,
    user: &str,
    role: Role,
    at: Timestamp,
) -> Result<bool, TransactionError> {
    if let Some(row) = load(conn, user)? {
        let Some(deleted_at) = row.deleted_at.map(|at| at.0) else {
            return Ok(false);
        };
        if deleted_at.plus(USER_NAME_REUSE_GRACE) > at || !is_purged(conn, user)? {
            return Err(StoreError::UserNameReserved.into());
        }
        diesel::delete(users::table.find(user)).execute(conn)?;
    }
    insert(conn, user, role, at, None)?;
    Ok(true)
}

/// Whether the user exists and their deletion has not begun.
pub(crate) fn exists(conn: &mut AnyConnection, user: &str) -> Result<bool, TransactionError> {
    Ok(load(conn, user)?.is_some_and(|row| row.deleted_at.is_none()))
}

fn insert(
    conn: &mut AnyConnection,
    user: &str,
    role: Role,
    at: Timestamp,
    deleted_at: Option<Timestamp>,
) -> Result<(), TransactionError> {
    diesel::insert_into(users::table)
        .values((
            users::id.eq(user),
            users::created_at.eq(TimestampCol(at)),
            users::deleted_at.eq(deleted_at.map(TimestampCol)),
            users::role.eq(role.as_str()),
        ))
        .execute(conn)?;
    Ok(())
}

/// Marks a user as deleted, so that nothing of theirs can be stored. `false` if neither the user nor rows of that name exist.
pub(crate) fn mark_deleted(
    conn: &mut AnyConnection,
    user: &str,
    at: Timestamp,
) -> Result<bool, TransactionError> {
    match load(conn, user)? {
        Some(row) if row.deleted_at.is_some() => {}
        Some(_) => {
            diesel::update(users::table.find(user))
                .set(users::deleted_at.eq(TimestampCol(at)))
                .execute(conn)?;
        }
        None if is_purged(conn, user)? => return Ok(false),
        None => insert(conn, user, Role::User, at, Some(at))?,
    }
    Ok(true)
}

/// Deleted users, in the order of their deletion.
fn deleted<'a>() -> users::BoxedQuery<'a, AnyBackend> {
    users::table
        .filter(users::deleted_at.is_not_null())
        .order((users::deleted_at.asc(), users::id.asc()))
        .into_boxed()
}

#[async_trait]
impl UserRepository for SqlStore {
    async fn list(&self, after: Option<&UserId>, limit: usize) -> Result<Vec<User>, StoreError> {
        let after = after.map(ToString::to_string);
        self.run(Workload::Requests, JobMode::Read, move |conn| {
            let mut query = users::table.into_boxed::<AnyBackend>();
            filter_by! { query, after.clone() => |after| users::id.gt(after); }
            let rows = query
                .order(users::id.asc())
                .limit(row_limit(limit))
                .select(UserRow::as_select())
                .load(conn)
                .map_decode_error(Entity::User)?;
            Ok(rows.into_iter().map(User::from).collect())
        })
        .await
    }

    async fn find_oldest(&self) -> Result<Option<User>, StoreError> {
        self.run(Workload::Requests, JobMode::Query, |conn| {
            let row = users::table
                .filter(users::deleted_at.is_null())
                .order((users::created_at.asc(), users::id.asc()))
                .select(UserRow::as_select())
                .first(conn)
                .optional()
                .map_decode_error(Entity::User)?;
            Ok(row.map(User::from))
        })
        .await
    }

    async fn find(&self, user: &UserId) -> Result<Option<User>, StoreError> {
        let user = user.to_string();
        self.run(Workload::Requests, JobMode::Query, move |conn| {
            Ok(load(conn, &user)?.map(User::from))
        })
        .await
    }

    async fn purge(
        &self,
        user: &UserId,
        at: Timestamp,
        limit: usize,
    ) -> Result<Option<PurgeCounts>, StoreError> {
        let user = user.to_string();
        self.run(Workload::Background, JobMode::Write, move |conn| {
            if !mark_deleted(conn, &user, at)? {
                return Ok(None);
            }
            purge::purge(conn, &user, at, limit).map(Some)
        })
        .await
    }

    async fn list_partially_deleted(&self, limit: usize) -> Result<Vec<UserId>, StoreError> {
        self.run(Workload::Background, JobMode::Read, move |conn| {
            let users = deleted().select(users::id).load(conn);
            let users: Vec<TextCol<UserId>> = users.map_decode_error(Entity::User)?;
            let mut partially_deleted = Vec::new();
            for TextCol(user) in users {
                if partially_deleted.len() < limit && has_rows(conn, user.as_str())? {
                    partially_deleted.push(user);
                }
            }
            Ok(partially_deleted)
        })
        .await
    }

    async fn prune(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        self.run(Workload::Background, JobMode::Write, move |conn| {
            let ids: Vec<String> = deleted()
                .filter(users::deleted_at.lt(TimestampCol(before)))
                .select(users::id)
                .load(conn)?;
            let mut count = 0;
            for id in ids {
                if count < limit && is_purged(conn, &id)? {
                    count += diesel::delete(users::table.find(&id)).execute(conn)?;
                }
            }
            Ok(count as u64)
        })
        .await
    }
}
