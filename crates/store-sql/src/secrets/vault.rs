//! `VaultRepository`.

use async_trait::async_trait;
use diesel::prelude::*;
use domain::clock::Timestamp;
use domain::encryption::cipher::Sealed;
use domain::encryption::vault::{INSTALLATION_SECRET_CONTEXT, KeyHolder, VaultRepository};
use domain::error::{Entity, StoreError};

use crate::database::connection::AnyConnection;
use crate::database::pool::{JobMode, Workload};
use crate::error::{TransactionError, stale};
use crate::schema::column_types::TimestampCol;
use crate::schema::{key_holders, vault};
use crate::store::SqlStore;

fn installation_secret(conn: &mut AnyConnection) -> Result<Option<Sealed>, TransactionError> {
    let text: Option<String> = vault::table
        .find(INSTALLATION_SECRET_CONTEXT)
        .select(vault::sealed)
        .first(conn)
        .optional()?;
    Ok(text.map(Sealed::from_text))
}

type HolderRow = (String, String, Option<String>, TimestampCol);

fn holder((id, keys, seals_with, seen_at): HolderRow) -> KeyHolder {
    KeyHolder {
        id,
        keys: keys.split_whitespace().map(str::to_owned).collect(),
        seals_with,
        seen_at: seen_at.0,
    }
}

#[async_trait]
impl VaultRepository for SqlStore {
    async fn installation(&self) -> Result<Option<Sealed>, StoreError> {
        self.run(Workload::Background, JobMode::Read, installation_secret)
            .await
    }

    async fn create_installation(
        &self,
        sealed: &Sealed,
        at: Timestamp,
    ) -> Result<Sealed, StoreError> {
        let sealed = sealed.clone();
        self.run(Workload::Background, JobMode::Write, move |conn| {
            if let Some(stored) = installation_secret(conn)? {
                return Ok(stored);
            }
            diesel::insert_into(vault::table)
                .values((
                    vault::name.eq(INSTALLATION_SECRET_CONTEXT),
                    vault::sealed.eq(sealed.as_text()),
                    vault::changed_at.eq(TimestampCol(at)),
                ))
                .execute(conn)?;
            Ok(sealed.clone())
        })
        .await
    }

    async fn replace_installation(
        &self,
        before: &Sealed,
        after: &Sealed,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        let (before, after) = (before.clone(), after.clone());
        self.run(Workload::Background, JobMode::Write, move |conn| {
            let unchanged = vault::table
                .find(INSTALLATION_SECRET_CONTEXT)
                .filter(vault::sealed.eq(before.as_text()));
            let replaced = diesel::update(unchanged)
                .set((
                    vault::sealed.eq(after.as_text()),
                    vault::changed_at.eq(TimestampCol(at)),
                ))
                .execute(conn)?;
            if replaced == 0 {
                return Err(stale(Entity::Vault));
            }
            Ok(())
        })
        .await
    }

    async fn announce(&self, holder: &KeyHolder) -> Result<(), StoreError> {
        let holder = holder.clone();
        self.run(Workload::Background, JobMode::Write, move |conn| {
            let values = (
                key_holders::master_keys.eq(holder.keys.join(" ")),
                key_holders::seals_with.eq(&holder.seals_with),
                key_holders::seen_at.eq(TimestampCol(holder.seen_at)),
            );
            let row = key_holders::table.find(&holder.id);
            if diesel::update(row).set(values.clone()).execute(conn)? == 0 {
                diesel::insert_into(key_holders::table)
                    .values((key_holders::name.eq(&holder.id), values))
                    .execute(conn)?;
            }
            Ok(())
        })
        .await
    }

    async fn withdraw(&self, holder: &str) -> Result<(), StoreError> {
        let holder = holder.to_owned();
        self.run(Workload::Background, JobMode::Write, move |conn| {
            diesel::delete(key_holders::table.find(&holder)).execute(conn)?;
            Ok(())
        })
        .await
    }

    async fn list_holders(&self, since: Timestamp) -> Result<Vec<KeyHolder>, StoreError> {
        self.run(Workload::Background, JobMode::Read, move |conn| {
            let rows: Vec<HolderRow> = key_holders::table
                .filter(key_holders::seen_at.ge(TimestampCol(since)))
                .order(key_holders::name.asc())
                .load(conn)?;
            Ok(rows.into_iter().map(holder).collect())
        })
        .await
    }

    async fn prune_holders(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        let rows = ("key_holders", "name", "seen_at");
        self.prune_rows(rows, before, limit).await
    }
}
