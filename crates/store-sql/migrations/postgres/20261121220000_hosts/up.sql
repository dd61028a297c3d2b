-- Sandbox hosts that are at home in this store (HostRepository). Those that have sandboxes here are.
CREATE TABLE hosts (
    id TEXT NOT NULL PRIMARY KEY,
    registered_at TIMESTAMPTZ NOT NULL
);
INSERT INTO hosts (id, registered_at) SELECT host, min(created_at) FROM sandboxes GROUP BY host;
