//! Rows of sandboxes.

use diesel::prelude::*;
use domain::cipher::Sealed;
use domain::error::StoreError;
use domain::identity::KeyHash;
use domain::sandbox::Sandbox;

use crate::codec::{Decode, plain, to_json};
use crate::error::Fault;
use crate::schema::sandboxes;
use crate::sql_types::{At, Json};

/// One row, as it is read and written.
#[derive(Debug, Clone, Queryable, Selectable, Insertable, AsChangeset)]
#[diesel(table_name = sandboxes, treat_none_as_default_value = false, treat_none_as_null = true)]
pub(crate) struct SandboxRow {
    pub(crate) id: String,
    owner: String,
    spec_id: String,
    host: String,
    desired: String,
    status: String,
    status_detail: Option<String>,
    key_hash: String,
    session_key: String,
    secret_key: String,
    agent_url: Option<String>,
    exposed_urls: Json,
    workspace: Option<String>,
    pub(crate) created_at: At,
    updated_at: At,
    paused_at: Option<At>,
}

impl TryFrom<&Sandbox> for SandboxRow {
    type Error = StoreError;

    fn try_from(sandbox: &Sandbox) -> Result<Self, StoreError> {
        Ok(Self {
            id: sandbox.id.to_string(),
            owner: sandbox.owner.to_string(),
            spec_id: sandbox.spec_id.to_string(),
            host: sandbox.host.to_string(),
            desired: sandbox.desired.to_string(),
            status: sandbox.status.to_string(),
            status_detail: sandbox.status_detail.clone().map(plain),
            key_hash: sandbox.key_hash.to_string(),
            session_key: sandbox.session_key.as_text().to_owned(),
            secret_key: sandbox.secret_key.as_text().to_owned(),
            agent_url: sandbox.agent_url.as_ref().map(ToString::to_string),
            exposed_urls: to_json(&sandbox.exposed_urls)?,
            workspace: sandbox.workspace.clone().map(plain),
            created_at: At(sandbox.created_at),
            updated_at: At(sandbox.updated_at),
            paused_at: sandbox.paused_at.map(At),
        })
    }
}

impl TryFrom<SandboxRow> for Sandbox {
    type Error = StoreError;

    fn try_from(row: SandboxRow) -> Result<Self, StoreError> {
        let decode = Decode("sandbox");
        Ok(Self {
            id: decode.parse("id", &row.id)?,
            owner: decode.parse("owner", &row.owner)?,
            spec_id: decode.parse("spec_id", &row.spec_id)?,
            host: decode.parse("host", &row.host)?,
            desired: decode.parse("desired", &row.desired)?,
            status: decode.parse("status", &row.status)?,
            status_detail: row.status_detail,
            key_hash: KeyHash(row.key_hash),
            session_key: Sealed::from_text(row.session_key),
            secret_key: Sealed::from_text(row.secret_key),
            agent_url: decode.parse_opt("agent_url", row.agent_url.as_ref())?,
            exposed_urls: decode.json("exposed_urls", &row.exposed_urls)?,
            workspace: row.workspace,
            created_at: row.created_at.0,
            updated_at: row.updated_at.0,
            paused_at: row.paused_at.map(|at| at.0),
        })
    }
}

/// What rows say.
pub(crate) fn sandboxes_of(rows: Vec<SandboxRow>) -> Result<Vec<Sandbox>, Fault> {
    Ok(rows
        .into_iter()
        .map(Sandbox::try_from)
        .collect::<Result<_, _>>()?)
}
