-- Keys of the automations service, and the sandboxes that it creates with them.
ALTER TABLE api_keys ADD COLUMN is_automation BOOLEAN NOT NULL DEFAULT FALSE;
ALTER TABLE sandboxes ADD COLUMN automation_key UUID;
