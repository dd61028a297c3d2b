DROP INDEX deleted_conversations_by_sandbox;
DROP INDEX users_deleted;
ALTER TABLE users DROP COLUMN deleted_at;
