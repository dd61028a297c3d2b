DROP TABLE audit_log;
ALTER TABLE api_keys DROP COLUMN made_by;
ALTER TABLE api_keys DROP COLUMN name;
ALTER TABLE users DROP COLUMN role;
