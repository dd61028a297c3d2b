//! What no user sees: the tables of the service.

use std::path::Path;
use std::process::Command;

/// Each of these counts rows that nobody may leave behind, once everything has settled.
pub(crate) const FORBIDDEN: [(&str, &str); 7] = [
    (
        "starts that are still open",
        "select count(*) from start_tasks where is_open",
    ),
    (
        "events of no conversation",
        "select count(*) from events where conversation_id not in (select id from conversations)",
    ),
    (
        "events that are there twice",
        "select count(*) from (select 1 from events group by conversation_id, event_id having count(*) > 1) as twice",
    ),
    (
        "conversations to be deleted from a sandbox that is there",
        "select count(*) from deleted_conversations where pending",
    ),
    (
        "conversations that two starts made",
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

const ASK: &str = "
import sqlite3, sys
db = sqlite3.connect('file:' + sys.argv[1] + '?mode=ro', uri=True, timeout=10)
print(db.execute(sys.argv[2]).fetchone()[0])
";

/// One value of a file.
pub(crate) fn of_sqlite(file: &Path, sql: &str) -> String {
    let output = Command::new("python3")
        .args(["-c", ASK])
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
