//! `HostRepository`.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use diesel::dsl::{count_star, exists, select};
use diesel::prelude::*;
use domain::clock::Timestamp;
use domain::coordination::change::StoreChange;
use domain::coordination::host::{Host, HostRepository};
use domain::error::{Entity, StoreError};
use domain::id::{HostId, SandboxId};
use domain::sandbox::{DesiredState, SandboxStatus};

use crate::database::changes::announce;
use crate::database::connection::AnyConnection;
use crate::database::pool::{JobMode, Workload};
use crate::error::{QueryResultExt, TransactionError};
use crate::schema::codec::{IDS_PER_QUERY, replace_nul, row_limit};
use crate::schema::column_types::{ExposedUrlsCol, TextCol, TimestampCol, UuidCol};
use crate::schema::{deleted_conversations, hosts, sandboxes, start_tasks, warm_sandboxes};
use crate::store::SqlStore;

type HostRow = (TextCol<HostId>, TimestampCol, Option<TimestampCol>, bool);

fn is_known(conn: &mut AnyConnection, host: &str) -> Result<bool, TransactionError> {
    Ok(select(exists(hosts::table.find(host))).get_result(conn)?)
}

fn list(conn: &mut AnyConnection) -> Result<Vec<Host>, TransactionError> {
    let up = [SandboxStatus::Starting, SandboxStatus::Running].map(SandboxStatus::as_str);
    let running: Vec<(String, i64)> = sandboxes::table
        .filter(sandboxes::desired.eq(DesiredState::Running.as_str()))
        .filter(sandboxes::status.eq_any(up))
        .group_by(sandboxes::host)
        .select((sandboxes::host, count_star()))
        .load(conn)?;
    let open: Vec<(String, i64)> = start_tasks::table
        .filter(start_tasks::is_open)
        .group_by(start_tasks::host)
        .select((start_tasks::host, count_star()))
        .load(conn)?;
    let (running, open) = (BTreeMap::from_iter(running), BTreeMap::from_iter(open));
    let count = |counts: &BTreeMap<String, i64>, host: &HostId| {
        let count = counts.get(host.as_str()).copied().unwrap_or_default();
        u64::try_from(count).unwrap_or_default()
    };
    let rows: Vec<HostRow> = hosts::table
        .order(hosts::id.asc())
        .select((
            hosts::id,
            hosts::registered_at,
            hosts::seen_at,
            hosts::is_draining,
        ))
        .load(conn)?;
    let host = |(TextCol(id), registered_at, seen_at, is_draining): HostRow| Host {
        registered_at: registered_at.0,
        seen_at: seen_at.map(|at| at.0),
        is_draining,
        sandboxes: count(&running, &id),
        open_starts: count(&open, &id),
        id,
    };
    Ok(rows.into_iter().map(host).collect())
}

/// The starts that may move, with their sandboxes, oldest first.
fn movable(
    conn: &mut AnyConnection,
    from: &str,
    now: Timestamp,
    limit: usize,
) -> Result<Vec<(UuidCol, TextCol<SandboxId>)>, TransactionError> {
    let has_no_lease = start_tasks::lease_until
        .is_null()
        .or(start_tasks::lease_until.le(TimestampCol(now)));
    let sandbox = sandboxes::table
        .filter(sandboxes::id.eq(start_tasks::sandbox_id))
        .filter(sandboxes::desired.eq(DesiredState::Running.as_str()));
    let found = start_tasks::table
        .filter(start_tasks::host.eq(from))
        .filter(start_tasks::is_open)
        .filter(start_tasks::owns_sandbox)
        .filter(start_tasks::begun.eq(false))
        .filter(has_no_lease)
        .filter(exists(sandbox))
        .order((start_tasks::created_at.asc(), start_tasks::id.asc()))
        .limit(row_limit(limit.min(IDS_PER_QUERY)))
        .select((start_tasks::id, start_tasks::sandbox_id))
        .load(conn)
        .map_decode_error(Entity::StartTask)?;
    Ok(found)
}

