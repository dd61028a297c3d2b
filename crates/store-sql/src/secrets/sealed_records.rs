//! `SealedRecordRepository`.

use async_trait::async_trait;
use diesel::prelude::*;
use domain::encryption::cipher::Sealed;
use domain::encryption::sealed::{
    ResealedRecord, SealedKind, SealedLocation, SealedRecord, SealedRecordRepository,
};
use domain::error::StoreError;
use domain::id::{SandboxId, UserId};

use crate::database::connection::{AnyBackend, AnyConnection};
use crate::database::pool::{JobMode, Workload};
use crate::error::{QueryResultExt, TransactionError};
use crate::schema::column_types::{TextCol, UuidCol};
use crate::schema::{sandboxes, secrets, settings, start_tasks, warm_sandboxes};
use crate::store::SqlStore;

/// The text of the key of the location's row.
fn text_key(location: &SealedLocation) -> Option<String> {
    match location {
        SealedLocation::Settings(owner) => Some(owner.to_string()),
        SealedLocation::SessionKey(id)
        | SealedLocation::SecretKey(id)
        | SealedLocation::WarmSessionKey(id)
        | SealedLocation::WarmSecretKey(id) => Some(id.to_string()),
        SealedLocation::Secret(..) | SealedLocation::StartSecrets(_) => None,
    }
}

/// The id of the location's row.
fn id_key(location: &SealedLocation) -> Option<UuidCol> {
    match location {
        SealedLocation::Secret(_, id) => Some((*id).into()),
        SealedLocation::StartSecrets(id) => Some((*id).into()),
        _ => None,
    }
}

/// Reads sealed values of one column, in the order of `$key`, after `$after`.
macro_rules! read_page {
    ($conn:ident, $limit:ident, $table:ident, $key:ident > $after:expr, $columns:expr, $sealed:ident, $location:expr) => {{
        let mut query = $table::table
            .into_boxed::<AnyBackend>()
            .filter($table::$sealed.is_not_null());
        if let Some(after) = $after {
            query = query.filter($table::$key.gt(after));
        }
        let rows: Vec<(_, Option<String>)> = query
            .order($table::$key.asc())
            .limit($limit)
            .select(($columns, $table::$sealed.nullable()))
            .load($conn)
            .reading(stringify!($table))?;
        rows.into_iter()
            .filter_map(|(key, sealed)| {
                Some(SealedRecord {
                    location: $location(key),
                    sealed: Sealed::from_text(sealed?),
                })
            })
            .collect()
    }};
}

fn page(
    conn: &mut AnyConnection,
    kind: SealedKind,
    after: Option<&SealedLocation>,
    limit: i64,
) -> Result<Vec<SealedRecord>, TransactionError> {
    let (text, id) = (after.and_then(text_key), after.and_then(id_key));
    macro_rules! sandbox_keys {
        ($table:ident, $sealed:ident, $location:ident) => {
            read_page!(
                conn,
                limit,
                $table,
                id > text,
                $table::id,
                $sealed,
                |id: TextCol<SandboxId>| { SealedLocation::$location(id.0) }
            )
        };
    }
    Ok(match kind {
        SealedKind::Settings => {
            read_page!(
                conn,
                limit,
                settings,
                owner > text,
                settings::owner,
                document,
                |owner: TextCol<UserId>| { SealedLocation::Settings(owner.0) }
            )
        }
        SealedKind::Secrets => {
            let columns = (secrets::owner, secrets::value_id);
            read_page!(
                conn,
                limit,
                secrets,
                value_id > id,
                columns,
                value,
                |(owner, id): (TextCol<UserId>, UuidCol)| {
                    SealedLocation::Secret(owner.0, id.into())
                }
            )
        }
        SealedKind::SessionKeys => sandbox_keys!(sandboxes, session_key, SessionKey),
        SealedKind::SecretKeys => sandbox_keys!(sandboxes, secret_key, SecretKey),
        SealedKind::WarmSessionKeys => sandbox_keys!(warm_sandboxes, session_key, WarmSessionKey),
        SealedKind::WarmSecretKeys => sandbox_keys!(warm_sandboxes, secret_key, WarmSecretKey),
        SealedKind::StartSecrets => {
            read_page!(
                conn,
                limit,
                start_tasks,
                id > id,
                start_tasks::id,
                sealed_secrets,
                |id: UuidCol| { SealedLocation::StartSecrets(id.into()) }
            )
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
        ($row:expr, $table:ident::$sealed:ident) => {
            diesel::update($row.filter($table::$sealed.eq(before)))
                .set($table::$sealed.eq(after))
                .execute(conn)?
        };
    }
    Ok(match &record.location {
        SealedLocation::Settings(owner) => {
            replace!(settings::table.find(owner.as_str()), settings::document)
        }
        SealedLocation::Secret(owner, id) => replace!(
            secrets::table
                .filter(secrets::owner.eq(owner.as_str()))
                .filter(secrets::value_id.eq(UuidCol::from(*id))),
            secrets::value
        ),
        SealedLocation::SessionKey(id) => {
            replace!(sandboxes::table.find(id.as_str()), sandboxes::session_key)
        }
        SealedLocation::SecretKey(id) => {
            replace!(sandboxes::table.find(id.as_str()), sandboxes::secret_key)
        }
        SealedLocation::WarmSessionKey(id) => {
            replace!(
                warm_sandboxes::table.find(id.as_str()),
                warm_sandboxes::session_key
            )
        }
        SealedLocation::WarmSecretKey(id) => {
            replace!(
                warm_sandboxes::table.find(id.as_str()),
                warm_sandboxes::secret_key
            )
        }
        SealedLocation::StartSecrets(id) => replace!(
            start_tasks::table.find(UuidCol::from(*id)),
            start_tasks::sealed_secrets
        ),
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
        let (after, limit) = (after.cloned(), i64::try_from(limit).unwrap_or(i64::MAX));
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
