-- Organizations that users share (OrganizationRepository). Personal organizations have no rows. A deleted organization stays
-- until nothing that its members own in it is left.
CREATE TABLE organizations (
    id UUID NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    created_at TIMESTAMPTZ NOT NULL,
    deleted_at TIMESTAMPTZ
);
CREATE INDEX organizations_by_deletion ON organizations (deleted_at) WHERE deleted_at IS NOT NULL;
-- Members and former members: rows that a former member owns stay.
CREATE TABLE memberships (
    organization_id UUID NOT NULL REFERENCES organizations (id) ON DELETE CASCADE,
    user_id TEXT COLLATE "C" NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    role TEXT NOT NULL,
    created_at TIMESTAMPTZ NOT NULL,
    removed_at TIMESTAMPTZ,
    PRIMARY KEY (organization_id, user_id)
);
CREATE INDEX memberships_by_user ON memberships (user_id, organization_id);
-- Pending invitations. `hash` is the SHA-256 of the token in the link.
CREATE TABLE invitations (
    id UUID NOT NULL PRIMARY KEY,
    hash TEXT NOT NULL UNIQUE,
    organization_id UUID NOT NULL REFERENCES organizations (id) ON DELETE CASCADE,
    email TEXT,
    role TEXT NOT NULL,
    inviter TEXT COLLATE "C" NOT NULL,
    created_at TIMESTAMPTZ NOT NULL,
    expires_at TIMESTAMPTZ NOT NULL
);
CREATE INDEX invitations_by_organization ON invitations (organization_id, created_at);
CREATE INDEX invitations_by_end ON invitations (expires_at);
-- The organization in which the sessions of a user act; NULL is the personal one.
ALTER TABLE users ADD COLUMN current_organization UUID;
-- Since when the user cannot sign in or use a key.
ALTER TABLE users ADD COLUMN disabled_at TIMESTAMPTZ;
-- The only organization in which the key acts; NULL means that requests choose one.
ALTER TABLE api_keys ADD COLUMN organization_id UUID;
CREATE INDEX api_keys_by_organization ON api_keys (organization_id) WHERE organization_id IS NOT NULL;
