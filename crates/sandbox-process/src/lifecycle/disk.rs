//! The disk limit of sandboxes: measures what each of them uses, and stops those that use more.

use std::convert::Infallible;
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use domain::error::chain;
use domain::id::SandboxId;
use sandbox_provider::{OverLimitGrace, over_disk_limit};
use tokio::process::Command;
use tokio::time::{Instant, sleep, timeout};

use crate::backend::ProcessInner;

/// For a tree of some million files on a slow disk.
const MEASUREMENT_TIMEOUT: Duration = Duration::from_secs(600);
/// A round of measurements is followed by a pause of this many times its own duration, so that it costs little.
const PAUSE_RATIO: u32 = 20;

impl ProcessInner {
    /// Measures all running sandboxes, one after the other, and stops those over the limit. Never returns.
    pub(crate) async fn watch_disk_limit(self: Arc<Self>, limit: u64) -> Infallible {
        let mut grace = OverLimitGrace::default();
        loop {
            let started = Instant::now();
            let mut measured = Vec::new();
            for id in self.running_sandboxes() {
                match self.disk_usage(&id).await {
                    Ok(used) => measured.push((id, used)),
                    Err(error) => {
                        tracing::warn!(sandbox.id = %id, error = %chain(&error), "cannot measure the disk usage of a sandbox: its disk limit is not enforced before the next measurement");
                    }
                }
            }
            let is_over = measured
                .iter()
                .map(|(id, used)| (id.clone(), *used > limit));
            for id in grace.sandboxes_to_stop(is_over) {
                let used = measured.iter().find(|(measured, _)| *measured == id);
                let used = used.map_or(limit, |(_, used)| *used);
                let cause = over_disk_limit(used, limit, "process.disk");
                if let Err(error) = self.stop_for_cause(&id, cause).await {
                    tracing::warn!(sandbox.id = %id, error = %chain(&error), "cannot stop a sandbox over its disk limit; the next measurement tries again");
                }
            }
            let pause = started.elapsed().saturating_mul(PAUSE_RATIO);
            sleep(pause.max(self.config.disk_interval)).await;
        }
    }

    /// The bytes that the files of a sandbox occupy.
    async fn disk_usage(&self, id: &SandboxId) -> io::Result<u64> {
        let paths = self.paths(id);
        let trees = [&*paths.root, &*paths.short];
        let measured = timeout(MEASUREMENT_TIMEOUT, du(&trees)).await;
        measured.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}

/// The bytes that these trees occupy. `du` follows no links while the agent changes the trees, stays on the file system, and
/// counts a file with several names once. It is part of every Linux system.
async fn du(trees: &[&Path]) -> io::Result<u64> {
    let mut command = Command::new("nice");
    command
        .args([
            "-n",
            "19",
            "du",
            "--summarize",
            "--one-file-system",
            "--total",
        ])
        .args(["--block-size=1", "--"])
        .args(trees)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    // It fails for files that disappear meanwhile, and prints the sum of the others.
    let output = command.output().await?;
    let text = String::from_utf8_lossy(&output.stdout);
    let total = text.lines().last().and_then(|line| line.split('\t').next());
    let total = total.and_then(|bytes| bytes.parse().ok());
    total.ok_or_else(|| io::Error::other(format!("du printed no sum ({})", output.status)))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[tokio::test]
    async fn files_count_once_and_links_do_not() {
        let dir = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("large"), vec![1; 8 << 20]).unwrap();
        let file = dir.path().join("a/file");
        fs::create_dir(dir.path().join("a")).unwrap();
        fs::write(&file, vec![1; 1 << 20]).unwrap();
        fs::hard_link(&file, dir.path().join("same")).unwrap();
        std::os::unix::fs::symlink(outside.path(), dir.path().join("link")).unwrap();
        let used = du(&[dir.path(), &dir.path().join("missing")])
            .await
            .unwrap();
        assert!((1 << 20..2 << 20).contains(&used), "{used}");
    }

    #[tokio::test]
    async fn trees_that_do_not_exist_occupy_nothing() {
        assert_eq!(du(&[Path::new("/nonexistent")]).await.unwrap(), 0);
    }
}
