//! `SpendingRepository`.

use async_trait::async_trait;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Double, Integer, Text};
use domain::agent::spending::{
    Budgets, Day, MAX_SPENDING_GROUPS, NanoUsd, Reservation, ReserveOutcome, SpendingGroup,
    SpendingKey, SpendingRepository, SpendingTotal, Spent, TokenCounts,
};
use domain::clock::Timestamp;
use domain::error::StoreError;
use domain::id::{ConversationId, OrganizationId, OwnerId};
use domain::user::scope::Scope;
use uuid::Uuid;

use crate::database::connection::{AnyConnection, on_backend};
use crate::database::pool::{JobMode, Workload};
use crate::error::TransactionError;
use crate::schema::codec::row_limit;
use crate::schema::column_types::{Id, TimestampCol, UuidCol};
use crate::schema::{model_reservations, organizations, users};
use crate::store::SqlStore;

/// Counters stop far above any real figure instead of failing.
const COUNTERS: [&str; 8] = [
    "calls",
    "estimated_calls",
    "unpriced_calls",
    "input",
    "cached_input",
    "cache_write",
    "output",
    "cost",
];
const FULL_COUNTER: i64 = i64::MAX / 2;

/// What is spent and reserved. Sums are floating, because a sum of integers may overflow; amounts below nine million dollars
/// are exact.
const OF_CONVERSATION_SQL: &str = "SELECT
    coalesce((SELECT sum(CAST(cost AS DOUBLE PRECISION)) FROM model_spending WHERE owner = $1 AND conversation = $2), 0)
    + coalesce((SELECT sum(CAST(amount AS DOUBLE PRECISION)) FROM model_reservations
        WHERE owner = $1 AND conversation = $2), 0) AS amount";
const OF_MONTH_SQL: &str = "SELECT
    coalesce((SELECT sum(CAST(cost AS DOUBLE PRECISION)) FROM model_spending WHERE owner = $1 AND day >= $2), 0)
    + coalesce((SELECT sum(CAST(amount AS DOUBLE PRECISION)) FROM model_reservations WHERE owner = $1), 0) AS amount";
/// Of all members. Their owner is their name, a space and the organization.
const OF_ORGANIZATION_SQL: &str = "SELECT
    coalesce((SELECT sum(CAST(cost AS DOUBLE PRECISION)) FROM model_spending WHERE day >= $1
        AND owner IN (SELECT user_id || ' ' || $2 FROM memberships WHERE organization_id = $3)), 0)
    + coalesce((SELECT sum(CAST(amount AS DOUBLE PRECISION)) FROM model_reservations
        WHERE $4 AND owner IN (SELECT user_id || ' ' || $2 FROM memberships WHERE organization_id = $3)), 0) AS amount";

#[derive(QueryableByName)]
struct AmountRow {
    #[diesel(sql_type = Double)]
    amount: f64,
}

#[derive(QueryableByName)]
struct TotalRow {
    #[diesel(sql_type = Text)]
    name: String,
    #[diesel(sql_type = Double)]
    calls: f64,
    #[diesel(sql_type = Double)]
    estimated_calls: f64,
    #[diesel(sql_type = Double)]
    unpriced_calls: f64,
    #[diesel(sql_type = Double)]
    input: f64,
    #[diesel(sql_type = Double)]
    cached_input: f64,
    #[diesel(sql_type = Double)]
    cache_write: f64,
    #[diesel(sql_type = Double)]
    output: f64,
    #[diesel(sql_type = Double)]
    cost: f64,
}

#[derive(Queryable, Selectable, Insertable)]
#[diesel(table_name = model_reservations)]
struct ReservationRow {
    id: UuidCol,
    owner: String,
    day: i32,
    conversation: String,
    model: String,
    amount: i64,
    created_at: TimestampCol,
}

/// A sum that SQL computed.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sums are whole, not negative, and the cast saturates"
)]
fn whole(sum: f64) -> u64 {
    sum as u64
}

fn number(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX).min(FULL_COUNTER)
}

fn conversation_text(id: Option<ConversationId>) -> String {
    id.map(|id| id.to_string()).unwrap_or_default()
}

