-- The installation's own secret, sealed with the master key: by it a wrong key is noticed (VaultRepository).
CREATE TABLE vault (
    name TEXT NOT NULL PRIMARY KEY,
    sealed TEXT NOT NULL,
    changed_at BIGINT NOT NULL
);
-- Which process has which master keys, for their rotation. Lists of key ids, separated by blanks.
CREATE TABLE key_holders (
    name TEXT NOT NULL PRIMARY KEY,
    master_keys TEXT NOT NULL,
    seals_with TEXT,
    seen_at BIGINT NOT NULL
);
-- The latest answers of one owner.
CREATE INDEX idempotency_keys_latest ON idempotency_keys (owner, given_at, key);
