//! The disk of the service's data fills up, and has room again.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use acceptance::wait::wait_for;
use acceptance::{Client, Service};
use serde_json::json;

const WAIT_TIMEOUT: Duration = Duration::from_secs(30);

/// A small file system, mounted until this is dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(place: &Path) -> Self {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=96m,mode=700", "none"]);
        let done = mount.arg(place).status().expect("mount can be run");
        assert!(
            done.success(),
            "run the suites as root: this one mounts a tmpfs"
        );
        Self(place.to_owned())
    }

    fn free(&self) -> u64 {
        let found = rustix::fs::statvfs(&self.0).expect("it is mounted");
        found.f_bavail * found.f_frsize
    }

    fn filler(&self) -> PathBuf {
        self.0.join("filler")
    }

    /// Another program takes all room but this.
    fn fill(&self, left: u64) {
        let options = File::options()
            .create(true)
            .append(true)
            .open(self.filler());
        let mut file = options.expect("an empty file has room");
        while self.free() > left {
            let size = usize::try_from(self.free() - left).unwrap_or(usize::MAX);
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

async fn store(user: &Client, name: &str) -> u16 {
    let secret = json!({"name": name, "value": "v"});
    user.post("/api/v1/secrets", &secret).await.status
}

/// What `/ready` says about the disk.
async fn trouble(user: &Client) -> Option<String> {
    let ready = user.get("/ready").await;
    let told = ready.body["checks"]["disk"].as_str().map(str::to_owned);
    (ready.status == 503).then_some(told).flatten()
}

#[tokio::test]
async fn a_full_disk_is_told_before_and_reads_and_deletions_go_on() {
    let builder = Service::builder().env("WORKSPACE_STORAGE__MIN_FREE", "24MiB");
    let mut service = builder.start().await;
    service.stop().await;
    // A new installation, on a disk of its own.
    let disk = SmallDisk::mount(&service.data());
    service.restart().await;
    let user = service.admin();
    for name in ["A", "B", "C"] {
        assert_eq!(store(&user, name).await / 100, 2);
    }
    assert_eq!(trouble(&user).await, None);

    // Before it is full.
    disk.fill(20 << 20);
    let told = wait_for("word of the disk", WAIT_TIMEOUT, || trouble(&user)).await;
    let place = service.data().display().to_string();
    assert!(
        told.contains(&place) && told.contains(" MiB left"),
        "{told}"
    );
    wait_for("a refusal", WAIT_TIMEOUT, async || {
        (store(&user, "D").await == 507).then_some(())
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
    assert!(trouble(&user).await.is_some());
    let _ = user.get("/api/v1/secrets/search").await.ok();
    let _ = user.delete("/api/v1/secrets/B").await.ok();
    assert_eq!(store(&user, "D").await, 507);

    // And again, after a crash.
    service.restart().await;
    let _ = user.delete("/api/v1/secrets/C").await.ok();

    // Room again.
    fs::remove_file(disk.filler()).expect("it is there");
    wait_for("room", WAIT_TIMEOUT, async || {
        (store(&user, "D").await / 100 == 2).then_some(())
    })
    .await;
    wait_for("readiness", WAIT_TIMEOUT, async || {
        (user.get("/ready").await.status == 200).then_some(())
    })
    .await;
    service.kill9();
}
