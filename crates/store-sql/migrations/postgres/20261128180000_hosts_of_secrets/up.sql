-- The hosts to which the service sends the value for a sandbox, separated by spaces. Empty: sandboxes get the value itself.
ALTER TABLE secrets ADD COLUMN hosts TEXT NOT NULL DEFAULT '';
