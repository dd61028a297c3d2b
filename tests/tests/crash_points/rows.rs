//! Queries of the service's tables.

/// Counts of rows that must not exist after the recovery.
pub(crate) const FORBIDDEN_ROWS: [(&str, &str); 7] = [
    (
        "starts that are still open",
        "select count(*) from start_tasks where is_open",
    ),
    (
        "events without a conversation",
        "select count(*) from events where conversation_id not in (select id from conversations)",
    ),
    (
        "duplicate events",
        "select count(*) from (select 1 from events group by conversation_id, event_id having count(*) > 1) as twice",
    ),
    (
        "conversations still to be deleted at an agent server",
        "select count(*) from deleted_conversations where pending",
    ),
    (
        "conversations with two start tasks",
        "select count(*) from (select 1 from start_tasks group by conversation_id having count(*) > 1) as twice",
    ),
    (
        "starts that failed",
        "select count(*) from start_tasks where status <> 'READY'",
    ),
    (
        "sandboxes between two states",
        "select count(*) from sandboxes where status not in ('RUNNING', 'PAUSED')",
    ),
];
