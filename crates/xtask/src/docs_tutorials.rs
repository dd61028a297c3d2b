//! Runs the commands of the tutorials.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use crate::run::{Programs, print, program, root, say};

/// Marks a block whose commands are run.
const RUN_BLOCK_FENCE: &str = "```sh run\n";
/// The address that tutorials name.
const DOCUMENTED_ADDRESS: &str = "127.0.0.1:3000";
/// How long the service may take to start.
const START_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Runs the marked blocks of each tutorial, as one script, against a fresh service whose agent server is the stub.
pub(crate) fn run(programs: &Programs) -> anyhow::Result<()> {
    let version = program("curl").arg("--version").output();
    if !version.is_ok_and(|output| output.status.success()) {
        bail!("curl is missing: install it to run the tutorials' commands");
    }
    let folder = root().join("docs/tutorials");
    for entry in fs::read_dir(folder).context("cannot read docs/tutorials")? {
        let path = entry?.path();
        let script: String = marked(&fs::read_to_string(&path)?).concat();
        if script.is_empty() {
            continue;
        }
        say(&format!("commands of {}", path.display()));
        follow(programs, &script).with_context(|| format!("in {}", path.display()))?;
        print(&format!("{}: its commands work", path.display()));
    }
    Ok(())
}

/// The marked blocks of a page.
fn marked(page: &str) -> Vec<&str> {
    let blocks = page.split(RUN_BLOCK_FENCE).skip(1);
    blocks
        .filter_map(|block| Some(block.split_once("```")?.0))
        .collect()
}

/// A running service, which ends with this value.
struct TutorialService(Child);

impl Drop for TutorialService {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn follow(programs: &Programs, script: &str) -> anyhow::Result<()> {
    let home = root().join(format!("target/tmp/docs-{}", std::process::id()));
    fs::create_dir_all(&home)?;
    let done = follow_in(&home, programs, script);
    fs::remove_dir_all(&home).context("cannot remove the tutorial's directory")?;
    done
}

fn follow_in(home: &Path, programs: &Programs, script: &str) -> anyhow::Result<()> {
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
    let stub = format!(
        "'{}' --dir '{}'",
        programs.stub.display(),
        home.join("stub").display()
    );
    fs::create_dir_all(home.join("stub"))?;
    let folder = programs.service.parent().unwrap_or(Path::new("."));
    let path = format!("{}:/usr/local/bin:/usr/bin:/bin", folder.display());
    let with_environment = |mut command: Command| {
        command
            .env_clear()
            .current_dir(home)
            .env("PATH", &path)
            .env("HOME", home)
            .env("WORKSPACE_HTTP__BIND", &address)
            .env("WORKSPACE_SANDBOX__BACKEND", "process")
            .env("WORKSPACE_SANDBOX__AGENT_SERVER_COMMAND", &stub)
            .stdin(Stdio::null());
        command
    };
    let log = fs::File::create(home.join("service.log"))?;
    let mut serve = with_environment(program(&programs.service));
    let mut service = TutorialService(
        serve
            .arg("serve")
            .stderr(log.try_clone()?)
            .stdout(log)
            .spawn()?,
    );
    let begun = Instant::now();
    let is_ready = || {
        let mut check = with_environment(program(&programs.service));
        check
            .arg("healthcheck")
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        check.status().is_ok_and(|status| status.success())
    };
    while !is_ready() {
        if begun.elapsed() > START_TIMEOUT || service.0.try_wait()?.is_some() {
            let log = fs::read_to_string(home.join("service.log")).unwrap_or_default();
            bail!("the service did not start:\n{log}");
        }
        pause();
    }
    let script = script.replace(DOCUMENTED_ADDRESS, &address);
    let script = format!("set -euo pipefail\n{script}");
    let status = with_environment(program("bash"))
        .args(["-c", &script])
        .status()?;
    if !status.success() {
        bail!("a command failed ({status}):\n{script}");
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "xtask has one thread")]
fn pause() {
    std::thread::sleep(POLL_INTERVAL);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_marked_blocks_are_run() {
        let page = "```sh\nno\n```\n```sh run\nyes\n```\ntext\n```sh run\ntoo\n```\n";
        assert_eq!(marked(page), ["yes\n", "too\n"]);
    }
}
