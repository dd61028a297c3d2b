//! The ports of sandbox rows.

mod hosts;
pub(crate) mod occupancy;
mod retirement;
pub(crate) mod rows;
mod warm;

use async_trait::async_trait;
use diesel::prelude::*;
use domain::clock::Timestamp;
use domain::coordination::change::StoreChange;
use domain::coordination::idempotency::{IdempotencyCheck, IdempotentResponse};
use domain::error::{Entity, StoreError};
use domain::id::{HostId, OwnerId, SandboxId, SpecId};
use domain::page::{Page, PageRequest};
use domain::sandbox::{
    DesiredState, HostSandboxRepository, NewSessionKey, RetirementReason, Sandbox, SandboxCaps,
    SandboxFacts, SandboxKeyRepository, SandboxOccupancy, SandboxRepository, SandboxStatus,
    SandboxView,
};
use domain::user::identity::KeyHash;
use domain::user::scope::Scope;

use self::occupancy::check_caps;
use self::retirement::retirable;
use self::rows::{SandboxRow, ViewRow, sandboxes_of};
use crate::database::changes::announce;
use crate::database::connection::{AnyBackend, AnyConnection};
use crate::database::pool::{JobMode, Workload};
use crate::error::{QueryResultExt, TransactionError, conflict, map_unique_violation};
use crate::idempotency;
use crate::queries::filter_by;
use crate::queries::page_token::{self, Cursor, keyset};
use crate::schema::codec::{find_in_order, owner_filter, replace_nul, row_limit};
use crate::schema::column_types::{TextCol, TimestampCol};
use crate::schema::{deleted_conversations, sandboxes};
use crate::store::SqlStore;

const PAGE_TOKEN_LIST: &str = "sandboxes";

type BoxedSandboxQuery<'a> = sandboxes::BoxedQuery<'a, AnyBackend>;

/// Sandboxes visible in the scope. Users do not see sandboxes whose deletion is requested.
fn visible<'a>(scope: &Scope) -> BoxedSandboxQuery<'a> {
    let query = sandboxes::table.into_boxed();
    match owner_filter(scope) {
        Some(user) => query
            .filter(sandboxes::owner.eq(user))
            .filter(sandboxes::desired.ne(DesiredState::Deleted.as_str())),
        None => query,
    }
}

fn load(
    conn: &mut AnyConnection,
    scope: &Scope,
    id: &str,
) -> Result<Option<Sandbox>, TransactionError> {
    let row = visible(scope)
        .filter(sandboxes::id.eq(id.to_owned()))
        .select(SandboxRow::as_select())
        .first(conn)
        .optional()?;
    Ok(row.map(Sandbox::from))
}

/// Loads a sandbox whose deletion is not requested.
pub(crate) fn load_undeleted(
    conn: &mut AnyConnection,
    id: &SandboxId,
) -> Result<Option<Sandbox>, TransactionError> {
    Ok(load(conn, &Scope::System, id.as_str())?
        .filter(|sandbox| sandbox.desired != DesiredState::Deleted))
}

/// Stores a new sandbox within the caps, in the caller's transaction.
pub(crate) fn insert_within_caps(
    conn: &mut AnyConnection,
    sandbox: &Sandbox,
    caps: SandboxCaps,
) -> Result<(), TransactionError> {
    crate::users::activity::check_active_owner(conn, &sandbox.owner)?;
    check_caps(conn, &sandbox.owner.user(), caps)?;
    diesel::insert_into(sandboxes::table)
        .values(SandboxRow::from(sandbox))
        .execute(conn)
        .map_err(map_unique_violation(conflict(Entity::Sandbox)))?;
    Ok(())
}

/// Marks these sandboxes as deleted, in the caller's transaction. Users no longer see them, and the reconciler removes them.
pub(crate) fn mark_deleted(
    conn: &mut AnyConnection,
    ids: &[String],
    at: Timestamp,
) -> Result<(), TransactionError> {
    if ids.is_empty() {
        return Ok(());
    }
    let undeleted = sandboxes::table
        .filter(sandboxes::id.eq_any(ids))
        .filter(sandboxes::desired.ne(DesiredState::Deleted.as_str()));
    let affected: Vec<(TextCol<SandboxId>, TextCol<HostId>)> = undeleted
        .clone()
        .select((sandboxes::id, sandboxes::host))
        .load(conn)
        .map_decode_error(Entity::Sandbox)?;
    diesel::update(undeleted)
        .set((
            sandboxes::desired.eq(DesiredState::Deleted.as_str()),
            sandboxes::updated_at.eq(TimestampCol(at)),
        ))
        .execute(conn)?;
    for (TextCol(id), TextCol(host)) in affected {
        let change = StoreChange::Sandbox {
            id,
            host,
            is_wanted: false,
        };
        announce(conn, &change)?;
    }
    Ok(())
}

