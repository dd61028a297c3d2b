//! Secrets of a running service are hidden from other users of the machine.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::support::{RunningService, run, service, text};

const CANARY: &str = "canary-first-key-5d21";

/// A directory and everything below it.
fn all_below(path: &Path) -> Vec<PathBuf> {
    let mut found = vec![path.to_owned()];
    if path.is_dir() {
        let entries = fs::read_dir(path).unwrap();
        found.extend(entries.flat_map(|entry| all_below(&entry.unwrap().path())));
    }
    found
}

#[test]
fn the_process_shows_no_configuration_and_its_files_are_private() {
    let dir = TempDir::new().unwrap();
    let data = dir.path().join("data");
    let variables = [
        ("WORKSPACE_AUTH__BOOTSTRAP_KEY", CANARY),
        ("PIP_INDEX_URL", CANARY),
        ("OTHER", "stays"),
    ];
    let running = RunningService::start(&data, &variables);
    let pid = running.child.id();
    let read = |file: &str| fs::read(format!("/proc/{pid}/{file}")).unwrap();
    let environment = String::from_utf8_lossy(&read("environ")).into_owned();
    assert!(environment.contains("OTHER=stays"), "{environment}");
    for hidden in ["WORKSPACE_AUTH", "WORKSPACE_DATA_DIR", CANARY] {
        assert!(!environment.contains(hidden), "{environment}");
    }
    assert_eq!(text(&read("comm")).trim(), "agent-workspace");
    let limits = read("limits");
    let core = text(&limits)
        .lines()
        .find(|line| line.starts_with("Max core"));
    let words: Vec<&str> = core.unwrap().split_whitespace().collect();
    assert_eq!(words[4..6], ["0", "0"]);
    // The configuration is in effect, and the file that passed it is empty.
    let key = format!("X-Session-API-Key: {CANARY}\r\n");
    assert_eq!(running.status("/api/v1/users/me", &key), "HTTP/1.1 200 OK");
    assert_eq!(read("fd/0"), b"");
    for path in all_below(&data) {
        let mode = fs::symlink_metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{} is {mode:o}", path.display());
    }
}

#[test]
fn a_second_user_needs_containers_or_the_setting() {
    let dir = TempDir::new().unwrap();
    let create = |user: &str, switch: &str| {
        let arguments = ["keys", "create", "--user", user];
        let variables = [("WORKSPACE_PROCESS__ALLOW_MULTIPLE_USERS", switch)];
        let output = service(dir.path(), &arguments, &variables)
            .output()
            .unwrap();
        (output.status.success(), text(&output.stderr).to_owned())
    };
    assert!(create("alice", "false").0);
    assert!(create("alice", "false").0, "another key");
    let (is_created, stderr) = create("bob", "false");
    assert!(!is_created);
    for part in ["WORKSPACE_PROCESS__ALLOW_MULTIPLE_USERS", "docker"] {
        assert!(stderr.contains(part), "{stderr}");
    }
    assert!(create("bob", "true").0);
    let listed = run(dir.path(), &["users", "list"], &[]);
    assert!(text(&listed.stdout).contains("bob"));
}
