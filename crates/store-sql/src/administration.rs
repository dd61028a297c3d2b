//! `AdministrationRepository`: a change and its line in the audit log, in one transaction.

use async_trait::async_trait;
use domain::audit::AuditEntry;
use domain::clock::Timestamp;
use domain::error::StoreError;
use domain::identity::{Administered, AdministrationRepository, Purged};

use crate::connection::AnyConnection;
use crate::error::{Fault, conflict, not_found};
use crate::store::SqlStore;
use crate::{api_keys, audit, purge, users};

const USER: &str = "user";
const KEY: &str = "API key";

/// Final, because the transaction is serializable: whoever revokes the key or takes the role comes before it, or after.
fn refuse_stranger(
    conn: &mut AnyConnection,
    change: &Administered,
    entry: &AuditEntry,
) -> Result<(), Fault> {
    if let Some(id) = Administered::asked_with(entry) {
        let found = api_keys::known(conn, id)?;
        change.refuse_stranger(entry, found.as_ref())?;
    }
    Ok(())
}

fn change(conn: &mut AnyConnection, change: &Administered, at: Timestamp) -> Result<Purged, Fault> {
    let found = |is_there: bool, entity| is_there.then_some(()).ok_or_else(|| not_found(entity));
    match change {
        Administered::CreateUser { user, role } => users::ensure(conn, user.as_str(), *role, at)?
            .then_some(())
            .ok_or_else(|| conflict(USER))?,
        Administered::SetRole { user, role } => {
            found(users::set_role(conn, user.as_str(), *role)?, USER)?;
        }
        Administered::DeleteUser { user } => {
            found(users::mark(conn, user.as_str(), at)?, USER)?;
            return purge::disarm(conn, user.as_str(), at);
        }
        Administered::CreateKey { key, new_user } => {
            let user = key.user.as_str();
            match new_user {
                Some(role) => {
                    users::ensure(conn, user, *role, at)?;
                }
                None => found(users::is_there(conn, user)?, USER)?,
            }
            api_keys::insert(conn, key)?;
        }
        Administered::RotateKey { old, new, until } => {
            let ended = api_keys::end(conn, *old, &new.user, new.created_at, *until)?;
            found(ended, KEY)?;
            found(users::is_there(conn, new.user.as_str())?, KEY)?;
            api_keys::insert(conn, new)?;
        }
        Administered::RevokeKey { id, user } => found(api_keys::revoke(conn, *id, user)?, KEY)?,
    }
    Ok(Purged::default())
}

#[async_trait]
impl AdministrationRepository for SqlStore {
    async fn administer(
        &self,
        change: &Administered,
        entry: &AuditEntry,
    ) -> Result<Purged, StoreError> {
        let (change, entry) = (change.clone(), entry.clone());
        self.db
            .write(move |conn| {
                refuse_stranger(conn, &change, &entry)?;
                let purged = self::change(conn, &change, entry.at)?;
                audit::insert(conn, std::slice::from_ref(&entry))?;
                Ok(purged)
            })
            .await
    }
}
