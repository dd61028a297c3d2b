//! Queries of the service's tables.

use std::path::Path;
use std::process::Command;

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

const QUERY_SCRIPT: &str = "
import sqlite3, sys
db = sqlite3.connect('file:' + sys.argv[1] + '?mode=ro', uri=True, timeout=10)
print(db.execute(sys.argv[2]).fetchone()[0])
";

/// One value of an `SQLite` file.
pub(crate) fn query_sqlite(file: &Path, sql: &str) -> String {
    let output = Command::new("python3")
        .args(["-c", QUERY_SCRIPT])
        .arg(file)
        .arg(sql)
        .output()
        .expect("python3 can be run");
    assert!(
        output.status.success(),
        "{sql}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}
