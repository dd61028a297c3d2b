-- Messages that wait for their conversation (PendingMessageRepository). `conversation_id` has no foreign key, because the start may
-- not have created the conversation yet. `place` is the order of arrival.
CREATE TABLE pending_messages (
    id TEXT NOT NULL PRIMARY KEY,
    owner TEXT NOT NULL,
    conversation_id TEXT NOT NULL,
    place INTEGER NOT NULL,
    message TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    tried_at INTEGER
);
CREATE UNIQUE INDEX pending_messages_in_order ON pending_messages (conversation_id, owner, place);
CREATE INDEX pending_messages_by_owner ON pending_messages (owner);
CREATE INDEX pending_messages_by_age ON pending_messages (created_at);
