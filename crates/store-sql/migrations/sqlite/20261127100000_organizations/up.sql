-- Organizations that users share (OrganizationRepository). Personal organizations have no rows. A deleted organization stays
-- until nothing that its members own in it is left.
CREATE TABLE organizations (
    id TEXT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    deleted_at INTEGER
) STRICT;
CREATE INDEX organizations_by_deletion ON organizations (deleted_at) WHERE deleted_at IS NOT NULL;
-- Members and former members: rows that a former member owns stay.
CREATE TABLE memberships (
    organization_id TEXT NOT NULL REFERENCES organizations (id) ON DELETE CASCADE,
    user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    role TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    removed_at INTEGER,
    PRIMARY KEY (organization_id, user_id)
) STRICT;
CREATE INDEX memberships_by_user ON memberships (user_id, organization_id);
-- Pending invitations. `hash` is the SHA-256 of the token in the link.
CREATE TABLE invitations (
    id TEXT NOT NULL PRIMARY KEY,
    hash TEXT NOT NULL UNIQUE,
    organization_id TEXT NOT NULL REFERENCES organizations (id) ON DELETE CASCADE,
    email TEXT,
    role TEXT NOT NULL,
    inviter TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT;
CREATE INDEX invitations_by_organization ON invitations (organization_id, created_at);
CREATE INDEX invitations_by_end ON invitations (expires_at);
-- The organization in which the sessions of a user act; NULL is the personal one.
ALTER TABLE users ADD COLUMN current_organization TEXT;
-- Since when the user cannot sign in or use a key.
ALTER TABLE users ADD COLUMN disabled_at INTEGER;
-- The only organization in which the key acts; NULL means that requests choose one.
ALTER TABLE api_keys ADD COLUMN organization_id TEXT;
CREATE INDEX api_keys_by_organization ON api_keys (organization_id) WHERE organization_id IS NOT NULL;
