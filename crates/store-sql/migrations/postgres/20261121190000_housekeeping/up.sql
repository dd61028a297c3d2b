-- For the `prune` methods, which find old rows without a scan.
CREATE INDEX start_tasks_ended ON start_tasks (updated_at, id) WHERE NOT is_open;
CREATE INDEX deleted_conversations_by_age ON deleted_conversations (deleted_at, id);
CREATE INDEX leases_by_end ON leases (ends_at);
