//! `ApiKeyRepository`.

use async_trait::async_trait;
use diesel::prelude::*;
use domain::clock::Timestamp;
use domain::error::{Entity, StoreError};
use domain::id::{ApiKeyId, UserId};
use domain::user::identity::{ApiKey, ApiKeyRepository, ApiKeyWithRole, KeyHash, Role};

use crate::database::connection::{AnyBackend, AnyConnection};
use crate::database::pool::{JobMode, Workload};
use crate::error::{QueryResultExt, TransactionError, conflict, map_unique_violation};
use crate::queries::filter_by;
use crate::schema::column_types::{TextCol, TimestampCol, UuidCol};
use crate::schema::rows::same_fields;
use crate::schema::{api_keys, memberships, users as user_rows};
use crate::store::SqlStore;
use crate::users;
use crate::users::organizations::{MembershipColumns, active_membership};

#[derive(Queryable, Selectable, Insertable)]
#[diesel(table_name = api_keys, treat_none_as_default_value = false)]
struct ApiKeyRow {
    id: UuidCol,
    #[diesel(column_name = user_id)]
    user: TextCol<UserId>,
    hash: TextCol<KeyHash>,
    prefix: String,
    created_at: TimestampCol,
    expires_at: Option<TimestampCol>,
    last_used_at: Option<TimestampCol>,
    name: Option<String>,
    made_by: Option<String>,
    #[diesel(column_name = organization_id)]
    organization: Option<UuidCol>,
    is_automation: bool,
}

same_fields! {
    ApiKeyRow, ApiKey, [
        id, user, hash, prefix, created_at, expires_at, last_used_at, name, made_by,
        organization, is_automation,
    ]
}

/// Stores a key in the caller's transaction, which has checked that the user exists.
pub(crate) fn insert(conn: &mut AnyConnection, key: &ApiKey) -> Result<(), TransactionError> {
    diesel::insert_into(api_keys::table)
        .values(ApiKeyRow::from(key))
        .execute(conn)
        .map_err(map_unique_violation(conflict(Entity::ApiKey)))?;
    Ok(())
}

/// Loads the key to which the condition applies, the role of its user, and the membership to which the key is bound. Ignores
/// users who are disabled or whose deletion has begun.
macro_rules! find_with_role {
    ($conn:ident, $condition:expr) => {{
        let row: Option<(ApiKeyRow, TextCol<Role>, MembershipColumns)> = api_keys::table
            .inner_join(user_rows::table.on(user_rows::id.eq(api_keys::user_id)))
            .left_join(
                memberships::table.on(memberships::organization_id
                    .nullable()
                    .eq(api_keys::organization_id)
                    .and(memberships::user_id.eq(api_keys::user_id))
                    .and(memberships::removed_at.is_null())),
            )
            .filter($condition)
            .filter(user_rows::deleted_at.is_null())
            .filter(user_rows::disabled_at.is_null())
            .select((
                ApiKeyRow::as_select(),
                user_rows::role,
                (memberships::organization_id, memberships::role).nullable(),
            ))
            .first($conn)
            .optional()
            .map_decode_error(Entity::ApiKey)?;
        row.map(|(key, role, membership)| ApiKeyWithRole {
            key: key.into(),
            role: role.0,
            membership: membership.map(active_membership),
        })
    }};
}

/// Loads a key in the caller's transaction.
pub(crate) fn find_with_role(
    conn: &mut AnyConnection,
    id: ApiKeyId,
) -> Result<Option<ApiKeyWithRole>, TransactionError> {
    Ok(find_with_role!(conn, api_keys::id.eq(UuidCol::from(id))))
}

/// Makes a user's key expire at `until` at the latest. `false` if the user has no such key, or it has expired at `now`.
pub(crate) fn expire(
    conn: &mut AnyConnection,
    id: ApiKeyId,
    user: &UserId,
    now: Timestamp,
    until: Timestamp,
) -> Result<bool, TransactionError> {
    let row: Option<ApiKeyRow> = api_keys::table
        .find(UuidCol::from(id))
        .filter(api_keys::user_id.eq(user.as_str()))
        .select(ApiKeyRow::as_select())
        .first(conn)
        .optional()
        .map_decode_error(Entity::ApiKey)?;
    let Some(key) = row.map(ApiKey::from) else {
        return Ok(false);
    };
    if key.is_expired(now) {
        return Ok(false);
    }
    let expiry = key.expires_at.map_or(until, |end| end.min(until));
    diesel::update(api_keys::table.find(UuidCol::from(id)))
        .set(api_keys::expires_at.eq(TimestampCol(expiry)))
        .execute(conn)?;
    Ok(true)
}

#[async_trait]
impl ApiKeyRepository for SqlStore {
    async fn insert(&self, key: &ApiKey) -> Result<(), StoreError> {
        let (key, user) = (key.clone(), key.user.to_string());
        self.run(Workload::Requests, JobMode::Write, move |conn| {
            users::ensure_exists(conn, &user, Role::User, key.created_at)?;
            insert(conn, &key)
        })
        .await
    }

    async fn find_by_hash(&self, hash: &KeyHash) -> Result<Option<ApiKeyWithRole>, StoreError> {
        let hash = hash.to_string();
        self.run(Workload::Requests, JobMode::Query, move |conn| {
            Ok(find_with_role!(conn, api_keys::hash.eq(&hash)))
        })
        .await
    }

    async fn list(&self, user: Option<&UserId>) -> Result<Vec<ApiKey>, StoreError> {
        let user = user.map(ToString::to_string);
        self.run(Workload::Requests, JobMode::Query, move |conn| {
            let mut query = api_keys::table.into_boxed::<AnyBackend>();
            filter_by! { query, user.clone() => |user| api_keys::user_id.eq(user); }
            let rows = query
                .order((api_keys::created_at.asc(), api_keys::id.asc()))
                .select(ApiKeyRow::as_select())
                .load(conn)
                .map_decode_error(Entity::ApiKey)?;
            Ok(rows.into_iter().map(ApiKey::from).collect())
        })
        .await
    }

    async fn revoke(&self, id: ApiKeyId) -> Result<bool, StoreError> {
        self.run(Workload::Requests, JobMode::Write, move |conn| {
            let revoked = diesel::delete(api_keys::table.find(UuidCol::from(id))).execute(conn)?;
            Ok(revoked > 0)
        })
        .await
    }

    async fn touch(&self, id: ApiKeyId, at: Timestamp) -> Result<(), StoreError> {
        self.run(Workload::Background, JobMode::Write, move |conn| {
            diesel::update(api_keys::table.find(UuidCol::from(id)))
                .set(api_keys::last_used_at.eq(TimestampCol(at)))
                .execute(conn)?;
            Ok(())
        })
        .await
    }

    async fn prune(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        let rows = ("api_keys", "id", "expires_at");
        self.prune_rows(rows, before, limit).await
    }
}
