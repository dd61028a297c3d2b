ALTER TABLE sandboxes DROP COLUMN is_host_lost;
ALTER TABLE hosts DROP COLUMN is_draining;
ALTER TABLE hosts DROP COLUMN seen_at;
