//! Sandboxes survive a service that stops, is killed, or is replaced.

use std::fs;

use domain::id::{HostId, SandboxId};
use domain::sandbox::{BackendFact, BackendState, SandboxLaunch, SandboxLifecycle};
use sandbox_process::ProcessSandboxes;
use secrecy::SecretString;

use super::support::{
    ProcessFixture, exit_reported, launch, next_state, process_state, signal, state, wait_until,
};

#[tokio::test]
async fn the_next_service_adopts_and_monitors_sandboxes() {
    let fixture = ProcessFixture::new();
    let first = fixture.backend().await;
    let launch = launch("s1");
    let endpoints = first.start(&launch).await.unwrap();
    fixture.ready(&launch.id).await;
    let pid = fixture.main_pid(&launch.id);
    drop(first);
    let second = fixture.backend().await;
    let mut facts = second.watch();
    let running = BackendState::Running(endpoints.clone());
    let listed = second.list().await.unwrap();
    assert_eq!(
        listed,
        [BackendFact {
            id: launch.id.clone(),
            state: running
        }]
    );
    assert_eq!(second.start(&launch).await.unwrap(), endpoints);
    assert_eq!(fixture.main_pid(&launch.id), pid);
    signal("KILL", pid);
    let detail = exit_reported(&mut facts, &launch.id).await;
    assert!(detail.starts_with("the agent server ended"), "{detail}");
    fixture.assert_none_left(&launch.id);
    second.start(&launch).await.unwrap();
    assert_ne!(fixture.main_pid(&launch.id), pid);
    second.remove(&launch.id).await.unwrap();
    fixture.assert_none_left(&launch.id);
}

#[tokio::test]
async fn the_next_service_stops_an_adopted_sandbox() {
    let fixture = ProcessFixture::new();
    let first = fixture.backend().await;
    let launch = launch("s1");
    first.start(&launch).await.unwrap();
    drop(first);
    let second = fixture.backend().await;
    second.stop(&launch.id).await.unwrap();
    fixture.assert_none_left(&launch.id);
    assert_eq!(
        state(&second, &launch.id).await,
        Some(BackendState::Stopped)
    );
    second.remove(&launch.id).await.unwrap();
}

#[tokio::test]
async fn a_removal_by_another_service_leaves_no_lock() {
    let fixture = ProcessFixture::new();
    let (first, second) = (fixture.backend().await, fixture.backend().await);
    let launch = launch("s1");
    first.start(&launch).await.unwrap();
    let mut facts = second.watch();
    // It monitors the process from now on.
    second.list().await.unwrap();
    first.remove(&launch.id).await.unwrap();
    assert_eq!(
        next_state(&mut facts, &launch.id).await,
        BackendState::Absent
    );
    assert!(!fixture.root(&launch.id).with_extension("lock").exists());
}

#[tokio::test]
async fn a_process_with_another_session_key_is_restarted() {
    for is_recorded in [true, false] {
        let fixture = ProcessFixture::new();
        let first = fixture.backend().await;
        let old = launch("s1");
        first.start(&old).await.unwrap();
        fixture.ready(&old.id).await;
        let pid = fixture.main_pid(&old.id);
        drop(first);
        if !is_recorded {
            forget_process(&fixture, &old.id);
        }
        let second = fixture.backend().await;
        let new = SandboxLaunch {
            session_key: SecretString::from("canary-new-key"),
            ..old.clone()
        };
        let endpoints = second.start(&new).await.unwrap();
        fixture.ready(&new.id).await;
        let started = fixture.main_pid(&new.id);
        assert_ne!(started, pid);
        for pid in fixture.marked_pids(&new.id) {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap();
            let environment = String::from_utf8_lossy(&environment).into_owned();
            let (with_new, with_old) = ("canary-new-key", "canary-session-key");
            assert!(!environment.contains(with_old));
            // The network process of a confined sandbox has no key.
            assert!(environment.contains(with_new) || pid != started);
        }
        // The next start adopts the new process.
        assert_eq!(second.start(&new).await.unwrap(), endpoints);
        assert_eq!(fixture.main_pid(&new.id), started);
        second.remove(&new.id).await.unwrap();
        fixture.assert_none_left(&new.id);
    }
}

/// Restores the state file of a crash between the spawn and the write.
fn forget_process(fixture: &ProcessFixture, id: &SandboxId) {
    let file = fixture.root(id).join("process.json");
    let mut state: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    state["phase"] = "starting".into();
    state["process"] = serde_json::Value::Null;
    fs::write(&file, state.to_string()).unwrap();
}

