//! No process survives a stop, a crash or a removal.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use domain::id::SandboxId;
use domain::sandbox::{BackendState, SandboxError, SandboxLifecycle};
use sandbox_process::ProcessSandboxes;

use super::support::{
    IDLE, ProcessFixture, exit_reported, launch, process_state, signal, state, wait_until,
};

/// Children that leave the process group, the session, their parent, or the environment.
const RUNAWAYS: &str = "
setsid sleep 601 &
(setsid sh -c 'setsid sleep 602 & exit') &
env -i sleep 603 &
env -i setsid sleep 604 &
sh -c 'trap \"\" TERM HUP INT; while :; do sleep 605; done' &
sleep 606 & wait $!";

#[tokio::test]
async fn stop_and_removal_end_all_escaped_processes() {
    let fixture = ProcessFixture::new();
    // Numbers that no other test uses, so that also processes without the marker can be counted.
    let base: u32 = 1_000_000 + std::process::id() * 10;
    let script = (601..=606).fold(RUNAWAYS.to_owned(), |script, number| {
        script.replace(
            &format!("sleep {number}"),
            &format!("sleep {}", base + number),
        )
    });
    fixture.set_agent_script(&script);
    let count_processes = || {
        let lines = fs::read_dir("/proc")
            .unwrap()
            .filter_map(|entry| fs::read_to_string(entry.unwrap().path().join("cmdline")).ok());
        lines
            .filter(|line| {
                let seconds = line
                    .strip_prefix("sleep\0")
                    .and_then(|rest| rest.strip_suffix('\0'));
                let number = seconds.and_then(|text| text.parse::<u32>().ok());
                number.is_some_and(|number| (base + 601..=base + 606).contains(&number))
            })
            .count()
    };
    let backend = fixture.backend().await;
    let launch = launch("s1");
    for round in 0..2 {
        backend.start(&launch).await.unwrap();
        wait_until("all runaways run", || count_processes() == 6).await;
        if round == 0 {
            backend.stop(&launch.id).await.unwrap();
        } else {
            backend.remove(&launch.id).await.unwrap();
        }
        assert_eq!(count_processes(), 0);
        fixture.assert_none_left(&launch.id);
    }
}

#[tokio::test]
async fn a_stop_lets_the_agent_server_finish() {
    let fixture = ProcessFixture::new();
    fixture.set_agent_script(
        "trap 'echo flushed > workspace/flushed; exit 0' TERM; sleep 600 & echo ready > workspace/ready; wait",
    );
    let backend = fixture.backend().await;
    let launch = launch("s1");
    let before = backend.start(&launch).await.unwrap();
    fixture.ready(&launch.id).await;
    let pid = fixture.main_pid(&launch.id);
    backend.stop(&launch.id).await.unwrap();
    assert_eq!(process_state(pid), None, "reaped");
    assert!(fixture.root(&launch.id).join("workspace/flushed").exists());
    assert_eq!(
        state(&backend, &launch.id).await,
        Some(BackendState::Stopped)
    );
    fs::write(fixture.root(&launch.id).join("workspace/kept"), "").unwrap();
    assert_eq!(
        backend.start(&launch).await.unwrap().workspace,
        before.workspace
    );
    assert!(fixture.root(&launch.id).join("workspace/kept").exists());
    backend.remove(&launch.id).await.unwrap();
}

#[tokio::test]
async fn a_process_that_ignores_sigterm_is_killed() {
    let fixture = ProcessFixture::new();
    fixture.set_agent_script(
        "trap '' TERM; echo ready > workspace/ready; while :; do sleep 600; done",
    );
    let mut config = fixture.config();
    config.grace = Duration::from_millis(20);
    let backend = ProcessSandboxes::new(config).await.unwrap();
    let launch = launch("s1");
    backend.start(&launch).await.unwrap();
    fixture.ready(&launch.id).await;
    let pid = fixture.main_pid(&launch.id);
    backend.stop(&launch.id).await.unwrap();
    assert_eq!(process_state(pid), None);
    fixture.assert_none_left(&launch.id);
    assert_eq!(
        state(&backend, &launch.id).await,
        Some(BackendState::Stopped)
    );
    backend.remove(&launch.id).await.unwrap();
}

#[tokio::test]
async fn a_frozen_process_is_stopped_gracefully() {
    let fixture = ProcessFixture::new();
    fixture.set_agent_script(
        "trap 'echo flushed > workspace/flushed; exit 0' TERM; sleep 600 & echo ready > workspace/ready; wait",
    );
    let backend = fixture.backend().await;
    let launch = launch("s1");
    backend.start(&launch).await.unwrap();
    fixture.ready(&launch.id).await;
    let pid = fixture.main_pid(&launch.id);
    signal("STOP", pid);
    wait_until("the process is frozen", || process_state(pid) == Some('T')).await;
    backend.stop(&launch.id).await.unwrap();
    assert!(fixture.root(&launch.id).join("workspace/flushed").exists());
    backend.remove(&launch.id).await.unwrap();
}

#[tokio::test]
async fn a_crash_is_reported_with_its_cause_and_without_keys() {
    let fixture = ProcessFixture::new();
    fixture.set_agent_script(
        "setsid sleep 600 &
        echo \"starting with $OH_SESSION_API_KEYS_0 in $HOME\"
        printf '%s\n' '{\"message\":\"boom\",\"exc_info\":\"Traceback\\nValueError: no\"}' >&2
        exit 3",
    );
    let backend = fixture.backend().await;
    let launch = launch("s1");
    let mut facts = backend.watch();
    backend.start(&launch).await.unwrap();
    let detail = exit_reported(&mut facts, &launch.id).await;
    assert_eq!(
        detail,
        "the agent server ended with exit code 3. The end of its log:\n\
         starting with *** in <sandbox>/home\nboom: ValueError: no"
    );
    assert_eq!(
        state(&backend, &launch.id).await,
        Some(BackendState::Exited { detail })
    );
    fixture.assert_none_left(&launch.id);
    // A stop changes the state of a crashed sandbox to stopped.
    backend.stop(&launch.id).await.unwrap();
    assert_eq!(
        state(&backend, &launch.id).await,
        Some(BackendState::Stopped)
    );
    backend.remove(&launch.id).await.unwrap();
}

