//! The environment of a sandbox, and the order of concurrent starts.

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use domain::error::Classify;
use domain::sandbox::{
    BackendState, SandboxBackend, SandboxError, SandboxLifecycle, SandboxSpecCatalog,
};
use rustix::fs::inotify;
use sandbox_process::launcher::{self, Launcher};
use sandbox_process::{AgentServerSource, ProcessSandboxes, specs};
use secrecy::SecretString;

use super::support::{
    IDLE, IS_CONFINED, ProcessFixture, exit_reported, group_and_session, launch, process_state,
    state, wait_for_listener, wait_until,
};

/// The environment of the sandbox `s1`, without the variables that the shell adds.
fn expected_environment(fixture: &ProcessFixture, short: &Path) -> BTreeMap<String, String> {
    let (sockets, tmp) = if IS_CONFINED {
        ("/tmp".to_owned(), "/tmp".to_owned())
    } else {
        (
            short.display().to_string(),
            short.join("tmp").display().to_string(),
        )
    };
    let root = fixture.dir.path().join("sandboxes/s1");
    let inside = |name: &str| root.join(name).display().to_string();
    let expected = [
        (
            "AGENT_WORKSPACE_SANDBOX",
            format!("{}/s1", fixture.instance),
        ),
        ("HISTFILE", "/dev/null".into()),
        ("GIT_TERMINAL_PROMPT", "0".into()),
        ("HOME", inside("home")),
        ("LANG", "C.UTF-8".into()),
        ("LITELLM_LOCAL_MODEL_COST_MAP", "True".into()),
        ("LOG_JSON", "true".into()),
        ("LOG_RICH_TRACEBACKS", "false".into()),
        ("MY_PROXY", "http://proxy.test".into()),
        (
            "OH",
            format!(
                r#"{{"bash_events_dir":"{}","enable_vscode":false,"lease_ttl_seconds":0,"preload_tools":false,"workspace_path":"{}"}}"#,
                inside("bash_events"),
                inside("workspace")
            ),
        ),
        ("OH_ALLOW_CORS_ORIGINS_0", "https://app.test".into()),
        ("OH_CONVERSATIONS_PATH", inside("conversations")),
        ("OH_DEFERRED_INIT", "0".into()),
        ("OH_PERSISTENCE_DIR", inside("persist")),
        ("OH_SECRET_KEY", "canary-secret-key".into()),
        ("OH_SESSION_API_KEYS_0", "canary-session-key".into()),
        (
            "OH_WEBHOOKS_0_BASE_URL",
            "http://127.0.0.1:1/api/v1/webhooks".into(),
        ),
        ("OH_WEBHOOKS_0_EVENT_BUFFER_SIZE", "5".into()),
        ("OH_WEBHOOKS_0_FLUSH_DELAY", "1".into()),
        (
            "OPENHANDS_AGENT_SERVER_CONFIG_PATH",
            inside("agent-server.json"),
        ),
        (
            "PATH",
            format!("{}:/usr/bin:/bin", fixture.dir.path().display()),
        ),
        ("PYTHONUNBUFFERED", "1".into()),
        ("TMPDIR", tmp),
        ("TMUX_TMPDIR", sockets),
        ("TZ", "UTC".into()),
    ];
    let network = IS_CONFINED.then(|| ("AGENT_WORKSPACE_NETWORK".to_owned(), "open".to_owned()));
    let expected = expected.map(|(name, value)| (name.to_owned(), value));
    expected.into_iter().chain(network).collect()
}

#[tokio::test]
async fn a_sandbox_has_exactly_its_own_environment() {
    let fixture = ProcessFixture::new();
    fixture
        .set_agent_script("env -0 > workspace/env; sleep 600 & echo ready > workspace/ready; wait");
    let mut config = fixture.config();
    config.path = "/usr/bin:/bin".into();
    config
        .extra_env
        .insert("MY_PROXY".into(), SecretString::from("http://proxy.test"));
    config
        .extra_env
        .insert("HOME".into(), SecretString::from("/nowhere"));
    let backend = ProcessSandboxes::new(config).await.unwrap();
    let launch = launch("s1");
    let endpoints = backend.start(&launch).await.unwrap();
    fixture.ready(&launch.id).await;
    let root = fixture.root(&launch.id);
    let text = fs::read_to_string(root.join("workspace/env")).unwrap();
    let mut actual: BTreeMap<String, String> = text
        .split('\0')
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    for shell_variable in ["PWD", "OLDPWD", "SHLVL", "_"] {
        actual.remove(shell_variable);
    }
    let short = fs::read_dir(fixture.dir.path().join("run")).unwrap();
    let mut short = short.map(|entry| entry.unwrap().path());
    let short = short.find(|path| path.is_dir()).unwrap();
    let port = endpoints.agent_url.port().unwrap().to_string();
    assert_eq!(actual.remove("AGENT_SERVER_PORT"), Some(port));
    assert_eq!(actual, expected_environment(&fixture, &short));
    assert_eq!(
        endpoints.workspace,
        root.join("workspace").display().to_string()
    );
    for dir in [
        root.clone(),
        root.join("home"),
        short.clone(),
        short.join("tmp"),
    ] {
        let mode = fs::metadata(&dir).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o700, "{}", dir.display());
    }
    backend.remove(&launch.id).await.unwrap();
}

