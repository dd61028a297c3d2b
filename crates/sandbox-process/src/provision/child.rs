//! Runs one program of the installation with bounded output and a deadline, and leaves no process behind.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::process::Command;
use tokio::time::timeout;

use crate::processes::pidfd::{PidHandle, PidWatch};
use crate::processes::proc;

/// Maximum number of lines of output kept for an error.
const MAX_KEPT_LINES: usize = 40;
/// Longer lines (progress bars, tracebacks with data) are truncated.
const MAX_LINE_BYTES: usize = 500;

#[derive(Debug)]
pub(super) struct RunOutput {
    pub(super) status: ExitStatus,
    /// The last lines of the program's output.
    pub(super) tail: Vec<String>,
}

#[derive(Debug)]
pub(super) enum RunError {
    Io(io::Error),
    /// The program exceeded the deadline and was killed.
    TooLong(Vec<String>),
}

impl From<io::Error> for RunError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Runs `command` in its own process group with `input` as standard input, and reads both outputs by line. Dropping the
/// future, or the deadline, kills the group.
pub(super) async fn run(
    mut command: Command,
    input: Stdio,
    limit: Duration,
    mut on_line: impl FnMut(&str) + Send,
) -> Result<RunOutput, RunError> {
    let (reader, writer) = io::pipe()?;
    command
        .stdin(input)
        .stdout(writer.try_clone()?)
        .stderr(writer)
        .process_group(0)
        .kill_on_drop(true);
    let mut child = command.spawn()?;
    // The command owns copies of the pipe's writing end; while they are open, the output would never end.
    drop(command);
    let pid = child
        .id()
        .and_then(|pid| i32::try_from(pid).ok())
        .ok_or_else(spawn_error)?;
    let group = KillGroup(Pid::from_raw(pid).ok_or_else(spawn_error)?);
    let key = proc::stat(pid).ok_or_else(spawn_error)?.key;
    let exit = PidHandle::open(key)?.ok_or_else(spawn_error)?.watch()?;
    let mut output = pipe::Receiver::from_owned_fd(reader.into())?;
    let mut lines = OutputTail::default();
    if timeout(limit, follow(&mut output, &exit, &mut lines, &mut on_line))
        .await
        .is_err()
    {
        return Err(RunError::TooLong(lines.into_tail()));
    }
    // The child is a zombie, so its pid (the group's id) is not reused: the rest of the group can be killed safely.
    drop(group);
    let status = child.wait().await?;
    Ok(RunOutput {
        status,
        tail: lines.into_tail(),
    })
}

/// Reads until the program exits, then the rest of the pipe. Does not wait for a grandchild that keeps the pipe open.
async fn follow(
    output: &mut pipe::Receiver,
    exit: &PidWatch,
    lines: &mut OutputTail,
    on_line: &mut (impl FnMut(&str) + Send),
) {
    let mut buffer = [0; 8192];
    let mut open = true;
    loop {
        tokio::select! {
            biased;
            read = output.read(&mut buffer), if open => match read {
                Ok(0) | Err(_) => open = false,
                Ok(count) => lines.feed(&buffer[..count], on_line),
            },
            _ = exit.exited() => break,
        }
    }
    while let Ok(count) = output.try_read(&mut buffer) {
        if count == 0 {
            break;
        }
        lines.feed(&buffer[..count], on_line);
    }
    lines.feed(b"\n", on_line);
}

fn spawn_error() -> io::Error {
    io::Error::other("the program ended before the service could watch it")
}

struct KillGroup(Pid);

impl Drop for KillGroup {
    fn drop(&mut self) {
        // An error means that the group is empty.
        let _ = kill_process_group(self.0, Signal::KILL);
    }
}

/// Splits output into a bounded number of bounded lines, and removes credentials from URLs.
#[derive(Default)]
struct OutputTail {
    current: Vec<u8>,
    tail: VecDeque<String>,
}

