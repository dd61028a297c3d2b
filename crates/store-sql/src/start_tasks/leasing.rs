//! Leases start tasks to workers.

use diesel::prelude::*;
use diesel::sql_types::{BigInt, Text};
use domain::clock::Timestamp;
use domain::start_task::{ClaimLimit, LeasedStartTask};

use crate::database::connection::{AnyConnection, on_backend};
use crate::error::{QueryResultExt, TransactionError};
use crate::schema::codec::{IDS_PER_QUERY, row_limit};
use crate::schema::column_types::{Instant, TimestampCol, UuidCol};
use crate::schema::rows::IdRow;
use crate::schema::start_tasks;
use crate::start_tasks::rows::{ENTITY, StartTaskRow};

/// Selects the next tasks to lease. Leased tasks sort first within an owner, so the rank of another task equals the number of
/// leased tasks that its owner would have with it. Both databases accept `$1` for the first parameter.
const NEXT_TASKS_SQL: &str = "SELECT id FROM (
    SELECT id, created_at, is_leased, row_number() OVER (
        PARTITION BY owner ORDER BY is_leased DESC, created_at, id
    ) AS owner_rank
    FROM (
        SELECT id, owner, created_at,
            CASE WHEN lease_until > $1 THEN 1 ELSE 0 END AS is_leased
        FROM start_tasks WHERE host = $2 AND is_open
    ) AS unfinished
) AS ranked
WHERE is_leased = 0 AND owner_rank <= $3
ORDER BY owner_rank, created_at, id
LIMIT $4";

pub(crate) fn claim(
    conn: &mut AnyConnection,
    host: &str,
    (now, until): (Timestamp, Timestamp),
    limit: ClaimLimit,
) -> Result<Vec<LeasedStartTask>, TransactionError> {
    let max_tasks = row_limit(limit.tasks.min(IDS_PER_QUERY));
    let next: Vec<IdRow> = on_backend!(&mut *conn, |c| diesel::sql_query(NEXT_TASKS_SQL)
        .bind::<Instant, _>(TimestampCol(now))
        .bind::<Text, _>(host)
        .bind::<BigInt, _>(row_limit(limit.per_owner))
        .bind::<BigInt, _>(max_tasks)
        .load(c)?);
    let ids: Vec<UuidCol> = next.into_iter().map(|row| row.id).collect();
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    diesel::update(start_tasks::table.filter(start_tasks::id.eq_any(&ids)))
        .set((
            start_tasks::lease_until.eq(TimestampCol(until)),
            start_tasks::fence.eq(start_tasks::fence + 1),
            start_tasks::attempts.eq(start_tasks::attempts + 1),
        ))
        .execute(conn)?;
    let rows = start_tasks::table
        .filter(start_tasks::id.eq_any(&ids))
        .order((start_tasks::created_at.asc(), start_tasks::id.asc()))
        .select(StartTaskRow::as_select())
        .load(conn)
        .map_decode_error(ENTITY)?;
    let leased = rows.into_iter().map(|row: StartTaskRow| LeasedStartTask {
        fence: row.fence,
        task: row.into(),
    });
    Ok(leased.collect())
}
