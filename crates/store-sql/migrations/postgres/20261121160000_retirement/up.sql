-- Finds sandboxes to pause, because they are not used, or to delete, because of their age (SandboxRepository::list_retirable).
CREATE INDEX sandboxes_by_change ON sandboxes (host, desired, status, updated_at, id);
CREATE INDEX sandboxes_by_age ON sandboxes (host, created_at);
