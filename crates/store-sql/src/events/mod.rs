//! `EventStore`.

#[cfg(feature = "postgres")]
mod append_statement;

use std::collections::{HashMap, HashSet};

use async_trait::async_trait;
use diesel::prelude::*;
use diesel::sql_types::Text;
use domain::clock::Timestamp;
use domain::conversation::ConversationReport;
use domain::error::StoreError;
use domain::event::{
    AppendOutcome, Event, EventFilter, EventOrder, EventStore, MAX_EVENT_BATCH_BYTES,
    SequencedEvent,
};
use domain::id::{ConversationId, EventId, SandboxId};
use domain::page::{Page, PageRequest};
use domain::scope::Scope;

#[cfg(feature = "postgres")]
use self::append_statement::AppendStatement;
use crate::conversations::rows::{self, AddedEvents};
use crate::database::connection::{Any, AnyConnection, on_backend};
use crate::error::TransactionError;
use crate::queries::page_token::{self, Cursor};
use crate::schema::codec::{EntityDecoder, IDS_PER_QUERY, in_order, plain, to_json};
use crate::schema::column_types::{RawJsonCol, TimestampCol, UuidCol};
use crate::schema::{conversations, events};
use crate::store::SqlStore;

diesel::define_sql_function! {
    /// Bytes of a text, computed without reading it (`SQLite` since 3.43). Both databases return 32 bits.
    fn octet_length(text: Text) -> Integer;
}

/// Rows of one insert: six parameters each, and `SQLite` allows 32766.
const ROWS_PER_INSERT: usize = 2_000;

#[derive(Queryable, Selectable, Insertable)]
#[diesel(table_name = events, treat_none_as_default_value = false)]
struct EventRow {
    conversation_id: UuidCol,
    seq: i64,
    event_id: String,
    kind: String,
    happened_at: TimestampCol,
    body: String,
}

impl TryFrom<EventRow> for Event {
    type Error = StoreError;

    fn try_from(row: EventRow) -> Result<Self, StoreError> {
        let decode = EntityDecoder("event");
        Ok(Self {
            id: decode.parse("event_id", &row.event_id)?,
            kind: row.kind,
            timestamp: row.happened_at.0,
            body: decode.json("body", &RawJsonCol(row.body))?,
        })
    }
}

/// The ids among these that the conversation already has.
fn known(
    conn: &mut AnyConnection,
    conversation: UuidCol,
    batch: &[Event],
) -> Result<HashSet<String>, TransactionError> {
    let mut known = HashSet::new();
    for part in batch.chunks(IDS_PER_QUERY) {
        let ids = part.iter().map(|event| event.id.as_str());
        let found: Vec<String> = events::table
            .filter(events::conversation_id.eq(conversation))
            .filter(events::event_id.eq_any(ids))
            .select(events::event_id)
            .load(conn)?;
        known.extend(found);
    }
    Ok(known)
}

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
    let mut seen = known(conn, conversation, batch)?;
    let last: Option<i64> = events::table
        .filter(events::conversation_id.eq(conversation))
        .order(events::seq.desc())
        .select(events::seq)
        .first(conn)
        .optional()?;
    let mut new = Vec::new();
    for (seq, event) in (last.unwrap_or_default() + 1..).zip(
        batch
            .iter()
            .filter(|event| seen.insert(event.id.as_str().to_owned())),
    ) {
        new.push(EventRow {
            conversation_id: conversation,
            seq,
            event_id: event.id.to_string(),
            kind: plain(event.kind.as_str()),
            happened_at: TimestampCol(event.timestamp),
            body: to_json(&event.body)?.0,
        });
    }
    for part in new.chunks(ROWS_PER_INSERT) {
        on_backend!(&mut *conn, |c| diesel::insert_into(events::table)
            .values(part)
            .execute(c)?);
    }
    Ok(AddedEvents {
        count: new.len(),
        bytes: new.iter().map(|row| row.body.len()).sum(),
    })
}

fn matching<'a>(conversation: ConversationId, filter: &EventFilter) -> events::BoxedQuery<'a, Any> {
    let mut query = events::table
        .into_boxed::<Any>()
        .filter(events::conversation_id.eq(UuidCol::from(conversation)));
    if let Some(kind) = &filter.kind {
        query = query.filter(events::kind.eq(plain(kind.as_str())));
    }
    if let Some(from) = filter.from {
        query = query.filter(events::happened_at.ge(TimestampCol(from)));
    }
    if let Some(before) = filter.before {
        query = query.filter(events::happened_at.lt(TimestampCol(before)));
    }
    query
}

