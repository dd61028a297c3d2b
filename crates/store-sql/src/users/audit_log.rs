//! Appends, searches and prunes audit entries (port [`AuditLog`]).

use async_trait::async_trait;
use diesel::prelude::*;
use domain::audit::{AuditActor, AuditEntry, AuditFilter, AuditLog, AuditOutcome};
use domain::clock::Timestamp;
use domain::error::{Entity, StoreError};
use domain::page::{Page, PageRequest};
use uuid::Uuid;

use crate::database::connection::{AnyBackend, AnyConnection, on_backend};
use crate::database::pool::{JobMode, Workload};
use crate::error::{QueryResultExt, TransactionError};
use crate::queries::filter_by;
use crate::queries::page_token::{self, Cursor, keyset};
use crate::schema::audit_log;
use crate::schema::column_types::{TextCol, TimestampCol, UuidCol};
use crate::schema::rows::same_fields;
use crate::store::SqlStore;

const PAGE_TOKEN_LIST: &str = "audit";

/// Maximum rows of one statement. A row has thirteen parameters, and `SQLite` allows 32766.
const MAX_ROWS_PER_STATEMENT: usize = 500;

#[derive(Queryable, Selectable, Insertable)]
#[diesel(table_name = audit_log, treat_none_as_default_value = false)]
struct AuditRow {
    id: UuidCol,
    at: TimestampCol,
    actor: TextCol<AuditActor>,
    #[diesel(column_name = key_id)]
    key: Option<UuidCol>,
    action: String,
    object: Option<String>,
    detail: Option<String>,
    source: Option<String>,
    outcome: TextCol<AuditOutcome>,
    status: Option<i32>,
    request_id: Option<String>,
    count: i64,
    #[diesel(column_name = session_id)]
    session: Option<UuidCol>,
}

same_fields! {
    AuditRow, AuditEntry, [
        id, at, actor, key, action, object, detail, source, outcome, status, request_id, count,
        session,
    ]
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

fn filtered_query(filter: AuditFilter) -> audit_log::BoxedQuery<'static, AnyBackend> {
    let mut query = audit_log::table.into_boxed::<AnyBackend>();
    filter_by! {
        query,
        filter.actor => |actor| audit_log::actor.eq(actor.to_string());
        filter.action => |action| audit_log::action.eq(action);
        filter.object => |object| audit_log::object.eq(object);
        filter.outcome => |outcome| audit_log::outcome.eq(outcome.as_str());
        filter.since => |since| audit_log::at.ge(TimestampCol(since));
        filter.until => |until| audit_log::at.lt(TimestampCol(until));
    }
    query
}

#[async_trait]
impl AuditLog for SqlStore {
    async fn append(&self, entries: &[AuditEntry]) -> Result<(), StoreError> {
        let entries = entries.to_vec();
        self.run(Workload::Background, JobMode::Write, move |conn| {
            insert(conn, &entries)
        })
        .await
    }

    async fn search(
        &self,
        filter: &AuditFilter,
        page: &PageRequest,
    ) -> Result<Page<AuditEntry>, StoreError> {
        let (filter, page) = (filter.clone(), page.clone());
        let after: Option<Cursor<Uuid>> = page_token::decode(PAGE_TOKEN_LIST, &page)?;
        self.run(Workload::Requests, JobMode::Scan, move |conn| {
            let after = after.map(|(at, id)| (at, UuidCol(id)));
            let rows = keyset!(
                desc,
                filtered_query(filter.clone()),
                audit_log::at,
                audit_log::id,
                after
            )
            .limit(page_token::rows_to_load(&page))
            .select(AuditRow::as_select())
            .load(conn)
            .map_decode_error(Entity::AuditEntry)?;
            let page = page_token::build_page(PAGE_TOKEN_LIST, &page, rows, |row: &AuditRow| {
                (row.at, row.id.0)
            });
            Ok(page.map(AuditEntry::from))
        })
        .await
    }

    async fn prune(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        let rows = ("audit_log", "id", "at");
        self.prune_rows(rows, before, limit).await
    }
}
