//! An engine for one test, which may kill it. Its files are below one temporary directory, and its bridge has its own address. It
//! does not change the packet filter, because two engines would empty each other's chains.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::Engine;
use crate::processes;

/// Until it responds, or has ended.
const STATE_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A running or killed engine. Dropping it removes its containers and ends it.
pub struct PrivateEngine {
    dir: TempDir,
    bridge: String,
    child: Option<Child>,
}

/// Distinguishes the engines of one process.
static NEXT_NUMBER: AtomicU32 = AtomicU32::new(0);

impl PrivateEngine {
    /// Starts an engine without images.
    ///
    /// # Panics
    /// When it does not start: it needs root and the program `dockerd`.
    #[must_use]
    pub fn start() -> Self {
        let dir = tempfile::Builder::new().prefix("aw-engine-").tempdir();
        let dir = dir.expect("cannot create a temporary directory");
        let number =
            std::process::id() % 100_000 * 8 + NEXT_NUMBER.fetch_add(1, Ordering::SeqCst) % 8;
        let bridge = format!("aw-e{number}");
        // In 10.128.0.0/9, which is rarely assigned by hand.
        let address = format!("10.{}.{}.1/24", 128 + number % 128, number / 128 % 256);
        run("ip", &["link", "add", &bridge, "type", "bridge"]);
        let mut engine = Self {
            dir,
            bridge,
            child: None,
        };
        run("ip", &["address", "add", &address, "dev", &engine.bridge]);
        run("ip", &["link", "set", &engine.bridge, "up"]);
        fs::write(engine.path("daemon.json"), "{}").expect("cannot write to the directory");
        engine.restart();
        engine
    }

    /// A handle for `docker` commands.
    #[must_use]
    pub fn engine(&self) -> Engine {
        Engine::at(&format!("unix://{}", self.path("docker.sock").display()))
    }

    /// Suspends the engine, so that it accepts connections and does not respond, or continues it.
    ///
    /// # Panics
    /// When it does not run.
    pub fn set_hanging(&self, is_hanging: bool) {
        let signal = if is_hanging {
            Signal::STOP
        } else {
            Signal::CONT
        };
        let pid = self
            .child
            .as_ref()
            .and_then(|child| i32::try_from(child.id()).ok());
        let pid = pid
            .and_then(Pid::from_raw)
            .expect("the engine does not run");
        kill_process(pid, signal).expect("cannot signal the engine");
    }

    /// Copies an image from another engine.
    ///
    /// # Panics
    /// When the other engine does not have the image.
    pub fn load(&self, image: &str, from: &Engine) {
        let mut save = from.command(&["save", image]);
        let mut save = save
            .stdout(Stdio::piped())
            .spawn()
            .expect("cannot run docker");
        let archive = save.stdout.take().expect("docker has no pipe");
        let mut load = self.engine().command(&["load", "--quiet"]);
        let loaded = load.stdin(archive).output().expect("cannot run docker");
        let saved = save.wait().expect("cannot wait for docker");
        let stderr = String::from_utf8_lossy(&loaded.stderr).into_owned();
        assert!(
            saved.success() && loaded.status.success(),
            "{image} cannot be copied: {stderr}"
        );
    }

    /// Kills it with SIGKILL. Its containers keep running.
    pub fn kill9(&mut self) {
        let Some(mut child) = self.child.take() else {
            return;
        };
        let containerd = fs::read_to_string(self.path("exec/containerd/containerd.pid"));
        // It may have ended by itself.
        let _ = child.kill();
        let _ = child.wait();
        // Its containerd dies with it. Until that process has been reaped, a new engine assumes that it is alive.
        let containerd = containerd.map(|pid| Path::new("/proc").join(pid.trim()).join("cmdline"));
        let killed = Instant::now();
        while containerd.as_ref().is_ok_and(|file| file.exists())
            && killed.elapsed() < STATE_TIMEOUT
        {
            pause();
        }
    }

    /// Starts it again and waits until it responds.
    ///
    /// # Panics
    /// When it does not respond.
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
        // No `default-address-pool`: an engine with one removes the bridge `docker0` at its next start, even if another engine owns it.
        let option = |name: &str, value: &str| format!("--{name}={value}");
        let option_path = |name: &str, file: &str| option(name, &self.path(file).to_string_lossy());
        let child = Command::new("dockerd")
            .args([
                option("host", self.engine().socket().unwrap_or_default()),
                option_path("data-root", "data"),
                option_path("exec-root", "exec"),
                option_path("pidfile", "pid"),
                option_path("config-file", "daemon.json"),
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
            .is_responding()
            {
                return Ok(());
            }
            if started.elapsed() > STATE_TIMEOUT {
                return Err("it does not respond".to_owned());
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

    /// Removes its containers, volumes and networks, then stops it.
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
            let signalled = Instant::now();
            while matches!(child.try_wait(), Ok(None)) && signalled.elapsed() < STATE_TIMEOUT {
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
        // A killed engine may leave its containerd and the shims of containers.
        let dir = self.dir.path().to_string_lossy().into_owned();
        for pid in processes::with_argument(&dir) {
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
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {stderr} (a private engine needs root)"
    );
}

fn pause() {
    #[expect(
        clippy::disallowed_methods,
        reason = "destructors call this, which cannot await"
    )]
    std::thread::sleep(POLL_INTERVAL);
}
