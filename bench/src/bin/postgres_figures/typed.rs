//! Typed rows of the bare handler, and the response types that serde writes. It ignores running sandboxes, whose keys the
//! service decrypts and shows, because the measured lists contain none.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use benchmarks::responses::{Conversation, Metrics, Page, micros};
use chrono::{DateTime, Utc};
use diesel::deserialize::{FromSql, FromSqlRow, Result as DieselResult};
use diesel::pg::{Pg, PgValue};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Json, Jsonb, Nullable, Text, Timestamptz};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Columns of the list: conversation, sandbox, children.
pub(crate) type ListColumns = (
    (
        diesel::sql_types::Uuid,
        Text,
        Text,
        Nullable<Text>,
        Bool,
        Nullable<Text>,
        Nullable<Text>,
        Nullable<Text>,
        Nullable<Text>,
        Jsonb,
        Nullable<Text>,
        Text,
        Jsonb,
        Nullable<diesel::sql_types::Uuid>,
        Nullable<Bool>,
        Json,
        Nullable<Text>,
        Nullable<Timestamptz>,
        Timestamptz,
        Timestamptz,
    ),
    Nullable<(
        Text,
        Text,
        Text,
        Text,
        Text,
        Text,
        Nullable<Text>,
        Text,
        Text,
        Text,
        Nullable<Text>,
        Nullable<Text>,
        Jsonb,
        Nullable<Text>,
        Timestamptz,
        Timestamptz,
        Nullable<Timestamptz>,
    )>,
    Text,
);

/// One row of the list.
pub(crate) type ListRow = (ConversationRow, Option<SandboxRow>, String);

/// Diesel's own type needs a feature that the workspace does not use.
#[derive(Debug, Clone, Copy, FromSqlRow)]
pub(crate) struct IdCol(Uuid);

impl FromSql<diesel::sql_types::Uuid, Pg> for IdCol {
    fn from_sql(value: PgValue<'_>) -> DieselResult<Self> {
        Ok(Self(Uuid::from_slice(value.as_bytes())?))
    }
}

/// A JSON document.
#[derive(Debug, FromSqlRow)]
pub(crate) struct JsonCol<T>(T);

impl<T: for<'a> Deserialize<'a>> FromSql<Jsonb, Pg> for JsonCol<T> {
    fn from_sql(value: PgValue<'_>) -> DieselResult<Self> {
        // The first byte is the version of the encoding.
        Ok(Self(serde_json::from_slice(&value.as_bytes()[1..])?))
    }
}

impl<T: for<'a> Deserialize<'a>> FromSql<Json, Pg> for JsonCol<T> {
    fn from_sql(value: PgValue<'_>) -> DieselResult<Self> {
        Ok(Self(serde_json::from_slice(value.as_bytes())?))
    }
}

#[derive(Debug, Queryable)]
#[expect(dead_code, reason = "read because the service reads them")]
pub(crate) struct ConversationRow {
    id: IdCol,
    owner: String,
    sandbox_id: String,
    title: Option<String>,
    auto_title: bool,
    selected_repository: Option<String>,
    selected_branch: Option<String>,
    git_provider: Option<String>,
    started_by: Option<String>,
    pr_numbers: JsonCol<Vec<i64>>,
    llm_model: Option<String>,
    agent_kind: String,
    metrics: JsonCol<Metrics>,
    parent: Option<IdCol>,
    is_public: Option<bool>,
    tags: JsonCol<BTreeMap<String, String>>,
    execution_status: Option<String>,
    status_at: Option<DateTime<Utc>>,
    created_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
}

#[derive(Debug, Queryable)]
#[expect(dead_code, reason = "read because the service reads them")]
pub(crate) struct SandboxRow {
    id: String,
    owner: String,
    spec_id: String,
    host: String,
    desired: String,
    status: String,
    status_detail: Option<String>,
    key_hash: String,
    session_key: String,
    secret_key: String,
    callback_token_hash: Option<String>,
    agent_url: Option<String>,
    exposed_urls: JsonCol<Vec<serde_json::Value>>,
    workspace: Option<String>,
    created_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
    paused_at: Option<DateTime<Utc>>,
}

/// An id without dashes.
#[derive(Debug, Serialize)]
#[serde(transparent)]
struct HexId(#[serde(with = "uuid::serde::simple")] Uuid);

/// A time in a response.
#[derive(Debug, Serialize)]
#[serde(transparent)]
struct ResponseTime(#[serde(serialize_with = "micros")] DateTime<Utc>);

/// One conversation of the response.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub(crate) struct ListItem(Conversation<HexId, ResponseTime>);

impl From<ListRow> for ListItem {
    fn from((it, sandbox, children): ListRow) -> Self {
        let status = sandbox.map_or_else(|| "MISSING".to_owned(), |sandbox| sandbox.status);
        let has_status = matches!(status.as_str(), "RUNNING" | "PAUSED");
        let children = children.split(',').filter(|id| !id.is_empty());
        Self(Conversation {
            id: HexId(it.id.0),
            created_by_user_id: it.owner,
            sandbox_id: it.sandbox_id,
            selected_repository: it.selected_repository,
            selected_branch: it.selected_branch,
            git_provider: it.git_provider,
            title: it.title,
            trigger: it.started_by,
            pr_number: it.pr_numbers.0,
            llm_model: it.llm_model,
            agent_kind: it.agent_kind,
            metrics: it.metrics.0.into(),
            parent_conversation_id: it.parent.map(|id| id.0.simple().to_string()),
            sub_conversation_ids: children.map(str::to_owned).collect(),
            public: it.is_public,
            tags: it.tags.0,
            created_at: ResponseTime(it.created_at),
            updated_at: ResponseTime(it.updated_at),
            sandbox_status: status,
            execution_status: it.execution_status.filter(|_| has_status),
            conversation_url: None,
            session_api_key: None,
            acp_server: None,
            launched_agent_profile: None,
            workspace: None,
        })
    }
}

/// The page of `limit` rows; the query reads one more.
pub(crate) fn page(mut rows: Vec<ListRow>, limit: usize) -> Page<ListItem> {
    let has_more = rows.len() > limit;
    rows.truncate(limit);
    let last = rows.last().filter(|_| has_more).map(|(row, ..)| {
        let at = row.created_at.timestamp_micros();
        URL_SAFE_NO_PAD.encode(format!("v1|conversations|{at}|{}", row.id.0))
    });
    Page {
        items: rows.into_iter().map(ListItem::from).collect(),
        next_page_id: last,
    }
}

/// Columns of settings.
pub(crate) type SettingsColumns = (Text, BigInt, Timestamptz);

/// Settings, stored as in the response.
#[derive(Debug, Queryable)]
#[expect(dead_code, reason = "read because the service reads them")]
pub(crate) struct SettingsRow {
    pub(crate) document: String,
    revision: i64,
    updated_at: DateTime<Utc>,
}
