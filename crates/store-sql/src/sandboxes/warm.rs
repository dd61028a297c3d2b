//! `WarmRepository`.

use async_trait::async_trait;
use diesel::dsl::{exists, not};
use diesel::prelude::*;
use diesel::sql_types::Text;
use domain::clock::Timestamp;
use domain::error::{Entity, StoreError};
use domain::id::{HostId, SandboxId, SpecId};
use domain::sandbox::{
    ExposedUrl, MAX_WARM_SANDBOXES_PER_HOST, SandboxEndpoints, WarmRepository, WarmSandbox,
    WarmState,
};
use domain::user::identity::KeyHash;
use url::Url;

use crate::database::connection::{AnyConnection, on_backend};
use crate::database::pool::{JobMode, Workload};
use crate::error::{QueryResultExt, conflict, map_unique_violation};
use crate::schema::codec::{replace_nul, row_limit};
use crate::schema::column_types::{Instant, JsonCol, TextCol, TimestampCol};
use crate::schema::rows::same_fields;
use crate::schema::{sandboxes, warm_sandboxes};
use crate::store::SqlStore;

const ENTITY: Entity = Entity::WarmSandbox;

/// A row as read and written.
#[derive(Debug, Clone, Queryable, QueryableByName, Selectable, Insertable)]
#[diesel(table_name = warm_sandboxes)]
struct WarmRow {
    id: TextCol<SandboxId>,
    spec_id: TextCol<SpecId>,
    host: TextCol<HostId>,
    recipe: String,
    state: TextCol<WarmState>,
    key_hash: TextCol<KeyHash>,
    session_key: String,
    secret_key: String,
    agent_url: Option<TextCol<Url>>,
    exposed_urls: JsonCol<Vec<ExposedUrl>>,
    workspace: Option<String>,
    has_proxy: bool,
    created_at: TimestampCol,
    updated_at: TimestampCol,
}

same_fields! {
    WarmRow, WarmSandbox, [
        id, spec_id, host, recipe, state, key_hash, session_key, secret_key, created_at, updated_at,
    ],
    |warm| {
        agent_url: warm.endpoints.as_ref().map(|it| TextCol(it.agent_url.clone())),
        exposed_urls: JsonCol(warm.endpoints.as_ref().map(|it| it.exposed_urls.clone()).unwrap_or_default()),
        workspace: warm.endpoints.as_ref().map(|it| replace_nul(it.workspace.as_str())),
        has_proxy: warm.endpoints.as_ref().is_some_and(|it| it.has_proxy),
    },
    read |row| {
        endpoints: row.agent_url.zip(row.workspace).map(|(url, workspace)| SandboxEndpoints {
            agent_url: url.0,
            exposed_urls: row.exposed_urls.0,
            workspace,
            has_proxy: row.has_proxy,
        }),
    }
}

/// Claims with one statement, which saves round trips. `{lock}` is Postgres' `SKIP LOCKED`, which skips rows of concurrent
/// claims; `SQLite` has one writer at a time. Both databases accept `$1` for the first parameter.
macro_rules! claim {
    ($lock:literal) => {
        concat!(
            "WITH next AS MATERIALIZED (
                SELECT id FROM warm_sandboxes AS warm
                WHERE host = $1 AND spec_id = $2 AND recipe = $3 AND state = $4
                    AND NOT EXISTS (SELECT 1 FROM sandboxes WHERE sandboxes.id = warm.id)
                ORDER BY created_at, id LIMIT 1 ",
            $lock,
            ")
            UPDATE warm_sandboxes SET state = $5, updated_at = $6
            WHERE id IN (SELECT id FROM next)
            RETURNING id, spec_id, host, recipe, state, key_hash, session_key, secret_key, agent_url, exposed_urls,
                workspace, has_proxy, created_at, updated_at"
        )
    };
}

#[async_trait]
impl WarmRepository for SqlStore {
    async fn insert(&self, warm: &WarmSandbox, max_count: u32) -> Result<bool, StoreError> {
        let warm = warm.clone();
        self.run(Workload::Background, JobMode::Write, move |conn| {
            let on_host = warm_sandboxes::table.filter(warm_sandboxes::host.eq(warm.host.as_str()));
            let counted: i64 = on_host
                .filter(warm_sandboxes::spec_id.eq(warm.spec_id.as_str()))
                .filter(warm_sandboxes::state.ne(WarmState::Claimed.as_str()))
                .count()
                .get_result(conn)?;
            let all: i64 = on_host.count().get_result(conn)?;
            if counted >= i64::from(max_count) || all >= row_limit(MAX_WARM_SANDBOXES_PER_HOST) {
                return Ok(false);
            }
            diesel::insert_into(warm_sandboxes::table)
                .values(WarmRow::from(&warm))
                .execute(conn)
                .map_err(map_unique_violation(conflict(ENTITY)))?;
            Ok(true)
        })
        .await
    }

