//! `IdentityRepository`, and the steps of changes to identities and e-mail addresses.

use std::collections::BTreeMap;

use async_trait::async_trait;
use diesel::prelude::*;
use domain::error::{Entity, StoreError};
use domain::id::{IdentityId, ProviderName, SessionId, UserId};
use domain::user::identity::Role;
use domain::user::sign_in::{Session, UserEmail};
use domain::user::single_sign_on::{IdentityRepository, LinkedIdentity, MAX_IDENTITIES_PER_USER};

use crate::database::connection::AnyConnection;
use crate::database::pool::{JobMode, Workload};
use crate::error::{QueryResultExt, TransactionError, conflict, map_unique_violation};
use crate::schema::codec::row_limit;
use crate::schema::column_types::{TextCol, TimestampCol, UuidCol};
use crate::schema::rows::same_fields;
use crate::schema::{identities, users as user_rows};
use crate::store::SqlStore;
use crate::users::activity::{is_active, password_of};
use crate::users::sessions;

#[derive(Queryable, Selectable, Insertable)]
#[diesel(table_name = identities, treat_none_as_default_value = false)]
struct IdentityRow {
    id: UuidCol,
    provider: TextCol<ProviderName>,
    subject: String,
    #[diesel(column_name = user_id)]
    user: TextCol<UserId>,
    email: Option<String>,
    created_at: TimestampCol,
    last_used_at: TimestampCol,
}

same_fields! {
    IdentityRow, LinkedIdentity, [
        id, provider, subject, user, email, created_at, last_used_at,
    ]
}

fn count(conn: &mut AnyConnection, user: &str) -> Result<usize, TransactionError> {
    let theirs = identities::table.filter(identities::user_id.eq(user));
    let count: i64 = theirs.count().get_result(conn)?;
    Ok(usize::try_from(count).unwrap_or(usize::MAX))
}

/// Links an identity to a user who exists.
pub(crate) fn link(
    conn: &mut AnyConnection,
    identity: &LinkedIdentity,
) -> Result<(), TransactionError> {
    if count(conn, identity.user.as_str())? >= MAX_IDENTITIES_PER_USER {
        return Err(StoreError::Full {
            entity: "linked identities",
            limit: MAX_IDENTITIES_PER_USER,
        }
        .into());
    }
    diesel::insert_into(identities::table)
        .values(IdentityRow::from(identity))
        .execute(conn)
        .map_err(map_unique_violation(conflict(Entity::Identity)))?;
    Ok(())
}

/// Removes a link, and ends the user's sessions but `keep`. `false` if the user has no such identity.
pub(crate) fn unlink(
    conn: &mut AnyConnection,
    id: IdentityId,
    user: &str,
    keep: Option<SessionId>,
) -> Result<bool, TransactionError> {
    let identity = identities::table
        .find(UuidCol::from(id))
        .filter(identities::user_id.eq(user));
    if diesel::delete(identity).execute(conn)? == 0 {
        return Ok(false);
    }
    if count(conn, user)? == 0 && password_of(conn, user)?.is_none() {
        return Err(conflict(Entity::Identity));
    }
    sessions::end_others(conn, user, keep)?;
    Ok(true)
}

/// Begins a session by an identity. `false` if it is not linked to the user.
pub(crate) fn begin_session(
    conn: &mut AnyConnection,
    session: &Session,
    identity: IdentityId,
    (email, role): (Option<&UserEmail>, Option<Role>),
) -> Result<bool, TransactionError> {
    let user = session.user.as_str();
    let linked = identities::table
        .find(UuidCol::from(identity))
        .filter(identities::user_id.eq(user));
    let changed = diesel::update(linked)
        .set((
            identities::last_used_at.eq(TimestampCol(session.created_at)),
            identities::email.eq(email.map(|email| email.address.as_str())),
        ))
        .execute(conn)?;
    if changed == 0 || !is_active(conn, user)? {
        return Ok(false);
    }
    if let Some(role) = role {
        diesel::update(user_rows::table.find(user))
            .set(user_rows::role.eq(role.as_str()))
            .execute(conn)?;
    }
    if let Some(email) = email.filter(|email| email.is_verified) {
        set_email(conn, user, Some(email))?;
    }
    sessions::insert(conn, session)?;
    Ok(true)
}

