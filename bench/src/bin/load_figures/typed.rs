//! Typed rows of the bare handlers, and responses for serde.

use std::collections::BTreeMap;
use std::marker::PhantomData;

use benchmarks::responses::{Conversation, Metrics, Page, micros};
use chrono::{DateTime, Utc};
use diesel::deserialize::{FromSql, FromSqlRow, Result as Read};
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::sql_types::{BigInt, Bool, Nullable, Text};
use diesel::sqlite::{Sqlite, SqliteConnection};
use serde::{Deserialize, Serialize};

/// The default page size, and one row more.
const PAGE_ROWS: i64 = 101;

const SANDBOX: &str = "sandboxes.id, sandboxes.owner, sandboxes.spec_id, sandboxes.host, sandboxes.desired, \
    sandboxes.status, sandboxes.status_detail, sandboxes.key_hash, sandboxes.session_key, sandboxes.secret_key, \
    sandboxes.agent_url, sandboxes.exposed_urls, sandboxes.workspace, sandboxes.created_at, sandboxes.updated_at, \
    sandboxes.paused_at";
const SANDBOXES: [&str; 3] = [
    "SELECT sandboxes.id, sandboxes.owner, sandboxes.spec_id, sandboxes.status, sandboxes.status_detail, ",
    "sandboxes.key_hash, sandboxes.session_key, sandboxes.exposed_urls, sandboxes.workspace, sandboxes.created_at",
    " FROM sandboxes WHERE owner = ? AND desired <> 'deleted' ORDER BY created_at DESC, id DESC LIMIT ?",
];
const CONVERSATIONS: [&str; 3] = [
    "SELECT c.id, c.owner, c.sandbox_id, c.title, c.auto_title, c.selected_repository, c.selected_branch, c.git_provider, \
     c.started_by, c.pr_numbers, c.llm_model, c.agent_kind, c.metrics, c.parent, c.is_public, c.tags, c.execution_status, \
     c.status_at, c.created_at, c.updated_at, ",
    SANDBOX,
    ", coalesce((SELECT group_concat(id, ',') FROM (SELECT child.id FROM conversations AS child \
     WHERE child.parent = c.id AND child.owner = c.owner ORDER BY child.created_at, child.id)), '') \
     FROM conversations AS c LEFT JOIN sandboxes ON sandboxes.id = c.sandbox_id AND sandboxes.desired <> 'deleted' \
     WHERE c.owner = ? AND c.parent IS NULL ORDER BY c.created_at DESC, c.id DESC LIMIT ?",
];

type SandboxColumns = (
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
    Text,
    Nullable<Text>,
    BigInt,
    BigInt,
    Nullable<BigInt>,
);

/// Columns of a list of sandboxes.
type ViewColumns = (
    Text,
    Text,
    Text,
    Text,
    Nullable<Text>,
    Text,
    Text,
    Text,
    Nullable<Text>,
    BigInt,
);

type ConversationColumns = (
    (
        Text,
        Text,
        Text,
        Nullable<Text>,
        Bool,
        Nullable<Text>,
        Nullable<Text>,
        Nullable<Text>,
        Nullable<Text>,
        Text,
        Nullable<Text>,
        Text,
        Text,
        Nullable<Text>,
        Nullable<Bool>,
        Text,
        Nullable<Text>,
        Nullable<BigInt>,
        BigInt,
        BigInt,
    ),
    Nullable<SandboxColumns>,
    Text,
);

/// A statement with these columns for an owner's rows.
struct QueryStatement<'a, Columns>([&'static str; 3], &'a str, PhantomData<Columns>);

impl<Columns> QueryFragment<Sqlite> for QueryStatement<'_, Columns> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Sqlite>) -> QueryResult<()> {
        let mut parts = self.0.into_iter().flat_map(|part| part.split('?'));
        for part in parts.by_ref().take(3) {
            out.push_sql(part);
        }
        out.push_bind_param::<Text, _>(self.1)?;
        out.push_sql(parts.next().unwrap_or_default());
        out.push_bind_param::<BigInt, _>(&PAGE_ROWS)
    }
}

impl<Columns: 'static> QueryId for QueryStatement<'_, Columns> {
    type QueryId = QueryStatement<'static, Columns>;
    // So that diesel caches it like a statement of its own query builder.
    const HAS_STATIC_QUERY_ID: bool = true;
}

impl<Columns> Query for QueryStatement<'_, Columns> {
    type SqlType = Columns;
}

impl<Columns> RunQueryDsl<SqliteConnection> for QueryStatement<'_, Columns> {}

#[derive(Debug, FromSqlRow)]
struct TimestampCol(DateTime<Utc>);

impl FromSql<BigInt, Sqlite> for TimestampCol {
    fn from_sql(value: <Sqlite as diesel::backend::Backend>::RawValue<'_>) -> Read<Self> {
        let micros = <i64 as FromSql<BigInt, Sqlite>>::from_sql(value)?;
        Ok(Self(
            DateTime::from_timestamp_micros(micros).ok_or("no time")?,
        ))
    }
}

impl Serialize for TimestampCol {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        micros(&self.0, to)
    }
}

/// A JSON document.
#[derive(Debug, FromSqlRow)]
struct JsonCol<T>(T);