fn after(
    query: events::BoxedQuery<'_, Any>,
    order: EventOrder,
    Cursor { key, tie }: Cursor<i64>,
) -> events::BoxedQuery<'_, Any> {
    match order {
        EventOrder::Timestamp => query.filter(
            events::happened_at
                .ge(key)
                .and(events::happened_at.gt(key).or(events::seq.gt(tie))),
        ),
        EventOrder::TimestampDesc => query.filter(
            events::happened_at
                .le(key)
                .and(events::happened_at.lt(key).or(events::seq.lt(tie))),
        ),
    }
}

/// Sequence number, time, and bytes of the document.
type EventPosition = (i64, TimestampCol, i32);

/// The matching events, in order, from the cursor on.
fn ordered<'a>(
    conversation: ConversationId,
    filter: &EventFilter,
    order: EventOrder,
    cursor: Option<Cursor<i64>>,
) -> events::BoxedQuery<'a, Any> {
    let mut query = matching(conversation, filter);
    if let Some(cursor) = cursor {
        query = after(query, order, cursor);
    }
    match order {
        EventOrder::Timestamp => query.order((events::happened_at.asc(), events::seq.asc())),
        EventOrder::TimestampDesc => query.order((events::happened_at.desc(), events::seq.desc())),
    }
}

/// The number of the last event, 0 without events. `None` if the conversation is not visible in the scope. An idle subscriber
/// costs only this statement.
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
    let found: Option<(String, Option<i64>)> = conversations::table
        .find(UuidCol::from(conversation))
        .select((conversations::owner, last.single_value()))
        .first(conn)
        .optional()?;
    let is_theirs = |owner: &String| scope.user().is_none_or(|user| user.as_str() == owner);
    let found = found.filter(|(owner, _)| is_theirs(owner));
    Ok(found.map(|(_, last)| last.unwrap_or_default()))
}

/// The conversation's event counter. Counting the rows of a long log would take seconds.
fn stored(
    conn: &mut AnyConnection,
    scope: &Scope,
    conversation: ConversationId,
) -> Result<u64, TransactionError> {
    let found: Option<(String, i64)> = conversations::table
        .find(UuidCol::from(conversation))
        .select((conversations::owner, conversations::event_count))
        .first(conn)
        .optional()?;
    let is_theirs = |owner: &String| scope.user().is_none_or(|user| user.as_str() == owner);
    let count = found.filter(|(owner, _)| is_theirs(owner));
    Ok(count.map_or(0, |(_, count)| u64::try_from(count).unwrap_or_default()))
}

/// Events after a sequence number, in order.
fn arrivals(
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
    let fits = page_token::fitting(MAX_EVENT_BATCH_BYTES, sizes);
    let rows: Vec<EventRow> = later()
        .limit(i64::try_from(fits).unwrap_or(limit).min(limit))
        .select(EventRow::as_select())
        .load(conn)?;
    let arrived = rows.into_iter().map(|row| {
        Ok(SequencedEvent {
            seq: u64::try_from(row.seq).unwrap_or_default(),
            event: row.try_into()?,
        })
    });
    arrived.collect()
}

#[async_trait]
impl EventStore for SqlStore {
    async fn append(
        &self,
        origin: &SandboxId,
        conversation: ConversationId,
        events: &[Event],
        observation: &ConversationReport,
        at: Timestamp,
    ) -> Result<AppendOutcome, StoreError> {
        let calls = self.db.for_sandbox(origin);
        let (origin, batch, observation) = (origin.clone(), events.to_vec(), observation.clone());
        let appended = calls
            .report(move |conn| {
                let row = match rows::reported_by(conn, &origin, conversation)? {
                    Ok(row) => row,
                    Err(answer) => return Ok(answer),
                };
                let new = match conn {
                    AnyConnection::Sqlite(_) => {
                        let added = store_new(conn, conversation, &batch)?;
                        rows::observe(conn, row, &observation, added, at)?;
                        added.count
                    }
                    #[cfg(feature = "postgres")]
                    AnyConnection::Postgres(conn) => {
                        let (columns, has_changed) = rows::observed(row, &observation, at)?;
                        AppendStatement::new(conversation.into(), &batch, columns, has_changed)?
                            .store(conn)?
                    }
                };
                Ok(AppendOutcome::Stored { new })
            })
            .await?;
        if matches!(appended, AppendOutcome::Stored { new } if new > 0) {
            self.changes.hint(conversation);
        }
        Ok(appended)
    }

