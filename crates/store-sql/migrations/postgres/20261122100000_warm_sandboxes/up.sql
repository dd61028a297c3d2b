-- Sandboxes that were booted before a start needs them (WarmRepository). They have no owner. `id` and the keys are those of the
-- sandbox that a warm sandbox becomes. The addresses are known once it is ready.
CREATE TABLE warm_sandboxes (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    spec_id TEXT COLLATE "C" NOT NULL,
    host TEXT COLLATE "C" NOT NULL,
    recipe TEXT COLLATE "C" NOT NULL,
    state TEXT COLLATE "C" NOT NULL,
    key_hash TEXT NOT NULL UNIQUE,
    session_key TEXT NOT NULL,
    secret_key TEXT NOT NULL,
    agent_url TEXT,
    exposed_urls JSONB NOT NULL,
    workspace TEXT,
    created_at TIMESTAMPTZ NOT NULL,
    updated_at TIMESTAMPTZ NOT NULL
);
-- A claim takes the first entry of its range. Counts of a host and spec use the index, too.
CREATE INDEX warm_sandboxes_to_claim ON warm_sandboxes (host, spec_id, recipe, state, created_at, id);
