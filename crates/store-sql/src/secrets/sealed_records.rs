//! `SealedRecordRepository`.

use async_trait::async_trait;
use diesel::prelude::*;
use domain::encryption::cipher::Sealed;
use domain::encryption::sealed::{
    ResealedRecord, SealedKind, SealedLocation, SealedRecord, SealedRecordRepository,
};
use domain::error::StoreError;

use crate::database::connection::{AnyBackend, AnyConnection};
use crate::database::pool::Workload;
use crate::error::TransactionError;
use crate::schema::codec::EntityDecoder;
use crate::schema::column_types::UuidCol;
use crate::schema::{sandboxes, secrets, settings, start_tasks, warm_sandboxes};
use crate::store::SqlStore;

fn record(location: SealedLocation, text: String) -> SealedRecord {
    SealedRecord {
        location,
        sealed: Sealed::from_text(text),
    }
}

fn settings_page(
    conn: &mut AnyConnection,
    after: Option<&SealedLocation>,
    limit: i64,
) -> Result<Vec<SealedRecord>, TransactionError> {
    let mut query = settings::table.into_boxed::<AnyBackend>();
    if let Some(SealedLocation::Settings(owner)) = after {
        query = query.filter(settings::owner.gt(owner.to_string()));
    }
    let rows: Vec<(String, String)> = query
        .order(settings::owner.asc())
        .limit(limit)
        .select((settings::owner, settings::document))
        .load(conn)?;
    rows.into_iter()
        .map(|(owner, text)| {
            let owner = EntityDecoder("settings").parse("owner", &owner)?;
            Ok(record(SealedLocation::Settings(owner), text))
        })
        .collect()
}

fn secrets_page(
    conn: &mut AnyConnection,
    after: Option<&SealedLocation>,
    limit: i64,
) -> Result<Vec<SealedRecord>, TransactionError> {
    let mut query = secrets::table.into_boxed::<AnyBackend>();
    if let Some(SealedLocation::Secret(_, id)) = after {
        query = query.filter(secrets::value_id.gt(UuidCol::from(*id)));
    }
    let rows: Vec<(String, UuidCol, String)> = query
        .order(secrets::value_id.asc())
        .limit(limit)
        .select((secrets::owner, secrets::value_id, secrets::value))
        .load(conn)?;
    rows.into_iter()
        .map(|(owner, id, text)| {
            let owner = EntityDecoder("secret").parse("owner", &owner)?;
            Ok(record(SealedLocation::Secret(owner, id.into()), text))
        })
        .collect()
}

/// Session keys or secret keys of sandboxes.
fn sandboxes_page(
    conn: &mut AnyConnection,
    kind: SealedKind,
    after: Option<&SealedLocation>,
    limit: i64,
) -> Result<Vec<SealedRecord>, TransactionError> {
    let mut query = sandboxes::table.into_boxed::<AnyBackend>();
    if let Some(SealedLocation::SessionKey(id) | SealedLocation::SecretKey(id)) = after {
        query = query.filter(sandboxes::id.gt(id.to_string()));
    }
    let rows: Vec<(String, String, String)> = query
        .order(sandboxes::id.asc())
        .limit(limit)
        .select((sandboxes::id, sandboxes::session_key, sandboxes::secret_key))
        .load(conn)?;
    rows.into_iter()
        .map(|(id, session, secret)| {
            let id = EntityDecoder("sandbox").parse("id", &id)?;
            Ok(if kind == SealedKind::SecretKeys {
                record(SealedLocation::SecretKey(id), secret)
            } else {
                record(SealedLocation::SessionKey(id), session)
            })
        })
        .collect()
}

/// Session keys or secret keys of warm sandboxes.
fn warm_page(
    conn: &mut AnyConnection,
    kind: SealedKind,
    after: Option<&SealedLocation>,
    limit: i64,
) -> Result<Vec<SealedRecord>, TransactionError> {
    use warm_sandboxes::{id, secret_key, session_key, table};
    let mut query = table.into_boxed::<AnyBackend>();
    if let Some(SealedLocation::WarmSessionKey(last) | SealedLocation::WarmSecretKey(last)) = after
    {
        query = query.filter(id.gt(last.to_string()));
    }
    let rows: Vec<(String, String, String)> = query
        .order(id.asc())
        .limit(limit)
        .select((id, session_key, secret_key))
        .load(conn)?;
    rows.into_iter()
        .map(|(text, session, secret)| {
            let sandbox = EntityDecoder("warm sandbox").parse("id", &text)?;
            Ok(if kind == SealedKind::WarmSecretKeys {
                record(SealedLocation::WarmSecretKey(sandbox), secret)
            } else {
                record(SealedLocation::WarmSessionKey(sandbox), session)
            })
        })
        .collect()
}