impl<T: for<'a> Deserialize<'a>> FromSql<Text, Sqlite> for JsonCol<T> {
    fn from_sql(mut value: <Sqlite as diesel::backend::Backend>::RawValue<'_>) -> Read<Self> {
        Ok(Self(serde_json::from_str(value.read_text())?))
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct ExposedUrlCol {
    name: String,
    url: String,
    port: u16,
}

#[derive(Debug, Queryable)]
#[expect(dead_code, reason = "the columns that the service reads, too")]
struct SandboxRow {
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
    agent_url: Option<String>,
    exposed_urls: JsonCol<Vec<ExposedUrlCol>>,
    workspace: Option<String>,
    created_at: TimestampCol,
    updated_at: TimestampCol,
    paused_at: Option<TimestampCol>,
}

#[derive(Debug, Queryable)]
#[expect(dead_code, reason = "the columns that the service reads, too")]
struct SandboxViewRow {
    id: String,
    owner: String,
    spec_id: String,
    status: String,
    status_detail: Option<String>,
    key_hash: String,
    session_key: String,
    exposed_urls: JsonCol<Vec<ExposedUrlCol>>,
    workspace: Option<String>,
    created_at: TimestampCol,
}

#[derive(Debug, Serialize)]
#[expect(clippy::struct_field_names, reason = "names of the wire")]
struct Sandbox {
    id: String,
    created_by_user_id: String,
    sandbox_spec_id: String,
    status: String,
    session_api_key: Option<String>,
    exposed_urls: Option<Vec<ExposedUrlCol>>,
    created_at: TimestampCol,
    status_detail: Option<String>,
}

impl From<SandboxViewRow> for Sandbox {
    fn from(row: SandboxViewRow) -> Self {
        let is_running = row.status == "RUNNING";
        Self {
            id: row.id,
            created_by_user_id: row.owner,
            sandbox_spec_id: row.spec_id,
            status: row.status,
            session_api_key: is_running.then_some(row.session_key),
            exposed_urls: is_running.then_some(row.exposed_urls.0),
            created_at: row.created_at,
            status_detail: row.status_detail,
        }
    }
}

/// Items of a list.
pub(crate) trait Rows: Sized {
    /// Loads the first page of this owner.
    fn load(conn: &mut SqliteConnection, owner: &str) -> QueryResult<Page<Self>>;
}

fn page<Row, T: From<Row>>(rows: Vec<Row>) -> Page<T> {
    Page {
        items: rows.into_iter().map(T::from).collect(),
        next_page_id: None,
    }
}

#[derive(Debug, Serialize)]
#[serde(transparent)]
pub(crate) struct Sandboxes(Sandbox);

impl Rows for Sandboxes {
    fn load(conn: &mut SqliteConnection, owner: &str) -> QueryResult<Page<Self>> {
        let statement = QueryStatement::<ViewColumns>(SANDBOXES, owner, PhantomData);
        Ok(page(statement.load::<SandboxViewRow>(conn)?))
    }
}

impl From<SandboxViewRow> for Sandboxes {
    fn from(row: SandboxViewRow) -> Self {
        Self(row.into())
    }
}

#[derive(Debug, Queryable)]
#[expect(dead_code, reason = "the columns that the service reads, too")]
struct ConversationRow {
    id: String,
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
    parent: Option<String>,
    is_public: Option<bool>,
    tags: JsonCol<BTreeMap<String, String>>,
    execution_status: Option<String>,
    status_at: Option<TimestampCol>,
    created_at: TimestampCol,
    updated_at: TimestampCol,
}

#[derive(Debug, Serialize)]
#[serde(transparent)]
pub(crate) struct Conversations(Conversation<String, TimestampCol>);

type JoinedRow = (ConversationRow, Option<SandboxRow>, String);

impl Rows for Conversations {
    fn load(conn: &mut SqliteConnection, owner: &str) -> QueryResult<Page<Self>> {
        let statement = QueryStatement::<ConversationColumns>(CONVERSATIONS, owner, PhantomData);
        Ok(page(statement.load::<JoinedRow>(conn)?))
    }
}

impl From<JoinedRow> for Conversations {
    fn from((it, sandbox, children): JoinedRow) -> Self {
        let status = sandbox.as_ref().map_or("MISSING", |it| it.status.as_str());
        let (is_running, has_status) =
            (status == "RUNNING", matches!(status, "RUNNING" | "PAUSED"));
        let status = status.to_owned();
        let (urls, key) = sandbox.map_or_else(Default::default, |it| {
            (it.exposed_urls.0, Some(it.session_key))
        });
        let url = urls
            .iter()
            .find(|it| is_running && it.name == "AGENT_SERVER");
        let children = children.split(',').filter(|id| !id.is_empty());
        Self(Conversation {
            conversation_url: url.map(|at| format!("{}/api/conversations/{}", at.url, it.id)),
            session_api_key: key.filter(|_| is_running),
            id: it.id,
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
            parent_conversation_id: it.parent,
            sub_conversation_ids: children.map(str::to_owned).collect(),
            public: it.is_public,
            tags: it.tags.0,
            created_at: it.created_at,
            updated_at: it.updated_at,
            sandbox_status: status,
            execution_status: it.execution_status.filter(|_| has_status),
            acp_server: None,
            launched_agent_profile: None,
            workspace: None,
        })
    }
}
