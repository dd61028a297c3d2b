-- The e-mail address of a user, in lower case, and whether a provider or an operator vouches for it (sign_in::UserEmail).
ALTER TABLE users ADD COLUMN email TEXT;
ALTER TABLE users ADD COLUMN email_verified BOOLEAN NOT NULL DEFAULT FALSE;
CREATE INDEX users_by_email ON users (email);
-- Identities at identity providers that are linked to users (IdentityRepository).
CREATE TABLE identities (
    id UUID NOT NULL PRIMARY KEY,
    provider TEXT NOT NULL,
    subject TEXT NOT NULL,
    user_id TEXT COLLATE "C" NOT NULL REFERENCES users (id),
    email TEXT,
    created_at TIMESTAMPTZ NOT NULL,
    last_used_at TIMESTAMPTZ NOT NULL,
    UNIQUE (provider, subject)
);
CREATE INDEX identities_by_user ON identities (user_id, created_at);
