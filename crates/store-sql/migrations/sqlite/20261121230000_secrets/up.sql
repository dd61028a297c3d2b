-- Secrets of users (SecretRepository). `value` is sealed for `value_id`, which changes with it.
CREATE TABLE secrets (
    owner TEXT NOT NULL,
    name TEXT NOT NULL,
    description TEXT NOT NULL,
    value_id TEXT NOT NULL,
    value TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (owner, name)
);
-- For the rotation of the master key, which pages through all sealed values.
CREATE INDEX secrets_by_value ON secrets (value_id);