fn of_conversation(
    conn: &mut AnyConnection,
    key: &SpendingKey,
) -> Result<NanoUsd, TransactionError> {
    let query = diesel::sql_query(OF_CONVERSATION_SQL)
        .bind::<Text, _>(key.owner.as_str())
        .bind::<Text, _>(conversation_text(key.conversation));
    let row: AmountRow = on_backend!(conn, |c| query.get_result(c)?);
    Ok(NanoUsd::new(whole(row.amount)))
}

fn of_month(conn: &mut AnyConnection, key: &SpendingKey) -> Result<NanoUsd, TransactionError> {
    let query = diesel::sql_query(OF_MONTH_SQL)
        .bind::<Text, _>(key.owner.as_str())
        .bind::<Integer, _>(key.day.month_start().number());
    let row: AmountRow = on_backend!(conn, |c| query.get_result(c)?);
    Ok(NanoUsd::new(whole(row.amount)))
}

/// What members spent from `first` on, and with `is_reserved` what they may spend.
fn of_organization(
    conn: &mut AnyConnection,
    id: OrganizationId,
    first: Day,
    is_reserved: bool,
) -> Result<NanoUsd, TransactionError> {
    let query = diesel::sql_query(OF_ORGANIZATION_SQL)
        .bind::<Integer, _>(first.number())
        .bind::<Text, _>(id.to_string())
        .bind::<Id, _>(UuidCol::from(id))
        .bind::<Bool, _>(is_reserved);
    let row: AmountRow = on_backend!(conn, |c| query.get_result(c)?);
    Ok(NanoUsd::new(whole(row.amount)))
}

/// The budget that this call would exceed.
fn spent_budget(
    conn: &mut AnyConnection,
    key: &SpendingKey,
    budgets: &Budgets,
) -> Result<Option<ReserveOutcome>, TransactionError> {
    if let Some(budget) = budgets.conversation
        && of_conversation(conn, key)? >= budget
    {
        return Ok(Some(ReserveOutcome::ConversationBudgetSpent));
    }
    if let Some(budget) = budgets.month
        && of_month(conn, key)? >= budget
    {
        return Ok(Some(ReserveOutcome::MonthBudgetSpent));
    }
    if let Some((id, budget)) = organization_budget(key, budgets)
        && of_organization(conn, id, key.day.month_start(), true)? >= budget
    {
        return Ok(Some(ReserveOutcome::OrganizationBudgetSpent));
    }
    Ok(None)
}

fn organization_budget(key: &SpendingKey, budgets: &Budgets) -> Option<(OrganizationId, NanoUsd)> {
    key.owner
        .shared_organization()
        .zip(budgets.organization_month)
}

/// Lets one reservation of an owner, or of an organization with a budget, follow the other. `SQLite` has one writer at a time
/// anyway.
fn lock_budgets(
    conn: &mut AnyConnection,
    key: &SpendingKey,
    budgets: &Budgets,
) -> Result<(), TransactionError> {
    #[cfg(feature = "postgres")]
    if let AnyConnection::Postgres(conn) = conn {
        let organization = organization_budget(key, budgets).map(|(id, _)| id.to_string());
        let locked = organization.unwrap_or_else(|| key.owner.to_string());
        diesel::sql_query("SELECT pg_advisory_xact_lock(hashtextextended($1, 20261128))")
            .bind::<Text, _>(locked)
            .execute(conn)?;
    }
    let _ = (conn, key, budgets);
    Ok(())
}

/// Whether rows of this owner may be stored: user and organization are not deleted.
fn exists(conn: &mut AnyConnection, owner: &OwnerId) -> Result<bool, TransactionError> {
    // The local user of open mode has no row.
    let user = users::table
        .find(owner.user().to_string())
        .filter(users::deleted_at.is_not_null());
    let is_deleted: bool = diesel::select(diesel::dsl::exists(user)).get_result(conn)?;
    let Some(organization) = owner.shared_organization() else {
        return Ok(!is_deleted);
    };
    let organization = organizations::table
        .find(UuidCol::from(organization))
        .filter(organizations::deleted_at.is_null());
    let has_organization: bool =
        diesel::select(diesel::dsl::exists(organization)).get_result(conn)?;
    Ok(!is_deleted && has_organization)
}

