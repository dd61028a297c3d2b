//! A private engine that a test can kill and freeze, with its own data, containerd and network.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bollard::{API_DEFAULT_VERSION, Docker};
use tempfile::TempDir;

/// Time for the engine to start or to stop on a busy machine.
const ENGINE_START_TIMEOUT: Duration = Duration::from_secs(60);

/// A `dockerd` in a network of its own, so that it shares no packet filter with another engine. Needs root.
pub(crate) struct PrivateEngine {
    dir: TempDir,
    /// Keeps the network while the engine is away.
    holder: Child,
    daemon: Option<Child>,
}

impl PrivateEngine {
    /// A running engine.
    pub(crate) async fn started() -> Self {
        let mut engine = Self::prepared();
        engine.start().await;
        engine
    }

    /// An engine that is not started yet.
    pub(crate) fn prepared() -> Self {
        let dir = tempfile::Builder::new()
            .prefix("awd")
            .tempdir_in("/tmp")
            .unwrap();
        let network = "busybox ip link set lo up && exec busybox sleep 3600";
        let holder = Command::new("busybox")
            .args(["unshare", "-n", "busybox", "sh", "-c", network])
            .spawn()
            .expect("busybox: apt-get install busybox-static");
        let engine = Self {
            dir,
            holder,
            daemon: None,
        };
        let ours = fs::read_link("/proc/self/ns/net").unwrap();
        let theirs = format!("/proc/{}/ns/net", engine.holder.id());
        let started_at = Instant::now();
        while fs::read_link(&theirs).is_ok_and(|namespace| namespace == ours) {
            assert!(
                started_at.elapsed() < ENGINE_START_TIMEOUT,
                "cannot create a network namespace: run this test as root"
            );
            std::thread::yield_now();
        }
        engine
    }

    /// Puts its data on a disk of this size, before the first start. Returns the directory.
    pub(crate) fn limit_disk(&self, mebibytes: u32) -> String {
        let data = self.path("data");
        fs::create_dir(&data).unwrap();
        let size = format!("size={mebibytes}m");
        let mounted = Command::new("busybox")
            .args(["mount", "-t", "tmpfs", "-o", &size, "none", &data])
            .status();
        assert!(
            mounted.unwrap().success(),
            "cannot mount a tmpfs: run this test as root"
        );
        data
    }

    pub(crate) fn socket(&self) -> String {
        format!("unix://{}", self.path("sock"))
    }

    /// A client of the running engine.
    pub(crate) fn docker(&self) -> Docker {
        Docker::connect_with_unix(&self.path("sock"), 120, API_DEFAULT_VERSION).unwrap()
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }

    /// Starts the engine and waits until it answers.
    pub(crate) async fn start(&mut self) {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.path("log"))
            .unwrap();
        let daemon = Command::new("busybox")
            .args([
                "nsenter",
                "-n",
                "-t",
                &self.holder.id().to_string(),
                "dockerd",
            ])
            .args([
                "--data-root",
                &self.path("data"),
                "--exec-root",
                &self.path("exec"),
            ])
            .args(["--pidfile", &self.path("pid"), "-H", &self.socket()])
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        self.daemon = Some(daemon.unwrap());
        let started_at = Instant::now();
        while !self.answers().await {
            let ended = self.daemon.as_mut().unwrap().try_wait().unwrap();
            if ended.is_some() || started_at.elapsed() > ENGINE_START_TIMEOUT {
                let log = fs::read_to_string(self.path("log")).unwrap_or_default();
                let log: Vec<_> = log.lines().rev().take(10).collect();
                panic!(
                    "the private dockerd does not start ({ended:?}): install docker.io and run this test as root. Its log: {log:#?}"
                );
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn answers(&self) -> bool {
        if !Path::new(&self.path("sock")).exists() {
            return false;
        }
        self.docker().ping().await.is_ok()
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            daemon.kill().unwrap();
            daemon.wait().unwrap();
        }
        // Its containerd is killed with it. If no process reaps orphans, the next engine would wait for the zombie.
        let _ = fs::remove_file(self.path("exec/containerd/containerd.pid"));
    }

    /// Stops the engine as a shutdown of the machine does: it stops its containers first.
    pub(crate) async fn shut_down(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            signal("TERM", daemon.id());
            tokio::task::spawn_blocking(move || daemon.wait())
                .await
                .unwrap()
                .unwrap();
        }
    }

    /// Lets the engine hang: it accepts connections and does not answer.
    pub(crate) fn freeze(&self) {
        signal("STOP", self.daemon.as_ref().unwrap().id());
    }

    pub(crate) fn thaw(&self) {
        signal("CONT", self.daemon.as_ref().unwrap().id());
    }

    /// Processes with a path of this engine in their command line: containerd and its shims.
    fn remaining_processes(&self) -> Vec<u32> {
        let ours = self.dir.path().to_str().unwrap();
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter(|pid| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(ours)
        })
        .collect()
    }
}

/// Stops everything, also when the test fails.
impl Drop for PrivateEngine {
    fn drop(&mut self) {
        if let Some(daemon) = &self.daemon {
            // A stopped process does not handle SIGTERM.
            signal("CONT", daemon.id());
            signal("TERM", daemon.id());
            let started_at = Instant::now();
            let daemon = self.daemon.as_mut().unwrap();
            while daemon.try_wait().is_ok_and(|ended| ended.is_none())
                && started_at.elapsed() < ENGINE_START_TIMEOUT
            {
                std::thread::park_timeout(Duration::from_millis(20));
            }
        }
        self.kill();
        for pid in self.remaining_processes() {
            signal("KILL", pid);
        }
        let _ = self.holder.kill();
        let _ = self.holder.wait();
        let ours = self.dir.path().to_str().unwrap();
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let points = mounts.lines().filter_map(|line| line.split(' ').nth(1));
        for point in points.filter(|point| point.starts_with(ours)) {
            let _ = Command::new("busybox")
                .args(["umount", "-l", point])
                .status();
        }
    }
}

fn signal(name: &str, pid: u32) {
    let _ = Command::new("busybox")
        .args(["kill", &format!("-{name}"), &pid.to_string()])
        .stderr(Stdio::null())
        .status();
}