#[tokio::test]
async fn an_exit_by_sigkill_is_reported_as_such() {
    let fixture = ProcessFixture::new();
    let backend = fixture.backend().await;
    let launch = launch("s1");
    let mut facts = backend.watch();
    backend.start(&launch).await.unwrap();
    fixture.ready(&launch.id).await;
    let pid = fixture.main_pid(&launch.id);
    signal("KILL", pid);
    let detail = exit_reported(&mut facts, &launch.id).await;
    assert!(detail.contains("killed (signal 9"), "{detail}");
    assert_eq!(process_state(pid), None, "reaped");
    fixture.assert_none_left(&launch.id);
    backend.remove(&launch.id).await.unwrap();
}

#[tokio::test]
async fn a_sandbox_over_its_disk_limit_is_stopped_and_keeps_its_files() {
    let fixture = ProcessFixture::new();
    fixture.set_agent_script("head -c 4194304 /dev/zero > workspace/large; sleep 600 & wait");
    let mut config = fixture.config();
    config.disk = Some(2 << 20);
    config.disk_interval = Duration::from_millis(50);
    let backend = ProcessSandboxes::new(config).await.unwrap();
    let mut facts = backend.watch();
    let launch = launch("s1");
    for _ in 0..2 {
        backend.start(&launch).await.unwrap();
        let detail = exit_reported(&mut facts, &launch.id).await;
        for part in ["more than its limit of 2 MiB", "process.disk"] {
            assert!(detail.contains(part), "{detail}");
        }
        assert_eq!(
            state(&backend, &launch.id).await,
            Some(BackendState::Exited { detail })
        );
        fixture.assert_none_left(&launch.id);
    }
    assert!(fixture.root(&launch.id).join("workspace/large").exists());
}

#[tokio::test]
async fn a_removal_deletes_all_files() {
    let fixture = ProcessFixture::new();
    let backend = fixture.backend().await;
    let launch = launch("s1");
    backend.start(&launch).await.unwrap();
    let locked = fixture.root(&launch.id).join("workspace/go/pkg");
    fs::create_dir_all(&locked).unwrap();
    fs::write(locked.join("file"), "").unwrap();
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o500)).unwrap();
    backend.remove(&launch.id).await.unwrap();
    let is_empty = |dir: &str| fs::read_dir(fixture.dir.path().join(dir)).unwrap().count() == 0;
    assert!(is_empty("sandboxes") && is_empty("run"));
    // Calls for an unknown sandbox create no file either.
    let unknown = SandboxId::parse("unknown").unwrap();
    assert!(matches!(
        backend.stop(&unknown).await,
        Err(SandboxError::NotFound)
    ));
    backend.remove(&unknown).await.unwrap();
    assert_eq!(state(&backend, &unknown).await, None);
    assert!(is_empty("sandboxes") && is_empty("run"));
}

#[tokio::test]
async fn processes_without_a_directory_are_listed() {
    let fixture = ProcessFixture::new();
    fixture.set_agent_script(IDLE);
    let backend = fixture.backend().await;
    let launch = launch("s1");
    backend.start(&launch).await.unwrap();
    fixture.ready(&launch.id).await;
    fs::remove_dir_all(fixture.root(&launch.id)).unwrap();
    let facts = backend.list().await.unwrap();
    assert_eq!(facts.len(), 1);
    assert!(
        matches!(facts[0].state, BackendState::Exited { .. }),
        "{facts:?}"
    );
    backend.remove(&launch.id).await.unwrap();
    fixture.assert_none_left(&launch.id);
    assert_eq!(backend.list().await.unwrap(), []);
}

#[tokio::test]
async fn a_forged_state_file_does_not_end_another_process() {
    let fixture = ProcessFixture::new();
    let backend = fixture.backend().await;
    let launch = launch("s1");
    backend.start(&launch).await.unwrap();
    fixture.ready(&launch.id).await;
    let mut bystander = tokio::process::Command::new("sleep")
        .arg("600")
        .spawn()
        .unwrap();
    let pid = i32::try_from(bystander.id().unwrap()).unwrap();
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let started = stat[stat.rfind(')').unwrap() + 2..]
        .split(' ')
        .nth(19)
        .unwrap()
        .to_owned();
    let file = fixture.root(&launch.id).join("process.json");
    let mut forged: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    forged["process"] =
        serde_json::json!({ "pid": pid, "started": started.parse::<u64>().unwrap() });
    fs::write(&file, forged.to_string()).unwrap();
    assert!(!matches!(
        state(&backend, &launch.id).await,
        Some(BackendState::Running(_))
    ));
    backend.stop(&launch.id).await.unwrap();
    fixture.assert_none_left(&launch.id);
    assert!(process_state(pid).is_some_and(|state| state != 'Z'));
    // A pipe without a writer in place of the file does not block either.
    fs::remove_file(&file).unwrap();
    let created = std::process::Command::new("mkfifo")
        .arg(&file)
        .status()
        .unwrap();
    assert!(created.success());
    assert_eq!(
        state(&backend, &launch.id).await,
        Some(BackendState::Stopped)
    );
    backend.remove(&launch.id).await.unwrap();
    bystander.kill().await.unwrap();
}
