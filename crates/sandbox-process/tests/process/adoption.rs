//! A service that ends, is killed, or is replaced does not lose its sandboxes.

use std::fs;

use domain::id::{HostId, SandboxId};
use domain::sandbox::{BackendFact, BackendState, SandboxBackend, SandboxLaunch};
use sandbox_process::ProcessSandboxes;
use secrecy::SecretString;

use super::support::{ProcessFixture, exit_reported, launch, process_state, signal, state, until};

#[tokio::test]
async fn the_next_service_adopts_and_watches() {
    let lab = ProcessFixture::new();
    let first = lab.backend().await;
    let launch = launch("s1");
    let endpoints = first.start(&launch).await.unwrap();
    lab.ready(&launch.id).await;
    let pid = lab.main_pid(&launch.id);
    drop(first);
    let second = lab.backend().await;
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
    assert_eq!(lab.main_pid(&launch.id), pid);
    signal("KILL", pid);
    let detail = exit_reported(&mut facts, &launch.id).await;
    assert!(detail.starts_with("the agent server ended"), "{detail}");
    lab.assert_none_left(&launch.id);
    second.start(&launch).await.unwrap();
    assert_ne!(lab.main_pid(&launch.id), pid);
    second.remove(&launch.id).await.unwrap();
    lab.assert_none_left(&launch.id);
}

#[tokio::test]
async fn the_next_service_stops_what_it_adopted() {
    let lab = ProcessFixture::new();
    let first = lab.backend().await;
    let launch = launch("s1");
    first.start(&launch).await.unwrap();
    drop(first);
    let second = lab.backend().await;
    second.stop(&launch.id).await.unwrap();
    lab.assert_none_left(&launch.id);
    assert_eq!(
        state(&second, &launch.id).await,
        Some(BackendState::Stopped)
    );
    second.remove(&launch.id).await.unwrap();
}

#[tokio::test]
async fn a_process_with_another_session_key_is_restarted() {
    for is_recorded in [true, false] {
        let lab = ProcessFixture::new();
        let first = lab.backend().await;
        let old = launch("s1");
        first.start(&old).await.unwrap();
        lab.ready(&old.id).await;
        let pid = lab.main_pid(&old.id);
        drop(first);
        if !is_recorded {
            forget_process(&lab, &old.id);
        }
        let second = lab.backend().await;
        let new = SandboxLaunch {
            session_key: SecretString::from("canary-new-key"),
            ..old.clone()
        };
        let endpoints = second.start(&new).await.unwrap();
        lab.ready(&new.id).await;
        let started = lab.main_pid(&new.id);
        assert_ne!(started, pid);
        for pid in lab.marked(&new.id) {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap();
            let environment = String::from_utf8_lossy(&environment).into_owned();
            let (with_new, with_old) = ("canary-new-key", "canary-session-key");
            assert!(environment.contains(with_new) && !environment.contains(with_old));
        }
        // The next start adopts the new process.
        assert_eq!(second.start(&new).await.unwrap(), endpoints);
        assert_eq!(lab.main_pid(&new.id), started);
        second.remove(&new.id).await.unwrap();
        lab.assert_none_left(&new.id);
    }
}

/// Restores the state file of a crash between the spawn and the write.
fn forget_process(lab: &ProcessFixture, id: &SandboxId) {
    let file = lab.root(id).join("process.json");
    let mut state: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    state["phase"] = "starting".into();
    state["process"] = serde_json::Value::Null;
    fs::write(&file, state.to_string()).unwrap();
}

#[tokio::test]
async fn a_process_that_was_never_written_down_is_found() {
    let lab = ProcessFixture::new();
    let first = lab.backend().await;
    let launch = launch("s1");
    let endpoints = first.start(&launch).await.unwrap();
    lab.ready(&launch.id).await;
    let pid = lab.main_pid(&launch.id);
    drop(first);
    forget_process(&lab, &launch.id);
    let second = lab.backend().await;
    let seen = second.inspect(&launch.id).await.unwrap();
    assert_eq!(seen, Some(BackendState::Running(endpoints.clone())));
    assert_eq!(second.start(&launch).await.unwrap(), endpoints);
    assert_eq!(lab.main_pid(&launch.id), pid);
    second.remove(&launch.id).await.unwrap();
    lab.assert_none_left(&launch.id);
}

