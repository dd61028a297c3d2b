//! A container engine for the suites. A running engine is used and never changed. Otherwise Debian's engine is
//! installed and started, and keeps running.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use crate::install::debian;
use crate::run::{program, root, run, say};

/// Time for a started engine to answer.
const START_TIMEOUT: Duration = Duration::from_secs(90);
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Maximum number of lines of the engine's log to show if it does not answer.
const MAX_SHOWN_LINES: usize = 15;

/// The network database of Debian 12's engine, and the log line of its panic: an engine that was killed while it
/// removed a network cannot start again.
const NETWORK_DATABASE: &str = "/var/lib/docker/network/files/local-kv.db";
const NETWORK_PANIC: &str = "libnetwork.(*controller).reservePools";

/// The packages of an engine. Debian only recommends `iptables`.
const PACKAGES: [&str; 2] = ["docker.io", "iptables"];

/// Ensures that an engine answers.
pub(crate) fn prepare() -> anyhow::Result<()> {
    let is_elsewhere = running_engine();
    let problem = match ask() {
        Ok(version) => {
            say(&format!(
                "the engine that runs here (Docker {version}) is used"
            ));
            return Ok(());
        }
        Err(problem) => problem,
    };
    if let Some(host) = is_elsewhere {
        bail!("DOCKER_HOST is {host}, and no engine answers there: {problem:#}");
    }
    if !debian::can_install() {
        bail!(
            "no container engine answers ({problem:#}): start one, or set DOCKER_HOST; as root on Debian or Ubuntu, this \
             command installs and starts docker.io"
        );
    }
    if !(debian::has_program("docker")
        && debian::has_program("dockerd")
        && debian::has_program("iptables"))
    {
        debian::install("a container engine", &PACKAGES)?;
    }
    // The package may have started it.
    if ask().is_ok() {
        return Ok(());
    }
    mount_control_groups()?;
    remove_stale_state();
    start()
}

/// Mounts the control groups that an engine needs; machines without an init system may lack them.
fn mount_control_groups() -> anyhow::Result<()> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let is_one = |line: &str| {
        let kind = line.split(' ').nth(2);
        kind.is_some_and(|kind| kind.starts_with("cgroup"))
    };
    if mounts.lines().any(is_one) {
        return Ok(());
    }
    if !debian::has_program("cgroupfs-mount") {
        debian::install("the mount of control groups", &["cgroupfs-mount"])?;
    }
    run(&mut program("cgroupfs-mount"))
}

/// The engine that the environment names.
#[expect(
    clippy::disallowed_methods,
    reason = "the variable of Docker's own programs; xtask has no configuration of its own"
)]
fn running_engine() -> Option<String> {
    std::env::var("DOCKER_HOST")
        .ok()
        .filter(|host| !host.is_empty())
}

/// The version of the running engine.
fn ask() -> anyhow::Result<String> {
    let mut docker = program("timeout");
    docker.args(["20", "docker", "version", "--format", "{{.Server.Version}}"]);
    let output = docker.output().context("cannot run docker")?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    bail!(
        "{}",
        said.lines()
            .next_back()
            .unwrap_or("`docker version` did not end within 20 s")
            .trim()
    );
}

/// Removes pid files of a killed engine: a new one takes any process with such a pid (even a zombie) for its
/// predecessor.
fn remove_stale_state() {
    for (file, name) in [
        ("/var/run/docker.pid", "dockerd"),
        ("/var/run/docker/containerd/containerd.pid", "containerd"),
    ] {
        let Ok(pid) = fs::read_to_string(file) else {
            continue;
        };
        // `number (name) state …`
        let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
        let lives = stat.contains(&format!("({name})")) && !stat.contains(") Z");
        if !lives {
            // The engine reports what cannot be removed.
            let _ = fs::remove_file(file);
        }
    }
}

fn start() -> anyhow::Result<()> {
    let folder = root().join("target").join("acceptance");
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let log = folder.join("dockerd.log");
    say(&format!("starting dockerd; its log is {}", log.display()));
    let problem = match start_once(&log) {
        Ok(()) => return Ok(()),
        Err(problem) => problem,
    };
    let said = fs::read_to_string(&log).unwrap_or_default();
    if said.contains(NETWORK_PANIC) && Path::new(NETWORK_DATABASE).exists() {
        let aside = format!("{NETWORK_DATABASE}.unreadable");
        say(&format!(
            "dockerd was once killed while it removed a network, and cannot read {NETWORK_DATABASE} any more: that is {aside} \
             now, networks made by hand have to be made again, and dockerd is started once more"
        ));
        fs::rename(NETWORK_DATABASE, &aside)
            .with_context(|| format!("cannot rename {NETWORK_DATABASE}"))?;
        remove_stale_state();
        return start_once(&log);
    }
    Err(problem)
}

/// Starts the engine and waits until it answers.
fn start_once(log: &Path) -> anyhow::Result<()> {
    let file = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
    // A session of its own: it outlives this command and receives no key presses.
    let mut child = program("setsid")
        .arg("dockerd")
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file)
        .spawn()
        .context("dockerd cannot be started")?;
    if let Err(problem) = wait(&mut child) {
        let said = fs::read_to_string(log).unwrap_or_default();
        let lines: Vec<&str> = said.lines().collect();
        // A panic names its cause before the stack trace.
        let from = lines.iter().rposition(|line| line.starts_with("panic: "));
        let from = from.unwrap_or(lines.len().saturating_sub(MAX_SHOWN_LINES));
        let shown = lines.iter().skip(from).take(MAX_SHOWN_LINES);
        let tail = shown.copied().collect::<Vec<_>>().join("\n");
        return Err(problem.context(format!(
            "dockerd did not start; the end of its log:\n{tail}"
        )));
    }
    Ok(())
}

fn wait(child: &mut Child) -> anyhow::Result<()> {
    let started = Instant::now();
    loop {
        let problem = match ask() {
            Ok(version) => {
                say(&format!(
                    "Docker {version} answers after {:.1?}",
                    started.elapsed()
                ));
                return Ok(());
            }
            Err(problem) => problem,
        };
        if let Some(status) = child.try_wait()? {
            bail!("dockerd ended with {status}");
        }
        if started.elapsed() > START_TIMEOUT {
            // This command started it; nothing else would stop it.
            let _ = child.kill();
            return Err(problem);
        }
        pause();
    }
}

fn pause() {
    #[expect(
        clippy::disallowed_methods,
        reason = "a command for one person, who waits for exactly this"
    )]
    std::thread::sleep(POLL_INTERVAL);
}
