//! Rows of sandboxes.

use diesel::prelude::*;
use domain::encryption::cipher::Sealed;
use domain::error::StoreError;
use domain::id::{HostId, SandboxId, SpecId, UserId};
use domain::sandbox::{DesiredState, Sandbox, SandboxStatus, SandboxView};
use domain::user::identity::KeyHash;

use crate::error::TransactionError;
use crate::schema::codec::replace_nul;
use crate::schema::column_types::{ExposedUrlsCol, InternedCol, TextCol, TimestampCol};
use crate::schema::parse_cache::SharedUrl;
use crate::schema::sandboxes;

/// A row as read and written.
#[derive(Debug, Clone, Queryable, Selectable, Insertable, AsChangeset)]
#[diesel(table_name = sandboxes, treat_none_as_default_value = false, treat_none_as_null = true)]
pub(crate) struct SandboxRow {
    pub(crate) id: TextCol<SandboxId>,
    owner: TextCol<UserId>,
    spec_id: InternedCol<SpecId>,
    host: InternedCol<HostId>,
    desired: TextCol<DesiredState>,
    status: TextCol<SandboxStatus>,
    status_detail: Option<String>,
    key_hash: TextCol<KeyHash>,
    session_key: String,
    secret_key: String,
    callback_token_hash: Option<TextCol<KeyHash>>,
    agent_url: Option<TextCol<SharedUrl>>,
    exposed_urls: ExposedUrlsCol,
    workspace: Option<String>,
    pub(crate) created_at: TimestampCol,
    updated_at: TimestampCol,
    paused_at: Option<TimestampCol>,
}

/// The columns that a list reads.
#[derive(Debug, Queryable, Selectable)]
#[diesel(table_name = sandboxes)]
pub(crate) struct ViewRow {
    pub(crate) id: TextCol<SandboxId>,
    owner: TextCol<UserId>,
    spec_id: InternedCol<SpecId>,
    status: TextCol<SandboxStatus>,
    status_detail: Option<String>,
    key_hash: TextCol<KeyHash>,
    session_key: String,
    exposed_urls: ExposedUrlsCol,
    workspace: Option<String>,
    pub(crate) created_at: TimestampCol,
}

impl From<ViewRow> for SandboxView {
    fn from(row: ViewRow) -> Self {
        Self {
            id: row.id.0,
            owner: row.owner.0,
            spec_id: row.spec_id.0,
            status: row.status.0,
            status_detail: row.status_detail,
            key_hash: row.key_hash.0,
            session_key: Sealed::from_text(row.session_key),
            exposed_urls: row.exposed_urls.0,
            workspace: row.workspace,
            created_at: row.created_at.0,
        }
    }
}

impl From<&Sandbox> for SandboxRow {
    fn from(sandbox: &Sandbox) -> Self {
        Self {
            id: TextCol(sandbox.id.clone()),
            owner: TextCol(sandbox.owner.clone()),
            spec_id: InternedCol(sandbox.spec_id.clone()),
            host: InternedCol(sandbox.host.clone()),
            desired: TextCol(sandbox.desired),
            status: TextCol(sandbox.status),
            status_detail: sandbox.status_detail.clone().map(replace_nul),
            key_hash: TextCol(sandbox.key_hash),
            session_key: sandbox.session_key.as_text().to_owned(),
            secret_key: sandbox.secret_key.as_text().to_owned(),
            callback_token_hash: sandbox.callback_token_hash.map(TextCol),
            agent_url: sandbox.agent_url.clone().map(SharedUrl).map(TextCol),
            exposed_urls: ExposedUrlsCol(sandbox.exposed_urls.clone()),
            workspace: sandbox.workspace.clone().map(replace_nul),
            created_at: TimestampCol(sandbox.created_at),
            updated_at: TimestampCol(sandbox.updated_at),
            paused_at: sandbox.paused_at.map(TimestampCol),
        }
    }
}

impl TryFrom<SandboxRow> for Sandbox {
    type Error = StoreError;

    fn try_from(row: SandboxRow) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.id.0,
            owner: row.owner.0,
            spec_id: row.spec_id.0,
            host: row.host.0,
            desired: row.desired.0,
            status: row.status.0,
            status_detail: row.status_detail,
            key_hash: row.key_hash.0,
            session_key: Sealed::from_text(row.session_key),
            secret_key: Sealed::from_text(row.secret_key),
            callback_token_hash: row.callback_token_hash.map(|hash| hash.0),
            agent_url: row.agent_url.map(|url| url.0.0),
            exposed_urls: row.exposed_urls.0,
            workspace: row.workspace,
            created_at: row.created_at.0,
            updated_at: row.updated_at.0,
            paused_at: row.paused_at.map(|at| at.0),
        })
    }
}

pub(crate) fn sandboxes_of(rows: Vec<SandboxRow>) -> Result<Vec<Sandbox>, TransactionError> {
    Ok(rows
        .into_iter()
        .map(Sandbox::try_from)
        .collect::<Result<_, _>>()?)
}
