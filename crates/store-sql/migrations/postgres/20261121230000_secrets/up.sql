-- Users' own secrets (SecretRepository). `value` is sealed for `value_id`, which changes with it. Names are in order of
-- their bytes, whatever the database sorts by.
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
-- For whoever goes through all sealed values.
CREATE INDEX secrets_by_value ON secrets (value_id);
