//! `EventStore`.

#[cfg(feature = "postgres")]
mod append_statement;

use std::collections::HashSet;

use async_trait::async_trait;
use diesel::prelude::*;
use diesel::sql_types::Text;
use domain::clock::Timestamp;
use domain::conversation::ConversationReport;
use domain::error::{Entity, StoreError};
use domain::event::{
    AppendOutcome, Event, EventFilter, EventOrder, EventStore, MAX_EVENT_BATCH_BYTES,
    SequencedEvent,
};
use domain::id::{ConversationId, EventId, OwnerId, SandboxId};
use domain::page::{Page, PageRequest};
use domain::user::scope::Scope;
use serde_json::Value;

#[cfg(feature = "postgres")]
use self::append_statement::AppendStatement;
use crate::conversations::rows::{self, AddedEvents};
use crate::database::connection::{AnyBackend, AnyConnection, on_backend};
use crate::database::pool::JobMode;
use crate::error::{QueryResultExt, TransactionError};
use crate::queries::filter_by;
use crate::queries::page_token::{self, Cursor, keyset};
use crate::schema::codec::{IDS_PER_QUERY, find_in_order, replace_nul, row_limit, to_json};
use crate::schema::column_types::{TextCol, TimestampCol, UuidCol};
use crate::schema::rows::same_fields;
use crate::schema::{conversations, events};
use crate::store::SqlStore;

diesel::define_sql_function! {
    /// Bytes of a text, computed without reading it (`SQLite` since 3.43). Both databases return 32 bits.
    fn octet_length(text: Text) -> Integer;
}

const ENTITY: Entity = Entity::Event;

/// Rows of one insert: six parameters each, and `SQLite` allows 32766.
const ROWS_PER_INSERT: usize = 2_000;

/// An event as read.
#[derive(Queryable, Selectable)]
#[diesel(table_name = events)]
struct EventRow {
    #[diesel(column_name = event_id)]
    id: TextCol<EventId>,
    kind: String,
    #[diesel(column_name = happened_at)]
    timestamp: TimestampCol,
    // serde's message may quote a document, which holds no plain secrets.
    body: TextCol<Value>,
}

same_fields!(read EventRow, Event, [id, kind, timestamp, body]);

/// Stores the new events of a batch in its order. The locked row of the conversation excludes other writers.
fn store_new(
    conn: &mut AnyConnection,
    conversation: ConversationId,
    batch: &[Event],
) -> Result<AddedEvents, TransactionError> {
    if batch.is_empty() {
        return Ok(AddedEvents::default());
    }
    let conversation = UuidCol::from(conversation);
    let mut seen = HashSet::new();
    for part in batch.chunks(IDS_PER_QUERY) {
        let stored: Vec<String> = events::table
            .filter(events::conversation_id.eq(conversation))
            .filter(events::event_id.eq_any(part.iter().map(|event| event.id.as_str())))
            .select(events::event_id)
            .load(conn)?;
        seen.extend(stored);
    }
    let last: Option<i64> = events::table
        .filter(events::conversation_id.eq(conversation))
        .order(events::seq.desc())
        .select(events::seq)
        .first(conn)
        .optional()?;
    let new = batch
        .iter()
        .filter(|event| seen.insert(event.id.as_str().to_owned()));
    let (mut rows, mut bytes) = (Vec::new(), 0);
    for (seq, event) in (last.unwrap_or_default() + 1..).zip(new) {
        let body = to_json(&event.body)?;
        bytes += body.len();
        rows.push((
            events::conversation_id.eq(conversation),
            events::seq.eq(seq),
            events::event_id.eq(event.id.as_str()),
            events::kind.eq(replace_nul(event.kind.as_str())),
            events::happened_at.eq(TimestampCol(event.timestamp)),
            events::body.eq(body),
        ));
    }
    for part in rows.chunks(ROWS_PER_INSERT) {
        on_backend!(&mut *conn, |c| diesel::insert_into(events::table)
            .values(part)
            .execute(c)?);
    }
    let count = rows.len();
    Ok(AddedEvents { count, bytes })
}

fn matching<'a>(
    conversation: ConversationId,
    filter: &EventFilter,
) -> events::BoxedQuery<'a, AnyBackend> {
    let mut query = events::table
        .into_boxed::<AnyBackend>()
        .filter(events::conversation_id.eq(UuidCol::from(conversation)));
    filter_by! {
        query,
        &filter.kind => |kind| events::kind.eq(replace_nul(kind));
        filter.from => |from| events::happened_at.ge(TimestampCol(from));
        filter.before => |before| events::happened_at.lt(TimestampCol(before));
    }
    query
}

