DROP INDEX events_bulky;
ALTER TABLE pending_messages DROP COLUMN message_bytes;
DROP INDEX start_tasks_by_size;
ALTER TABLE start_tasks DROP COLUMN request_bytes;
ALTER TABLE conversations DROP COLUMN shortened_events;
ALTER TABLE conversations DROP COLUMN event_bytes;
ALTER TABLE conversations DROP COLUMN event_count;
