-- SQLite has no such types; see the migration of this name for Postgres.
SELECT 1;