fn add(
    conn: &mut AnyConnection,
    owner: &str,
    (day, conversation, model): (i32, &str, &str),
    spent: &Spent,
) -> Result<(), TransactionError> {
    let updates = COUNTERS.map(|name| {
        format!(
            "{name} = CASE WHEN model_spending.{name} >= {FULL_COUNTER} THEN model_spending.{name} \
             ELSE model_spending.{name} + excluded.{name} END"
        )
    });
    let sql = format!(
        "INSERT INTO model_spending (owner, day, conversation, model, {}) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) \
         ON CONFLICT (owner, day, conversation, model) DO UPDATE SET {}",
        COUNTERS.join(", "),
        updates.join(", "),
    );
    let tokens = &spent.tokens;
    let query = diesel::sql_query(sql)
        .bind::<Text, _>(owner)
        .bind::<Integer, _>(day)
        .bind::<Text, _>(conversation)
        .bind::<Text, _>(model)
        .bind::<BigInt, _>(number(spent.calls))
        .bind::<BigInt, _>(number(spent.estimated_calls))
        .bind::<BigInt, _>(number(spent.unpriced_calls))
        .bind::<BigInt, _>(number(tokens.input))
        .bind::<BigInt, _>(number(tokens.cached_input))
        .bind::<BigInt, _>(number(tokens.cache_write))
        .bind::<BigInt, _>(number(tokens.output))
        .bind::<BigInt, _>(number(spent.cost.nanos()));
    on_backend!(conn, |c| query.execute(c)?);
    Ok(())
}

/// The SQL of the name of a group, for `SQLite` and for Postgres.
fn group_sql(group: SpendingGroup) -> (&'static str, &'static str) {
    match group {
        SpendingGroup::Day => ("CAST(day AS TEXT)", "CAST(day AS TEXT)"),
        SpendingGroup::Model => ("model", "model"),
        SpendingGroup::Conversation => ("conversation", "conversation"),
        SpendingGroup::User => (
            "substr(owner, 1, instr(owner || ' ', ' ') - 1)",
            "split_part(owner, ' ', 1)",
        ),
    }
}

fn totals_sql(name: &str, group: SpendingGroup, of_owner: bool) -> String {
    let sums = COUNTERS.map(|name| format!("sum(CAST({name} AS DOUBLE PRECISION)) AS {name}"));
    let order = match group {
        SpendingGroup::Day => "min(day)",
        _ => "sum(CAST(cost AS DOUBLE PRECISION)) DESC, 1",
    };
    let owner = if of_owner { "owner = $3" } else { "$3 = ''" };
    format!(
        "SELECT {name} AS name, {} FROM model_spending WHERE day >= $1 AND day <= $2 AND {owner} \
         GROUP BY 1 ORDER BY {order} LIMIT {MAX_SPENDING_GROUPS}",
        sums.join(", "),
    )
}

fn total(row: TotalRow, group: SpendingGroup) -> SpendingTotal {
    let name = match (group, row.name.parse()) {
        (SpendingGroup::Day, Ok(day)) => Day::new(day).date().to_string(),
        _ => row.name,
    };
    SpendingTotal {
        name,
        spent: Spent {
            calls: whole(row.calls),
            estimated_calls: whole(row.estimated_calls),
            unpriced_calls: whole(row.unpriced_calls),
            tokens: TokenCounts {
                input: whole(row.input),
                cached_input: whole(row.cached_input),
                cache_write: whole(row.cache_write),
                output: whole(row.output),
            },
            cost: NanoUsd::new(whole(row.cost)),
        },
    }
}

#[async_trait]
impl SpendingRepository for SqlStore {
    async fn reserve(
        &self,
        reservation: &Reservation,
        budgets: &Budgets,
    ) -> Result<ReserveOutcome, StoreError> {
        let jobs = self.db.for_owner(&reservation.key.owner);
        let (reservation, budgets) = (reservation.clone(), *budgets);
        jobs.run(JobMode::Write, move |conn| {
            let key = &reservation.key;
            lock_budgets(conn, key, &budgets)?;
            if let Some(spent) = spent_budget(conn, key, &budgets)? {
                return Ok(spent);
            }
            let row = ReservationRow {
                id: UuidCol(reservation.id),
                owner: key.owner.as_str().to_owned(),
                day: key.day.number(),
                conversation: conversation_text(key.conversation),
                model: key.model.clone(),
                amount: number(reservation.amount.nanos()),
                created_at: TimestampCol(reservation.at),
            };
            diesel::insert_into(model_reservations::table)
                .values(row)
                .execute(conn)?;
            Ok(ReserveOutcome::Reserved)
        })
        .await
    }

