//! Databases with so many rows, made by the server itself: rows that came through the API would take hours.

use crate::postgres_figures::load;
use acceptance::{Client, Postgres, Service};
use anyhow::{Context as _, ensure};
use diesel::connection::SimpleConnection as _;
use diesel::prelude::*;
use serde_json::json;

/// Any 32 bytes will do.
const MASTER_KEY: &str = "QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE=";
const FIRST_KEY: &str = "the-first-users-key-in-these-figures-012345678";
/// The user who reads.
pub(crate) const READER: &str = "alice";
/// The sandbox that makes the one conversation of which all others are copies.
const TEMPLATE: i64 = 0;

/// How many rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SeedCounts {
    /// Each with as many conversations as the others.
    pub(crate) users: i64,
    /// Of all users.
    pub(crate) conversations: i64,
    /// In the reader's newest conversation.
    pub(crate) events: i64,
    /// Running ones, which report.
    pub(crate) sandboxes: i64,
}

/// A service on a database of its own.
pub(crate) struct SeededDatabase {
    pub(crate) service: Service,
    pub(crate) reader: Client,
    /// Of its database.
    pub(crate) url: String,
}

/// Id of a conversation; the reader's newest one is 0.
pub(crate) fn conversation_id(number: i64) -> String {
    format!("{number:032x}")
}

/// Key of a running sandbox.
pub(crate) fn sandbox_key(number: i64) -> String {
    format!("key-of-sandbox-{number}")
}

/// Numbers of the conversations that running sandboxes report about begin here.
pub(crate) const REPORTED: i64 = 1 << 40;

impl SeededDatabase {
    /// Makes the database, has the service make its tables, and fills them.
    pub(crate) async fn new(
        postgres: &Postgres,
        name: &str,
        amounts: SeedCounts,
    ) -> anyhow::Result<Self> {
        PgConnection::establish(&postgres.url())?
            .batch_execute(&format!("CREATE DATABASE {name}"))?;
        let server = postgres.url();
        let server = server
            .strip_suffix("postgres")
            .context("an URL of the database postgres")?;
        let url = format!("{server}{name}");
        let service = Service::builder()
            .env("WORKSPACE_STORAGE__URL", &url)
            .env("WORKSPACE_SECRETS__MASTER_KEY", MASTER_KEY)
            .env("WORKSPACE_AUTH__BOOTSTRAP_KEY", FIRST_KEY)
            .env("WORKSPACE_LOG__LEVEL", "info")
            .start()
            .await;
        let reader = service.user(READER);
        reader
            .use_model("openai/m", "http://127.0.0.1:9/v1", "sk-bench")
            .await;
        let mut conn = PgConnection::establish(&url)?;
        conn.batch_execute(&sandboxes(amounts))?;
        let agent = reader.with_key(&sandbox_key(TEMPLATE));
        let path = format!(
            "/api/v1/webhooks/events/{}",
            conversation_id(REPORTED + TEMPLATE)
        );
        let _ = agent.post(&path, &json!([load::event(0)])).await.ok();
        conn.batch_execute(&conversations(amounts))?;
        conn.batch_execute(&events(amounts))?;
        conn.batch_execute("VACUUM ANALYZE conversations")?;
        conn.batch_execute("VACUUM ANALYZE events")?;
        conn.batch_execute("ANALYZE; CHECKPOINT")?;
        let expected = amounts.conversations / amounts.users;
        let counted = reader.get("/api/v1/app-conversations/count").await.ok();
        ensure!(
            counted == expected,
            "{counted} conversations of the reader, not {expected}"
        );
        Ok(Self {
            service,
            reader,
            url,
        })
    }

    /// How many events there are.
    pub(crate) fn count_events(&self) -> anyhow::Result<i64> {
        let count = diesel::dsl::sql::<diesel::sql_types::BigInt>("(SELECT count(*) FROM events)");
        Ok(diesel::select(count).get_result(&mut PgConnection::establish(&self.url)?)?)
    }
}

/// Ten paused ones of each user, and running ones of somebody else that report. Their host is none of ours, so nobody looks
/// after them.
fn sandboxes(amounts: SeedCounts) -> String {
    let columns = "id, owner, spec_id, host, desired, status, key_hash, session_key, secret_key, exposed_urls, workspace, \
                   created_at, updated_at, paused_at";
    format!(
        "INSERT INTO sandboxes ({columns}) SELECT 'paused-' || n, \
             CASE n % {users} WHEN 0 THEN '{READER}' ELSE 'user-' || n % {users} END, 'spec', 'elsewhere', 'paused', 'PAUSED', \
             encode(sha256(convert_to('key-of-paused-' || n, 'UTF8')), 'hex'), 'sealed', 'sealed', '[]', NULL, now(), now(), now() - interval '1 day' \
         FROM generate_series(0, {users} * 10 - 1) AS n; \
         INSERT INTO sandboxes ({columns}) SELECT 'running-' || n, 'reporter', 'spec', 'elsewhere', 'running', 'RUNNING', \
             encode(sha256(convert_to('key-of-sandbox-' || n, 'UTF8')), 'hex'), 'sealed', 'sealed', '[]', NULL, now(), now(), \
             NULL FROM generate_series(0, {running} - 1) AS n",
        users = amounts.users,
        running = amounts.sandboxes,
    )
}

/// Of every user as many, a second apart, in the user's sandboxes; and one for each running sandbox.
fn conversations(amounts: SeedCounts) -> String {
    let columns = "id, owner, sandbox_id, title, title_folded, auto_title, selected_repository, pr_numbers, llm_model, \
                   agent_kind, metrics, tags, execution_status, created_at, updated_at";
    let copied = "t.auto_title, 'owner/repository', t.pr_numbers, 'openai/gpt-5', t.agent_kind, t.metrics, t.tags, \
                  'finished'";
    format!(
        "INSERT INTO conversations ({columns}) SELECT lpad(to_hex(n), 32, '0')::uuid, \
             CASE n % {users} WHEN 0 THEN '{READER}' ELSE 'user-' || n % {users} END, 'paused-' || n % ({users} * 10), \
             'Conversation ' || n, 'conversation ' || n, {copied}, t.created_at - n * interval '1 second', t.updated_at \
         FROM (SELECT * FROM conversations LIMIT 1) AS t, generate_series(0, {conversations} - 1) AS n; \
         INSERT INTO conversations ({columns}) SELECT lpad(to_hex({REPORTED} + n), 32, '0')::uuid, 'reporter', 'running-' || n, \
             'Conversation', 'conversation', {copied}, t.created_at, t.updated_at \
         FROM (SELECT * FROM conversations WHERE owner = 'reporter' LIMIT 1) AS t, generate_series(1, {running} - 1) AS n",
        users = amounts.users,
        conversations = amounts.conversations,
        running = amounts.sandboxes,
    )
}

/// In the reader's newest conversation, of 1.2 KB, a tenth of a second apart.
fn events(amounts: SeedCounts) -> String {
    format!(
        "INSERT INTO events (conversation_id, seq, event_id, kind, happened_at, body) SELECT '{id}'::uuid, n, 'event-' || n, \
             e.kind, now() - n * interval '100 milliseconds', \
             jsonb_set(e.body::jsonb, '{{id}}', to_jsonb('event-' || n))::text \
         FROM (SELECT * FROM events LIMIT 1) AS e, generate_series(1, {events}) AS n; \
         UPDATE conversations SET (event_count, event_bytes) = (SELECT count(*), coalesce(sum(octet_length(body)), 0) FROM events \
             WHERE conversation_id = conversations.id)",
        id = conversation_id(0),
        events = amounts.events,
    )
}
