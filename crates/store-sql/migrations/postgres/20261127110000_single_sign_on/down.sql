DROP TABLE identities;
DROP INDEX users_by_email;
ALTER TABLE users DROP COLUMN email_verified;
ALTER TABLE users DROP COLUMN email;
