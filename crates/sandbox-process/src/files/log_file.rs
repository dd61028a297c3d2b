//! The log file of an agent server: bounded in size, and quotable without its keys.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use sandbox_provider::quote_log;
use secrecy::SecretString;

use crate::files::{if_exists, untrusted};

/// Bytes that are kept of a log that grew too large, and that are read for a quotation.
const MAX_TAIL_BYTES: u64 = 256 * 1024;
const MAX_QUOTED_BYTES: u64 = 16 * 1024;

/// Starts a new log and keeps the previous one as `.log.1`. Opened for appending, so that [`truncate`] works. Blocks.
pub(crate) fn open(log_file: &Path) -> io::Result<File> {
    if_exists(fs::rename(log_file, previous(log_file)))?;
    File::options()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(log_file)
}

/// Truncates a log that is larger than `max_bytes`: its end moves to `.log.1`, and the writer continues in the empty file.
/// Blocks.
pub(crate) fn truncate(log_file: &Path, max_bytes: u64) -> io::Result<()> {
    let size = match fs::symlink_metadata(log_file) {
        Ok(meta) if meta.is_file() => meta.len(),
        _ => return Ok(()),
    };
    if size <= max_bytes {
        return Ok(());
    }
    let end = last_bytes(log_file, MAX_TAIL_BYTES)?;
    // The agent can write in this directory, and one job serves all logs: remove anything that is not a file.
    let previous = previous(log_file);
    if_exists(fs::remove_file(&previous))?;
    let mut kept = File::options();
    let kept = kept.write(true).create_new(true).mode(0o600);
    kept.open(&previous)?.write_all(&end)?;
    untrusted().write(true).open(log_file)?.set_len(0)
}

pub(crate) fn previous(log_file: &Path) -> PathBuf {
    log_file.with_extension("log.1")
}

fn last_bytes(log_file: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    let mut file = untrusted().read(true).open(log_file)?;
    let size = file.metadata()?.len();
    file.seek(SeekFrom::Start(size.saturating_sub(max_bytes)))?;
    let mut end = Vec::new();
    file.take(max_bytes).read_to_end(&mut end)?;
    Ok(end)
}

/// The last lines without keys and paths of this machine. Empty without a log. Blocks.
pub(crate) fn quote(log_file: &Path, keys: &[SecretString], paths: &[(PathBuf, &str)]) -> String {
    let end = last_bytes(log_file, MAX_QUOTED_BYTES).unwrap_or_default();
    quote_log(&String::from_utf8_lossy(&end), keys, paths)
}

/// Whether the log reports that the port is in use. Blocks.
pub(crate) fn reports_port_in_use(log_file: &Path) -> bool {
    let end = last_bytes(log_file, MAX_QUOTED_BYTES).unwrap_or_default();
    String::from_utf8_lossy(&end)
        .to_ascii_lowercase()
        .contains("address already in use")
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn keys_and_paths_are_masked_in_quotations() {
        let dir = tempfile::tempdir().unwrap();
        let log_file = dir.path().join("agent-server.log");
        let unknown = "k".repeat(43);
        let id = "a".repeat(32);
        let text = format!(
            "{{\"message\":\"using canary-1 in {}\"}}\n{{\"message\":\"failed\",\"exc_info\":\"Traceback\\n a\\nOSError: no\"}}\n\nplain {unknown} {id}\n",
            dir.path().display()
        );
        fs::write(&log_file, text).unwrap();
        let keys = [SecretString::from("canary-1")];
        let quoted = quote(&log_file, &keys, &[(dir.path().to_owned(), "<sandbox>")]);
        assert_eq!(
            quoted,
            format!("using *** in <sandbox>\nfailed: OSError: no\nplain *** {id}")
        );
        assert_eq!(quote(&dir.path().join("none"), &keys, &[]), "");
    }

    #[test]
    fn a_pipe_or_link_in_place_of_the_previous_log_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let log_file = dir.path().join("agent-server.log");
        let elsewhere = dir.path().join("elsewhere");
        fs::write(&elsewhere, "kept").unwrap();
        let pipe = || {
            let created = Command::new("mkfifo").arg(previous(&log_file)).status();
            assert!(created.unwrap().success());
        };
        let link = || std::os::unix::fs::symlink(&elsewhere, previous(&log_file)).unwrap();
        for create in [&pipe as &dyn Fn(), &link] {
            create();
            fs::write(&log_file, "x".repeat(1000)).unwrap();
            truncate(&log_file, 10).unwrap();
            assert_eq!(fs::read(previous(&log_file)).unwrap().len(), 1000);
            fs::remove_file(previous(&log_file)).unwrap();
        }
        assert_eq!(fs::read_to_string(&elsewhere).unwrap(), "kept");
    }

    #[test]
    fn a_log_is_truncated_while_it_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let log_file = dir.path().join("agent-server.log");
        let mut writer = open(&log_file).unwrap();
        writer.write_all(&vec![b'x'; 1000]).unwrap();
        truncate(&log_file, 1000).unwrap();
        assert_eq!(fs::metadata(&log_file).unwrap().len(), 1000);
        writer.write_all(b"y").unwrap();
        truncate(&log_file, 1000).unwrap();
        writer.write_all(b"after").unwrap();
        assert_eq!(fs::read_to_string(&log_file).unwrap(), "after");
        assert!(
            fs::read_to_string(previous(&log_file))
                .unwrap()
                .ends_with("xy")
        );
        open(&log_file).unwrap();
        assert_eq!(fs::read_to_string(previous(&log_file)).unwrap(), "after");
    }
}