#[tokio::test]
async fn a_sandbox_has_a_session_of_its_own_and_no_key_in_its_arguments() {
    let fixture = ProcessFixture::new();
    let backend = fixture.backend().await;
    let launch = launch("s1");
    let endpoints = backend.start(&launch).await.unwrap();
    fixture.ready(&launch.id).await;
    let pid = fixture.main_pid(&launch.id);
    let line = fs::read_to_string(format!("/proc/{pid}/cmdline"))
        .unwrap()
        .replace('\0', " ");
    let port = endpoints.agent_url.port().unwrap();
    assert!(
        line.trim_end().ends_with(&if IS_CONFINED {
            format!("__init {port}")
        } else {
            format!("--host 127.0.0.1 --port {port}")
        }),
        "{line}"
    );
    assert!(!line.contains("canary"), "{line}");
    assert_eq!(group_and_session(pid), (pid, pid));
    backend.remove(&launch.id).await.unwrap();
}

#[tokio::test]
async fn a_missing_command_is_an_error_without_a_path() {
    let fixture = ProcessFixture::new();
    let backend = fixture.backend().await;
    backend.check().await.unwrap();
    fs::remove_file(fixture.agent()).unwrap();
    let check = backend.check().await.unwrap_err();
    assert!(
        matches!(check, SandboxError::Unavailable { .. }),
        "{check:?}"
    );
    let launch = launch("s1");
    let error = backend.start(&launch).await.unwrap_err();
    assert!(
        matches!(error, SandboxError::StartFailed { .. }),
        "{error:?}"
    );
    assert!(!error.public().contains('/'), "{}", error.public());
    assert!(matches!(
        state(&backend, &launch.id).await,
        Some(BackendState::Exited { .. })
    ));
    fixture.set_agent_script(IDLE);
    backend.start(&launch).await.unwrap();
    backend.remove(&launch.id).await.unwrap();
}

#[tokio::test]
async fn a_restart_keeps_the_port_unless_it_is_in_use() {
    let fixture = ProcessFixture::new();
    fixture.listening_script();
    let backend = fixture.backend().await;
    let launch = launch("s1");
    let first = backend.start(&launch).await.unwrap();
    backend.stop(&launch.id).await.unwrap();
    let second = backend.start(&launch).await.unwrap();
    assert_eq!(first, second);
    backend.stop(&launch.id).await.unwrap();
    let port = first.agent_url.port().unwrap();
    let _taken = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
    let third = backend.start(&launch).await.unwrap();
    assert_ne!(third.agent_url.port(), Some(port));
    backend.remove(&launch.id).await.unwrap();
}

#[tokio::test]
async fn a_start_after_a_port_conflict_uses_another_port() {
    let fixture = ProcessFixture::new();
    fixture.set_agent_script(
        "echo '[Errno 98] error while attempting to bind: Address already in use' >&2; exit 1",
    );
    let backend = fixture.backend().await;
    let launch = launch("s1");
    let mut facts = backend.watch();
    let first = backend.start(&launch).await.unwrap();
    let detail = exit_reported(&mut facts, &launch.id).await;
    assert!(
        detail.contains("exit code 1") && detail.contains("already in use"),
        "{detail}"
    );
    fixture.set_agent_script(IDLE);
    let second = backend.start(&launch).await.unwrap();
    assert_ne!(first.agent_url, second.agent_url);
    backend.remove(&launch.id).await.unwrap();
}

#[tokio::test]
async fn a_start_holds_its_permit_until_the_agent_server_answers() {
    let fixture = ProcessFixture::new();
    let mut config = fixture.config();
    config.parallel_starts = 1;
    config.boot_permit_timeout = Duration::from_secs(3600);
    config.start_queue_timeout = Duration::from_millis(20);
    let backend = ProcessSandboxes::new(config).await.unwrap();
    let (silent, waiting, third) = (launch("silent"), launch("waiting"), launch("third"));
    backend.start(&silent).await.unwrap();
    let error = backend.start(&waiting).await.unwrap_err();
    assert!(matches!(error, SandboxError::TimedOut { .. }), "{error:?}");
    assert_eq!(
        state(&backend, &waiting.id).await,
        None,
        "a waiting start creates nothing"
    );
    // A running sandbox needs no permit.
    backend.start(&silent).await.unwrap();
    // The stop releases the permit of the silent one, and the answer that of the listening one.
    backend.stop(&silent.id).await.unwrap();
    fixture.listening_script();
    let endpoints = backend.start(&waiting).await.unwrap();
    let port = endpoints.agent_url.port().unwrap();
    let address = (Ipv4Addr::LOCALHOST, port).into();
    wait_for_listener(&backend, &waiting.id, address).await;
    let mut started = backend.start(&third).await;
    while matches!(started, Err(SandboxError::TimedOut { .. })) {
        started = backend.start(&third).await;
    }
    started.unwrap();
    for id in [&silent.id, &waiting.id, &third.id] {
        backend.remove(id).await.unwrap();
    }
}

