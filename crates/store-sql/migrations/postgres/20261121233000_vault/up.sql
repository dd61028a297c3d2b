-- The installation secret, sealed with the master key, so that a wrong key is detected (VaultRepository).
CREATE TABLE vault (
    name TEXT NOT NULL PRIMARY KEY,
    sealed TEXT NOT NULL,
    changed_at TIMESTAMPTZ NOT NULL
);
-- The master keys of each process, for their rotation. Ids of keys are separated by spaces.
CREATE TABLE key_holders (
    name TEXT NOT NULL PRIMARY KEY,
    master_keys TEXT NOT NULL,
    seals_with TEXT,
    seen_at TIMESTAMPTZ NOT NULL
);
-- The latest stored responses of one owner.
CREATE INDEX idempotency_keys_latest ON idempotency_keys (owner, given_at, key);
