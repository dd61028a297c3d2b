-- What may be paused because nobody uses it, and what may be deleted because of its age (SandboxRepository::retirable).
CREATE INDEX sandboxes_by_change ON sandboxes (host, desired, status, updated_at, id);
CREATE INDEX sandboxes_by_age ON sandboxes (host, created_at);
