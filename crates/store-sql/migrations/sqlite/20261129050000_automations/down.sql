ALTER TABLE sandboxes DROP COLUMN automation_key;
ALTER TABLE api_keys DROP COLUMN is_automation;
