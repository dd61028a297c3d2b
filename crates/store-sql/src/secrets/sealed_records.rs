//! `SealedRecordRepository`.

use async_trait::async_trait;
use diesel::prelude::*;
use domain::encryption::cipher::Sealed;
use domain::encryption::sealed::{
    ResealedRecord, SealedKind, SealedLocation, SealedRecord, SealedRecordRepository,
};
use domain::error::{Entity, StoreError};
use domain::id::{OwnerId, SandboxId};
use domain::user::settings::SettingsOwner;

use crate::database::connection::{AnyBackend, AnyConnection};
use crate::database::pool::{JobMode, Workload};
use crate::error::{QueryResultExt, TransactionError};
use crate::schema::codec::row_limit;
use crate::schema::column_types::{TextCol, UuidCol};
use crate::schema::{sandboxes, secrets, settings, start_tasks, warm_sandboxes};
use crate::store::SqlStore;

/// The key of the location's row: a text or an id.
fn row_key(location: &SealedLocation) -> (Option<String>, Option<UuidCol>) {
    match location {
        SealedLocation::Settings(owner) => (Some(owner.to_string()), None),
        SealedLocation::SessionKey(id)
        | SealedLocation::SecretKey(id)
        | SealedLocation::WarmSessionKey(id)
        | SealedLocation::WarmSecretKey(id) => (Some(id.to_string()), None),
        SealedLocation::Secret(_, id) => (None, Some((*id).into())),
        SealedLocation::StartSecrets(id) => (None, Some((*id).into())),
    }
}

fn page(
    conn: &mut AnyConnection,
    kind: SealedKind,
    after: Option<&SealedLocation>,
    limit: i64,
) -> Result<Vec<SealedRecord>, TransactionError> {
    let (text, uuid) = after.map(row_key).unwrap_or_default();
    /// Reads sealed values of one column, in the order of `$key`, after `$after`. The other columns locate them.
    macro_rules! read {
        ($table:ident.$sealed:ident, $key:ident > $after:ident, [$($column:ident: $ty:ty),*] => $location:ident($($part:expr),*)) => {{
            let mut query = $table::table
                .into_boxed::<AnyBackend>()
                .filter($table::$sealed.is_not_null());
            if let Some(after) = $after {
                query = query.filter($table::$key.gt(after));
            }
            let rows: Vec<(($($ty,)*), Option<String>)> = query
                .order($table::$key.asc())
                .limit(limit)
                .select((($($table::$column,)*), $table::$sealed.nullable()))
                .load(conn)
                .map_decode_error(Entity::SealedRecord)?;
            let records = rows.into_iter().filter_map(|(($($column,)*), sealed)| {
                let sealed = Sealed::from_text(sealed?);
                Some(SealedRecord { location: SealedLocation::$location($($part),*), sealed })
            });
            records.collect()
        }};
    }
    Ok(match kind {
        SealedKind::Settings => {
            read!(settings.document, owner > text, [owner: TextCol<SettingsOwner>] => Settings(owner.0))
        }
        SealedKind::Secrets => {
            read!(secrets.value, value_id > uuid, [owner: TextCol<OwnerId>, value_id: UuidCol] => Secret(owner.0, value_id.into()))
        }
        SealedKind::SessionKeys => {
            read!(sandboxes.session_key, id > text, [id: TextCol<SandboxId>] => SessionKey(id.0))
        }
        SealedKind::SecretKeys => {
            read!(sandboxes.secret_key, id > text, [id: TextCol<SandboxId>] => SecretKey(id.0))
        }
        SealedKind::WarmSessionKeys => {
            read!(warm_sandboxes.session_key, id > text, [id: TextCol<SandboxId>] => WarmSessionKey(id.0))
        }
        SealedKind::WarmSecretKeys => {
            read!(warm_sandboxes.secret_key, id > text, [id: TextCol<SandboxId>] => WarmSecretKey(id.0))
        }
        SealedKind::StartSecrets => {
            read!(start_tasks.sealed_secrets, id > uuid, [id: UuidCol] => StartSecrets(id.into()))
        }
    })
}

/// Replaces a record if it still has the old value, which the statement itself checks.
fn replace_one(
    conn: &mut AnyConnection,
    record: &ResealedRecord,
) -> Result<usize, TransactionError> {
    let (before, after) = (record.before.as_text(), record.after.as_text());
    macro_rules! replace {
        ($table:ident.$sealed:ident => $($row:tt)*) => {
            diesel::update($table::table.$($row)*.filter($table::$sealed.eq(before)))
                .set($table::$sealed.eq(after))
                .execute(conn)?
        };
    }
    Ok(match &record.location {
        SealedLocation::Settings(owner) => replace!(settings.document => find(owner.to_string())),
        SealedLocation::Secret(owner, id) => replace!(
            secrets.value => filter(secrets::owner.eq(owner.as_str())).filter(secrets::value_id.eq(UuidCol::from(*id)))
        ),
        SealedLocation::SessionKey(id) => replace!(sandboxes.session_key => find(id.as_str())),
        SealedLocation::SecretKey(id) => replace!(sandboxes.secret_key => find(id.as_str())),
        SealedLocation::WarmSessionKey(id) => {
            replace!(warm_sandboxes.session_key => find(id.as_str()))
        }
        SealedLocation::WarmSecretKey(id) => {
            replace!(warm_sandboxes.secret_key => find(id.as_str()))
        }
        SealedLocation::StartSecrets(id) => {
            replace!(start_tasks.sealed_secrets => find(UuidCol::from(*id)))
        }
    })
}

#[async_trait]
impl SealedRecordRepository for SqlStore {
    async fn page(
        &self,
        kind: SealedKind,
        after: Option<&SealedLocation>,
        limit: usize,
    ) -> Result<Vec<SealedRecord>, StoreError> {
        let (after, limit) = (after.cloned(), row_limit(limit));
        self.run(Workload::Background, JobMode::Read, move |conn| {
            page(conn, kind, after.as_ref(), limit)
        })
        .await
    }

    async fn replace(&self, batch: &[ResealedRecord]) -> Result<u64, StoreError> {
        let batch = batch.to_vec();
        self.run(Workload::Background, JobMode::Write, move |conn| {
            let mut count = 0;
            for record in &batch {
                count += replace_one(conn, record)?;
            }
            Ok(count as u64)
        })
        .await
    }
}
