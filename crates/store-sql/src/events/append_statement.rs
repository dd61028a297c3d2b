//! Stores the events of a sandbox's report with one statement, on Postgres.
//!
//! Diesel prepares every `UPDATE` and every multi-row `INSERT` anew, which costs two round trips and a plan each. There may be
//! thousands of reports a second. This statement has the same text for any number of events. Each connection prepares it once, and it takes one
//! round trip.

use diesel::pg::{Pg, PgConnection};
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::sql_types::{Array, BigInt, Bool, Nullable, Text};
use domain::event::Event;

use crate::conversations::rows::ReportedColumns;
use crate::error::TransactionError;
use crate::schema::codec::{replace_nul, to_json};
use crate::schema::column_types::{
    Id, Instant, NormalizedJson, TimestampCol, UuidCol, VerbatimJson,
};

/// The events of a report as arrays of columns, and the changed columns of their conversation.
pub(crate) struct AppendStatement {
    conversation: UuidCol,
    ids: Vec<String>,
    kinds: Vec<String>,
    times: Vec<TimestampCol>,
    bodies: Vec<String>,
    columns: ReportedColumns,
    /// Whether the report changes the conversation. If not, only new events update it.
    has_changed: bool,
}

impl AppendStatement {
    /// Builds the statement for a batch in its order.
    pub(crate) fn new(
        conversation: UuidCol,
        batch: &[Event],
        columns: ReportedColumns,
        has_changed: bool,
    ) -> Result<Self, TransactionError> {
        let bodies = batch.iter().map(|event| to_json(&event.body));
        let kinds = batch.iter().map(|event| replace_nul(event.kind.as_str()));
        Ok(Self {
            conversation,
            ids: batch.iter().map(|event| event.id.to_string()).collect(),
            kinds: kinds.collect(),
            times: batch
                .iter()
                .map(|event| TimestampCol(event.timestamp))
                .collect(),
            bodies: bodies.collect::<Result<_, _>>()?,
            columns,
            has_changed,
        })
    }

    /// Stores the new events and returns their number. The caller holds the lock of the conversation's row, so no other
    /// transaction adds events. A known event leaves a gap in the sequence numbers.
    pub(crate) fn store(self, conn: &mut PgConnection) -> Result<usize, TransactionError> {
        if self.ids.is_empty() && !self.has_changed {
            return Ok(0);
        }
        let new: i64 = self.get_result(conn)?;
        Ok(usize::try_from(new).unwrap_or_default())
    }
}

/// Appends texts of SQL, and parameters of these types.
macro_rules! push {
    ($out:ident, $($sql:literal $(, $ty:ty = $value:expr)?;)*) => {$(
        $out.push_sql($sql);
        $($out.push_bind_param::<$ty, _>($value)?;)?
    )*};
}

impl QueryFragment<Pg> for AppendStatement {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        let columns = &self.columns;
        push! {
            out,
            "WITH added AS (INSERT INTO events (conversation_id, seq, event_id, kind, happened_at, body) \
             SELECT last.conversation, last.seq + new.n, new.event_id, new.kind, new.happened_at, new.body FROM \
             (SELECT id AS conversation, coalesce((SELECT max(seq) FROM events WHERE conversation_id = id), 0) AS seq \
             FROM (SELECT ", Id = &self.conversation;
            "::uuid AS id) AS given) AS last, unnest(", Array<Text> = &self.ids;
            "::text[], ", Array<Text> = &self.kinds;
            "::text[], ", Array<Instant> = &self.times;
            "::timestamptz[], ", Array<Text> = &self.bodies;
            "::text[]) WITH ORDINALITY AS new (event_id, kind, happened_at, body, n) ORDER BY new.n \
             ON CONFLICT (conversation_id, event_id) DO NOTHING RETURNING octet_length(body) AS bytes), \
             changed AS (UPDATE conversations SET title = ", Nullable<Text> = &columns.title;
            ", title_folded = ", Nullable<Text> = &columns.title_folded;
            ", llm_model = ", Nullable<Text> = &columns.llm_model;
            ", metrics = ", NormalizedJson = &columns.metrics;
            ", tags = ", VerbatimJson = &columns.tags;
            ", execution_status = ", Nullable<Text> = &columns.execution_status;
            ", status_at = ", Nullable<Instant> = &columns.status_at;
            ", updated_at = ", Instant = &columns.updated_at;
            ", event_count = event_count + (SELECT count(*) FROM added), \
             event_bytes = event_bytes + (SELECT coalesce(sum(bytes), 0) FROM added) WHERE id = ", Id = &self.conversation;
            " AND (", Bool = &self.has_changed;
            " OR EXISTS (SELECT 1 FROM added))) SELECT count(*) FROM added";
        }
        Ok(())
    }
}

impl QueryId for AppendStatement {
    type QueryId = Self;
    const HAS_STATIC_QUERY_ID: bool = true;
}

impl Query for AppendStatement {
    type SqlType = BigInt;
}

impl RunQueryDsl<PgConnection> for AppendStatement {}
