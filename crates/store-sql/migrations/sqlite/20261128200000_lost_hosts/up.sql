-- The last sign of life of a process that serves the host; NULL if only former releases did. Whether it takes no new starts.
ALTER TABLE hosts ADD COLUMN seen_at INTEGER;
ALTER TABLE hosts ADD COLUMN is_draining INTEGER NOT NULL DEFAULT 0;
-- Whether the sandbox is MISSING because its host is lost; it is RUNNING again when the host returns.
ALTER TABLE sandboxes ADD COLUMN is_host_lost INTEGER NOT NULL DEFAULT 0;
