//! `EgressRequestRepository`.

use async_trait::async_trait;
use diesel::dsl::{exists, not};
use diesel::prelude::*;
use domain::clock::Timestamp;
use domain::error::{Entity, StoreError};
use domain::id::{EgressRequestId, OwnerId, SandboxId};
use domain::page::{Page, PageRequest};
use domain::sandbox::DesiredState;
use domain::user::egress::{
    EgressDecision, EgressRequest, EgressRequestRepository, MAX_EGRESS_REQUESTS_PER_OWNER,
};
use uuid::Uuid;

use crate::database::connection::{AnyBackend, AnyConnection};
use crate::database::pool::{JobMode, Workload};
use crate::error::{QueryResultExt, TransactionError, conflict, map_unique_violation};
use crate::queries::filter_by;
use crate::queries::page_token::{self, Cursor, keyset};
use crate::schema::codec::row_limit;
use crate::schema::column_types::{TextCol, TimestampCol, UuidCol};
use crate::schema::rows::same_fields;
use crate::schema::{egress_requests, sandboxes};
use crate::store::SqlStore;

const PAGE_TOKEN_LIST: &str = "egress_requests";

#[derive(Queryable, Selectable, Insertable)]
#[diesel(table_name = egress_requests)]
struct EgressRequestRow {
    id: UuidCol,
    owner: TextCol<OwnerId>,
    sandbox_id: TextCol<SandboxId>,
    host: String,
    port: i32,
    decision: TextCol<EgressDecision>,
    created_at: TimestampCol,
    updated_at: TimestampCol,
}

same_fields! {
    EgressRequestRow, EgressRequest, [
        id, owner, sandbox_id, host, port, decision, created_at, updated_at,
    ]
}

/// The requests of an owner for a host and port.
macro_rules! for_host {
    ($request:expr) => {
        egress_requests::table
            .filter(egress_requests::owner.eq($request.owner.as_str()))
            .filter(egress_requests::host.eq(&$request.host))
            .filter(egress_requests::port.eq(i32::from($request.port)))
    };
}

fn find_decision(
    conn: &mut AnyConnection,
    of: &EgressRequest,
) -> Result<Option<EgressDecision>, TransactionError> {
    let approved = EgressDecision::Approved;
    let found: Vec<TextCol<EgressDecision>> = for_host!(of)
        .filter(
            egress_requests::sandbox_id
                .eq(of.sandbox_id.as_str())
                .or(egress_requests::decision.eq(approved.as_str())),
        )
        .select(egress_requests::decision)
        .load(conn)
        .map_decode_error(Entity::EgressRequest)?;
    let own = found.first().map(|it| it.0);
    let is_approved = found.iter().any(|it| it.0 == approved);
    Ok(if is_approved { Some(approved) } else { own })
}

fn insert(conn: &mut AnyConnection, request: &EgressRequest) -> Result<(), TransactionError> {
    let (owner, sandbox) = (request.owner.as_str(), request.sandbox_id.as_str());
    let of_sandbox = for_host!(request).filter(egress_requests::sandbox_id.eq(sandbox));
    let alive = sandboxes::table
        .find(sandbox)
        .filter(sandboxes::owner.eq(owner))
        .filter(sandboxes::desired.ne(DesiredState::Deleted.as_str()));
    let is_alive: bool = diesel::select(exists(alive)).get_result(conn)?;
    if !is_alive || diesel::select(exists(of_sandbox)).get_result(conn)? {
        return Ok(());
    }
    let of_owner = egress_requests::table.filter(egress_requests::owner.eq(owner));
    let count: i64 = of_owner.count().get_result(conn)?;
    if count >= row_limit(MAX_EGRESS_REQUESTS_PER_OWNER) {
        let oldest: Option<UuidCol> = of_owner
            .filter(egress_requests::decision.eq(EgressDecision::Pending.as_str()))
            .order((egress_requests::created_at, egress_requests::id))
            .select(egress_requests::id)
            .first(conn)
            .optional()?;
        let Some(oldest) = oldest else {
            return Ok(());
        };
        diesel::delete(egress_requests::table.find(oldest)).execute(conn)?;
    }
    diesel::insert_into(egress_requests::table)
        .values(EgressRequestRow::from(request))
        .execute(conn)
        .map_err(map_unique_violation(conflict(Entity::EgressRequest)))?;
    Ok(())
}

