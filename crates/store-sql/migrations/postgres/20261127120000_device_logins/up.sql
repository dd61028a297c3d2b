-- Programs that wait for a person (DeviceLoginRepository). `hash` is the SHA-256 of the program's code; `user_id` is who confirmed.
CREATE TABLE device_logins (
    hash TEXT NOT NULL PRIMARY KEY,
    code TEXT NOT NULL UNIQUE,
    user_id TEXT COLLATE "C" REFERENCES users (id) ON DELETE CASCADE,
    created_at TIMESTAMPTZ NOT NULL,
    expires_at TIMESTAMPTZ NOT NULL
);
CREATE INDEX device_logins_by_end ON device_logins (expires_at);
