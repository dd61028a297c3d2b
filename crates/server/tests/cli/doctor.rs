//! The command `doctor`: its output and exit code, and that it changes nothing.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use tempfile::TempDir;

use crate::support::{RunningService, run, text};

/// All files below a folder, with their contents.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.insert(path.display().to_string(), Vec::new());
            all.extend(contents(&path));
        } else {
            all.insert(path.display().to_string(), fs::read(&path).unwrap());
        }
    }
    all
}

fn line<'a>(stdout: &'a str, what: &str) -> &'a str {
    let found = stdout.lines().find(|line| line[9..].starts_with(what));
    found.unwrap_or_else(|| panic!("{what} is missing in {stdout}"))
}

#[test]
fn doctor_creates_nothing_before_the_first_start() {
    let parent = TempDir::new().unwrap();
    let dir = parent.path().join("none");
    let output = run(&dir, &["doctor"], &[]);
    let stdout = text(&output.stdout);
    assert!(output.status.success(), "{stdout}");
    for (what, part) in [
        ("data directory", "does not exist yet"),
        ("store", "is empty;"),
        ("master key", "the first start creates one"),
        ("agent server", "/bin/true"),
        ("disk space", "inodes free"),
    ] {
        assert!(line(stdout, what).contains(part), "{stdout}");
    }
    assert!(!dir.exists());
}

#[test]
fn doctor_changes_nothing_after_a_crash_and_describes_the_data() {
    let parent = TempDir::new().unwrap();
    let dir = parent.path().join("data");
    drop(RunningService::start(&dir, &[]));
    let before = contents(&dir);
    let output = run(&dir, &["doctor"], &[]);
    let stdout = text(&output.stdout);
    assert!(output.status.success(), "{stdout}");
    for (what, part) in [
        ("store", "the schema of this version"),
        ("master key", "opens this installation's secrets"),
        ("API keys", "1 valid, 0 expired"),
        ("file permissions", "readable only by"),
        ("use", "no running service uses it"),
    ] {
        let line = line(stdout, what);
        assert!(line.starts_with("ok") && line.contains(part), "{stdout}");
    }
    let changed: Vec<_> = contents(&dir)
        .into_iter()
        .filter(|(name, bytes)| before.get(name) != Some(bytes))
        // SQLite's index of the write-ahead log: every reader updates it, and SQLite recreates it when it is missing.
        .filter(|(name, _)| !name.ends_with("-shm"))
        .map(|(name, _)| name)
        .collect();
    assert_eq!(changed, [""; 0]);
}

#[test]
fn doctor_requests_the_public_url_of_a_running_service() {
    let dir = TempDir::new().unwrap();
    let running = RunningService::start(dir.path(), &[]);
    let bind = ("WORKSPACE_HTTP__BIND", running.address.as_str());
    let output = run(dir.path(), &["doctor", "--json"], &[bind]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["healthy"], true, "{report:#}");
    let level = |what: &str| {
        let checks = report["checks"].as_array().unwrap();
        let found = checks.iter().find(|check| check["check"] == what);
        found.unwrap_or_else(|| panic!("{what} is missing in {report:#}"))["level"].clone()
    };
    assert_eq!(level("reachable"), "ok");
    assert_eq!(level("clock of the public URL"), "ok");
    let proxied = [bind, ("WORKSPACE_HTTP__PUBLIC_URL", "http://127.0.0.1:9/")];
    let output = run(dir.path(), &["doctor"], &proxied);
    let stdout = text(&output.stdout);
    let line = line(stdout, "reachable");
    assert!(
        line.starts_with("warning") && line.contains("WORKSPACE_HTTP__PUBLIC_URL"),
        "{stdout}"
    );
}

#[test]
fn a_wrong_or_missing_master_key_is_a_problem_and_a_readable_one_a_warning() {
    let dir = TempDir::new().unwrap();
    RunningService::start(dir.path(), &[]).stop();
    let other = "A".repeat(43) + "=";
    let wrong = [("WORKSPACE_SECRETS__MASTER_KEY", other.as_str())];
    let output = run(dir.path(), &["doctor"], &wrong);
    assert_eq!(output.status.code(), Some(1));
    let stdout = text(&output.stdout);
    let finding = line(stdout, "master key");
    assert!(
        finding.starts_with("problem") && finding.contains("not the master key"),
        "{stdout}"
    );

    let key = dir.path().join("master.key");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let output = run(dir.path(), &["doctor"], &[]);
    let stdout = text(&output.stdout);
    let finding = line(stdout, "file permissions");
    assert!(
        output.status.success() && finding.starts_with("warning"),
        "{stdout}"
    );
    assert!(finding.contains("chmod 600"), "{stdout}");

    fs::remove_file(&key).unwrap();
    let output = run(dir.path(), &["doctor"], &[]);
    assert_eq!(output.status.code(), Some(1));
    let stdout = text(&output.stdout);
    let finding = line(stdout, "master key");
    assert!(
        finding.starts_with("problem") && finding.contains("is missing"),
        "{stdout}"
    );
    assert!(!key.exists());
}

#[test]
fn doctor_names_what_confinement_lacks() {
    let parent = TempDir::new().unwrap();
    let dir = parent.path().join("none");
    let variables = [
        ("PATH", "/nonexistent"),
        ("WORKSPACE_SANDBOX__BACKEND", "process"),
        ("WORKSPACE_PROCESS__ISOLATION", "confined"),
    ];
    let output = run(&dir, &["doctor"], &variables);
    let stdout = text(&output.stdout);
    assert!(!output.status.success(), "{stdout}");
    for tool in ["bubblewrap", "slirp4netns"] {
        let found = line(stdout, &format!("wall: {tool}"));
        assert!(found.starts_with("problem"), "{found}");
        assert!(found.contains("apt-get install"), "{found}");
    }
    assert!(line(stdout, "wall: memory").len() > 20);
    assert!(!dir.exists());
}

#[test]
fn doctor_warns_of_sandboxes_without_isolation() {
    let parent = TempDir::new().unwrap();
    let variables = [
        ("WORKSPACE_SANDBOX__BACKEND", "process"),
        ("WORKSPACE_PROCESS__ISOLATION", "none"),
    ];
    let output = run(&parent.path().join("none"), &["doctor"], &variables);
    let stdout = text(&output.stdout);
    let found = line(stdout, "isolation");
    assert!(found.starts_with("warning"), "{stdout}");
    assert!(found.contains("WORKSPACE_PROCESS__ISOLATION=auto"));
    assert!(!stdout.contains("wall:"), "{stdout}");
}
