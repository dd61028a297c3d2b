ALTER TABLE audit_log DROP COLUMN session_id;
DROP TABLE one_time_links;
DROP TABLE sessions;
ALTER TABLE users DROP COLUMN password_hash;
