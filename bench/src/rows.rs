//! Databases of `SQLite` with many rows: what came through the API would take hours.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};

/// Copies one conversation, a second apart, until there are so many.
const COPIES: &str = "
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
columns = [row[1] for row in db.execute('pragma table_info(conversations)')]
new = {'id': 'printf(\"%032x\", n)', 'created_at': 'created_at - n * 1000000', 'title': '\"Conversation \" || n'}
there = db.execute('select count(*) from conversations').fetchone()[0]
db.execute('with recursive numbers(n) as (select ' + str(there) + ' union all select n + 1 from numbers where n < ? - 1) '
    'insert into conversations (' + ', '.join(columns) + ') select '
    + ', '.join(new.get(column, column) for column in columns)
    + ' from (select * from conversations order by created_at desc limit 1), numbers where n < ?', 2 * [int(sys.argv[2])])
db.commit()
";

/// Multiplies the newest conversation until there are `total`, with Python's `sqlite3` module. The service must be down.
///
/// # Errors
/// When there is no Python, or the database is another one.
pub fn copy_conversations(database: &Path, total: u32) -> anyhow::Result<()> {
    let status = Command::new("python3")
        .args(["-c", COPIES])
        .arg(database)
        .arg(total.to_string())
        .status()
        .context("python3 cannot be run")?;
    ensure!(status.success(), "the conversations were not made");
    Ok(())
}
