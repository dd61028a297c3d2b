-- Times are microseconds since the Unix epoch. Ids are TEXT with the C collation,
-- so that they sort as bytes, as in SQLite. Lists and documents are JSON in TEXT, which no query reads into.

CREATE TABLE users (
    id         TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    created_at BIGINT NOT NULL
);

CREATE TABLE api_keys (
    id           TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    user_id      TEXT COLLATE "C" NOT NULL REFERENCES users (id),
    hash         TEXT NOT NULL UNIQUE,
    prefix       TEXT NOT NULL,
    created_at   BIGINT NOT NULL,
    expires_at   BIGINT,
    last_used_at BIGINT
);
CREATE INDEX api_keys_by_user ON api_keys (user_id, created_at);

-- No foreign key to users, because the local user of open mode has no key and so no row in users.
CREATE TABLE settings (
    owner      TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    document   TEXT NOT NULL,
    revision   BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);

CREATE TABLE sandboxes (
    id            TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    owner         TEXT COLLATE "C" NOT NULL,
    spec_id       TEXT NOT NULL,
    host          TEXT COLLATE "C" NOT NULL,
    desired       TEXT NOT NULL,
    status        TEXT NOT NULL,
    status_detail TEXT,
    key_hash      TEXT NOT NULL UNIQUE,
    session_key   TEXT NOT NULL,
    secret_key    TEXT NOT NULL,
    agent_url     TEXT,
    exposed_urls  TEXT NOT NULL,
    workspace     TEXT,
    created_at    BIGINT NOT NULL,
    updated_at    BIGINT NOT NULL,
    paused_at     BIGINT
);
CREATE INDEX sandboxes_by_owner ON sandboxes (owner, created_at DESC, id DESC);
CREATE INDEX sandboxes_by_host ON sandboxes (host, id);
-- For the caps, which count sandboxes of one owner and of all.
CREATE INDEX sandboxes_wanted ON sandboxes (desired, status, owner);

CREATE TABLE conversations (
    id                  TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    owner               TEXT COLLATE "C" NOT NULL,
    sandbox_id          TEXT COLLATE "C" NOT NULL, -- kept when the sandbox is removed; the conversation then shows MISSING
    title               TEXT,
    title_folded        TEXT,          -- for title searches, see domain::conversation::fold_title
    auto_title          BOOLEAN NOT NULL,
    selected_repository TEXT,
    selected_branch     TEXT,
    git_provider        TEXT,
    started_by          TEXT,
    pr_numbers          TEXT NOT NULL,
    llm_model           TEXT,
    agent_kind          TEXT NOT NULL,
    metrics             TEXT NOT NULL,
    parent              TEXT COLLATE "C",
    is_public           BOOLEAN,
    tags                TEXT NOT NULL,
    execution_status    TEXT,
    status_at           BIGINT,        -- time of the reported execution status
    created_at          BIGINT NOT NULL,
    updated_at          BIGINT NOT NULL
);
CREATE INDEX conversations_by_owner ON conversations (owner, created_at DESC, id DESC);
CREATE INDEX conversations_on_top ON conversations (owner, created_at DESC, id DESC) WHERE parent IS NULL;
-- The owner is the second column, so that a planner without statistics prefers these to the two indexes above.
CREATE INDEX conversations_by_parent ON conversations (parent, owner, created_at, id) WHERE parent IS NOT NULL;
CREATE INDEX conversations_by_sandbox ON conversations (sandbox_id, owner, created_at, id);

-- Ids of deleted conversations, which late reports must not recreate. `pending`: the agent server still has the conversation.
CREATE TABLE deleted_conversations (
    id         TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    sandbox_id TEXT COLLATE "C" NOT NULL,
    deleted_at BIGINT NOT NULL,
    pending    BOOLEAN NOT NULL
);
CREATE INDEX deleted_conversations_pending ON deleted_conversations (sandbox_id) WHERE pending;

CREATE TABLE events (
    conversation_id TEXT COLLATE "C" NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
    seq             BIGINT NOT NULL,   -- order of arrival
    event_id        TEXT NOT NULL,
    kind            TEXT NOT NULL,
    happened_at     BIGINT NOT NULL,
    body            TEXT NOT NULL,
    PRIMARY KEY (conversation_id, seq)
);
CREATE UNIQUE INDEX events_by_id ON events (conversation_id, event_id);
CREATE INDEX events_by_time ON events (conversation_id, happened_at, seq);
CREATE INDEX events_by_kind ON events (conversation_id, kind, happened_at, seq);

CREATE TABLE start_tasks (
    id               TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    owner            TEXT COLLATE "C" NOT NULL,
    host             TEXT COLLATE "C" NOT NULL,
    status           TEXT NOT NULL,
    detail           TEXT,
    notes            TEXT NOT NULL,
    conversation_id  TEXT COLLATE "C" NOT NULL,
    sandbox_id       TEXT COLLATE "C" NOT NULL,
    owns_sandbox     BOOLEAN NOT NULL,
    agent_server_url TEXT,
    request          TEXT NOT NULL,
    sealed_secrets   TEXT,
    timings          TEXT NOT NULL,
    attempts         BIGINT NOT NULL,
    created_at       BIGINT NOT NULL,
    updated_at       BIGINT NOT NULL,
    is_open          BOOLEAN NOT NULL, -- neither READY nor ERROR
    begun            BOOLEAN NOT NULL, -- this task has stored its conversation
    fence            BIGINT NOT NULL,
    lease_until      BIGINT
);
CREATE UNIQUE INDEX start_tasks_one_per_conversation ON start_tasks (conversation_id) WHERE status <> 'ERROR';
CREATE INDEX start_tasks_by_conversation ON start_tasks (conversation_id);
CREATE INDEX start_tasks_by_creation ON start_tasks (owner, created_at, id);
CREATE INDEX start_tasks_by_change ON start_tasks (owner, updated_at, id);
CREATE INDEX start_tasks_to_claim ON start_tasks (host, created_at, id) WHERE is_open;
CREATE INDEX start_tasks_in_sandbox ON start_tasks (sandbox_id) WHERE is_open;