#[tokio::test]
async fn a_start_cancelled_in_the_queue_creates_nothing() {
    let fixture = ProcessFixture::new();
    let mut config = fixture.config();
    config.parallel_starts = 1;
    config.boot_permit_timeout = Duration::from_secs(3600);
    let backend = ProcessSandboxes::new(config).await.unwrap();
    let (silent, cancelled) = (launch("silent"), launch("cancelled"));
    backend.start(&silent).await.unwrap();
    let start = tokio::time::timeout(Duration::from_millis(20), backend.start(&cancelled));
    assert!(start.await.is_err());
    assert_eq!(state(&backend, &cancelled.id).await, None);
    backend.stop(&silent.id).await.unwrap();
    backend.start(&cancelled).await.unwrap();
    backend.remove(&silent.id).await.unwrap();
    backend.remove(&cancelled.id).await.unwrap();
}

/// Reports that a file was opened.
struct OpenWatch(OwnedFd);

impl OpenWatch {
    fn new(file: &Path) -> Self {
        let watch = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
        inotify::add_watch(&watch, file, inotify::WatchFlags::OPEN).unwrap();
        Self(watch)
    }

    fn has_event(&self) -> bool {
        let mut buffer = [0; 1024];
        rustix::io::read(&self.0, &mut buffer[..]).is_ok_and(|bytes| bytes > 0)
    }
}

/// Otherwise it could begin after a later removal.
#[tokio::test]
async fn a_start_cancelled_while_it_waits_for_the_lock_never_begins() {
    let fixture = ProcessFixture::new();
    let backend = fixture.backend().await;
    let launch = launch("cancelled");
    let id = launch.id.clone();
    let path = fixture.root(&id).with_extension("lock");
    let other = fs::File::create(&path).unwrap();
    other.lock().unwrap();
    let opens = OpenWatch::new(&path);
    tokio::select! {
        result = backend.start(&launch) => panic!("started without the lock: {result:?}"),
        () = wait_until("the start tries the lock", || opens.has_event()) => {}
    }
    drop(other);
    let stopped = backend.stop(&id).await;
    assert!(
        matches!(stopped, Err(SandboxError::NotFound)),
        "{stopped:?}"
    );
    assert_eq!(state(&backend, &id).await, None);
    fixture.assert_none_left(&id);
}

#[tokio::test]
async fn the_launcher_creates_a_session_and_executes_the_command() {
    // Runs this test binary as `__launch <command…>`.
    let exe = std::env::current_exe().unwrap();
    let mut child = tokio::process::Command::new(exe)
        .args(["--exact", "starting::run_as_launcher", "--nocapture"])
        .env("RUN_AS_LAUNCHER", "1")
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let pid = i32::try_from(child.id().unwrap()).unwrap();
    let command = format!("/proc/{pid}/cmdline");
    wait_until("the launcher has executed its command", || {
        fs::read_to_string(&command).is_ok_and(|line| line.starts_with("sleep\0"))
    })
    .await;
    assert_eq!(group_and_session(pid), (pid, pid));
    assert_eq!(
        fs::read_to_string(format!("/proc/{pid}/oom_score_adj"))
            .unwrap()
            .trim(),
        "500"
    );
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let core = limits
        .lines()
        .find(|line| line.starts_with("Max core file size"))
        .unwrap();
    assert_eq!(core.split_whitespace().nth(4), Some("0"), "{core}");
    child.kill().await.unwrap();
    assert_eq!(process_state(pid), None);
    assert_eq!(Launcher::default(), Launcher::Setsid);
}

/// Not a test: the launcher, if the environment makes this binary one.
#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "a variable makes the test binary a launcher"
)]
fn run_as_launcher() {
    if std::env::var_os("RUN_AS_LAUNCHER").is_some() {
        let error = launcher::main(["sleep", "600"].map(Into::into));
        unreachable!("{error}");
    }
}

#[tokio::test]
async fn the_only_spec_shows_no_secret() {
    let fixture = ProcessFixture::new();
    let config = fixture.config();
    let now = domain::clock::Timestamp::from_micros(1);
    let specs = specs(&config, now).list().await.unwrap();
    let [spec] = &specs[..] else {
        panic!("{specs:?}")
    };
    assert_eq!(spec.id.as_str(), "process:agent-server-command");
    assert_eq!(spec.created_at, now);
    assert!(!spec.initial_env.contains_key("OH_SECRET_KEY"));
    assert!(matches!(config.agent_server, AgentServerSource::Command(_)));
}
