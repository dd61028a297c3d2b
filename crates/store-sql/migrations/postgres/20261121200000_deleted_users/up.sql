-- Time at which the deletion of a user began (UserRepository). The row stays until no row of the user is left.
ALTER TABLE users ADD COLUMN deleted_at BIGINT;
CREATE INDEX users_deleted ON users (deleted_at) WHERE deleted_at IS NOT NULL;
-- Finds the records of deleted conversations of a sandbox.
CREATE INDEX deleted_conversations_by_sandbox ON deleted_conversations (sandbox_id);
