//! `AdministrationRepository`: stores a change and its audit entry in one transaction.

use async_trait::async_trait;
use diesel::prelude::*;
use domain::audit::AuditEntry;
use domain::clock::Timestamp;
use domain::error::{Entity, StoreError};
use domain::user::administration::{AdminChange, AdministrationRepository};
use domain::user::identity::{CallerCredential, CallerIdentity, PurgeCounts};
use domain::user::sign_in::SignInChange;

use crate::database::connection::AnyConnection;
use crate::database::pool::{JobMode, Workload};
use crate::error::{TransactionError, conflict, not_found};
use crate::schema::column_types::UuidCol;
use crate::schema::{api_keys as key_rows, users as user_rows};
use crate::store::SqlStore;
use crate::users::{
    self, api_keys, audit_log, device_logins, identities, organization_changes, organizations,
    passwords, purge, sessions,
};

fn change(
    conn: &mut AnyConnection,
    change: &AdminChange,
    at: Timestamp,
) -> Result<PurgeCounts, TransactionError> {
    let require = |exists: bool, entity| exists.then_some(()).ok_or_else(|| not_found(entity));
    match change {
        AdminChange::CreateUser { user, role } => {
            users::ensure_exists(conn, user.as_str(), *role, at)?
                .then_some(())
                .ok_or_else(|| conflict(Entity::User))?;
        }
        AdminChange::SetRole { user, role } => {
            let undeleted = user_rows::table
                .find(user.as_str())
                .filter(user_rows::deleted_at.is_null());
            let changed = diesel::update(undeleted)
                .set(user_rows::role.eq(role.as_str()))
                .execute(conn)?;
            require(changed > 0, Entity::User)?;
        }
        AdminChange::SetDisabled { user, disabled } => {
            require(
                organization_changes::set_disabled(conn, user, *disabled, at)?,
                Entity::User,
            )?;
        }
        AdminChange::Organization(change) => {
            return organization_changes::change(conn, change, at);
        }
        AdminChange::DeleteUser { user } => {
            organization_changes::check_not_last_owner(conn, user.as_str(), None)?;
            require(users::mark_deleted(conn, user.as_str(), at)?, Entity::User)?;
            return purge::erase_access(conn, user.as_str(), at);
        }
        AdminChange::CreateKey { key, new_user } => {
            let user = key.user.as_str();
            match new_user {
                Some(role) => {
                    users::ensure_exists(conn, user, *role, at)?;
                }
                None => require(users::exists(conn, user)?, Entity::User)?,
            }
            organization_changes::check_key_organization(conn, key)?;
            api_keys::insert(conn, key)?;
        }
        AdminChange::RotateKey { old, new, until } => {
            let is_expiring = api_keys::expire(conn, *old, &new.user, new.created_at, *until)?;
            require(is_expiring, Entity::ApiKey)?;
            require(users::exists(conn, new.user.as_str())?, Entity::ApiKey)?;
            api_keys::insert(conn, new)?;
        }
        AdminChange::RevokeKey { id, user } => {
            let key = key_rows::table
                .find(UuidCol::from(*id))
                .filter(key_rows::user_id.eq(user.as_str()));
            require(diesel::delete(key).execute(conn)? > 0, Entity::ApiKey)?;
        }
        AdminChange::SignIn(change) => change_sign_in(conn, change, at)?,
    }
    Ok(PurgeCounts::default())
}

