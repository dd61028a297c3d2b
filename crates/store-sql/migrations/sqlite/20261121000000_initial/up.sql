-- Times are microseconds since the Unix epoch. Ids are TEXT and the tables STRICT, so that an id of digits only stays
-- text. Lists and documents are JSON in TEXT, which no query reads into.

CREATE TABLE users (
    id         TEXT NOT NULL PRIMARY KEY,
    created_at INTEGER NOT NULL
) STRICT;

CREATE TABLE api_keys (
    id           TEXT NOT NULL PRIMARY KEY,
    user_id      TEXT NOT NULL REFERENCES users (id),
    hash         TEXT NOT NULL UNIQUE,
    prefix       TEXT NOT NULL,
    created_at   INTEGER NOT NULL,
    expires_at   INTEGER,
    last_used_at INTEGER
) STRICT;
CREATE INDEX api_keys_by_user ON api_keys (user_id, created_at);

-- No foreign key to users, because the local user of open mode has no key and so no row in users.
CREATE TABLE settings (
    owner      TEXT NOT NULL PRIMARY KEY,
    document   TEXT NOT NULL,
    revision   INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;

CREATE TABLE sandboxes (
    id            TEXT NOT NULL PRIMARY KEY,
    owner         TEXT NOT NULL,
    spec_id       TEXT NOT NULL,
    host          TEXT NOT NULL,
    desired       TEXT NOT NULL,
    status        TEXT NOT NULL,
    status_detail TEXT,
    key_hash      TEXT NOT NULL UNIQUE,
    session_key   TEXT NOT NULL,
    secret_key    TEXT NOT NULL,
    agent_url     TEXT,
    exposed_urls  TEXT NOT NULL,
    workspace     TEXT,
    created_at    INTEGER NOT NULL,
    updated_at    INTEGER NOT NULL,
    paused_at     INTEGER
) STRICT;
CREATE INDEX sandboxes_by_owner ON sandboxes (owner, created_at DESC, id DESC);
CREATE INDEX sandboxes_by_host ON sandboxes (host, id);
-- For the caps, which count sandboxes of one owner and of all.
CREATE INDEX sandboxes_wanted ON sandboxes (desired, status, owner);

CREATE TABLE conversations (
    id                  TEXT NOT NULL PRIMARY KEY,
    owner               TEXT NOT NULL,
    sandbox_id          TEXT NOT NULL, -- kept when the sandbox is removed; the conversation then shows MISSING
    title               TEXT,
    title_folded        TEXT,          -- for title searches, see domain::conversation::fold_title
    auto_title          INTEGER NOT NULL,
    selected_repository TEXT,
    selected_branch     TEXT,
    git_provider        TEXT,
    started_by          TEXT,
    pr_numbers          TEXT NOT NULL,
    llm_model           TEXT,
    agent_kind          TEXT NOT NULL,
    metrics             TEXT NOT NULL,
    parent              TEXT,
    is_public           INTEGER,
    tags                TEXT NOT NULL,
    execution_status    TEXT,
    status_at           INTEGER,        -- time of the reported execution status
    created_at          INTEGER NOT NULL,
    updated_at          INTEGER NOT NULL
) STRICT;
CREATE INDEX conversations_by_owner ON conversations (owner, created_at DESC, id DESC);
CREATE INDEX conversations_on_top ON conversations (owner, created_at DESC, id DESC) WHERE parent IS NULL;
-- The owner is the second column, so that a planner without statistics prefers these to the two indexes above.
CREATE INDEX conversations_by_parent ON conversations (parent, owner, created_at, id) WHERE parent IS NOT NULL;
CREATE INDEX conversations_by_sandbox ON conversations (sandbox_id, owner, created_at, id);

-- Ids of deleted conversations, which late reports must not recreate. `pending`: the agent server still has the conversation.
CREATE TABLE deleted_conversations (
    id         TEXT NOT NULL PRIMARY KEY,
    sandbox_id TEXT NOT NULL,
    deleted_at INTEGER NOT NULL,
    pending    INTEGER NOT NULL
) STRICT;
CREATE INDEX deleted_conversations_pending ON deleted_conversations (sandbox_id) WHERE pending;

CREATE TABLE events (
    conversation_id TEXT NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
    seq             INTEGER NOT NULL,   -- order of arrival
    event_id        TEXT NOT NULL,
    kind            TEXT NOT NULL,
    happened_at     INTEGER NOT NULL,
    body            TEXT NOT NULL,
    PRIMARY KEY (conversation_id, seq)
) STRICT;
CREATE UNIQUE INDEX events_by_id ON events (conversation_id, event_id);
CREATE INDEX events_by_time ON events (conversation_id, happened_at, seq);
CREATE INDEX events_by_kind ON events (conversation_id, kind, happened_at, seq);

CREATE TABLE start_tasks (
    id               TEXT NOT NULL PRIMARY KEY,
    owner            TEXT NOT NULL,
    host             TEXT NOT NULL,
    status           TEXT NOT NULL,
    detail           TEXT,
    notes            TEXT NOT NULL,
    conversation_id  TEXT NOT NULL,
    sandbox_id       TEXT NOT NULL,
    owns_sandbox     INTEGER NOT NULL,
    agent_server_url TEXT,
    request          TEXT NOT NULL,
    sealed_secrets   TEXT,
    timings          TEXT NOT NULL,
    attempts         INTEGER NOT NULL,
    created_at       INTEGER NOT NULL,
    updated_at       INTEGER NOT NULL,
    is_open          INTEGER NOT NULL, -- neither READY nor ERROR
    begun            INTEGER NOT NULL, -- this task has stored its conversation
    fence            INTEGER NOT NULL,
    lease_until      INTEGER
) STRICT;
CREATE UNIQUE INDEX start_tasks_one_per_conversation ON start_tasks (conversation_id) WHERE status <> 'ERROR';
CREATE INDEX start_tasks_by_conversation ON start_tasks (conversation_id);
CREATE INDEX start_tasks_by_creation ON start_tasks (owner, created_at, id);
CREATE INDEX start_tasks_by_change ON start_tasks (owner, updated_at, id);
CREATE INDEX start_tasks_to_claim ON start_tasks (host, created_at, id) WHERE is_open;
CREATE INDEX start_tasks_in_sandbox ON start_tasks (sandbox_id) WHERE is_open;