/// The matching events, in order, from the cursor on.
fn ordered<'a>(
    conversation: ConversationId,
    filter: &EventFilter,
    order: EventOrder,
    cursor: Option<Cursor<i64>>,
) -> events::BoxedQuery<'a, AnyBackend> {
    let query = matching(conversation, filter);
    let (at, seq) = (events::happened_at, events::seq);
    match order {
        EventOrder::Timestamp => keyset!(asc, query, at, seq, cursor),
        EventOrder::TimestampDesc => keyset!(desc, query, at, seq, cursor),
    }
}

/// The sequence number of the last event, 0 without events. `None` if the conversation is not visible in the scope. For an idle
/// subscriber, only this statement runs.
fn last_seq(
    conn: &mut AnyConnection,
    scope: &Scope,
    conversation: ConversationId,
) -> Result<Option<i64>, TransactionError> {
    let last = events::table
        .filter(events::conversation_id.eq(conversations::id))
        .order(events::seq.desc())
        .limit(1)
        .select(events::seq);
    let row: Option<(TextCol<OwnerId>, Option<i64>)> = conversations::table
        .find(UuidCol::from(conversation))
        .select((conversations::owner, last.single_value()))
        .first(conn)
        .optional()?;
    let row = row.filter(|(owner, _)| scope.sees(&owner.0));
    Ok(row.map(|(_, last)| last.unwrap_or_default()))
}

/// Events after a sequence number, in order.
fn list_after(
    conn: &mut AnyConnection,
    conversation: UuidCol,
    after: i64,
    limit: i64,
) -> Result<Vec<SequencedEvent>, TransactionError> {
    let later = || {
        events::table
            .filter(events::conversation_id.eq(conversation))
            .filter(events::seq.gt(after))
            .order(events::seq)
    };
    // Load only the sizes first, to keep documents beyond the page limit out of memory.
    let sizes: Vec<i32> = later()
        .limit(limit)
        .select(octet_length(events::body))
        .load(conn)?;
    let fits = page_token::count_within(MAX_EVENT_BATCH_BYTES, sizes);
    let rows: Vec<(i64, EventRow)> = later()
        .limit(row_limit(fits).min(limit))
        .select((events::seq, EventRow::as_select()))
        .load(conn)
        .map_decode_error(ENTITY)?;
    let events = rows.into_iter().map(|(seq, row)| SequencedEvent {
        seq: u64::try_from(seq).unwrap_or_default(),
        event: row.into(),
    });
    Ok(events.collect())
}

#[async_trait]
impl EventStore for SqlStore {
    async fn append(
        &self,
        origin: &SandboxId,
        conversation: ConversationId,
        events: &[Event],
        report: &ConversationReport,
        at: Timestamp,
    ) -> Result<AppendOutcome, StoreError> {
        let jobs = self.db.for_sandbox(origin);
        let (origin, batch, report) = (origin.clone(), events.to_vec(), report.clone());
        let outcome = jobs
            .run(JobMode::WriteLocked, move |conn| {
                let row = match rows::lock_reported(conn, &origin, conversation)? {
                    Ok(row) => row,
                    Err(outcome) => return Ok(outcome),
                };
                let new = match conn {
                    AnyConnection::Sqlite(_) => {
                        let added = store_new(conn, conversation, &batch)?;
                        rows::apply_report(conn, row, &report, added, at)?;
                        added.count
                    }
                    #[cfg(feature = "postgres")]
                    AnyConnection::Postgres(conn) => {
                        let (columns, has_changed) = rows::reported_columns(row, &report, at);
                        AppendStatement::new(conversation.into(), &batch, columns, has_changed)?
                            .store(conn)?
                    }
                };
                Ok(AppendOutcome::Stored { new })
            })
            .await?;
        if matches!(outcome, AppendOutcome::Stored { new } if new > 0) {
            self.changes.hint(conversation);
        }
        Ok(outcome)
    }

    async fn find_many(
        &self,
        scope: &Scope,
        conversation: ConversationId,
        ids: &[EventId],
    ) -> Result<Vec<Option<Event>>, StoreError> {
        let jobs = self.db.for_scope(scope);
        let (scope, ids) = (scope.clone(), ids.to_vec());
        jobs.run(JobMode::ReadDocuments, move |conn| {
            if !rows::is_visible(conn, &scope, conversation)? {
                return Ok(vec![None; ids.len()]);
            }
            find_in_order(
                &ids,
                |event: &Event| event.id.clone(),
                |batch| {
                    let texts: Vec<&str> = batch.iter().map(EventId::as_str).collect();
                    let rows = events::table
                        .filter(events::conversation_id.eq(UuidCol::from(conversation)))
                        .filter(events::event_id.eq_any(texts))
                        .select(EventRow::as_select())
                        .load(conn)
                        .map_decode_error(ENTITY)?;
                    Ok(rows.into_iter().map(Event::from).collect())
                },
            )
        })
        .await
    }