/// Changes of passwords, sessions and one-time links.
fn change_sign_in(
    conn: &mut AnyConnection,
    change: &SignInChange,
    at: Timestamp,
) -> Result<(), TransactionError> {
    let (is_done, entity) = match change {
        SignInChange::BeginSession { session, password } => {
            (sessions::begin(conn, session, password)?, Entity::User)
        }
        SignInChange::EndSession { id, user } => {
            (sessions::end(conn, *id, user.as_str())?, Entity::Session)
        }
        SignInChange::ChangePassword {
            user,
            before,
            password,
            keep,
        } => {
            let change = (before, password);
            let done = passwords::change(conn, user.as_str(), change, *keep)?;
            (done, Entity::User)
        }
        SignInChange::CreateLink { link, new_user } => {
            let user = link.user.as_str();
            if let Some(role) = new_user {
                users::ensure_exists(conn, user, *role, at)?;
            }
            let exists = users::exists(conn, user)?;
            if exists {
                passwords::insert_link(conn, link)?;
            }
            (exists, Entity::User)
        }
        SignInChange::RedeemLink {
            link,
            user,
            password,
        } => {
            let done = passwords::redeem(conn, link, user.as_str(), password, at)?;
            (done, Entity::OneTimeLink)
        }
        SignInChange::ConfirmDevice { code, user } => {
            let done = device_logins::decide(conn, code, Some(user.as_str()), at)?;
            (done, Entity::DeviceLogin)
        }
        SignInChange::DenyDevice { code, .. } => (
            device_logins::decide(conn, code, None, at)?,
            Entity::DeviceLogin,
        ),
        SignInChange::RedeemDevice { hash, key } => (
            device_logins::redeem(conn, hash, key, at)?,
            Entity::DeviceLogin,
        ),
        SignInChange::BeginIdentitySession { .. }
        | SignInChange::LinkIdentity { .. }
        | SignInChange::UnlinkIdentity { .. }
        | SignInChange::SetEmail { .. } => return change_identities(conn, change, at),
    };
    is_done.then_some(()).ok_or_else(|| not_found(entity))
}

/// Changes of identities at providers, and of e-mail addresses.
fn change_identities(
    conn: &mut AnyConnection,
    change: &SignInChange,
    at: Timestamp,
) -> Result<(), TransactionError> {
    let (is_done, entity) = match change {
        SignInChange::BeginIdentitySession {
            session,
            identity,
            email,
            role,
        } => {
            let known = (email.as_ref(), *role);
            let done = identities::begin_session(conn, session, *identity, known)?;
            (done, Entity::User)
        }
        SignInChange::LinkIdentity { identity, new_user } => {
            let user = identity.user.as_str();
            if let Some(role) = new_user {
                users::ensure_exists(conn, user, *role, at)?
                    .then_some(())
                    .ok_or_else(|| conflict(Entity::User))?;
            }
            let exists = users::exists(conn, user)?;
            if exists {
                identities::link(conn, identity)?;
            }
            (exists, Entity::User)
        }
        SignInChange::UnlinkIdentity { id, user, keep } => {
            let done = identities::unlink(conn, *id, user.as_str(), *keep)?;
            (done, Entity::Identity)
        }
        SignInChange::SetEmail { user, email } => {
            let done = identities::set_email(conn, user.as_str(), email.as_ref())?;
            (done, Entity::User)
        }
        _ => return change_sign_in(conn, change, at),
    };
    is_done.then_some(()).ok_or_else(|| not_found(entity))
}

/// The user and role behind a credential.
fn identify(
    conn: &mut AnyConnection,
    caller: CallerCredential,
) -> Result<Option<CallerIdentity>, TransactionError> {
    Ok(match caller {
        CallerCredential::ApiKey(id) => api_keys::find_with_role(conn, id)?.map(Into::into),
        CallerCredential::Session(id) => sessions::find_with_role(conn, id)?.map(Into::into),
    })
}

#[async_trait]
impl AdministrationRepository for SqlStore {
    async fn administer(
        &self,
        change: &AdminChange,
        entry: &AuditEntry,
    ) -> Result<PurgeCounts, StoreError> {
        let (change, entry) = (change.clone(), entry.clone());
        self.run(Workload::Requests, JobMode::Write, move |conn| {
            // The transaction is serializable, so a concurrent revocation takes effect entirely before or after it.
            if let Some(caller) = AdminChange::caller(&entry) {
                let found = identify(conn, caller)?;
                let role = match (change.organization(), &found) {
                    (Some(id), Some(found)) => {
                        organizations::membership(conn, id, found.user.as_str())?
                    }
                    _ => None,
                };
                change.authorize(&entry, found.as_ref(), role.map(|it| it.role))?;
            }
            let purged = self::change(conn, &change, entry.at)?;
            audit_log::insert(conn, std::slice::from_ref(&entry))?;
            Ok(purged)
        })
        .await
    }
}
