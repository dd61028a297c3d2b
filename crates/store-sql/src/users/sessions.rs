//! `SessionRepository`, and the steps of changes to sessions.

use async_trait::async_trait;
use diesel::prelude::*;
use domain::clock::Timestamp;
use domain::error::{Entity, StoreError};
use domain::id::{SessionId, UserId};
use domain::user::identity::{KeyHash, Role};
use domain::user::sign_in::{
    MAX_SESSIONS_PER_USER, PasswordHash, Session, SessionRepository, SessionWithRole,
};

use crate::database::connection::AnyConnection;
use crate::database::pool::{JobMode, Workload};
use crate::error::{QueryResultExt, TransactionError, conflict, map_unique_violation};
use crate::schema::column_types::{TextCol, TimestampCol, UuidCol};
use crate::schema::rows::same_fields;
use crate::schema::{memberships, sessions, users as user_rows};
use crate::store::SqlStore;
use crate::users::activity::password_of;
use crate::users::organizations::{MembershipColumns, active_membership};

#[derive(Queryable, Selectable, Insertable)]
#[diesel(table_name = sessions, treat_none_as_default_value = false)]
struct SessionRow {
    id: UuidCol,
    #[diesel(column_name = user_id)]
    user: TextCol<UserId>,
    hash: TextCol<KeyHash>,
    created_at: TimestampCol,
    last_seen_at: TimestampCol,
    expires_at: TimestampCol,
    address: Option<String>,
    user_agent: Option<String>,
}

same_fields! {
    SessionRow, Session, [
        id, user, hash, created_at, last_seen_at, expires_at, address, user_agent,
    ]
}

/// Loads the session to which the condition applies, the role of its user, and the membership in the user's current
/// organization. Ignores users who are disabled or whose deletion has begun.
macro_rules! find_with_role {
    ($conn:ident, $condition:expr) => {{
        let row: Option<(SessionRow, TextCol<Role>, MembershipColumns)> = sessions::table
            .inner_join(user_rows::table.on(user_rows::id.eq(sessions::user_id)))
            .left_join(
                memberships::table.on(memberships::organization_id
                    .nullable()
                    .eq(user_rows::current_organization)
                    .and(memberships::user_id.eq(user_rows::id))
                    .and(memberships::removed_at.is_null())),
            )
            .filter($condition)
            .filter(user_rows::deleted_at.is_null())
            .filter(user_rows::disabled_at.is_null())
            .select((
                SessionRow::as_select(),
                user_rows::role,
                (memberships::organization_id, memberships::role).nullable(),
            ))
            .first($conn)
            .optional()
            .map_decode_error(Entity::Session)?;
        row.map(|(session, role, membership)| SessionWithRole {
            session: session.into(),
            role: role.0,
            membership: membership.map(active_membership),
        })
    }};
}

/// Loads a session in the caller's transaction.
pub(crate) fn find_with_role(
    conn: &mut AnyConnection,
    id: SessionId,
) -> Result<Option<SessionWithRole>, TransactionError> {
    Ok(find_with_role!(conn, sessions::id.eq(UuidCol::from(id))))
}

/// Begins a session if the user still has this password.
pub(crate) fn begin(
    conn: &mut AnyConnection,
    session: &Session,
    password: &PasswordHash,
) -> Result<bool, TransactionError> {
    let user = session.user.as_str();
    if password_of(conn, user)?.as_ref() != Some(password) {
        return Ok(false);
    }
    insert(conn, session)?;
    Ok(true)
}

/// Stores a session of a user who exists, and ends the oldest ones above the limit.
pub(crate) fn insert(conn: &mut AnyConnection, session: &Session) -> Result<(), TransactionError> {
    let user = session.user.as_str();
    diesel::insert_into(sessions::table)
        .values(SessionRow::from(session))
        .execute(conn)
        .map_err(map_unique_violation(conflict(Entity::Session)))?;
    let mut all: Vec<UuidCol> = sessions::table
        .filter(sessions::user_id.eq(user))
        .order((sessions::created_at.desc(), sessions::id.desc()))
        .select(sessions::id)
        .load(conn)?;
    let surplus = all.split_off(all.len().min(MAX_SESSIONS_PER_USER));
    diesel::delete(sessions::table.filter(sessions::id.eq_any(surplus))).execute(conn)?;
    Ok(())
}

/// Ends a user's session. `false` if there is none.
pub(crate) fn end(
    conn: &mut AnyConnection,
    id: SessionId,
    user: &str,
) -> Result<bool, TransactionError> {
    let session = sessions::table
        .find(UuidCol::from(id))
        .filter(sessions::user_id.eq(user));
    Ok(diesel::delete(session).execute(conn)? > 0)
}

/// Ends all sessions of a user but `keep`.
pub(crate) fn end_others(
    conn: &mut AnyConnection,
    user: &str,
    keep: Option<SessionId>,
) -> Result<(), TransactionError> {
    let all = sessions::table.filter(sessions::user_id.eq(user));
    match keep {
        Some(keep) => {
            diesel::delete(all.filter(sessions::id.ne(UuidCol::from(keep)))).execute(conn)?
        }
        None => diesel::delete(all).execute(conn)?,
    };
    Ok(())
}

#[async_trait]
impl SessionRepository for SqlStore {
    async fn find_by_hash(&self, hash: &KeyHash) -> Result<Option<SessionWithRole>, StoreError> {
        let hash = hash.to_string();
        self.run(Workload::Requests, JobMode::Query, move |conn| {
            Ok(find_with_role!(conn, sessions::hash.eq(&hash)))
        })
        .await
    }

    async fn list(&self, user: &UserId) -> Result<Vec<Session>, StoreError> {
        let user = user.to_string();
        self.run(Workload::Requests, JobMode::Query, move |conn| {
            let rows = sessions::table
                .filter(sessions::user_id.eq(&user))
                .order((sessions::created_at.asc(), sessions::id.asc()))
                .select(SessionRow::as_select())
                .load(conn)
                .map_decode_error(Entity::Session)?;
            Ok(rows.into_iter().map(Session::from).collect())
        })
        .await
    }

    async fn touch(&self, id: SessionId, at: Timestamp) -> Result<(), StoreError> {
        self.run(Workload::Background, JobMode::Write, move |conn| {
            diesel::update(sessions::table.find(UuidCol::from(id)))
                .set(sessions::last_seen_at.eq(TimestampCol(at)))
                .execute(conn)?;
            Ok(())
        })
        .await
    }

    async fn prune(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        let rows = ("sessions", "id", "expires_at");
        self.prune_rows(rows, before, limit).await
    }
}
