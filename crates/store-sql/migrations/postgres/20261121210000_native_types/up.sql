-- Native types: `timestamptz` for times, `uuid` for generated ids, `jsonb` for documents that the service generates, and `json` for
-- documents of users and agents (`jsonb` rejects \u0000).
--
-- This rewrites the tables, so replicas of an earlier version could not run meanwhile. There are none, because no earlier version
-- supported Postgres. Later migrations only add (expand), and remove only what no supported version uses (contract).

CREATE FUNCTION pg_temp.instant(micros BIGINT) RETURNS TIMESTAMPTZ LANGUAGE SQL IMMUTABLE AS
$$ SELECT TIMESTAMPTZ 'epoch' + (micros / 1000000) * INTERVAL '1 second' + (micros % 1000000) * INTERVAL '1 microsecond' $$;

ALTER TABLE events DROP CONSTRAINT events_conversation_id_fkey;

ALTER TABLE users
    ALTER COLUMN created_at TYPE TIMESTAMPTZ USING pg_temp.instant(created_at),
    ALTER COLUMN deleted_at TYPE TIMESTAMPTZ USING pg_temp.instant(deleted_at);

ALTER TABLE api_keys
    ALTER COLUMN id TYPE UUID USING id::UUID,
    ALTER COLUMN created_at TYPE TIMESTAMPTZ USING pg_temp.instant(created_at),
    ALTER COLUMN expires_at TYPE TIMESTAMPTZ USING pg_temp.instant(expires_at),
    ALTER COLUMN last_used_at TYPE TIMESTAMPTZ USING pg_temp.instant(last_used_at);

ALTER TABLE settings
    ALTER COLUMN updated_at TYPE TIMESTAMPTZ USING pg_temp.instant(updated_at);

ALTER TABLE sandboxes
    ALTER COLUMN exposed_urls TYPE JSONB USING exposed_urls::JSONB,
    ALTER COLUMN created_at TYPE TIMESTAMPTZ USING pg_temp.instant(created_at),
    ALTER COLUMN updated_at TYPE TIMESTAMPTZ USING pg_temp.instant(updated_at),
    ALTER COLUMN paused_at TYPE TIMESTAMPTZ USING pg_temp.instant(paused_at);

ALTER TABLE conversations
    ALTER COLUMN id TYPE UUID USING id::UUID,
    ALTER COLUMN parent TYPE UUID USING parent::UUID,
    ALTER COLUMN pr_numbers TYPE JSONB USING pr_numbers::JSONB,
    ALTER COLUMN metrics TYPE JSONB USING metrics::JSONB,
    ALTER COLUMN tags TYPE JSON USING tags::JSON,
    ALTER COLUMN status_at TYPE TIMESTAMPTZ USING pg_temp.instant(status_at),
    ALTER COLUMN created_at TYPE TIMESTAMPTZ USING pg_temp.instant(created_at),
    ALTER COLUMN updated_at TYPE TIMESTAMPTZ USING pg_temp.instant(updated_at);

ALTER TABLE deleted_conversations
    ALTER COLUMN id TYPE UUID USING id::UUID,
    ALTER COLUMN deleted_at TYPE TIMESTAMPTZ USING pg_temp.instant(deleted_at);

ALTER TABLE events
    ALTER COLUMN conversation_id TYPE UUID USING conversation_id::UUID,
    ALTER COLUMN happened_at TYPE TIMESTAMPTZ USING pg_temp.instant(happened_at);

ALTER TABLE start_tasks
    ALTER COLUMN id TYPE UUID USING id::UUID,
    ALTER COLUMN conversation_id TYPE UUID USING conversation_id::UUID,
    ALTER COLUMN timings TYPE JSONB USING timings::JSONB,
    ALTER COLUMN notes TYPE JSON USING notes::JSON,
    ALTER COLUMN request TYPE JSON USING request::JSON,
    ALTER COLUMN created_at TYPE TIMESTAMPTZ USING pg_temp.instant(created_at),
    ALTER COLUMN updated_at TYPE TIMESTAMPTZ USING pg_temp.instant(updated_at),
    ALTER COLUMN lease_until TYPE TIMESTAMPTZ USING pg_temp.instant(lease_until);

ALTER TABLE leases
    ALTER COLUMN ends_at TYPE TIMESTAMPTZ USING pg_temp.instant(ends_at);

ALTER TABLE idempotency_keys
    ALTER COLUMN given_at TYPE TIMESTAMPTZ USING pg_temp.instant(given_at);

ALTER TABLE events ADD CONSTRAINT events_conversation_id_fkey
    FOREIGN KEY (conversation_id) REFERENCES conversations (id) ON DELETE CASCADE;

-- The change of types discarded the planner's statistics of the columns.
ANALYZE users, api_keys, settings, sandboxes, conversations, deleted_conversations, events, start_tasks;