/// Writes all columns of an existing sandbox, and announces the change.
pub(crate) fn save(conn: &mut AnyConnection, sandbox: &Sandbox) -> Result<(), TransactionError> {
    diesel::update(sandboxes::table.find(sandbox.id.as_str()))
        .set(SandboxRow::from(sandbox))
        .execute(conn)?;
    announce_change_of(conn, sandbox)
}

/// Wakes the host of a sandbox, which may be served by another process.
fn announce_change_of(conn: &mut AnyConnection, sandbox: &Sandbox) -> Result<(), TransactionError> {
    let change = StoreChange::Sandbox {
        id: sandbox.id.clone(),
        host: sandbox.host.clone(),
        is_wanted: sandbox.desired == DesiredState::Running,
    };
    announce(conn, &change)
}

/// Sets the intent of a stopped sandbox to running, within the caps, in the caller's transaction.
pub(crate) fn resume(
    conn: &mut AnyConnection,
    mut sandbox: Sandbox,
    caps: SandboxCaps,
    at: Timestamp,
) -> Result<Sandbox, TransactionError> {
    crate::users::activity::check_active_owner(conn, &sandbox.owner)?;
    check_caps(conn, &sandbox.owner.user(), caps)?;
    sandbox.status = SandboxStatus::Starting;
    sandbox.status_detail = None;
    sandbox.desired = DesiredState::Running;
    sandbox.updated_at = at;
    save(conn, &sandbox)?;
    Ok(sandbox)
}

#[async_trait]
impl SandboxRepository for SqlStore {
    async fn insert(&self, sandbox: &Sandbox, caps: &SandboxCaps) -> Result<(), StoreError> {
        let jobs = self.db.for_owner(&sandbox.owner);
        let (sandbox, caps) = (sandbox.clone(), *caps);
        jobs.run(JobMode::Write, move |conn| {
            insert_within_caps(conn, &sandbox, caps)?;
            announce_change_of(conn, &sandbox)
        })
        .await
    }

    async fn insert_once(
        &self,
        sandbox: &Sandbox,
        caps: &SandboxCaps,
        response: &IdempotentResponse,
    ) -> Result<IdempotencyCheck, StoreError> {
        let jobs = self.db.for_owner(&sandbox.owner);
        let (sandbox, caps, response) = (sandbox.clone(), *caps, response.clone());
        jobs.run(JobMode::Write, move |conn| {
            let checked = idempotency::check(conn, &response.request)?;
            if checked == IdempotencyCheck::New {
                insert_within_caps(conn, &sandbox, caps)?;
                announce_change_of(conn, &sandbox)?;
                idempotency::store_response(conn, &response)?;
            }
            Ok(checked)
        })
        .await
    }

    async fn find(&self, scope: &Scope, id: &SandboxId) -> Result<Option<Sandbox>, StoreError> {
        let jobs = self.db.for_scope(scope);
        let (scope, id) = (scope.clone(), id.clone());
        jobs.run(JobMode::Query, move |conn| load(conn, &scope, id.as_str()))
            .await
    }

    async fn find_many(
        &self,
        scope: &Scope,
        ids: &[SandboxId],
    ) -> Result<Vec<Option<Sandbox>>, StoreError> {
        let jobs = self.db.for_scope(scope);
        let (scope, ids) = (scope.clone(), ids.to_vec());
        jobs.run(JobMode::Read, move |conn| {
            find_in_order(
                &ids,
                |sandbox: &Sandbox| sandbox.id.clone(),
                |batch| {
                    let texts: Vec<String> = batch.iter().map(ToString::to_string).collect();
                    let rows = visible(&scope)
                        .filter(sandboxes::id.eq_any(texts))
                        .select(SandboxRow::as_select())
                        .load(conn)?;
                    Ok(sandboxes_of(rows))
                },
            )
        })
        .await
    }

