-- Roles of users (identity::Role). The existing user `admin`, to whom the first key belongs, becomes an administrator.
ALTER TABLE users ADD COLUMN role TEXT NOT NULL DEFAULT 'user';
UPDATE users SET role = 'admin' WHERE id = 'admin';
-- The name that the owner of a key chose, and the key's creator.
ALTER TABLE api_keys ADD COLUMN name TEXT;
ALTER TABLE api_keys ADD COLUMN made_by TEXT;
-- The audit log (AuditLog). It has no foreign keys, because entries outlive their objects.
CREATE TABLE audit_log (
    id UUID NOT NULL PRIMARY KEY,
    at TIMESTAMPTZ NOT NULL,
    actor TEXT NOT NULL,
    key_id UUID,
    action TEXT NOT NULL,
    object TEXT,
    detail TEXT,
    source TEXT,
    outcome TEXT NOT NULL,
    status INTEGER,
    request_id TEXT,
    count BIGINT NOT NULL
);
CREATE INDEX audit_log_in_order ON audit_log (at, id);
CREATE INDEX audit_log_by_actor ON audit_log (actor, at, id);
CREATE INDEX audit_log_by_action ON audit_log (action, at, id);
CREATE INDEX audit_log_by_object ON audit_log (object, at, id);
CREATE FUNCTION audit_log_is_not_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the audit log is only added to';
END;
$$;
CREATE TRIGGER audit_log_is_not_changed BEFORE UPDATE ON audit_log
    FOR EACH STATEMENT EXECUTE FUNCTION audit_log_is_not_changed();
