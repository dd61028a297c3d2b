-- Secrets of users (SecretRepository). `value` is sealed for `value_id`, which changes with it. Names sort by bytes, whatever the
-- collation of the database.
CREATE TABLE secrets (
    owner TEXT NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    description TEXT NOT NULL,
    value_id UUID NOT NULL,
    value TEXT NOT NULL,
    created_at TIMESTAMPTZ NOT NULL,
    updated_at TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (owner, name)
);
-- For the rotation of the master key, which pages through all sealed values.
CREATE INDEX secrets_by_value ON secrets (value_id);