/// Sets the address of a user. `false` if the user does not exist.
pub(crate) fn set_email(
    conn: &mut AnyConnection,
    user: &str,
    email: Option<&UserEmail>,
) -> Result<bool, TransactionError> {
    let active = user_rows::table
        .find(user)
        .filter(user_rows::deleted_at.is_null());
    let set = diesel::update(active)
        .set((
            user_rows::email.eq(email.map(|email| email.address.as_str())),
            user_rows::email_verified.eq(email.is_some_and(|email| email.is_verified)),
        ))
        .execute(conn)?;
    Ok(set > 0)
}

/// Removes all identities of a user, and the address.
pub(crate) fn erase(conn: &mut AnyConnection, user: &str) -> Result<(), TransactionError> {
    diesel::delete(identities::table.filter(identities::user_id.eq(user))).execute(conn)?;
    diesel::update(user_rows::table.find(user))
        .set((
            user_rows::email.eq(None::<String>),
            user_rows::email_verified.eq(false),
        ))
        .execute(conn)?;
    Ok(())
}

#[async_trait]
impl IdentityRepository for SqlStore {
    async fn find(
        &self,
        provider: &ProviderName,
        subject: &str,
    ) -> Result<Option<LinkedIdentity>, StoreError> {
        let (provider, subject) = (provider.to_string(), subject.to_owned());
        self.run(Workload::Requests, JobMode::Query, move |conn| {
            let row = identities::table
                .inner_join(user_rows::table.on(user_rows::id.eq(identities::user_id)))
                .filter(identities::provider.eq(&provider))
                .filter(identities::subject.eq(&subject))
                .filter(user_rows::deleted_at.is_null())
                .select(IdentityRow::as_select())
                .first(conn)
                .optional()
                .map_decode_error(Entity::Identity)?;
            Ok(row.map(LinkedIdentity::from))
        })
        .await
    }

    async fn list(&self, user: &UserId) -> Result<Vec<LinkedIdentity>, StoreError> {
        let user = user.to_string();
        self.run(Workload::Requests, JobMode::Query, move |conn| {
            let rows = identities::table
                .filter(identities::user_id.eq(&user))
                .order((identities::created_at.asc(), identities::id.asc()))
                .select(IdentityRow::as_select())
                .load(conn)
                .map_decode_error(Entity::Identity)?;
            Ok(rows.into_iter().map(LinkedIdentity::from).collect())
        })
        .await
    }

    async fn email(&self, user: &UserId) -> Result<Option<UserEmail>, StoreError> {
        let user = user.to_string();
        self.run(Workload::Requests, JobMode::Query, move |conn| {
            let row: Option<(Option<String>, bool)> = user_rows::table
                .find(&user)
                .filter(user_rows::deleted_at.is_null())
                .select((user_rows::email, user_rows::email_verified))
                .first(conn)
                .optional()?;
            Ok(row.and_then(|(address, is_verified)| {
                address.map(|address| UserEmail {
                    address,
                    is_verified,
                })
            }))
        })
        .await
    }

    async fn verified_emails(
        &self,
        users: &[UserId],
    ) -> Result<BTreeMap<UserId, String>, StoreError> {
        let users: Vec<String> = users.iter().map(UserId::to_string).collect();
        self.run(Workload::Requests, JobMode::Query, move |conn| {
            let rows: Vec<(TextCol<UserId>, Option<String>)> = user_rows::table
                .filter(user_rows::id.eq_any(&users))
                .filter(user_rows::email_verified.eq(true))
                .filter(user_rows::deleted_at.is_null())
                .select((user_rows::id, user_rows::email))
                .load(conn)
                .map_decode_error(Entity::User)?;
            let found = rows.into_iter();
            Ok(found
                .filter_map(|(user, address)| Some((user.0, address?)))
                .collect())
        })
        .await
    }

    async fn find_by_email(
        &self,
        address: &str,
        limit: usize,
    ) -> Result<Vec<(UserId, UserEmail)>, StoreError> {
        let address = address.to_lowercase();
        self.run(Workload::Requests, JobMode::Query, move |conn| {
            let rows: Vec<(TextCol<UserId>, bool)> = user_rows::table
                .filter(user_rows::email.eq(&address))
                .filter(user_rows::deleted_at.is_null())
                .order(user_rows::id.asc())
                .limit(row_limit(limit))
                .select((user_rows::id, user_rows::email_verified))
                .load(conn)
                .map_decode_error(Entity::User)?;
            let email = |is_verified| UserEmail {
                address: address.clone(),
                is_verified,
            };
            let found = rows.into_iter();
            Ok(found
                .map(|(user, verified)| (user.0, email(verified)))
                .collect())
        })
        .await
    }
}
