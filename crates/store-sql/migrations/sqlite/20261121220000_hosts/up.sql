-- Hosts of sandboxes that this store serves (HostRepository). The hosts of existing sandboxes are registered here.
CREATE TABLE hosts (
    id TEXT NOT NULL PRIMARY KEY,
    registered_at BIGINT NOT NULL
);
INSERT INTO hosts (id, registered_at) SELECT host, min(created_at) FROM sandboxes GROUP BY host;