/// Whether the host is as silent as when it was listed.
fn is_silent(conn: &mut AnyConnection, lost: &Host) -> Result<bool, TransactionError> {
    let same = hosts::table
        .find(lost.id.as_str())
        .filter(hosts::seen_at.eq(lost.seen_at.map(TimestampCol)));
    Ok(select(exists(same)).get_result(conn)?)
}

fn adopt(
    conn: &mut AnyConnection,
    lost: &Host,
    to: &HostId,
    now: Timestamp,
    limit: usize,
) -> Result<u64, TransactionError> {
    if !is_silent(conn, lost)? {
        return Ok(0);
    }
    let found = movable(conn, lost.id.as_str(), now, limit)?;
    let (tasks, inside): (Vec<_>, Vec<_>) = found.into_iter().unzip();
    if tasks.is_empty() {
        return Ok(0);
    }
    diesel::update(start_tasks::table.filter(start_tasks::id.eq_any(&tasks)))
        .set((
            start_tasks::host.eq(to.as_str()),
            start_tasks::fence.eq(start_tasks::fence + 1),
            start_tasks::lease_until.eq(None::<TimestampCol>),
        ))
        .execute(conn)?;
    let inside: Vec<String> = inside.into_iter().map(|id| id.0.to_string()).collect();
    diesel::update(sandboxes::table.filter(sandboxes::id.eq_any(&inside)))
        .set((
            sandboxes::host.eq(to.as_str()),
            sandboxes::status.eq(SandboxStatus::Starting.as_str()),
            sandboxes::status_detail.eq(None::<String>),
            sandboxes::agent_url.eq(None::<String>),
            sandboxes::exposed_urls.eq(ExposedUrlsCol(Arc::default())),
            sandboxes::workspace.eq(None::<String>),
            sandboxes::has_proxy.eq(false),
            sandboxes::updated_at.eq(TimestampCol(now)),
            sandboxes::is_host_lost.eq(false),
        ))
        .execute(conn)?;
    announce(conn, &StoreChange::StartTaskQueued(to.clone()))?;
    Ok(tasks.len() as u64)
}

fn note_alive(
    conn: &mut AnyConnection,
    host: &str,
    at: Timestamp,
) -> Result<u64, TransactionError> {
    diesel::update(hosts::table.find(host))
        .set(hosts::seen_at.eq(TimestampCol(at)))
        .execute(conn)?;
    let lost = sandboxes::table
        .filter(sandboxes::host.eq(host))
        .filter(sandboxes::is_host_lost)
        .filter(sandboxes::desired.eq(DesiredState::Running.as_str()))
        .filter(sandboxes::status.eq(SandboxStatus::Missing.as_str()));
    let restored = diesel::update(lost)
        .set((
            sandboxes::status.eq(SandboxStatus::Running.as_str()),
            sandboxes::status_detail.eq(None::<String>),
            sandboxes::is_host_lost.eq(false),
        ))
        .execute(conn)?;
    Ok(restored as u64)
}

fn mark_lost(conn: &mut AnyConnection, lost: &Host, detail: &str) -> Result<u64, TransactionError> {
    if !is_silent(conn, lost)? {
        return Ok(0);
    }
    let running = sandboxes::table
        .filter(sandboxes::host.eq(lost.id.as_str()))
        .filter(sandboxes::desired.eq(DesiredState::Running.as_str()))
        .filter(sandboxes::status.eq(SandboxStatus::Running.as_str()));
    let marked = diesel::update(running)
        .set((
            sandboxes::status.eq(SandboxStatus::Missing.as_str()),
            sandboxes::status_detail.eq(detail),
            sandboxes::is_host_lost.eq(true),
        ))
        .execute(conn)?;
    Ok(marked as u64)
}