    async fn search(
        &self,
        scope: &Scope,
        conversation: ConversationId,
        filter: &EventFilter,
        order: EventOrder,
        page: &PageRequest,
    ) -> Result<Page<Event>, StoreError> {
        let jobs = self.db.for_scope(scope);
        // A position in the log of one conversation is invalid in another.
        let listing = match order {
            EventOrder::Timestamp => format!("events+{conversation}"),
            EventOrder::TimestampDesc => format!("events-{conversation}"),
        };
        let cursor: Option<Cursor<i64>> = page_token::decode(&listing, page)?;
        let (scope, filter, page) = (scope.clone(), filter.clone(), page.clone());
        jobs.run(JobMode::ReadDocuments, move |conn| {
            if !rows::is_visible(conn, &scope, conversation)? {
                return Ok(Page {
                    items: Vec::new(),
                    next: None,
                });
            }
            // Load only positions and sizes first, to keep documents beyond the page limit out of memory.
            let positions: Vec<(i64, TimestampCol, i32)> =
                ordered(conversation, &filter, order, cursor)
                    .limit(page_token::rows_to_load(&page))
                    .select((events::seq, events::happened_at, octet_length(events::body)))
                    .load(conn)?;
            let page = page_token::limit_by_bytes(&page, positions.iter().map(|it| it.2));
            let page = page_token::build_page(&listing, &page, positions, |it| (it.1, it.0));
            // The transaction has one snapshot, so this selects the same rows. A list of numbers would need a new
            // prepared statement each time.
            let rows: Vec<EventRow> = ordered(conversation, &filter, order, cursor)
                .limit(row_limit(page.items.len()))
                .select(EventRow::as_select())
                .load(conn)
                .map_decode_error(ENTITY)?;
            Ok(Page {
                items: rows.into_iter().map(Event::from).collect(),
                next: page.next,
            })
        })
        .await
    }

    async fn list_after(
        &self,
        scope: &Scope,
        conversation: ConversationId,
        after: u64,
        limit: usize,
    ) -> Result<Option<Vec<SequencedEvent>>, StoreError> {
        let jobs = self.db.for_scope(scope);
        let scope = scope.clone();
        let after = i64::try_from(after).unwrap_or(i64::MAX);
        let limit = row_limit(limit);
        // The statements may see different snapshots: events keep their position, only shrink, and are deleted only
        // together with their conversation.
        jobs.run(JobMode::QueryDocuments, move |conn| {
            match last_seq(conn, &scope, conversation)? {
                None => Ok(None),
                Some(last) if last <= after => Ok(Some(Vec::new())),
                Some(_) => list_after(conn, conversation.into(), after, limit).map(Some),
            }
        })
        .await
    }

    async fn last_sequence(
        &self,
        scope: &Scope,
        conversation: ConversationId,
    ) -> Result<Option<u64>, StoreError> {
        let jobs = self.db.for_scope(scope);
        let scope = scope.clone();
        jobs.run(JobMode::Query, move |conn| {
            let last = last_seq(conn, &scope, conversation)?;
            Ok(last.map(|seq| u64::try_from(seq).unwrap_or_default()))
        })
        .await
    }

    async fn count(
        &self,
        scope: &Scope,
        conversation: ConversationId,
        filter: &EventFilter,
    ) -> Result<u64, StoreError> {
        let jobs = self.db.for_scope(scope);
        let (scope, filter) = (scope.clone(), filter.clone());
        if filter == EventFilter::default() {
            let count = jobs.run(JobMode::Query, move |conn| {
                // Counting the rows of a long log would take seconds.
                let row: Option<(TextCol<OwnerId>, i64)> = conversations::table
                    .find(UuidCol::from(conversation))
                    .select((conversations::owner, conversations::event_count))
                    .first(conn)
                    .optional()?;
                let row = row.filter(|(owner, _)| scope.sees(&owner.0));
                Ok(row.map_or(0, |(_, count)| u64::try_from(count).unwrap_or_default()))
            });
            return count.await;
        }
        jobs.run(JobMode::Scan, move |conn| {
            if !rows::is_visible(conn, &scope, conversation)? {
                return Ok(0);
            }
            let count: i64 = matching(conversation, &filter).count().get_result(conn)?;
            Ok(u64::try_from(count).unwrap_or_default())
        })
        .await
    }
}
