-- Counters of what a user stores (UsageRepository). Each changes in the transaction that stores or deletes what it counts, in a row
-- that this transaction writes anyway. With one row per user, the reports of all their sandboxes would wait for each other.
ALTER TABLE conversations
    ADD COLUMN event_count BIGINT NOT NULL DEFAULT 0,
    ADD COLUMN event_bytes BIGINT NOT NULL DEFAULT 0,
    ADD COLUMN shortened_events BIGINT NOT NULL DEFAULT 0;
UPDATE conversations SET event_count = counted.events, event_bytes = counted.bytes FROM (
    SELECT conversation_id, count(*) AS events, sum(octet_length(body)) AS bytes FROM events GROUP BY conversation_id
) AS counted WHERE counted.conversation_id = conversations.id;
ALTER TABLE start_tasks ADD COLUMN request_bytes BIGINT NOT NULL DEFAULT 0;
UPDATE start_tasks SET request_bytes = octet_length(request::text);
-- Partial, so that the planner uses it for no other query.
CREATE INDEX start_tasks_by_size ON start_tasks (owner, request_bytes) WHERE request_bytes > 0;
ALTER TABLE pending_messages ADD COLUMN message_bytes BIGINT NOT NULL DEFAULT 0;
UPDATE pending_messages SET message_bytes = octet_length(message::text);
-- Only the events that may be shortened (domain::event::BULKY_EVENT_KIND and BULKY_EVENT_BYTES).
CREATE INDEX events_bulky ON events (conversation_id, seq) WHERE kind = 'ObservationEvent' AND octet_length(body) > 16384;