fn remove(conn: &mut AnyConnection, lost: &Host, heir: &HostId) -> Result<bool, TransactionError> {
    if !is_silent(conn, lost)? {
        return Ok(false);
    }
    let host = lost.id.as_str();
    let unfinished = start_tasks::table
        .filter(start_tasks::host.eq(host))
        .filter(start_tasks::is_open);
    diesel::update(unfinished)
        .set((
            start_tasks::host.eq(heir.as_str()),
            start_tasks::fence.eq(start_tasks::fence + 1),
            start_tasks::lease_until.eq(None::<TimestampCol>),
        ))
        .execute(conn)?;
    // The agent servers are gone, so no deletion in them remains pending.
    let inside = sandboxes::table
        .filter(sandboxes::host.eq(host))
        .select(sandboxes::id);
    let pending = deleted_conversations::table
        .filter(deleted_conversations::pending)
        .filter(deleted_conversations::sandbox_id.eq_any(inside));
    diesel::update(pending)
        .set(deleted_conversations::pending.eq(false))
        .execute(conn)?;
    diesel::delete(sandboxes::table.filter(sandboxes::host.eq(host))).execute(conn)?;
    diesel::delete(warm_sandboxes::table.filter(warm_sandboxes::host.eq(host))).execute(conn)?;
    diesel::delete(hosts::table.find(host)).execute(conn)?;
    announce(conn, &StoreChange::StartTaskQueued(heir.clone()))?;
    Ok(true)
}

#[async_trait]
impl HostRepository for SqlStore {
    async fn is_known(&self, host: &HostId) -> Result<bool, StoreError> {
        let host = host.to_string();
        self.run(Workload::Background, JobMode::Read, move |conn| {
            is_known(conn, &host)
        })
        .await
    }

    async fn register(&self, host: &HostId, at: Timestamp) -> Result<(), StoreError> {
        let host = host.to_string();
        self.run(Workload::Background, JobMode::Write, move |conn| {
            if is_known(conn, &host)? {
                return Ok(());
            }
            let row = (
                hosts::id.eq(&host),
                hosts::registered_at.eq(TimestampCol(at)),
                hosts::seen_at.eq(TimestampCol(at)),
            );
            diesel::insert_into(hosts::table)
                .values(row)
                .execute(conn)?;
            Ok(())
        })
        .await
    }

    async fn note_alive(&self, host: &HostId, at: Timestamp) -> Result<u64, StoreError> {
        let host = host.to_string();
        self.run(Workload::Background, JobMode::Write, move |conn| {
            note_alive(conn, &host, at)
        })
        .await
    }

    async fn list(&self) -> Result<Vec<Host>, StoreError> {
        self.run(Workload::Background, JobMode::Read, list).await
    }

    async fn set_draining(&self, host: &HostId, is_draining: bool) -> Result<bool, StoreError> {
        let host = host.to_string();
        self.run(Workload::Background, JobMode::Write, move |conn| {
            let changed = diesel::update(hosts::table.find(&host))
                .set(hosts::is_draining.eq(is_draining))
                .execute(conn)?;
            Ok(changed > 0)
        })
        .await
    }

    async fn adopt_starts(
        &self,
        lost: &Host,
        to: &HostId,
        now: Timestamp,
        limit: usize,
    ) -> Result<u64, StoreError> {
        let (lost, to) = (lost.clone(), to.clone());
        self.run(Workload::Background, JobMode::Write, move |conn| {
            adopt(conn, &lost, &to, now, limit)
        })
        .await
    }

    async fn mark_lost(&self, lost: &Host, detail: &str) -> Result<u64, StoreError> {
        let (lost, detail) = (lost.clone(), replace_nul(detail));
        self.run(Workload::Background, JobMode::Write, move |conn| {
            mark_lost(conn, &lost, &detail)
        })
        .await
    }

    async fn remove(&self, lost: &Host, heir: &HostId) -> Result<bool, StoreError> {
        let (lost, heir) = (lost.clone(), heir.clone());
        self.run(Workload::Background, JobMode::Write, move |conn| {
            remove(conn, &lost, &heir)
        })
        .await
    }
}