fn decide(
    conn: &mut AnyConnection,
    owner: &OwnerId,
    id: UuidCol,
    (decision, at): (EgressDecision, Timestamp),
) -> Result<Option<EgressRequest>, TransactionError> {
    let of_owner = egress_requests::owner.eq(owner.as_str());
    let decided = diesel::update(egress_requests::table.find(id).filter(of_owner))
        .set((
            egress_requests::decision.eq(decision.as_str()),
            egress_requests::updated_at.eq(TimestampCol(at)),
        ))
        .execute(conn)?;
    if decided == 0 {
        return Ok(None);
    }
    let row = egress_requests::table
        .find(id)
        .select(EgressRequestRow::as_select())
        .first(conn)
        .map_decode_error(Entity::EgressRequest)?;
    let request = EgressRequest::from(row);
    if decision == EgressDecision::Approved {
        let others = for_host!(request).filter(egress_requests::id.ne(id));
        diesel::delete(others).execute(conn)?;
    }
    Ok(Some(request))
}

fn filtered_query(
    owner: &OwnerId,
    decision: Option<EgressDecision>,
) -> egress_requests::BoxedQuery<'static, AnyBackend> {
    let owner = owner.as_str().to_owned();
    let mut query = egress_requests::table
        .filter(egress_requests::owner.eq(owner))
        .into_boxed::<AnyBackend>();
    filter_by! {
        query,
        decision => |decision| egress_requests::decision.eq(decision.as_str());
    }
    query
}

#[async_trait]
impl EgressRequestRepository for SqlStore {
    async fn search(
        &self,
        owner: &OwnerId,
        decision: Option<EgressDecision>,
        page: &PageRequest,
    ) -> Result<Page<EgressRequest>, StoreError> {
        let after: Option<Cursor<Uuid>> = page_token::decode(PAGE_TOKEN_LIST, page)?;
        let jobs = self.db.for_owner(owner);
        let (owner, page) = (owner.clone(), page.clone());
        jobs.run(JobMode::Read, move |conn| {
            let after = after.map(|(at, id)| (at, UuidCol(id)));
            let rows = keyset!(
                desc,
                filtered_query(&owner, decision),
                egress_requests::created_at,
                egress_requests::id,
                after
            )
            .limit(page_token::rows_to_load(&page))
            .select(EgressRequestRow::as_select())
            .load(conn)
            .map_decode_error(Entity::EgressRequest)?;
            let page =
                page_token::build_page(PAGE_TOKEN_LIST, &page, rows, |row: &EgressRequestRow| {
                    (row.created_at, row.id.0)
                });
            Ok(page.map(EgressRequest::from))
        })
        .await
    }

    async fn decide(
        &self,
        owner: &OwnerId,
        id: EgressRequestId,
        decision: EgressDecision,
        at: Timestamp,
    ) -> Result<Option<EgressRequest>, StoreError> {
        let jobs = self.db.for_owner(owner);
        let owner = owner.clone();
        jobs.run(JobMode::Write, move |conn| {
            decide(conn, &owner, id.into(), (decision, at))
        })
        .await
    }

    async fn delete(&self, owner: &OwnerId, id: EgressRequestId) -> Result<bool, StoreError> {
        let jobs = self.db.for_owner(owner);
        let owner = owner.as_str().to_owned();
        jobs.run(JobMode::Write, move |conn| {
            let request = egress_requests::table
                .find(UuidCol::from(id))
                .filter(egress_requests::owner.eq(&owner));
            Ok(diesel::delete(request).execute(conn)? > 0)
        })
        .await
    }

    async fn decision(&self, of: &EgressRequest) -> Result<Option<EgressDecision>, StoreError> {
        let jobs = self.db.for_owner(&of.owner);
        let of = of.clone();
        jobs.run(JobMode::Read, move |conn| find_decision(conn, &of))
            .await
    }

    async fn insert(&self, request: &EgressRequest) -> Result<(), StoreError> {
        let jobs = self.db.for_owner(&request.owner);
        let request = request.clone();
        jobs.run(JobMode::Write, move |conn| insert(conn, &request))
            .await
    }

    async fn prune(&self, limit: usize) -> Result<u64, StoreError> {
        self.run(Workload::Background, JobMode::Write, move |conn| {
            let sandbox = sandboxes::table.filter(sandboxes::id.eq(egress_requests::sandbox_id));
            let ids: Vec<UuidCol> = egress_requests::table
                .filter(egress_requests::decision.ne(EgressDecision::Approved.as_str()))
                .filter(not(exists(sandbox)))
                .select(egress_requests::id)
                .limit(row_limit(limit))
                .load(conn)?;
            let gone = egress_requests::table.filter(egress_requests::id.eq_any(ids));
            Ok(diesel::delete(gone).execute(conn)? as u64)
        })
        .await
    }
}