#[tokio::test]
async fn a_process_missing_in_the_state_file_is_found() {
    let fixture = ProcessFixture::new();
    let first = fixture.backend().await;
    let launch = launch("s1");
    let endpoints = first.start(&launch).await.unwrap();
    fixture.ready(&launch.id).await;
    let pid = fixture.main_pid(&launch.id);
    drop(first);
    forget_process(&fixture, &launch.id);
    let second = fixture.backend().await;
    let state = second.inspect(&launch.id).await.unwrap();
    assert_eq!(state, Some(BackendState::Running(endpoints.clone())));
    assert_eq!(second.start(&launch).await.unwrap(), endpoints);
    assert_eq!(fixture.main_pid(&launch.id), pid);
    second.remove(&launch.id).await.unwrap();
    fixture.assert_none_left(&launch.id);
}

#[tokio::test]
async fn a_start_with_an_invalid_state_file_replaces_running_processes() {
    let fixture = ProcessFixture::new();
    let first = fixture.backend().await;
    let launch = launch("s1");
    first.start(&launch).await.unwrap();
    fixture.ready(&launch.id).await;
    let pid = fixture.main_pid(&launch.id);
    drop(first);
    fs::write(fixture.root(&launch.id).join("process.json"), "{ half").unwrap();
    let second = fixture.backend().await;
    second.start(&launch).await.unwrap();
    fixture.ready(&launch.id).await;
    assert_ne!(fixture.main_pid(&launch.id), pid);
    // This test is the parent of the first process, so that may still be a zombie.
    assert!(process_state(pid).is_none_or(|state| state == 'Z'));
    second.remove(&launch.id).await.unwrap();
}

#[tokio::test]
async fn concurrent_services_start_one_process() {
    let fixture = ProcessFixture::new();
    let (one, two) = (fixture.backend().await, fixture.backend().await);
    let launch = launch("s1");
    let starts = futures::join!(one.start(&launch), two.start(&launch), one.start(&launch));
    let (first, second, third) = starts;
    let first = first.unwrap();
    assert_eq!(first, second.unwrap());
    assert_eq!(first, third.unwrap());
    fixture.ready(&launch.id).await;
    let session_leaders = || {
        let marked = fixture.marked_pids(&launch.id);
        let is_session_leader = |pid: &&i32| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.rsplit(") ")
                .next()
                .and_then(|rest| rest.split(' ').nth(3))
                == Some(&pid.to_string())
        };
        marked.iter().filter(is_session_leader).count()
    };
    assert_eq!(session_leaders(), 1);
    one.remove(&launch.id).await.unwrap();
    assert_eq!(state(&two, &launch.id).await, None);
}

#[tokio::test]
async fn an_unobserved_exit_and_a_reboot_count_as_crashes() {
    let fixture = ProcessFixture::new();
    let first = fixture.backend().await;
    let launch = launch("s1");
    first.start(&launch).await.unwrap();
    fixture.ready(&launch.id).await;
    let pid = fixture.main_pid(&launch.id);
    drop(first);
    signal("KILL", pid);
    wait_until("the process has ended", || {
        process_state(pid).is_none_or(|state| state == 'Z')
    })
    .await;
    let second = fixture.backend().await;
    let Some(BackendState::Exited { detail }) = state(&second, &launch.id).await else {
        panic!("the sandbox has not exited")
    };
    assert!(
        detail.contains("while the service was not watching"),
        "{detail}"
    );
    let file = fixture.root(&launch.id).join("process.json");
    let mut state: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    state["boot"] = "another".into();
    fs::write(&file, state.to_string()).unwrap();
    let state = second.inspect(&launch.id).await.unwrap();
    let expected = BackendState::Exited {
        detail: "the machine was restarted".into(),
    };
    assert_eq!(state, Some(expected));
    second.remove(&launch.id).await.unwrap();
    fixture.assert_none_left(&launch.id);
}

#[tokio::test]
async fn installations_do_not_touch_each_others_sandboxes() {
    let fixture = ProcessFixture::new();
    let ours = fixture.backend().await;
    let other = ProcessFixture::new();
    let mut config = other.config();
    config.instance = HostId::parse("another").unwrap();
    let theirs = ProcessSandboxes::new(config).await.unwrap();
    let launch = launch("s1");
    ours.start(&launch).await.unwrap();
    fixture.ready(&launch.id).await;
    assert_eq!(theirs.list().await.unwrap(), []);
    theirs.remove(&launch.id).await.unwrap();
    assert!(matches!(
        state(&ours, &launch.id).await,
        Some(BackendState::Running(_))
    ));
    ours.remove(&launch.id).await.unwrap();
}
