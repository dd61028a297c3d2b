-- Sandboxes that were booted before a start needs them (WarmRepository). They have no owner. `id` and the keys are those of the
-- sandbox that a warm sandbox becomes. The addresses are known once it is ready.
CREATE TABLE warm_sandboxes (
    id TEXT NOT NULL PRIMARY KEY,
    spec_id TEXT NOT NULL,
    host TEXT NOT NULL,
    recipe TEXT NOT NULL,
    state TEXT NOT NULL,
    key_hash TEXT NOT NULL UNIQUE,
    session_key TEXT NOT NULL,
    secret_key TEXT NOT NULL,
    agent_url TEXT,
    exposed_urls TEXT NOT NULL,
    workspace TEXT,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
);
-- A claim takes the first entry of its range. Counts of a host and spec use the index, too.
CREATE INDEX warm_sandboxes_to_claim ON warm_sandboxes (host, spec_id, recipe, state, created_at, id);