    async fn find_many(
        &self,
        scope: &Scope,
        conversation: ConversationId,
        ids: &[EventId],
    ) -> Result<Vec<Option<Event>>, StoreError> {
        let calls = self.db.for_scope(scope);
        let (scope, ids) = (scope.clone(), ids.to_vec());
        calls
            .read_documents(move |conn| {
                let mut found = HashMap::new();
                if rows::is_visible(conn, &scope, conversation)? {
                    for part in ids.chunks(IDS_PER_QUERY) {
                        let texts: Vec<&str> = part.iter().map(EventId::as_str).collect();
                        let loaded = events::table
                            .filter(events::conversation_id.eq(UuidCol::from(conversation)))
                            .filter(events::event_id.eq_any(texts))
                            .select(EventRow::as_select())
                            .load(conn)?;
                        for row in loaded {
                            let event = Event::try_from(row)?;
                            found.insert(event.id.clone(), event);
                        }
                    }
                }
                Ok(in_order(&ids, &found))
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
        let calls = self.db.for_scope(scope);
        // A position in the log of one conversation is invalid in another.
        let listing = match order {
            EventOrder::Timestamp => format!("events+{conversation}"),
            EventOrder::TimestampDesc => format!("events-{conversation}"),
        };
        let cursor: Option<Cursor<i64>> = page_token::read(&listing, page)?;
        let (scope, filter, page) = (scope.clone(), filter.clone(), page.clone());
        calls
            .read_documents(move |conn| {
                if !rows::is_visible(conn, &scope, conversation)? {
                    return Ok(Page {
                        items: Vec::new(),
                        next: None,
                    });
                }
                // Load only positions and sizes first, to keep documents beyond the page limit out of memory.
                let positions: Vec<EventPosition> = ordered(conversation, &filter, order, cursor)
                    .limit(page_token::probe(&page))
                    .select((events::seq, events::happened_at, octet_length(events::body)))
                    .load(conn)?;
                let mut page = page.clone();
                page.limit =
                    page_token::within_budget(page.limit, positions.iter().map(|place| place.2));
                let cut = page_token::cut(&listing, &page, positions, |place| Cursor {
                    key: place.1,
                    tie: place.0,
                });
                // The transaction has one snapshot, so this selects the same rows. A list of numbers would need a new
                // prepared statement each time.
                let rows: Vec<EventRow> = ordered(conversation, &filter, order, cursor)
                    .limit(i64::try_from(cut.items.len()).unwrap_or(i64::MAX))
                    .select(EventRow::as_select())
                    .load(conn)?;
                let items = rows.into_iter().map(Event::try_from);
                Ok(Page {
                    items: items.collect::<Result<_, _>>()?,
                    next: cut.next,
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
        let calls = self.db.for_scope(scope);
        let scope = scope.clone();
        let after = i64::try_from(after).unwrap_or(i64::MAX);
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        // The statements may see different snapshots: events keep their position, only shrink, and are deleted only
        // together with their conversation.
        calls
            .query_documents(move |conn| match last_seq(conn, &scope, conversation)? {
                None => Ok(None),
                Some(last) if last <= after => Ok(Some(Vec::new())),
                Some(_) => arrivals(conn, conversation.into(), after, limit).map(Some),
            })
            .await
    }

    async fn last_sequence(
        &self,
        scope: &Scope,
        conversation: ConversationId,
    ) -> Result<Option<u64>, StoreError> {
        let calls = self.db.for_scope(scope);
        let scope = scope.clone();
        calls
            .query(move |conn| {
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
        let calls = self.db.for_scope(scope);
        let (scope, filter) = (scope.clone(), filter.clone());
        if filter == EventFilter::default() {
            let count = calls.query(move |conn| stored(conn, &scope, conversation));
            return count.await;
        }
        calls
            .scan(move |conn| {
                if !rows::is_visible(conn, &scope, conversation)? {
                    return Ok(0);
                }
                let count: i64 = matching(conversation, &filter).count().get_result(conn)?;
                Ok(u64::try_from(count).unwrap_or_default())
            })
            .await
    }
}
