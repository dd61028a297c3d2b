-- Sandboxes that were booted before anybody asked for them (WarmRepository). They are nobody's; `id` and the keys are those of
-- the sandbox that one becomes. Where it is, is known once it is ready.
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
-- The claim takes the first entry of its range; those of a host and template are counted by it, too.
CREATE INDEX warm_sandboxes_to_claim ON warm_sandboxes (host, spec_id, recipe, state, created_at, id);