    async fn search(
        &self,
        scope: &Scope,
        page: &PageRequest,
    ) -> Result<Page<SandboxView>, StoreError> {
        let jobs = self.db.for_scope(scope);
        let (scope, page) = (scope.clone(), page.clone());
        let after: Option<Cursor<SandboxId>> = page_token::decode(PAGE_TOKEN_LIST, &page)?;
        // A single statement needs no transaction.
        jobs.run(JobMode::Query, move |conn| {
            let (created, id) = (sandboxes::created_at, sandboxes::id);
            let after = after.as_ref().map(|(at, id)| (*at, id.to_string()));
            let rows = keyset!(desc, visible(&scope), created, id, after)
                .limit(page_token::rows_to_load(&page))
                .select(ViewRow::as_select())
                .load(conn)?;
            let page = page_token::build_page(PAGE_TOKEN_LIST, &page, rows, |row: &ViewRow| {
                (row.created_at, row.id.0.clone())
            });
            Ok(page.map(SandboxView::from))
        })
        .await
    }

    async fn list_running(
        &self,
        owner: &OwnerId,
        spec: &SpecId,
    ) -> Result<Vec<SandboxOccupancy>, StoreError> {
        let jobs = self.db.for_owner(owner);
        let (owner, spec) = (owner.clone(), spec.clone());
        jobs.run(JobMode::Read, move |conn| {
            occupancy::list_running(conn, &owner, &spec)
        })
        .await
    }

    async fn set_desired(
        &self,
        scope: &Scope,
        id: &SandboxId,
        desired: DesiredState,
        caps: &SandboxCaps,
        at: Timestamp,
    ) -> Result<Option<Sandbox>, StoreError> {
        let jobs = self.db.for_scope(scope);
        let (scope, id, caps) = (scope.clone(), id.clone(), *caps);
        jobs.run(JobMode::Write, move |conn| {
            let Some(mut sandbox) = load(conn, &scope, id.as_str())?
                .filter(|sandbox| sandbox.desired != DesiredState::Deleted)
            else {
                return Ok(None);
            };
            match desired {
                DesiredState::Running if sandbox.desired == desired && sandbox.status.is_up() => {
                    return Ok(Some(sandbox));
                }
                DesiredState::Running => {
                    return Ok(Some(resume(conn, sandbox, caps, at)?));
                }
                DesiredState::Paused if sandbox.desired == desired => return Ok(Some(sandbox)),
                DesiredState::Paused => sandbox.paused_at = Some(at),
                DesiredState::Deleted => {}
            }
            sandbox.desired = desired;
            sandbox.updated_at = at;
            save(conn, &sandbox)?;
            Ok(Some(sandbox))
        })
        .await
    }
}

#[async_trait]
impl SandboxKeyRepository for SqlStore {
    async fn find_by_key(&self, hash: &KeyHash) -> Result<Option<Sandbox>, StoreError> {
        let hash = hash.to_string();
        self.run(Workload::Intake, JobMode::Query, move |conn| {
            let row = sandboxes::table
                .filter(sandboxes::key_hash.eq(&hash))
                .select(SandboxRow::as_select())
                .first(conn)
                .optional()?;
            Ok(row.map(Sandbox::from))
        })
        .await
    }

    async fn find_by_callback_token(&self, hash: &KeyHash) -> Result<Option<Sandbox>, StoreError> {
        let hash = hash.to_string();
        self.run(Workload::Intake, JobMode::Query, move |conn| {
            let row = sandboxes::table
                .filter(sandboxes::callback_token_hash.eq(&hash))
                .select(SandboxRow::as_select())
                .first(conn)
                .optional()?;
            Ok(row.map(Sandbox::from))
        })
        .await
    }

    async fn replace_session_key(
        &self,
        id: &SandboxId,
        old: &KeyHash,
        new: &NewSessionKey,
        at: Timestamp,
    ) -> Result<Option<Sandbox>, StoreError> {
        let (id, old, new) = (id.clone(), *old, new.clone());
        self.run(Workload::Background, JobMode::Write, move |conn| {
            let Some(mut sandbox) = load(conn, &Scope::System, id.as_str())?
                .filter(|it| it.desired == DesiredState::Running && it.key_hash == old)
            else {
                return Ok(None);
            };
            sandbox.replace_session_key(&new, at);
            save(conn, &sandbox)?;
            Ok(Some(sandbox))
        })
        .await
    }
}

#[async_trait]
impl HostSandboxRepository for SqlStore {
    async fn record_facts(
        &self,
        id: &SandboxId,
        expected: DesiredState,
        facts: &SandboxFacts,
        at: Timestamp,
    ) -> Result<bool, StoreError> {
        let (id, facts) = (id.clone(), facts.clone());
        self.run(Workload::Background, JobMode::Write, move |conn| {
            let Some(before) = load(conn, &Scope::System, id.as_str())?
                .filter(|sandbox| sandbox.desired == expected)
            else {
                return Ok(false);
            };
            let mut sandbox = before.clone();
            sandbox.apply_facts(&facts);
            // For the comparison, in the form in which the database stores it.
            sandbox.status_detail = sandbox.status_detail.map(replace_nul);
            // The reconciler reports the same facts repeatedly. Equal facts change nothing.
            if sandbox != before {
                sandbox.updated_at = at;
                save(conn, &sandbox)?;
            }
            Ok(true)
        })
        .await
    }

