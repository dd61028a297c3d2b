-- Leases between processes that share the store (LeaseRepository).
CREATE TABLE leases (
    name TEXT NOT NULL PRIMARY KEY,
    holder TEXT NOT NULL,
    ends_at BIGINT NOT NULL
);