    async fn mark_ready(
        &self,
        id: &SandboxId,
        endpoints: &SandboxEndpoints,
        at: Timestamp,
    ) -> Result<bool, StoreError> {
        let (id, endpoints) = (id.to_string(), endpoints.clone());
        self.run(Workload::Background, JobMode::Write, move |conn| {
            let booting = warm_sandboxes::table
                .find(&id)
                .filter(warm_sandboxes::state.eq(WarmState::Booting.as_str()));
            let changed = diesel::update(booting)
                .set((
                    warm_sandboxes::state.eq(WarmState::Ready.as_str()),
                    warm_sandboxes::agent_url.eq(endpoints.agent_url.as_str()),
                    warm_sandboxes::exposed_urls.eq(JsonCol(endpoints.exposed_urls.clone())),
                    warm_sandboxes::workspace.eq(replace_nul(endpoints.workspace.as_str())),
                    warm_sandboxes::has_proxy.eq(endpoints.has_proxy),
                    warm_sandboxes::updated_at.eq(TimestampCol(at)),
                ))
                .execute(conn)?;
            Ok(changed > 0)
        })
        .await
    }

    async fn claim(
        &self,
        host: &HostId,
        spec: &SpecId,
        recipe: &str,
        at: Timestamp,
    ) -> Result<Option<WarmSandbox>, StoreError> {
        let (host, spec, recipe) = (host.to_string(), spec.to_string(), recipe.to_owned());
        self.run(Workload::Requests, JobMode::WriteLocked, move |conn| {
            let statement = match conn {
                AnyConnection::Sqlite(_) => claim!(""),
                #[cfg(feature = "postgres")]
                AnyConnection::Postgres(_) => claim!("FOR UPDATE OF warm SKIP LOCKED"),
            };
            let claimed: Option<WarmRow> = on_backend!(conn, |c| diesel::sql_query(statement)
                .bind::<Text, _>(&host)
                .bind::<Text, _>(&spec)
                .bind::<Text, _>(&recipe)
                .bind::<Text, _>(WarmState::Ready.as_str())
                .bind::<Text, _>(WarmState::Claimed.as_str())
                .bind::<Instant, _>(TimestampCol(at))
                .get_result(c)
                .optional()
                .map_decode_error(ENTITY)?);
            Ok(claimed.map(WarmSandbox::from))
        })
        .await
    }

    async fn release(&self, id: &SandboxId, at: Timestamp) -> Result<bool, StoreError> {
        let id = id.to_string();
        self.run(Workload::Background, JobMode::Write, move |conn| {
            let sandbox = sandboxes::table.find(&id).select(sandboxes::id);
            let claimed = warm_sandboxes::table
                .find(&id)
                .filter(warm_sandboxes::state.eq(WarmState::Claimed.as_str()))
                .filter(not(exists(sandbox)));
            let changed = diesel::update(claimed)
                .set((
                    warm_sandboxes::state.eq(WarmState::Ready.as_str()),
                    warm_sandboxes::updated_at.eq(TimestampCol(at)),
                ))
                .execute(conn)?;
            Ok(changed > 0)
        })
        .await
    }

    async fn list_on_host(&self, host: &HostId) -> Result<Vec<WarmSandbox>, StoreError> {
        let host = host.to_string();
        self.run(Workload::Background, JobMode::Read, move |conn| {
            let rows: Vec<WarmRow> = warm_sandboxes::table
                .filter(warm_sandboxes::host.eq(&host))
                .order((warm_sandboxes::created_at.asc(), warm_sandboxes::id.asc()))
                .limit(row_limit(MAX_WARM_SANDBOXES_PER_HOST))
                .select(WarmRow::as_select())
                .load(conn)
                .map_decode_error(ENTITY)?;
            Ok(rows.into_iter().map(WarmSandbox::from).collect())
        })
        .await
    }

    async fn remove(&self, id: &SandboxId) -> Result<bool, StoreError> {
        let id = id.to_string();
        self.run(Workload::Background, JobMode::Write, move |conn| {
            let removed = diesel::delete(warm_sandboxes::table.find(&id)).execute(conn)?;
            Ok(removed > 0)
        })
        .await
    }

    async fn dismiss(&self, id: &SandboxId) -> Result<bool, StoreError> {
        let id = id.to_string();
        self.run(Workload::Background, JobMode::Write, move |conn| {
            let unclaimed = warm_sandboxes::table
                .find(&id)
                .filter(warm_sandboxes::state.ne(WarmState::Claimed.as_str()));
            Ok(diesel::delete(unclaimed).execute(conn)? > 0)
        })
        .await
    }
}