    async fn list_on_host(
        &self,
        host: &HostId,
        after: Option<&SandboxId>,
        limit: usize,
    ) -> Result<Vec<Sandbox>, StoreError> {
        let (host, after) = (host.to_string(), after.map(ToString::to_string));
        self.run(Workload::Background, JobMode::Read, move |conn| {
            let mut query = sandboxes::table
                .into_boxed::<AnyBackend>()
                .filter(sandboxes::host.eq(host.clone()));
            filter_by! { query, after.clone() => |after| sandboxes::id.gt(after); }
            let rows = query
                .order(sandboxes::id.asc())
                .limit(row_limit(limit))
                .select(SandboxRow::as_select())
                .load(conn)?;
            Ok(sandboxes_of(rows))
        })
        .await
    }

    async fn list_unsettled(
        &self,
        host: &HostId,
        limit: usize,
    ) -> Result<Vec<Sandbox>, StoreError> {
        let host = host.to_string();
        self.run(Workload::Background, JobMode::Read, move |conn| {
            let rows = retirement::unsettled(&host)
                .order((sandboxes::updated_at.asc(), sandboxes::id.asc()))
                .limit(row_limit(limit))
                .select(SandboxRow::as_select())
                .load(conn)?;
            Ok(sandboxes_of(rows))
        })
        .await
    }

    async fn list_retirable(
        &self,
        host: &HostId,
        reason: RetirementReason,
        limit: usize,
    ) -> Result<Vec<Sandbox>, StoreError> {
        let host = host.to_string();
        self.run(Workload::Background, JobMode::Read, move |conn| {
            let rows = retirable(reason)
                .filter(sandboxes::host.eq(host.clone()))
                .order((sandboxes::updated_at.asc(), sandboxes::id.asc()))
                .limit(row_limit(limit))
                .select(SandboxRow::as_select())
                .load(conn)?;
            Ok(sandboxes_of(rows))
        })
        .await
    }

    async fn retire(
        &self,
        id: &SandboxId,
        reason: RetirementReason,
        at: Timestamp,
    ) -> Result<Option<Sandbox>, StoreError> {
        let id = id.to_string();
        self.run(Workload::Background, JobMode::Write, move |conn| {
            // In a serializable transaction, see `retirable`.
            let row = retirable(reason)
                .filter(sandboxes::id.eq(id.clone()))
                .select(SandboxRow::as_select())
                .first(conn)
                .optional()?;
            let Some(mut sandbox) = row.map(Sandbox::from) else {
                return Ok(None);
            };
            sandbox.desired = reason.desired();
            if sandbox.desired == DesiredState::Paused {
                sandbox.paused_at = Some(at);
            }
            sandbox.updated_at = at;
            save(conn, &sandbox)?;
            Ok(Some(sandbox))
        })
        .await
    }

    async fn annotate(&self, host: &HostId, detail: Option<&str>) -> Result<u64, StoreError> {
        let (host, detail) = (host.to_string(), detail.map(replace_nul));
        self.run(Workload::Background, JobMode::Write, move |conn| {
            let annotated = [
                SandboxStatus::Starting,
                SandboxStatus::Running,
                SandboxStatus::Paused,
            ];
            let count = diesel::update(
                sandboxes::table
                    .filter(sandboxes::host.eq(&host))
                    .filter(sandboxes::status.eq_any(annotated.map(SandboxStatus::as_str))),
            )
            .set(sandboxes::status_detail.eq(&detail))
            .execute(conn)?;
            Ok(u64::try_from(count).unwrap_or(u64::MAX))
        })
        .await
    }

    async fn remove(&self, id: &SandboxId) -> Result<bool, StoreError> {
        let id = id.to_string();
        self.run(Workload::Background, JobMode::Write, move |conn| {
            let removed = diesel::delete(sandboxes::table.find(&id)).execute(conn)? > 0;
            // The agent server is removed with its sandbox, so no deletion in it remains pending.
            diesel::update(
                deleted_conversations::table
                    .filter(deleted_conversations::pending)
                    .filter(deleted_conversations::sandbox_id.eq(&id)),
            )
            .set(deleted_conversations::pending.eq(false))
            .execute(conn)?;
            Ok(removed)
        })
        .await
    }
}
