//! `AdministrationRepository`: stores a change and its audit entry in one transaction.

use async_trait::async_trait;
use domain::audit::AuditEntry;
use domain::clock::Timestamp;
use domain::error::StoreError;
use domain::user::identity::{AdminChange, AdministrationRepository, PurgeCounts};

use crate::database::connection::AnyConnection;
use crate::database::pool::{JobMode, Workload};
use crate::error::{TransactionError, conflict, not_found};
use crate::store::SqlStore;
use crate::users::{self, api_keys, audit_log, purge};

const USER: &str = "user";
const KEY: &str = "API key";

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
                .ok_or_else(|| conflict(USER))?;
        }
        AdminChange::SetRole { user, role } => {
            require(users::set_role(conn, user.as_str(), *role)?, USER)?;
        }
        AdminChange::DeleteUser { user } => {
            require(users::mark_deleted(conn, user.as_str(), at)?, USER)?;
            return purge::erase_access(conn, user.as_str(), at);
        }
        AdminChange::CreateKey { key, new_user } => {
            let user = key.user.as_str();
            match new_user {
                Some(role) => {
                    users::ensure_exists(conn, user, *role, at)?;
                }
                None => require(users::exists(conn, user)?, USER)?,
            }
            api_keys::insert(conn, key)?;
        }
        AdminChange::RotateKey { old, new, until } => {
            let is_expiring = api_keys::expire(conn, *old, &new.user, new.created_at, *until)?;
            require(is_expiring, KEY)?;
            require(users::exists(conn, new.user.as_str())?, KEY)?;
            api_keys::insert(conn, new)?;
        }
        AdminChange::RevokeKey { id, user } => require(api_keys::revoke(conn, *id, user)?, KEY)?,
    }
    Ok(PurgeCounts::default())
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
            if let Some(id) = AdminChange::caller_key(&entry) {
                change.authorize(&entry, api_keys::find_with_role(conn, id)?.as_ref())?;
            }
            let purged = self::change(conn, &change, entry.at)?;
            audit_log::insert(conn, std::slice::from_ref(&entry))?;
            Ok(purged)
        })
        .await
    }
}
