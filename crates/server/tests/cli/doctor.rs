//! `doctor` from outside: what it says, its exit code, and that it changes nothing.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use tempfile::TempDir;

use crate::support::{RunningService, run, text};

/// Every file below with what is in it.
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

fn line<'a>(said: &'a str, what: &str) -> &'a str {
    let found = said.lines().find(|line| line[9..].starts_with(what));
    found.unwrap_or_else(|| panic!("{what} is missing in {said}"))
}

#[test]
fn before_the_first_start_it_makes_nothing() {
    let parent = TempDir::new().unwrap();
    let dir = parent.path().join("none");
    let output = run(&dir, &["doctor"], &[]);
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}");
    for (what, part) in [
        ("data directory", "does not exist yet"),
        ("store", "is empty;"),
        ("master key", "the first start creates one"),
        ("agent server", "/bin/true"),
        ("disk space", "inodes free"),
    ] {
        assert!(line(said, what).contains(part), "{said}");
    }
    assert!(!dir.exists());
}

#[test]
fn after_a_crash_it_changes_nothing_and_says_what_is_there() {
    let parent = TempDir::new().unwrap();
    let dir = parent.path().join("data");
    drop(RunningService::start(&dir, &[]));
    let before = contents(&dir);
    let output = run(&dir, &["doctor"], &[]);
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}");
    for (what, part) in [
        ("store", "the schema of this version"),
        ("master key", "opens this installation's secrets"),
        ("API keys", "1 valid, 0 expired"),
        ("file permissions", "only the owner"),
        ("use", "no running service uses it"),
    ] {
        let line = line(said, what);
        assert!(line.starts_with("ok") && line.contains(part), "{said}");
    }
    let changed: Vec<_> = contents(&dir)
        .into_iter()
        .filter(|(name, bytes)| before.get(name) != Some(bytes))
        // SQLite's index of the write-ahead log, which every reader keeps in step and which is made anew when it is gone.
        .filter(|(name, _)| !name.ends_with("-shm"))
        .map(|(name, _)| name)
        .collect();
    assert_eq!(changed, [""; 0]);
}

#[test]
fn beside_a_running_service_it_asks_the_url_of_clients() {
    let dir = TempDir::new().unwrap();
    let running = RunningService::start(dir.path(), &[]);
    let bind = ("WORKSPACE_HTTP__BIND", running.address.as_str());
    let output = run(dir.path(), &["doctor", "--json"], &[bind]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["healthy"], true, "{report:#}");
    let level = |what: &str| {
        let checks = report["checks"].as_array().unwrap();
        let found = checks.iter().find(|it| it["check"] == what);
        found.unwrap_or_else(|| panic!("{what} is missing in {report:#}"))["level"].clone()
    };
    assert_eq!(level("reachable"), "ok");
    assert_eq!(level("clock of the public URL"), "ok");
    let proxied = [bind, ("WORKSPACE_HTTP__PUBLIC_URL", "http://127.0.0.1:9/")];
    let output = run(dir.path(), &["doctor"], &proxied);
    let said = text(&output.stdout);
    let line = line(said, "reachable");
    assert!(
        line.starts_with("warning") && line.contains("WORKSPACE_HTTP__PUBLIC_URL"),
        "{said}"
    );
}

#[test]
fn a_wrong_or_lost_master_key_is_a_problem_and_an_open_file_a_warning() {
    let dir = TempDir::new().unwrap();
    RunningService::start(dir.path(), &[]).stop();
    let other = "A".repeat(43) + "=";
    let wrong = [("WORKSPACE_SECRETS__MASTER_KEY", other.as_str())];
    let output = run(dir.path(), &["doctor"], &wrong);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stdout);
    let found = line(said, "master key");
    assert!(
        found.starts_with("problem") && found.contains("not the master key"),
        "{said}"
    );

    let key = dir.path().join("master.key");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let output = run(dir.path(), &["doctor"], &[]);
    let said = text(&output.stdout);
    let found = line(said, "file permissions");
    assert!(
        output.status.success() && found.starts_with("warning"),
        "{said}"
    );
    assert!(found.contains("chmod 600"), "{said}");

    fs::remove_file(&key).unwrap();
    let output = run(dir.path(), &["doctor"], &[]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stdout);
    let found = line(said, "master key");
    assert!(
        found.starts_with("problem") && found.contains("is missing"),
        "{said}"
    );
    assert!(!key.exists());
}
