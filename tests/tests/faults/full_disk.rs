//! The disk of the data directory fills up, and gets free space again.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use acceptance::wait::wait_for;
use acceptance::{Client, Service};
use serde_json::json;

const WAIT_TIMEOUT: Duration = Duration::from_secs(180);

/// A small file system, mounted until this is dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(data_dir: &Path) -> Self {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=96m,mode=700", "none"]);
        let done = mount.arg(data_dir).status().expect("cannot run mount");
        assert!(
            done.success(),
            "run the suites as root: this one mounts a tmpfs"
        );
        Self(data_dir.to_owned())
    }

    fn free(&self) -> u64 {
        let found = rustix::fs::statvfs(&self.0).expect("cannot read the free space");
        found.f_bavail * found.f_frsize
    }

    fn filler_file(&self) -> PathBuf {
        self.0.join("filler")
    }

    /// Fills the disk up to this many free bytes, as another program would.
    fn fill(&self, remaining_bytes: u64) {
        let options = File::options()
            .create(true)
            .append(true)
            .open(self.filler_file());
        let mut file = options.expect("cannot open the filler file");
        while self.free() > remaining_bytes {
            let size = usize::try_from(self.free() - remaining_bytes).unwrap_or(usize::MAX);
            let piece = vec![1; size.min(1 << 20)];
            if file.write_all(&piece).is_err() {
                break;
            }
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

async fn store_secret(user: &Client, name: &str) -> u16 {
    let secret = json!({"name": name, "value": "v"});
    user.post("/api/v1/secrets", &secret).await.status
}

/// The problem that `/ready` reports about the disk.
async fn disk_problem(user: &Client) -> Option<String> {
    let ready = user.get("/ready").await;
    let problem = ready.body["checks"]["disk"].as_str().map(str::to_owned);
    (ready.status == 503).then_some(problem).flatten()
}

#[tokio::test]
async fn full_disk_is_reported_in_advance_and_does_not_block_reads_or_deletions() {
    let builder = Service::builder().env("WORKSPACE_STORAGE__MIN_FREE", "24MiB");
    let mut service = builder.start().await;
    service.stop().await;
    // A new installation, on a disk of its own.
    let disk = SmallDisk::mount(&service.data_dir());
    service.restart().await;
    let user = service.admin();
    for name in ["A", "B", "C"] {
        assert_eq!(store_secret(&user, name).await / 100, 2);
    }
    assert_eq!(disk_problem(&user).await, None);

    // Below `min_free`, before the disk is full.
    disk.fill(20 << 20);
    let problem = wait_for("a report about the disk", WAIT_TIMEOUT, || {
        disk_problem(&user)
    })
    .await;
    let data_dir = service.data_dir().display().to_string();
    assert!(
        problem.contains(&data_dir) && problem.contains(" MiB left"),
        "{problem}"
    );
    wait_for("a refused write", WAIT_TIMEOUT, async || {
        (store_secret(&user, "D").await == 507).then_some(())
    })
    .await;
    let refused = user.post("/api/v1/secrets", &json!({})).await;
    assert!(refused.headers.contains_key("retry-after"));
    assert!(refused.body["detail"].is_string(), "{}", refused.text);
    let _ = user.get("/api/v1/secrets/search").await.ok();
    let _ = user.delete("/api/v1/secrets/A").await.ok();

    // Full to the last byte, while the service is stopped.
    service.stop().await;
    disk.fill(0);
    assert!(disk.free() < 1 << 12);
    service.restart().await;
    assert!(disk_problem(&user).await.is_some());
    let _ = user.get("/api/v1/secrets/search").await.ok();
    let _ = user.delete("/api/v1/secrets/B").await.ok();
    assert_eq!(store_secret(&user, "D").await, 507);

    // The same after a crash.
    service.restart().await;
    let _ = user.delete("/api/v1/secrets/C").await.ok();

    // Free space again.
    fs::remove_file(disk.filler_file()).expect("cannot remove the filler file");
    wait_for("an accepted write", WAIT_TIMEOUT, async || {
        (store_secret(&user, "D").await / 100 == 2).then_some(())
    })
    .await;
    wait_for("readiness", WAIT_TIMEOUT, async || {
        (user.get("/ready").await.status == 200).then_some(())
    })
    .await;
    service.kill9();
}