#[tokio::test]
async fn without_any_state_a_start_ends_what_runs_and_begins_anew() {
    let lab = ProcessFixture::new();
    let first = lab.backend().await;
    let launch = launch("s1");
    first.start(&launch).await.unwrap();
    lab.ready(&launch.id).await;
    let pid = lab.main_pid(&launch.id);
    drop(first);
    fs::write(lab.root(&launch.id).join("process.json"), "{ half").unwrap();
    let second = lab.backend().await;
    second.start(&launch).await.unwrap();
    lab.ready(&launch.id).await;
    assert_ne!(lab.main_pid(&launch.id), pid);
    // The first one's parent is this test, so its end may still wait to be noticed.
    assert!(process_state(pid).is_none_or(|state| state == 'Z'));
    second.remove(&launch.id).await.unwrap();
}

#[tokio::test]
async fn two_services_at_once_start_one_process() {
    let lab = ProcessFixture::new();
    let (one, two) = (lab.backend().await, lab.backend().await);
    let launch = launch("s1");
    let starts = futures::join!(one.start(&launch), two.start(&launch), one.start(&launch));
    let (first, second, third) = starts;
    let first = first.unwrap();
    assert_eq!(first, second.unwrap());
    assert_eq!(first, third.unwrap());
    lab.ready(&launch.id).await;
    let mains = || {
        let marked = lab.marked(&launch.id);
        let leads = |pid: &&i32| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.rsplit(") ")
                .next()
                .and_then(|rest| rest.split(' ').nth(3))
                == Some(&pid.to_string())
        };
        marked.iter().filter(leads).count()
    };
    assert_eq!(mains(), 1);
    one.remove(&launch.id).await.unwrap();
    assert_eq!(state(&two, &launch.id).await, None);
}

#[tokio::test]
async fn an_unobserved_exit_is_a_crash_and_so_is_a_reboot() {
    let lab = ProcessFixture::new();
    let first = lab.backend().await;
    let launch = launch("s1");
    first.start(&launch).await.unwrap();
    lab.ready(&launch.id).await;
    let pid = lab.main_pid(&launch.id);
    drop(first);
    signal("KILL", pid);
    until("it ended", || {
        process_state(pid).is_none_or(|state| state == 'Z')
    })
    .await;
    let second = lab.backend().await;
    let Some(BackendState::Exited { detail }) = state(&second, &launch.id).await else {
        panic!("not seen")
    };
    assert!(
        detail.contains("while the service was not watching"),
        "{detail}"
    );
    let file = lab.root(&launch.id).join("process.json");
    let mut state: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    state["boot"] = "another".into();
    fs::write(&file, state.to_string()).unwrap();
    let seen = second.inspect(&launch.id).await.unwrap();
    let expected = BackendState::Exited {
        detail: "the machine was restarted".into(),
    };
    assert_eq!(seen, Some(expected));
    second.remove(&launch.id).await.unwrap();
    lab.assert_none_left(&launch.id);
}

#[tokio::test]
async fn two_installations_leave_each_other_alone() {
    let lab = ProcessFixture::new();
    let ours = lab.backend().await;
    let elsewhere = ProcessFixture::new();
    let mut config = elsewhere.config();
    config.instance = HostId::parse("another").unwrap();
    let theirs = ProcessSandboxes::new(config).await.unwrap();
    let launch = launch("s1");
    ours.start(&launch).await.unwrap();
    lab.ready(&launch.id).await;
    assert_eq!(theirs.list().await.unwrap(), []);
    theirs.remove(&launch.id).await.unwrap();
    assert!(matches!(
        state(&ours, &launch.id).await,
        Some(BackendState::Running(_))
    ));
    ours.remove(&launch.id).await.unwrap();
}
