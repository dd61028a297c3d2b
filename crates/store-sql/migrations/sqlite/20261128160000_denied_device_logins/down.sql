ALTER TABLE device_logins DROP COLUMN is_denied;
