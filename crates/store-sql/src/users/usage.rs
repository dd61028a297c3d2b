//! `UsageRepository`.

use async_trait::async_trait;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Text};
use domain::error::{Entity, StoreError};
use domain::event::shorten_document;
use domain::id::OwnerId;
use domain::user::scope::Scope;
use domain::user::usage::{ShortenedEvents, Usage, UsageRepository};

use crate::conversations::rows;
use crate::database::connection::{AnyConnection, on_backend};
use crate::database::pool::JobMode;
use crate::error::TransactionError;
use crate::queries::page_token::count_within;
use crate::schema::codec::to_json;
use crate::schema::column_types::Id;
use crate::schema::rows::{IdRow, same_fields};
use crate::schema::{conversations, events};
use crate::store::SqlStore;

/// The usage of a user. The figures of events come from counters in the conversations' rows, all others from indexes. Both
/// databases accept `$1` for the first parameter.
const USAGE_SQL: &str = "SELECT
    owned.conversations + (SELECT count(*) FROM start_tasks WHERE owner = $1 AND is_open AND NOT begun) AS conversations,
    owned.events, owned.event_bytes, owned.shortened_events,
    (SELECT CAST(coalesce(sum(request_bytes), 0) AS BIGINT) FROM start_tasks WHERE owner = $1 AND request_bytes > 0)
        + waiting.message_bytes AS request_bytes,
    (SELECT count(*) FROM secrets WHERE owner = $1) AS secrets,
    waiting.pending_messages
FROM (
    SELECT count(*) AS conversations, CAST(coalesce(sum(event_count), 0) AS BIGINT) AS events,
        CAST(coalesce(sum(event_bytes), 0) AS BIGINT) AS event_bytes,
        CAST(coalesce(sum(shortened_events), 0) AS BIGINT) AS shortened_events
    FROM conversations WHERE owner = $1
) AS owned, (
    SELECT count(*) AS pending_messages, CAST(coalesce(sum(message_bytes), 0) AS BIGINT) AS message_bytes
    FROM pending_messages WHERE owner = $1
) AS waiting";

/// The user's oldest conversation with a bulky observation. The planner uses the index `events_bulky` only if its
/// condition is repeated literally.
const CONVERSATION_WITH_BULKY_EVENTS_SQL: &str =
    "SELECT id FROM conversations WHERE owner = $1 AND EXISTS (
    SELECT 1 FROM events WHERE conversation_id = conversations.id
        AND kind = 'ObservationEvent' AND octet_length(body) > 16384
) ORDER BY created_at, id LIMIT 1";

/// The bulky observations of a conversation, with the bytes of their documents.
const BULKY_EVENTS_SQL: &str =
    "SELECT seq, octet_length(body) AS bytes FROM events WHERE conversation_id = $1
    AND kind = 'ObservationEvent' AND octet_length(body) > 16384 ORDER BY seq LIMIT 100";

/// Maximum bytes of documents per transaction; a single larger document is still read.
const MAX_SHORTENED_BYTES_PER_TRANSACTION: usize = 8 * 1024 * 1024;

#[derive(QueryableByName)]
struct UsageRow {
    #[diesel(sql_type = BigInt)]
    conversations: i64,
    #[diesel(sql_type = BigInt)]
    events: i64,
    #[diesel(sql_type = BigInt)]
    event_bytes: i64,
    #[diesel(sql_type = BigInt)]
    shortened_events: i64,
    #[diesel(sql_type = BigInt)]
    request_bytes: i64,
    #[diesel(sql_type = BigInt)]
    secrets: i64,
    #[diesel(sql_type = BigInt)]
    pending_messages: i64,
}

same_fields! {
    read UsageRow, Usage, [
        conversations, events, event_bytes, shortened_events, request_bytes, secrets, pending_messages,
    ]
}

#[derive(QueryableByName)]
struct BulkyRow {
    #[diesel(sql_type = BigInt)]
    seq: i64,
    #[diesel(sql_type = diesel::sql_types::Integer)]
    bytes: i32,
}

fn shorten(conn: &mut AnyConnection, user: &str) -> Result<ShortenedEvents, TransactionError> {
    let conversation: Option<IdRow> = on_backend!(&mut *conn, |c| diesel::sql_query(
        CONVERSATION_WITH_BULKY_EVENTS_SQL
    )
    .bind::<Text, _>(user)
    .get_result(c)
    .optional()?);
    // The conversation may be deleted before it is locked. Then the next call finds another one.
    let Some(row) = conversation
        .map(|conversation| rows::lock(conn, conversation.id.into()))
        .transpose()?
        .flatten()
    else {
        return Ok(ShortenedEvents::default());
    };
    let bulky: Vec<BulkyRow> = on_backend!(&mut *conn, |c| diesel::sql_query(BULKY_EVENTS_SQL)
        .bind::<Id, _>(row.id)
        .load(c)?);
    let count = count_within(
        MAX_SHORTENED_BYTES_PER_TRANSACTION,
        bulky.iter().map(|event| event.bytes),
    );
    let mut shortened = ShortenedEvents::default();
    for bulky_event in bulky.iter().take(count) {
        let event = events::table.find((row.id, bulky_event.seq));
        let body: String = event.select(events::body).first(conn)?;
        let before = body.len();
        let body = serde_json::from_str(&body).map_err(|cause| StoreError::Corrupt {
            entity: Entity::Event,
            what: format!("body: {cause}"),
        })?;
        let body = to_json(&shorten_document(body))?;
        shortened.events += 1;
        shortened.bytes += before.saturating_sub(body.len()) as u64;
        diesel::update(event)
            .set(events::body.eq(body))
            .execute(conn)?;
    }
    let [events, bytes] =
        [shortened.events, shortened.bytes].map(|figure| i64::try_from(figure).unwrap_or(0));
    diesel::update(conversations::table.find(row.id))
        .set((
            conversations::event_bytes.eq(conversations::event_bytes - bytes),
            conversations::shortened_events.eq(conversations::shortened_events + events),
        ))
        .execute(conn)?;
    Ok(shortened)
}

#[async_trait]
impl UsageRepository for SqlStore {
    async fn usage(&self, scope: &Scope, user: &OwnerId) -> Result<Usage, StoreError> {
        if !scope.sees(user) {
            return Ok(Usage::default());
        }
        let user = user.to_string();
        let jobs = self.db.for_scope(scope);
        jobs.run(JobMode::Query, move |conn| {
            let row: UsageRow = on_backend!(conn, |c| diesel::sql_query(USAGE_SQL)
                .bind::<Text, _>(&user)
                .get_result(c)?);
            Ok(row.into())
        })
        .await
    }

    async fn shorten_events(&self, user: &OwnerId) -> Result<ShortenedEvents, StoreError> {
        let jobs = self.db.for_intake_of(user);
        let user = user.to_string();
        jobs.run(JobMode::WriteLocked, move |conn| shorten(conn, &user))
            .await
    }
}
