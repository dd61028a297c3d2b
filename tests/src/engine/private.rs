//! An engine of a test's own, which may be killed: everything of it is below one temporary directory, its bridge has an
//! address of its own, and it leaves the packet filter alone (two engines would empty each other's chains).

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::Engine;
use crate::processes;

/// Until it answers, or has ended.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A running (or just killed) engine. Dropping it ends it with everything that it runs.
pub struct PrivateEngine {
    dir: TempDir,
    bridge: String,
    child: Option<Child>,
}

/// Several in one process, too.
static NEXT: AtomicU32 = AtomicU32::new(0);

impl PrivateEngine {
    /// Starts one without images.
    ///
    /// # Panics
    /// When it does not come up: it needs root and the program `dockerd`.
    #[must_use]
    pub fn start() -> Self {
        let dir = tempfile::Builder::new().prefix("aw-engine-").tempdir();
        let dir = dir.expect("a temporary directory can be made");
        let number = std::process::id() % 100_000 * 8 + NEXT.fetch_add(1, Ordering::SeqCst) % 8;
        let bridge = format!("aw-e{number}");
        // Of 10.128.0.0/9, which hardly anybody uses by hand.
        let address = format!("10.{}.{}.1/24", 128 + number % 128, number / 128 % 256);
        run("ip", &["link", "add", &bridge, "type", "bridge"]);
        let mut engine = Self {
            dir,
            bridge,
            child: None,
        };
        run("ip", &["address", "add", &address, "dev", &engine.bridge]);
        run("ip", &["link", "set", &engine.bridge, "up"]);
        fs::write(engine.path("daemon.json"), "{}").expect("the directory is writable");
        engine.restart();
        engine
    }

    /// It as an engine.
    #[must_use]
    pub fn engine(&self) -> Engine {
        Engine::at(&format!("unix://{}", self.path("docker.sock").display()))
    }

    /// Stops it in its tracks, so that it accepts connections and says nothing, or lets it go on.
    ///
    /// # Panics
    /// When it does not run.
    pub fn hang(&self, hangs: bool) {
        let signal = if hangs { Signal::STOP } else { Signal::CONT };
        let pid = self
            .child
            .as_ref()
            .and_then(|child| i32::try_from(child.id()).ok());
        let pid = pid.and_then(Pid::from_raw).expect("the engine runs");
        kill_process(pid, signal).expect("it is ours");
    }

    /// Gives it an image of another engine.
    ///
    /// # Panics
    /// When that does not have it.
    pub fn load(&self, image: &str, from: &Engine) {
        let mut save = from.command(&["save", image]);
        let mut save = save
            .stdout(Stdio::piped())
            .spawn()
            .expect("docker can be run");
        let archive = save.stdout.take().expect("it is piped");
        let mut load = self.engine().command(&["load", "--quiet"]);
        let loaded = load.stdin(archive).output().expect("docker can be run");
        let saved = save.wait().expect("it is a child");
        let said = String::from_utf8_lossy(&loaded.stderr).into_owned();
        assert!(
            saved.success() && loaded.status.success(),
            "{image} cannot be copied: {said}"
        );
    }

    /// `kill -9`: nothing is tidied up, and containers run on.
    pub fn kill9(&mut self) {
        let Some(mut child) = self.child.take() else {
            return;
        };
        let containerd = fs::read_to_string(self.path("exec/containerd/containerd.pid"));
        // It may have ended by itself.
        let _ = child.kill();
        let _ = child.wait();
        // Its containerd dies with it. Until somebody has waited for that, the next engine takes it for alive.
        let containerd = containerd.map(|pid| Path::new("/proc").join(pid.trim()).join("cmdline"));
        let killed = Instant::now();
        while containerd.as_ref().is_ok_and(|file| file.exists()) && killed.elapsed() < WAIT_TIMEOUT
        {
            pause();
        }
    }

    /// Starts it (again), and waits until it answers.
    ///
    /// # Panics
    /// When it does not.
    pub fn restart(&mut self) {
        self.kill9();
        if let Err(problem) = self.try_start() {
            panic!(
                "a private dockerd does not start: {problem}\n{}",
                self.log()
            );
        }
    }

