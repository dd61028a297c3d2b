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
    Id, Instant, NormalizedJson, RawJsonCol, TimestampCol, UuidCol, VerbatimJson,
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
        let bodies: Result<_, _> = batch
            .iter()
            .map(|event| Ok::<_, TransactionError>(to_json(&event.body)?.0))
            .collect();
        Ok(Self {
            conversation,
            ids: batch.iter().map(|event| event.id.to_string()).collect(),
            kinds: batch
                .iter()
                .map(|event| replace_nul(event.kind.as_str()))
                .collect(),
            times: batch
                .iter()
                .map(|event| TimestampCol(event.timestamp))
                .collect(),
            bodies: bodies?,
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

impl QueryFragment<Pg> for AppendStatement {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        let columns = &self.columns;
        out.push_sql(
            "WITH added AS (INSERT INTO events (conversation_id, seq, event_id, kind, happened_at, body) \
             SELECT last.conversation, last.seq + new.n, new.event_id, new.kind, new.happened_at, new.body FROM \
             (SELECT id AS conversation, coalesce((SELECT max(seq) FROM events WHERE conversation_id = id), 0) AS seq \
             FROM (SELECT ",
        );
        out.push_bind_param::<Id, _>(&self.conversation)?;
        out.push_sql("::uuid AS id) AS given) AS last, unnest(");
        out.push_bind_param::<Array<Text>, _>(&self.ids)?;
        out.push_sql("::text[], ");
        out.push_bind_param::<Array<Text>, _>(&self.kinds)?;
        out.push_sql("::text[], ");
        out.push_bind_param::<Array<Instant>, _>(&self.times)?;
        out.push_sql("::timestamptz[], ");
        out.push_bind_param::<Array<Text>, _>(&self.bodies)?;
        out.push_sql(
            "::text[]) WITH ORDINALITY AS new (event_id, kind, happened_at, body, n) ORDER BY new.n \
             ON CONFLICT (conversation_id, event_id) DO NOTHING RETURNING octet_length(body) AS bytes), \
             changed AS (UPDATE conversations SET title = ",
        );
        out.push_bind_param::<Nullable<Text>, _>(&columns.title)?;
        out.push_sql(", title_folded = ");
        out.push_bind_param::<Nullable<Text>, _>(&columns.title_folded)?;
        out.push_sql(", llm_model = ");
        out.push_bind_param::<Nullable<Text>, _>(&columns.llm_model)?;
        out.push_sql(", metrics = ");
        out.push_bind_param::<NormalizedJson, RawJsonCol>(&columns.metrics)?;
        out.push_sql(", tags = ");
        out.push_bind_param::<VerbatimJson, RawJsonCol>(&columns.tags)?;
        out.push_sql(", execution_status = ");
        out.push_bind_param::<Nullable<Text>, _>(&columns.execution_status)?;
        out.push_sql(", status_at = ");
        out.push_bind_param::<Nullable<Instant>, _>(&columns.status_at)?;
        out.push_sql(", updated_at = ");
        out.push_bind_param::<Instant, _>(&columns.updated_at)?;
        out.push_sql(
            ", event_count = event_count + (SELECT count(*) FROM added), \
             event_bytes = event_bytes + (SELECT coalesce(sum(bytes), 0) FROM added) WHERE id = ",
        );
        out.push_bind_param::<Id, _>(&self.conversation)?;
        out.push_sql(" AND (");
        out.push_bind_param::<Bool, _>(&self.has_changed)?;
        out.push_sql(" OR EXISTS (SELECT 1 FROM added))) SELECT count(*) FROM added");
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