    async fn settle(
        &self,
        key: &SpendingKey,
        spent: &Spent,
        reservation: Option<Uuid>,
    ) -> Result<(), StoreError> {
        let jobs = self.db.for_owner(&key.owner);
        let (key, spent) = (key.clone(), *spent);
        jobs.run(JobMode::Write, move |conn| {
            if let Some(id) = reservation {
                let row = model_reservations::table.find(UuidCol(id));
                if diesel::delete(row).execute(conn)? == 0 {
                    return Ok(());
                }
            }
            if spent.calls == 0 || !exists(conn, &key.owner)? {
                return Ok(());
            }
            let conversation = conversation_text(key.conversation);
            let parts = (key.day.number(), conversation.as_str(), key.model.as_str());
            add(conn, key.owner.as_str(), parts, &spent)
        })
        .await
    }

    async fn settle_abandoned(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        self.run(Workload::Background, JobMode::Write, move |conn| {
            let old: Vec<ReservationRow> = model_reservations::table
                .filter(model_reservations::created_at.lt(TimestampCol(before)))
                .order(model_reservations::created_at)
                .limit(row_limit(limit))
                .select(ReservationRow::as_select())
                .load(conn)?;
            let mut settled = 0;
            for row in old {
                // Another process may settle it at the same time.
                if diesel::delete(model_reservations::table.find(row.id)).execute(conn)? == 0 {
                    continue;
                }
                settled += 1;
                let owner: OwnerId = row.owner.parse().map_err(|_| StoreError::Corrupt {
                    entity: domain::error::Entity::Record,
                    what: "owner of a reservation".to_owned(),
                })?;
                if !exists(conn, &owner)? {
                    continue;
                }
                let spent = Spent {
                    calls: 1,
                    estimated_calls: 1,
                    cost: NanoUsd::new(u64::try_from(row.amount).unwrap_or_default()),
                    ..Spent::default()
                };
                let parts = (row.day, row.conversation.as_str(), row.model.as_str());
                add(conn, &row.owner, parts, &spent)?;
            }
            Ok(settled)
        })
        .await
    }

    async fn totals(
        &self,
        scope: &Scope,
        (first, last): (Day, Day),
        group: SpendingGroup,
    ) -> Result<Vec<SpendingTotal>, StoreError> {
        let jobs = self.db.for_scope(scope);
        let owner = scope.owner().map(|owner| owner.as_str().to_owned());
        jobs.run(JobMode::Read, move |conn| {
            let (sqlite, postgres) = group_sql(group);
            let is_sqlite = matches!(conn, AnyConnection::Sqlite(_));
            let name = if is_sqlite { sqlite } else { postgres };
            let query = diesel::sql_query(totals_sql(name, group, owner.is_some()))
                .bind::<Integer, _>(first.number())
                .bind::<Integer, _>(last.number())
                .bind::<Text, _>(owner.clone().unwrap_or_default());
            let rows: Vec<TotalRow> = on_backend!(conn, |c| query.load(c)?);
            Ok(rows.into_iter().map(|row| total(row, group)).collect())
        })
        .await
    }

    async fn total_of_organization(
        &self,
        id: OrganizationId,
        first: Day,
    ) -> Result<NanoUsd, StoreError> {
        let jobs = self.db.for_organization(id);
        jobs.run(JobMode::Read, move |conn| {
            of_organization(conn, id, first, false)
        })
        .await
    }

    async fn prune(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        let day = Day::of(before).number();
        self.run(Workload::Background, JobMode::Write, move |conn| {
            let sql = format!(
                "DELETE FROM model_spending WHERE (owner, day, conversation, model) IN \
                 (SELECT owner, day, conversation, model FROM model_spending WHERE day < $1 LIMIT {limit})"
            );
            let query = diesel::sql_query(sql).bind::<Integer, _>(day);
            let deleted = on_backend!(conn, |c| query.execute(c)?);
            Ok(deleted as u64)
        })
        .await
    }
}
