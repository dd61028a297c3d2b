//! `AuditLog`.

use async_trait::async_trait;
use diesel::prelude::*;
use domain::audit::{AuditEntry, AuditFilter, AuditLog};
use domain::clock::Timestamp;
use domain::error::StoreError;
use domain::page::{Page, PageRequest};
use uuid::Uuid;

use crate::database::connection::{AnyBackend, AnyConnection, on_backend};
use crate::database::pool::Workload;
use crate::error::TransactionError;
use crate::queries::page_token::{self, Cursor};
use crate::schema::audit_log;
use crate::schema::codec::EntityDecoder;
use crate::schema::column_types::{TimestampCol, UuidCol};
use crate::store::SqlStore;

const LISTING: &str = "audit";

/// Maximum rows of one statement. A row has twelve parameters, and `SQLite` allows 32766.
const MAX_ROWS_PER_STATEMENT: usize = 500;

#[derive(Queryable, Selectable, Insertable)]
#[diesel(table_name = audit_log, treat_none_as_default_value = false)]
struct AuditRow {
    id: UuidCol,
    at: TimestampCol,
    actor: String,
    key_id: Option<UuidCol>,
    action: String,
    object: Option<String>,
    detail: Option<String>,
    source: Option<String>,
    outcome: String,
    status: Option<i32>,
    request_id: Option<String>,
    count: i64,
}

impl From<&AuditEntry> for AuditRow {
    fn from(entry: &AuditEntry) -> Self {
        Self {
            id: UuidCol(entry.id),
            at: TimestampCol(entry.at),
            actor: entry.actor.to_string(),
            key_id: entry.key.map(UuidCol::from),
            action: entry.action.clone(),
            object: entry.object.clone(),
            detail: entry.detail.clone(),
            source: entry.source.clone(),
            outcome: entry.outcome.as_str().to_owned(),
            status: entry.status.map(i32::from),
            request_id: entry.request_id.clone(),
            count: entry.count.into(),
        }
    }
}

impl TryFrom<AuditRow> for AuditEntry {
    type Error = StoreError;

    fn try_from(row: AuditRow) -> Result<Self, StoreError> {
        let decode = EntityDecoder("audit entry");
        Ok(Self {
            id: row.id.0,
            at: row.at.0,
            actor: decode.parse("actor", &row.actor)?,
            key: row.key_id.map(Into::into),
            action: row.action,
            object: row.object,
            detail: row.detail,
            source: row.source,
            outcome: decode.parse("outcome", &row.outcome)?,
            status: row.status.and_then(|status| u16::try_from(status).ok()),
            request_id: row.request_id,
            count: u32::try_from(row.count).unwrap_or(u32::MAX),
        })
    }
}

/// Stores entries in the caller's transaction. Keeps existing entries.
pub(crate) fn insert(
    conn: &mut AnyConnection,
    entries: &[AuditEntry],
) -> Result<(), TransactionError> {
    for batch in entries.chunks(MAX_ROWS_PER_STATEMENT) {
        let ids: Vec<UuidCol> = batch.iter().map(|entry| UuidCol(entry.id)).collect();
        let stored: Vec<UuidCol> = audit_log::table
            .filter(audit_log::id.eq_any(ids))
            .select(audit_log::id)
            .load(conn)?;
        let new = batch
            .iter()
            .filter(|entry| !stored.contains(&UuidCol(entry.id)));
        let rows: Vec<AuditRow> = new.map(AuditRow::from).collect();
        on_backend!(&mut *conn, |c| diesel::insert_into(audit_log::table)
            .values(&rows)
            .execute(c)?);
    }
    Ok(())
}

fn matching(filter: AuditFilter) -> audit_log::BoxedQuery<'static, AnyBackend> {
    let mut query = audit_log::table.into_boxed::<AnyBackend>();
    if let Some(actor) = filter.actor {
        query = query.filter(audit_log::actor.eq(actor.to_string()));
    }
    if let Some(action) = filter.action {
        query = query.filter(audit_log::action.eq(action));
    }
    if let Some(object) = filter.object {
        query = query.filter(audit_log::object.eq(object));
    }
    if let Some(outcome) = filter.outcome {
        query = query.filter(audit_log::outcome.eq(outcome.as_str()));
    }
    if let Some(since) = filter.since {
        query = query.filter(audit_log::at.ge(TimestampCol(since)));
    }
    if let Some(until) = filter.until {
        query = query.filter(audit_log::at.lt(TimestampCol(until)));
    }
    query
}

#[async_trait]
impl AuditLog for SqlStore {
    async fn append(&self, entries: &[AuditEntry]) -> Result<(), StoreError> {
        let entries = entries.to_vec();
        self.db
            .write(Workload::Background, move |conn| insert(conn, &entries))
            .await
    }

    async fn search(
        &self,
        filter: &AuditFilter,
        page: &PageRequest,
    ) -> Result<Page<AuditEntry>, StoreError> {
        let (filter, page) = (filter.clone(), page.clone());
        let after: Option<Cursor<Uuid>> = page_token::decode(LISTING, &page)?;
        self.db
            .for_workload(Workload::Requests)
            .scan(move |conn| {
                let mut query = matching(filter.clone());
                if let Some(Cursor { key, tie }) = after {
                    query = query.filter(
                        audit_log::at
                            .le(key)
                            .and(audit_log::at.lt(key).or(audit_log::id.lt(UuidCol(tie)))),
                    );
                }
                let rows = query
                    .order((audit_log::at.desc(), audit_log::id.desc()))
                    .limit(page_token::rows_to_load(&page))
                    .select(AuditRow::as_select())
                    .load(conn)?;
                let page = page_token::build_page(LISTING, &page, rows, |row: &AuditRow| Cursor {
                    key: row.at,
                    tie: row.id.0,
                });
                Ok(page.try_map(AuditEntry::try_from)?)
            })
            .await
    }

    async fn prune(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.db
            .write(Workload::Background, move |conn| {
                let old: Vec<UuidCol> = audit_log::table
                    .filter(audit_log::at.lt(TimestampCol(before)))
                    .order((audit_log::at.asc(), audit_log::id.asc()))
                    .select(audit_log::id)
                    .limit(limit)
                    .load(conn)?;
                let entries = audit_log::table.filter(audit_log::id.eq_any(old));
                Ok(diesel::delete(entries).execute(conn)? as u64)
            })
            .await
    }
}
