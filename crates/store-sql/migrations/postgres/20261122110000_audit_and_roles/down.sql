DROP TABLE audit_log;
DROP FUNCTION audit_log_is_not_changed();
ALTER TABLE api_keys DROP COLUMN made_by;
ALTER TABLE api_keys DROP COLUMN name;
ALTER TABLE users DROP COLUMN role;
