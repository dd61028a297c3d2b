//! The commands of the binary: exit codes, outputs, and starts that must be refused.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod closed;
mod doctor;
mod rotation;
mod support;

use std::io::BufRead as _;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::support::{RunningService, run, text};

/// `EX_USAGE` of sysexits.h.
const BAD_CONFIGURATION: Option<i32> = Some(64);

#[test]
fn an_invalid_configuration_exits_with_64_and_advice() {
    let dir = TempDir::new().unwrap();
    for (variable, part) in [
        (("WORKSPACE_HTTP__BNID", "x"), "WORKSPACE_HTTP__BIND"),
        (
            ("WORKSPACE_AUTH__MODE", "closed"),
            "api_key, accounts or open",
        ),
        (("WORKSPACE_CONFIG", "/no/such/file"), "/no/such/file"),
        (
            ("WORKSPACE_SANDBOX__BACKEND", "podman"),
            "auto, docker, kubernetes or process",
        ),
    ] {
        let output = run(dir.path(), &[], &[variable]);
        assert_eq!(output.status.code(), BAD_CONFIGURATION, "{variable:?}");
        assert!(
            text(&output.stderr).contains(part),
            "{}",
            text(&output.stderr)
        );
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn config_prints_the_effective_configuration_without_secrets() {
    let dir = TempDir::new().unwrap();
    let output = run(
        dir.path(),
        &["config"],
        &[("WORKSPACE_AUTH__BOOTSTRAP_KEY", "canary-7f3a")],
    );
    assert!(output.status.success());
    let shown = text(&output.stdout);
    assert!(
        shown.contains("127.0.0.1:0") && shown.contains("WORKSPACE_HTTP__BIND"),
        "{shown}"
    );
    assert!(!shown.contains("canary-7f3a"));
}

#[test]
fn openapi_prints_a_document_and_creates_nothing() {
    let dir = TempDir::new().unwrap();
    let output = run(&dir.path().join("none"), &["openapi"], &[]);
    assert!(output.status.success() && output.stdout.starts_with(b"{"));
    assert!(!dir.path().join("none").exists());
}

#[test]
fn keys_are_created_listed_and_revoked_while_the_service_runs() {
    let dir = TempDir::new().unwrap();
    let running = RunningService::start(dir.path(), &[]);
    let output = run(
        dir.path(),
        &["keys", "create", "--user", "alice", "--expires-in", "1h"],
        &[],
    );
    assert!(output.status.success(), "{}", text(&output.stderr));
    let key = text(&output.stdout).trim_end();
    assert!(
        key.starts_with("aw_") && key.len() == 52 && !key.contains('\n'),
        "only the key"
    );

    let output = run(dir.path(), &["keys", "list", "--user", "alice"], &[]);
    let list = text(&output.stdout);
    assert!(list.contains(&key[..9]) && !list.contains(key), "{list}");
    let id = list
        .lines()
        .nth(1)
        .unwrap()
        .split_whitespace()
        .next()
        .unwrap();
    assert!(
        run(dir.path(), &["keys", "revoke", id], &[])
            .status
            .success()
    );
    assert!(
        !run(dir.path(), &["keys", "revoke", id], &[])
            .status
            .success()
    );
    assert_eq!(running.status("/alive", ""), "HTTP/1.1 200 OK");
}

#[test]
fn a_second_service_on_the_same_data_is_refused() {
    let dir = TempDir::new().unwrap();
    let running = RunningService::start(dir.path(), &[]);
    let output = run(dir.path(), &[], &[]);
    assert_eq!(output.status.code(), Some(1));
    let printed = text(&output.stderr);
    assert!(
        printed.contains(&running.child.id().to_string()),
        "{printed}"
    );
}

#[test]
fn an_address_in_use_is_an_error_that_names_it() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let dir = TempDir::new().unwrap();
    let output = run(dir.path(), &[], &[("WORKSPACE_HTTP__BIND", &address)]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains(&address),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn a_wrong_master_key_prevents_the_start() {
    let dir = TempDir::new().unwrap();
    drop(RunningService::start(dir.path(), &[]));
    let other = "A".repeat(43) + "=";
    let output = run(
        dir.path(),
        &[],
        &[("WORKSPACE_SECRETS__MASTER_KEY", &other)],
    );
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("not the master key"),
        "{}",
        text(&output.stderr)
    );
    assert!(!text(&output.stderr).contains(&other));

    let right = std::fs::read_to_string(dir.path().join("master.key")).unwrap();
    let variables = [
        ("WORKSPACE_SECRETS__MASTER_KEY", other.as_str()),
        ("WORKSPACE_SECRETS__PREVIOUS_MASTER_KEYS", right.trim()),
    ];
    drop(RunningService::start(dir.path(), &variables));
}

#[test]
fn the_banner_names_the_file_of_the_first_key_only() {
    let dir = TempDir::new().unwrap();
    let mut running = RunningService::start(dir.path(), &[]);
    let key = std::fs::read_to_string(dir.path().join("bootstrap.key")).unwrap();
    let mut banner = String::new();
    while !banner.contains("bootstrap.key") {
        assert_ne!(running.log.read_line(&mut banner).unwrap(), 0, "{banner}");
    }
    assert!(!banner.contains(key.trim()));
}

#[test]
fn sigterm_stops_the_service_and_frees_the_data_directory() {
    let dir = TempDir::new().unwrap();
    let mut running = RunningService::start(dir.path(), &[]);
    assert_eq!(running.status("/health", ""), "HTTP/1.1 200 OK");
    let pid = running.child.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-TERM", &pid])
            .status()
            .unwrap()
            .success()
    );
    assert!(running.child.wait().unwrap().success());
    // The lock is free again.
    drop(RunningService::start(dir.path(), &[]));
}

/// A socket without a listener.
fn no_engine(data_dir: &Path) -> String {
    format!("unix://{}/no-engine.sock", data_dir.display())
}

#[test]
fn auto_runs_processes_without_an_engine() {
    let dir = TempDir::new().unwrap();
    let socket = no_engine(dir.path());
    let variables = [
        ("WORKSPACE_SANDBOX__BACKEND", "auto"),
        ("WORKSPACE_DOCKER__SOCKET", socket.as_str()),
    ];
    let mut running = RunningService::start(dir.path(), &variables);
    let mut banner = String::new();
    while !banner.contains("API key") {
        assert_ne!(running.log.read_line(&mut banner).unwrap(), 0, "{banner}");
    }
    let line = banner
        .lines()
        .find(|line| line.trim().starts_with("sandboxes"))
        .unwrap();
    for part in [
        "process",
        "auto:",
        "not isolated",
        "WORKSPACE_DOCKER__SOCKET",
    ] {
        assert!(line.contains(part), "{part} is missing in {line}");
    }
}

#[test]
fn an_unusable_engine_makes_auto_choose_processes_and_docker_fail() {
    let dir = TempDir::new().unwrap();
    let ssh = ("DOCKER_HOST", "ssh://someone@host");
    let output = run(
        dir.path(),
        &["doctor"],
        &[("WORKSPACE_SANDBOX__BACKEND", "auto"), ssh],
    );
    let printed = text(&output.stdout);
    assert!(
        printed.contains("process (auto:") && printed.contains("tcp://HOST:PORT"),
        "{printed}"
    );
    let output = run(
        dir.path(),
        &[],
        &[("WORKSPACE_SANDBOX__BACKEND", "docker"), ssh],
    );
    assert_eq!(output.status.code(), Some(1));
    let printed = text(&output.stderr);
    assert!(printed.contains("tcp://HOST:PORT"), "{printed}");
}

#[test]
fn the_service_runs_without_its_engine() {
    let dir = TempDir::new().unwrap();
    let socket = no_engine(dir.path());
    let variables = [
        ("WORKSPACE_SANDBOX__BACKEND", "docker"),
        ("WORKSPACE_DOCKER__SOCKET", socket.as_str()),
    ];
    let running = RunningService::start(dir.path(), &variables);
    assert_eq!(running.status("/alive", ""), "HTTP/1.1 200 OK");
    assert_eq!(
        running.status("/ready", ""),
        "HTTP/1.1 503 Service Unavailable"
    );
    let mut variables = variables.to_vec();
    variables.push(("WORKSPACE_HTTP__BIND", &running.address));
    let output = run(dir.path(), &["healthcheck"], &variables);
    assert_eq!(output.status.code(), Some(1));
    let printed = text(&output.stderr);
    assert!(
        printed.contains("sandboxes") && printed.contains("engine"),
        "{printed}"
    );
    let output = run(dir.path(), &["doctor"], &variables);
    assert_eq!(output.status.code(), Some(1));
    let printed = text(&output.stdout);
    assert!(printed.contains("problem  engine"), "{printed}");
}

#[test]
fn healthcheck_succeeds_for_a_ready_service() {
    let dir = TempDir::new().unwrap();
    let running = RunningService::start(dir.path(), &[]);
    let bind = ("WORKSPACE_HTTP__BIND", running.address.as_str());
    let output = run(dir.path(), &["healthcheck"], &[bind]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    drop(running);
    let output = run(
        dir.path(),
        &["healthcheck"],
        &[("WORKSPACE_HTTP__BIND", "127.0.0.1:9")],
    );
    assert_eq!(output.status.code(), Some(1));
}
