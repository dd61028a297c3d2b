//! Reads the log of a sandbox: its end, and optionally what follows.
//!
//! The agent can replace the file. The reader therefore opens only regular files and reads bounded chunks.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use domain::id::SandboxId;
use domain::sandbox::{LogMask, LogStream, LogTail, SandboxError};
use futures::stream::{self, StreamExt};
use secrecy::SecretString;
use tokio::sync::watch;

use crate::backend::ProcessInner;
use crate::errors::blocking;
use crate::files::{if_exists, log_file, untrusted};

const MAX_READ_BYTES: usize = 64 * 1024;
/// Bytes to read from the end of each of both files: a line may be long.
const MAX_TAIL_BYTES: u64 = 512 * 1024;
/// Interval of checks of a followed log. Not every file system of a data directory sends events.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

impl ProcessInner {
    /// See [`SandboxReader::logs`](domain::sandbox::SandboxReader::logs).
    pub(crate) async fn logs(
        self: Arc<Self>,
        id: SandboxId,
        keys: Vec<SecretString>,
        tail: LogTail,
    ) -> Result<LogStream, SandboxError> {
        // This also adopts a process of an earlier service, whose exit is then noticed.
        let state = Arc::clone(&self).observe(id.clone()).await?;
        state.ok_or(SandboxError::NotFound)?;
        let ended = self.exit_receiver(&id).filter(|_| tail.follow);
        let paths = self.paths(&id);
        let mask = LogMask::new(&keys)
            .with_alias(paths.root.to_string_lossy(), "<sandbox>")
            .with_alias(paths.short.to_string_lossy(), "<sandbox>");
        let opened = blocking(move || LogReader::at_end(paths.log_file(), tail.lines));
        let (reader, end) = opened.await?.map_err(SandboxError::other)?;
        let follower = LogFollower {
            reader: Some(reader),
            pending: end,
            mask,
            ended,
        };
        Ok(stream::unfold(follower, LogFollower::next).boxed())
    }
}

struct LogFollower {
    /// `None` after the end.
    reader: Option<LogReader>,
    pending: Vec<u8>,
    mask: LogMask,
    /// `None` when the log is not followed.
    ended: Option<watch::Receiver<bool>>,
}

impl LogFollower {
    async fn next(mut self) -> Option<(Result<Vec<u8>, SandboxError>, Self)> {
        loop {
            let rest = self
                .pending
                .split_off(self.pending.len().min(MAX_READ_BYTES));
            let chunk = std::mem::replace(&mut self.pending, rest);
            let lines = self.mask.push(&chunk);
            if !lines.is_empty() {
                return Some((Ok(lines), self));
            }
            if !self.pending.is_empty() {
                continue;
            }
            match self.read_more().await {
                Ok(true) => {}
                Ok(false) => {
                    let last = self.mask.finish();
                    return (!last.is_empty()).then_some((Ok(last), self));
                }
                Err(error) => return Some((Err(error), self)),
            }
        }
    }

    /// Waits for more data. `false`: the log has ended.
    async fn read_more(&mut self) -> Result<bool, SandboxError> {
        loop {
            let (Some(mut reader), Some(ended)) = (self.reader.take(), &mut self.ended) else {
                return Ok(false);
            };
            // Read the flag before the last chunk, so that the end of the log is not missed. An error: the process is
            // no longer watched.
            let has_exited = *ended.borrow() || ended.has_changed().is_err();
            let read = blocking(move || {
                let chunk = reader.read();
                (reader, chunk)
            });
            let (reader, chunk) = read.await?;
            self.pending = chunk.map_err(SandboxError::other)?;
            if !self.pending.is_empty() {
                self.reader = Some(reader);
                return Ok(true);
            }
            if has_exited {
                return Ok(false);
            }
            self.reader = Some(reader);
            // Either way the log is read again.
            let _ = tokio::time::timeout(POLL_INTERVAL, ended.changed()).await;
        }
    }
}

struct LogReader {
    log_file: PathBuf,
    file: Option<File>,
    position: u64,
}

impl LogReader {
    /// The last lines, and the position after them. Blocks.
    fn at_end(log_file: PathBuf, lines: u32) -> io::Result<(Self, Vec<u8>)> {
        let file = open(&log_file)?;
        let (mut end, position, is_whole) = match &file {
            Some(file) => end_of(file)?,
            None => (Vec::new(), 0, true),
        };
        if is_whole && count(&end) < lines as usize {
            // The log was truncated or replaced a moment ago.
            if let Some(former) = open(&log_file::previous(&log_file))? {
                let (mut former, ..) = end_of(&former)?;
                former.append(&mut end);
                end = former;
            }
        }
        let end = last_lines(end, lines as usize);
        Ok((
            Self {
                log_file,
                file,
                position,
            },
            end,
        ))
    }