/// Replaces the sealed key of a warm sandbox.
fn replace_warm(
    conn: &mut AnyConnection,
    location: &SealedLocation,
    (before, after): (&str, &str),
) -> QueryResult<usize> {
    use warm_sandboxes::{secret_key, session_key, table};
    match location {
        SealedLocation::WarmSessionKey(id) => {
            diesel::update(table.find(id.as_str()).filter(session_key.eq(before)))
                .set(session_key.eq(after))
                .execute(conn)
        }
        SealedLocation::WarmSecretKey(id) => {
            diesel::update(table.find(id.as_str()).filter(secret_key.eq(before)))
                .set(secret_key.eq(after))
                .execute(conn)
        }
        _ => Ok(0),
    }
}

fn starts_page(
    conn: &mut AnyConnection,
    after: Option<&SealedLocation>,
    limit: i64,
) -> Result<Vec<SealedRecord>, TransactionError> {
    let mut query = start_tasks::table
        .into_boxed::<AnyBackend>()
        .filter(start_tasks::sealed_secrets.is_not_null());
    if let Some(SealedLocation::StartSecrets(id)) = after {
        query = query.filter(start_tasks::id.gt(UuidCol::from(*id)));
    }
    let rows: Vec<(UuidCol, Option<String>)> = query
        .order(start_tasks::id.asc())
        .limit(limit)
        .select((start_tasks::id, start_tasks::sealed_secrets))
        .load(conn)?;
    let with_secrets = rows.into_iter().filter_map(|(id, text)| Some((id, text?)));
    Ok(with_secrets
        .map(|(id, text)| record(SealedLocation::StartSecrets(id.into()), text))
        .collect())
}

/// Replaces a record if it still has the old value, which the statement itself checks.
fn replace_one(
    conn: &mut AnyConnection,
    record: &ResealedRecord,
) -> Result<usize, TransactionError> {
    let (before, after) = (record.before.as_text(), record.after.as_text());
    let replaced = match &record.location {
        SealedLocation::Settings(owner) => diesel::update(
            settings::table
                .find(owner.as_str())
                .filter(settings::document.eq(before)),
        )
        .set(settings::document.eq(after))
        .execute(conn),
        SealedLocation::Secret(owner, id) => diesel::update(
            secrets::table
                .filter(secrets::owner.eq(owner.as_str()))
                .filter(secrets::value_id.eq(UuidCol::from(*id)))
                .filter(secrets::value.eq(before)),
        )
        .set(secrets::value.eq(after))
        .execute(conn),
        SealedLocation::SessionKey(id) => diesel::update(
            sandboxes::table
                .find(id.as_str())
                .filter(sandboxes::session_key.eq(before)),
        )
        .set(sandboxes::session_key.eq(after))
        .execute(conn),
        SealedLocation::SecretKey(id) => diesel::update(
            sandboxes::table
                .find(id.as_str())
                .filter(sandboxes::secret_key.eq(before)),
        )
        .set(sandboxes::secret_key.eq(after))
        .execute(conn),
        SealedLocation::WarmSessionKey(_) | SealedLocation::WarmSecretKey(_) => {
            replace_warm(conn, &record.location, (before, after))
        }
        SealedLocation::StartSecrets(id) => diesel::update(
            start_tasks::table
                .find(UuidCol::from(*id))
                .filter(start_tasks::sealed_secrets.eq(before)),
        )
        .set(start_tasks::sealed_secrets.eq(after))
        .execute(conn),
    };
    Ok(replaced?)
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
        self.db
            .read(Workload::Background, move |conn| {
                let after = after.as_ref();
                match kind {
                    SealedKind::Settings => settings_page(conn, after, limit),
                    SealedKind::Secrets => secrets_page(conn, after, limit),
                    SealedKind::SessionKeys | SealedKind::SecretKeys => {
                        sandboxes_page(conn, kind, after, limit)
                    }
                    SealedKind::WarmSessionKeys | SealedKind::WarmSecretKeys => {
                        warm_page(conn, kind, after, limit)
                    }
                    SealedKind::StartSecrets => starts_page(conn, after, limit),
                }
            })
            .await
    }

    async fn replace(&self, batch: &[ResealedRecord]) -> Result<u64, StoreError> {
        let batch = batch.to_vec();
        self.db
            .write(Workload::Background, move |conn| {
                let mut count = 0;
                for record in &batch {
                    count += replace_one(conn, record)?;
                }
                Ok(count as u64)
            })
            .await
    }
}
