DROP INDEX api_keys_by_organization;
ALTER TABLE api_keys DROP COLUMN organization_id;
ALTER TABLE users DROP COLUMN disabled_at;
ALTER TABLE users DROP COLUMN current_organization;
DROP TABLE invitations;
DROP TABLE memberships;
DROP TABLE organizations;
