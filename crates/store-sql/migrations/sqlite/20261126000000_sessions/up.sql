-- The slow hash of a user's password (sign_in::PasswordHash).
ALTER TABLE users ADD COLUMN password_hash TEXT;
-- Browser sessions (SessionRepository). `hash` is the SHA-256 of the token in the cookie.
CREATE TABLE sessions (
    id TEXT NOT NULL PRIMARY KEY,
    user_id TEXT NOT NULL REFERENCES users (id),
    hash TEXT NOT NULL UNIQUE,
    created_at INTEGER NOT NULL,
    last_seen_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    address TEXT,
    user_agent TEXT
) STRICT;
CREATE INDEX sessions_by_user ON sessions (user_id, created_at);
CREATE INDEX sessions_by_end ON sessions (expires_at);
-- Links by which a user sets a password, once (PasswordRepository).
CREATE TABLE one_time_links (
    hash TEXT NOT NULL PRIMARY KEY,
    user_id TEXT NOT NULL REFERENCES users (id),
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT;
CREATE INDEX one_time_links_by_user ON one_time_links (user_id, created_at);
CREATE INDEX one_time_links_by_end ON one_time_links (expires_at);
-- The session that identified the actor.
ALTER TABLE audit_log ADD COLUMN session_id TEXT;
