-- Hosts that the egress policy refused to sandboxes, and the decisions of their owners (EgressRequestRepository).
CREATE TABLE egress_requests (
    id TEXT NOT NULL PRIMARY KEY,
    owner TEXT NOT NULL,
    sandbox_id TEXT NOT NULL,
    host TEXT NOT NULL,
    port INTEGER NOT NULL,
    decision TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX egress_requests_by_host ON egress_requests (owner, host, port, sandbox_id);
CREATE INDEX egress_requests_by_age ON egress_requests (owner, created_at, id);
