-- Whether a person denied the login. `user_id` stays empty then: a process of the former release never takes it for confirmed.
ALTER TABLE device_logins ADD COLUMN is_denied BOOLEAN NOT NULL DEFAULT FALSE;