impl OutputTail {
    fn feed(&mut self, bytes: &[u8], on_line: &mut (impl FnMut(&str) + Send)) {
        for &byte in bytes {
            if byte == b'\n' || byte == b'\r' {
                let line = clean(&self.current);
                self.current.clear();
                if line.is_empty() {
                    continue;
                }
                on_line(&line);
                if self.tail.len() == MAX_KEPT_LINES {
                    self.tail.pop_front();
                }
                self.tail.push_back(line);
            } else if self.current.len() < MAX_LINE_BYTES {
                self.current.push(byte);
            }
        }
    }

    fn into_tail(self) -> Vec<String> {
        self.tail.into()
    }
}

fn clean(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let printable: String = text.chars().filter(|c| !c.is_control()).collect();
    without_credentials(printable.trim_end())
}

/// Replaces the user and password of every URL in the text.
fn without_credentials(text: &str) -> String {
    let mut cleaned = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("://") {
        let (before, after) = rest.split_at(start + 3);
        cleaned.push_str(before);
        // A password may contain an unescaped `@` or `/`, so everything up to the last `@` before white space is
        // removed.
        let end = after.find(char::is_whitespace).unwrap_or(after.len());
        match after[..end].rfind('@') {
            Some(at) => {
                cleaned.push_str("***");
                rest = &after[at..];
            }
            None => rest = after,
        }
    }
    cleaned + rest
}

/// The standard input of a step: the lock's file. A `flock` lives as long as any copy of its open file, so a step that
/// outlives a killed service keeps the installation locked until its end.
pub(super) fn input(lock: &File) -> io::Result<Stdio> {
    lock.try_clone().map(Stdio::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_removed_from_urls() {
        for (input, expected) in [
            (
                "Looking in https://u:p@host/simple now",
                "Looking in https://***@host/simple now",
            ),
            ("a://u:p@h b://x/y c://q:w@h", "a://***@h b://x/y c://***@h"),
            ("https://u:p@ss/w@rd@host/", "https://***@host/"),
            ("nothing @ all", "nothing @ all"),
        ] {
            assert_eq!(without_credentials(input), expected);
        }
    }

    #[test]
    fn output_is_bounded() {
        let mut lines = OutputTail::default();
        let mut count = 0;
        for _ in 0..1000 {
            lines.feed(&[b'x'; 3000], &mut |_: &str| {});
            lines.feed(b"\r\n", &mut |line: &str| {
                assert_eq!(line.len(), MAX_LINE_BYTES);
                count += 1;
            });
        }
        assert_eq!((count, lines.into_tail().len()), (1000, MAX_KEPT_LINES));
    }

    /// A shell that prints the pid of a grandchild in its group, and then waits forever.
    fn endless() -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "sleep 600 & echo $!; wait"]);
        command
    }

    async fn wait_until_dead(pid: i32) {
        // The kernel may still be delivering the signal.
        while proc::stat(pid).is_some_and(|stat| !stat.is_dead()) {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn dropping_a_run_kills_the_whole_group() {
        let (sender, mut pids) = tokio::sync::mpsc::unbounded_channel();
        let run = run(
            endless(),
            Stdio::null(),
            Duration::from_secs(600),
            move |line| {
                sender.send(line.parse::<i32>().unwrap()).unwrap();
            },
        );
        let pid = tokio::select! {
            result = run => panic!("{result:?}"),
            pid = pids.recv() => pid.unwrap(),
        };
        wait_until_dead(pid).await;
    }

    #[tokio::test]
    async fn a_program_that_exceeds_its_deadline_is_killed() {
        let result = run(endless(), Stdio::null(), Duration::from_millis(1), |_| {}).await;
        assert!(matches!(result, Err(RunError::TooLong(_))), "{result:?}");
    }

    #[tokio::test]
    async fn output_and_exit_are_both_reported() {
        let mut command = Command::new("/bin/sh");
        // The grandchild keeps the pipe open after the exit; the run does not wait for it.
        command.args(["-c", "echo out; echo err >&2; sleep 600 & exit 7"]);
        let finished = run(command, Stdio::null(), Duration::from_secs(60), |_| {})
            .await
            .unwrap();
        assert_eq!(finished.status.code(), Some(7));
        assert_eq!(finished.tail, ["out", "err"]);
    }
}
