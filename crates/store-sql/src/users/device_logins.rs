//! `DeviceLoginRepository`, and the steps of changes to device logins.

use async_trait::async_trait;
use diesel::prelude::*;
use domain::clock::Timestamp;
use domain::error::{Entity, StoreError};
use domain::id::UserId;
use domain::user::device_login::{DeviceLogin, DeviceLoginRepository, MAX_DEVICE_LOGINS, UserCode};
use domain::user::identity::{ApiKey, KeyHash};

use crate::database::connection::AnyConnection;
use crate::database::pool::{JobMode, Workload};
use crate::error::{QueryResultExt, TransactionError, conflict, map_unique_violation};
use crate::schema::column_types::{TextCol, TimestampCol};
use crate::schema::device_logins;
use crate::schema::rows::same_fields;
use crate::store::SqlStore;
use crate::users::activity::is_active;
use crate::users::api_keys;

#[derive(Queryable, Selectable, Insertable)]
#[diesel(table_name = device_logins, treat_none_as_default_value = false)]
struct DeviceLoginRow {
    hash: TextCol<KeyHash>,
    code: TextCol<UserCode>,
    created_at: TimestampCol,
    expires_at: TimestampCol,
    #[diesel(column_name = user_id)]
    user: Option<TextCol<UserId>>,
    is_denied: bool,
}

same_fields! {
    DeviceLoginRow, DeviceLogin, [
        hash, code, created_at, expires_at, user, is_denied,
    ]
}

/// Confirms a device login for this user, or denies it without one. `false` if there is none that waits.
pub(crate) fn decide(
    conn: &mut AnyConnection,
    code: &UserCode,
    user: Option<&str>,
    now: Timestamp,
) -> Result<bool, TransactionError> {
    let waiting = device_logins::table
        .filter(device_logins::code.eq(code.as_str()))
        .filter(device_logins::user_id.is_null())
        .filter(device_logins::is_denied.eq(false))
        .filter(device_logins::expires_at.gt(TimestampCol(now)));
    let decided = diesel::update(waiting)
        .set((
            device_logins::user_id.eq(user),
            device_logins::is_denied.eq(user.is_none()),
        ))
        .execute(conn)?;
    Ok(decided > 0)
}

/// Ends a device login and stores the key of the user who confirmed it. `false` if there is none, or the user cannot sign in.
pub(crate) fn redeem(
    conn: &mut AnyConnection,
    hash: &KeyHash,
    key: &ApiKey,
    now: Timestamp,
) -> Result<bool, TransactionError> {
    let user = key.user.as_str();
    let confirmed = device_logins::table
        .find(hash.to_string())
        .filter(device_logins::user_id.eq(user))
        .filter(device_logins::expires_at.gt(TimestampCol(now)));
    if diesel::delete(confirmed).execute(conn)? == 0 || !is_active(conn, user)? {
        return Ok(false);
    }
    api_keys::insert(conn, key)?;
    Ok(true)
}

/// Deletes the device logins that a user has confirmed.
pub(crate) fn erase(conn: &mut AnyConnection, user: &str) -> Result<(), TransactionError> {
    let confirmed = device_logins::table.filter(device_logins::user_id.eq(user));
    diesel::delete(confirmed).execute(conn)?;
    Ok(())
}

#[async_trait]
impl DeviceLoginRepository for SqlStore {
    async fn begin(&self, login: &DeviceLogin) -> Result<(), StoreError> {
        let login = login.clone();
        self.run(Workload::Requests, JobMode::Write, move |conn| {
            let now = TimestampCol(login.created_at);
            let waiting: i64 = device_logins::table
                .filter(device_logins::expires_at.gt(now))
                .count()
                .get_result(conn)?;
            if usize::try_from(waiting).is_ok_and(|count| count >= MAX_DEVICE_LOGINS) {
                return Err(StoreError::Full {
                    entity: "device logins",
                    limit: MAX_DEVICE_LOGINS,
                }
                .into());
            }
            diesel::insert_into(device_logins::table)
                .values(DeviceLoginRow::from(&login))
                .execute(conn)
                .map_err(map_unique_violation(conflict(Entity::DeviceLogin)))?;
            Ok(())
        })
        .await
    }

    async fn find(&self, hash: &KeyHash) -> Result<Option<DeviceLogin>, StoreError> {
        let hash = hash.to_string();
        self.run(Workload::Requests, JobMode::Read, move |conn| {
            let row = device_logins::table
                .find(&hash)
                .select(DeviceLoginRow::as_select())
                .first(conn)
                .optional()
                .map_decode_error(Entity::DeviceLogin)?;
            let Some(found) = row.map(DeviceLogin::from) else {
                return Ok(None);
            };
            let is_valid = match &found.user {
                Some(user) => is_active(conn, user.as_str())?,
                None => true,
            };
            Ok(is_valid.then_some(found))
        })
        .await
    }

    async fn prune(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        let rows = ("device_logins", "hash", "expires_at");
        self.prune_rows(rows, before, limit).await
    }
}
