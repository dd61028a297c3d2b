//! Rows of sandboxes.

use diesel::prelude::*;
use domain::egress_list::EgressList;
use domain::id::{HostId, OwnerId, SandboxId, SpecId};
use domain::sandbox::{DesiredState, Sandbox, SandboxStatus, SandboxView};
use domain::user::identity::KeyHash;
use url::Url;

use crate::schema::column_types::{ExposedUrlsCol, TextCol, TimestampCol, UuidCol};
use crate::schema::rows::same_fields;
use crate::schema::sandboxes;

/// A row as read and written.
#[derive(Debug, Clone, Queryable, Selectable, Insertable, AsChangeset)]
#[diesel(table_name = sandboxes, treat_none_as_default_value = false, treat_none_as_null = true)]
pub(crate) struct SandboxRow {
    pub(crate) id: TextCol<SandboxId>,
    owner: TextCol<OwnerId>,
    spec_id: TextCol<SpecId>,
    host: TextCol<HostId>,
    desired: TextCol<DesiredState>,
    status: TextCol<SandboxStatus>,
    status_detail: Option<String>,
    key_hash: TextCol<KeyHash>,
    session_key: String,
    secret_key: String,
    callback_token_hash: Option<TextCol<KeyHash>>,
    agent_url: Option<TextCol<Url>>,
    exposed_urls: ExposedUrlsCol,
    workspace: Option<String>,
    has_proxy: bool,
    egress: Option<TextCol<EgressList>>,
    automation_key: Option<UuidCol>,
    pub(crate) created_at: TimestampCol,
    updated_at: TimestampCol,
    paused_at: Option<TimestampCol>,
}

/// The columns that a list reads.
#[derive(Debug, Queryable, Selectable)]
#[diesel(table_name = sandboxes)]
pub(crate) struct ViewRow {
    pub(crate) id: TextCol<SandboxId>,
    owner: TextCol<OwnerId>,
    spec_id: TextCol<SpecId>,
    status: TextCol<SandboxStatus>,
    status_detail: Option<String>,
    key_hash: TextCol<KeyHash>,
    session_key: String,
    exposed_urls: ExposedUrlsCol,
    workspace: Option<String>,
    egress: Option<TextCol<EgressList>>,
    pub(crate) created_at: TimestampCol,
}

same_fields! {
    SandboxRow, Sandbox, [
        id, owner, spec_id, host, desired, status, status_detail, key_hash, session_key, secret_key,
        callback_token_hash, agent_url, exposed_urls, workspace, has_proxy, egress, automation_key, created_at,
        updated_at, paused_at,
    ]
}

same_fields! {
    read ViewRow, SandboxView, [
        id, owner, spec_id, status, status_detail, key_hash, session_key, exposed_urls, workspace,
        egress, created_at,
    ]
}

pub(crate) fn sandboxes_of(rows: Vec<SandboxRow>) -> Vec<Sandbox> {
    rows.into_iter().map(Sandbox::from).collect()
}
