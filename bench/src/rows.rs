//! `SQLite` databases with many rows, because creating the rows through the API takes hours.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};

/// Copies one conversation, a second apart, up to a total.
const COPY_SCRIPT: &str = "
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

/// Copies the newest conversation until there are `total`, with Python's `sqlite3` module. The service must be stopped.
///
/// # Errors
/// When Python is missing, or the database has another schema.
pub fn copy_conversations(database: &Path, total: u32) -> anyhow::Result<()> {
    let status = Command::new("python3")
        .args(["-c", COPY_SCRIPT])
        .arg(database)
        .arg(total.to_string())
        .status()
        .context("python3 cannot be run")?;
    ensure!(status.success(), "the conversations were not copied");
    Ok(())
}