    fn try_start(&mut self) -> Result<(), String> {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.path("log"));
        let log = log.map_err(|error| error.to_string())?;
        // No `default-address-pool`: an engine that has one removes the bridge `docker0` when it starts again, though that is
        // another engine's.
        let option = |name: &str, value: &str| format!("--{name}={value}");
        let place = |name: &str, file: &str| option(name, &self.path(file).to_string_lossy());
        let child = Command::new("dockerd")
            .args([
                option("host", self.engine().socket().unwrap_or_default()),
                place("data-root", "data"),
                place("exec-root", "exec"),
                place("pidfile", "pid"),
                place("config-file", "daemon.json"),
                option("bridge", &self.bridge),
                option("containerd-namespace", &self.bridge),
                option(
                    "containerd-plugins-namespace",
                    &format!("{}-plugins", self.bridge),
                ),
                option("iptables", "false"),
                option("ip-masq", "false"),
            ])
            .stdin(Stdio::null())
            .stdout(log.try_clone().map_err(|error| error.to_string())?)
            .stderr(log)
            .spawn()
            .map_err(|error| format!("dockerd cannot be run: {error}"))?;
        let child = self.child.insert(child);
        let started = Instant::now();
        loop {
            if let Ok(Some(status)) = child.try_wait() {
                return Err(format!("it ended with {status}"));
            }
            if Engine::at(&format!(
                "unix://{}",
                self.dir.path().join("docker.sock").display()
            ))
            .answers()
            {
                return Ok(());
            }
            if started.elapsed() > WAIT_TIMEOUT {
                return Err("it does not answer".to_owned());
            }
            pause();
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn log(&self) -> String {
        let log = fs::read_to_string(self.path("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }

    /// Removes what it runs and has, then asks it to end.
    fn end(&mut self) {
        if self.child.is_none() && self.try_start().is_err() {
            return;
        }
        let engine = self.engine();
        for (list, remove) in super::REMOVALS {
            let custom: &[&str] = if list[0] == "network" {
                &["--filter", "type=custom"]
            } else {
                &[]
            };
            let listed = engine.try_docker(&[list, &["--quiet"], custom].concat());
            let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
            let ids: Vec<&str> = listed.split_whitespace().collect();
            if !ids.is_empty() {
                let _ = engine.try_docker(&[remove, &ids].concat());
            }
        }
        if let Some(mut child) = self.child.take() {
            let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
            let _ = pid.map(|pid| kill_process(pid, Signal::TERM));
            let asked = Instant::now();
            while matches!(child.try_wait(), Ok(None)) && asked.elapsed() < WAIT_TIMEOUT {
                pause();
            }
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for PrivateEngine {
    fn drop(&mut self) {
        if std::thread::panicking() {
            crate::print_line(&format!("---- private dockerd ----\n{}", self.log()));
        }
        self.end();
        // What an engine that was killed may have left: its containerd, and the processes that hold containers.
        let place = self.dir.path().to_string_lossy().into_owned();
        for pid in processes::mentioning(&place) {
            let _ = Pid::from_raw(pid).map(|pid| kill_process(pid, Signal::KILL));
        }
        for mount in mounts_below(self.dir.path()) {
            let _ = Command::new("umount").args(["--lazy", &mount]).output();
        }
        let _ = Command::new("ip")
            .args(["link", "delete", &self.bridge])
            .output();
    }
}

/// Mount points below a directory, the innermost first.
fn mounts_below(dir: &Path) -> Vec<String> {
    let table = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let points = table.lines().filter_map(|line| line.split(' ').nth(1));
    let mut below: Vec<String> = points
        .filter(|point| Path::new(point).starts_with(dir))
        .map(str::to_owned)
        .collect();
    below.reverse();
    below
}

fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{program} cannot be run: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {said} (a private engine needs root)"
    );
}

fn pause() {
    #[expect(
        clippy::disallowed_methods,
        reason = "also where nothing asynchronous can run: in a destructor"
    )]
    std::thread::sleep(POLL_INTERVAL);
}