    /// Reads the next chunk. Blocks.
    fn read(&mut self) -> io::Result<Vec<u8>> {
        if self.file.is_none() {
            (self.file, self.position) = (open(&self.log_file)?, 0);
        }
        let Some(file) = &mut self.file else {
            return Ok(Vec::new());
        };
        let size = file.metadata()?.len();
        if size < self.position {
            // The log was truncated: the writer continues at the start.
            self.position = 0;
        }
        file.seek(SeekFrom::Start(self.position))?;
        let mut chunk = Vec::new();
        file.take(MAX_READ_BYTES as u64).read_to_end(&mut chunk)?;
        self.position += chunk.len() as u64;
        if chunk.is_empty() && !is_same_file(file, &self.log_file)? {
            self.file = None;
        }
        Ok(chunk)
    }
}

/// The file at this path, if it is a regular one.
fn open(path: &Path) -> io::Result<Option<File>> {
    let Some(file) = if_exists(untrusted().read(true).open(path))? else {
        return Ok(None);
    };
    Ok(file.metadata()?.is_file().then_some(file))
}

/// Whether the path still leads to this file.
fn is_same_file(file: &File, path: &Path) -> io::Result<bool> {
    let (opened, current) = (file.metadata()?, if_exists(fs::symlink_metadata(path))?);
    Ok(current.is_some_and(|it| (it.dev(), it.ino()) == (opened.dev(), opened.ino())))
}

/// The last bytes of a file in whole lines, the position of its end, and whether that is the whole file.
fn end_of(mut file: &File) -> io::Result<(Vec<u8>, u64, bool)> {
    let size = file.metadata()?.len();
    let from = size.saturating_sub(MAX_TAIL_BYTES);
    file.seek(SeekFrom::Start(from))?;
    let mut end = Vec::new();
    file.take(MAX_TAIL_BYTES).read_to_end(&mut end)?;
    let at = from + end.len() as u64;
    if from > 0 {
        // Drop a partial line, which may contain a part of a key.
        let first = end.iter().position(|byte| *byte == b'\n');
        end.drain(..first.map_or(end.len(), |at| at + 1));
    }
    Ok((end, at, from == 0))
}

/// Counts lines, including an unfinished one.
fn count(text: &[u8]) -> usize {
    text.split_inclusive(|byte| *byte == b'\n').count()
}

fn last_lines(mut text: Vec<u8>, lines: usize) -> Vec<u8> {
    let excess = count(&text).saturating_sub(lines);
    let parts = text.split_inclusive(|byte| *byte == b'\n').take(excess);
    let bytes: usize = parts.map(<[u8]>::len).sum();
    text.drain(..bytes);
    text
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn tail(log_file: &Path, lines: u32) -> String {
        let (_, end) = LogReader::at_end(log_file.to_owned(), lines).unwrap();
        String::from_utf8(end).unwrap()
    }

    #[test]
    fn the_last_lines_may_be_in_the_previous_file() {
        let dir = tempfile::tempdir().unwrap();
        let log_file = dir.path().join("agent-server.log");
        assert_eq!(tail(&log_file, 5), "");
        fs::write(log_file::previous(&log_file), "1\n2\n").unwrap();
        fs::write(&log_file, "3\n4").unwrap();
        let expected = [
            (0, ""),
            (1, "4"),
            (2, "3\n4"),
            (3, "2\n3\n4"),
            (9, "1\n2\n3\n4"),
        ];
        for (lines, text) in expected {
            assert_eq!(tail(&log_file, lines), text);
        }
        let filler = "x".repeat(usize::try_from(MAX_TAIL_BYTES).unwrap());
        fs::write(&log_file, format!("{filler}\nlast\n")).unwrap();
        assert_eq!(tail(&log_file, 9), "last\n");
    }

    #[test]
    fn a_reader_continues_in_a_truncated_or_new_log() {
        let dir = tempfile::tempdir().unwrap();
        let log_file = dir.path().join("agent-server.log");
        let (mut reader, end) = LogReader::at_end(log_file.clone(), 5).unwrap();
        assert!(end.is_empty() && reader.read().unwrap().is_empty());
        let mut writer = log_file::open(&log_file).unwrap();
        writer.write_all(b"first\n").unwrap();
        assert_eq!(reader.read().unwrap(), b"first\n");
        log_file::truncate(&log_file, 1).unwrap();
        writer.write_all(b"2nd\n").unwrap();
        assert_eq!(reader.read().unwrap(), b"2nd\n");
        let mut writer = log_file::open(&log_file).unwrap();
        writer.write_all(b"third\n").unwrap();
        assert_eq!(reader.read().unwrap(), b"");
        assert_eq!(reader.read().unwrap(), b"third\n");
    }

    #[test]
    fn links_and_directories_are_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let log_file = dir.path().join("agent-server.log");
        let outside = dir.path().join("outside");
        fs::write(&outside, "secret\n").unwrap();
        std::os::unix::fs::symlink(&outside, &log_file).unwrap();
        assert!(LogReader::at_end(log_file.clone(), 5).is_err());
        fs::remove_file(&log_file).unwrap();
        fs::create_dir(&log_file).unwrap();
        assert_eq!(tail(&log_file, 5), "");
    }
}
