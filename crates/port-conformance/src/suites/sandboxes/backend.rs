//! Conformance tests of `SandboxBackend`, `SandboxLifecycle` and `SandboxReader`. They run real sandboxes, so each test
//! does as much as it can with one.

use std::future::Future;
use std::time::Duration;

use domain::id::{OwnerId, SandboxId, SpecId};
use domain::sandbox::{
    BackendState, LogStream, LogTail, PrepareProgress, SandboxBackend, SandboxError, SandboxLaunch,
    SandboxLifecycle, SandboxReader,
};
use futures::StreamExt;
use secrecy::{ExposeSecret, SecretString};
use url::Url;
use uuid::Uuid;

/// A launch of a new sandbox of `spec`. The caller chooses a random id, so that tests can share one backend.
pub fn launch(id: Uuid, spec: &SpecId) -> SandboxLaunch {
    SandboxLaunch {
        id: SandboxId::parse(id.simple().to_string()).expect("hex digits are a valid sandbox id"),
        owner: OwnerId::parse("alice").expect("valid user id"),
        spec: spec.clone(),
        session_key: SecretString::from(format!("session-{}", id.simple())),
        secret_key: SecretString::from(format!("secret-{}", id.simple())),
        webhook_url: Url::parse("http://127.0.0.1:1/api/v1/webhooks").expect("valid URL"),
        cors_origins: Vec::new(),
        dormant: false,
        progress: PrepareProgress::silent(),
    }
}

async fn is_running(backend: &impl SandboxLifecycle, id: &SandboxId) -> bool {
    let state = backend.inspect(id).await.expect("inspect");
    matches!(state, Some(BackendState::Running(_)))
}

async fn listed(backend: &impl SandboxLifecycle, id: &SandboxId) -> Vec<BackendState> {
    let facts = backend.list().await.expect("list");
    facts
        .into_iter()
        .filter(|fact| fact.id == *id)
        .map(|fact| fact.state)
        .collect()
}

/// A sandbox with a dormant agent server is listed, inspected, found, stopped, restarted and removed like any other.
pub async fn a_dormant_sandbox_behaves_like_any_other(
    backend: &impl SandboxLifecycle,
    launch: &SandboxLaunch,
) {
    let dormant = SandboxLaunch {
        dormant: true,
        ..launch.clone()
    };
    let endpoints = backend.start(&dormant).await.expect("start dormant");
    let states = listed(backend, &launch.id).await;
    assert_eq!(states, [BackendState::Running(endpoints.clone())]);
    assert!(is_running(backend, &launch.id).await);
    // A second start finds the running sandbox.
    let found = backend
        .start(launch)
        .await
        .expect("find the running sandbox");
    assert_eq!(found, endpoints);
    backend.stop(&launch.id).await.expect("stop");
    let state = backend.inspect(&launch.id).await.expect("inspect");
    assert_eq!(state, Some(BackendState::Stopped));
    backend.start(launch).await.expect("start again");
    assert!(is_running(backend, &launch.id).await);
    backend.remove(&launch.id).await.expect("remove");
    assert!(listed(backend, &launch.id).await.is_empty());
}

/// The recipe does not change when sandboxes start, and contains no key.
pub async fn the_recipe_is_stable(
    backend: &(impl SandboxBackend + SandboxLifecycle),
    launch: &SandboxLaunch,
) {
    let before = backend
        .recipe(&launch.spec)
        .await
        .expect("determine the recipe");
    assert!(!before.is_empty());
    backend.start(launch).await.expect("start");
    let after = backend
        .recipe(&launch.spec)
        .await
        .expect("determine the recipe");
    assert_eq!(before, after);
    for key in [&launch.session_key, &launch.secret_key] {
        assert!(!after.contains(key.expose_secret()));
    }
    backend.remove(&launch.id).await.expect("remove");
}

/// Two starts, sequential or concurrent, yield one sandbox with one address.
pub async fn two_starts_yield_one_sandbox(backend: &impl SandboxLifecycle, launch: &SandboxLaunch) {
    let (one, two) = futures::join!(backend.start(launch), backend.start(launch));
    let (one, two) = (one.expect("start"), two.expect("start at the same time"));
    assert_eq!(one, two, "two concurrent starts are one");
    let three = backend.start(launch).await.expect("start again");
    assert_eq!(one, three, "a further start finds the running sandbox");
    assert!(
        one.exposed_urls
            .iter()
            .any(|url| url.name == domain::sandbox::AGENT_SERVER),
        "the agent server is among the exposed URLs"
    );
    let states = listed(backend, &launch.id).await;
    assert_eq!(states, [BackendState::Running(one)], "list returns it once");
    backend.remove(&launch.id).await.expect("remove");
}

/// `stop` keeps the sandbox and can be repeated; `start` restarts it in the same workspace.
pub async fn stop_keeps_the_workspace_for_the_next_start(
    backend: &(impl SandboxBackend + SandboxLifecycle),
    launch: &SandboxLaunch,
) {
    let before = backend.start(launch).await.expect("start");
    if !backend.capabilities().pause {
        let refused = backend.stop(&launch.id).await;
        assert!(
            matches!(refused, Err(SandboxError::Unsupported { .. })),
            "a backend that cannot pause returns `Unsupported`: {refused:?}"
        );
        backend.remove(&launch.id).await.expect("remove");
        return;
    }
    backend.stop(&launch.id).await.expect("stop");
    let state = backend.inspect(&launch.id).await.expect("inspect");
    assert_eq!(state, Some(BackendState::Stopped));
    backend.stop(&launch.id).await.expect("stop again");
    assert_eq!(
        listed(backend, &launch.id).await,
        [BackendState::Stopped],
        "list returns stopped sandboxes"
    );
    let after = backend.start(launch).await.expect("start again");
    assert_eq!(before.workspace, after.workspace, "the workspace is kept");
    assert!(is_running(backend, &launch.id).await);
    backend.remove(&launch.id).await.expect("remove");
}

/// `remove` leaves nothing, in any state of the sandbox, and can be repeated.
pub async fn remove_leaves_nothing(
    backend: &(impl SandboxBackend + SandboxLifecycle),
    launch: &SandboxLaunch,
) {
    backend.start(launch).await.expect("start");
    backend
        .remove(&launch.id)
        .await
        .expect("remove a running sandbox");
    assert_eq!(backend.inspect(&launch.id).await.expect("inspect"), None);
    assert!(listed(backend, &launch.id).await.is_empty());
    backend
        .remove(&launch.id)
        .await
        .expect("remove a removed sandbox");

    backend.start(launch).await.expect("start after remove");
    if backend.capabilities().pause {
        backend.stop(&launch.id).await.expect("stop");
    }
    backend
        .remove(&launch.id)
        .await
        .expect("remove a stopped sandbox");
    assert_eq!(backend.inspect(&launch.id).await.expect("inspect"), None);
}

/// For an unknown sandbox, `inspect` is `None`, `stop` is `NotFound` and `remove` succeeds.
pub async fn an_unknown_sandbox_is_not_found(
    backend: &(impl SandboxBackend + SandboxLifecycle),
    launch: &SandboxLaunch,
) {
    assert_eq!(backend.inspect(&launch.id).await.expect("inspect"), None);
    if backend.capabilities().pause {
        let stopped = backend.stop(&launch.id).await;
        assert!(
            matches!(stopped, Err(SandboxError::NotFound)),
            "{stopped:?}"
        );
    }
    backend.remove(&launch.id).await.expect("remove");
}

/// A path is resolved inside the sandbox, also if it does not exist, and never leaves it. Without isolation, every path
/// outside the sandbox's own directories leaves it.
pub async fn paths_stay_inside(
    backend: &(impl SandboxBackend + SandboxLifecycle + SandboxReader),
    launch: &SandboxLaunch,
) {
    let workspace = backend.start(launch).await.expect("start").workspace;
    let resolve = async |path: &str| backend.resolve(&launch.id, path).await;
    for (path, expected) in [
        (workspace.clone(), workspace.clone()),
        (
            format!("{workspace}/a/../b//./c"),
            format!("{workspace}/b/c"),
        ),
    ] {
        assert_eq!(resolve(&path).await.expect("inside"), expected, "{path}");
    }
    let mut outside = vec!["/..".to_owned(), "../../..".to_owned(), "/a\0b".to_owned()];
    if !backend.capabilities().isolated {
        let climbing = format!("{workspace}/../../../master.key");
        outside.extend(["/etc/passwd".to_owned(), "/".to_owned(), climbing]);
    }
    for path in outside {
        let refused = resolve(&path).await;
        assert!(
            matches!(refused, Err(SandboxError::NotFound)),
            "{path:?}: {refused:?}"
        );
    }
    backend.remove(&launch.id).await.expect("remove");
}

/// Two sandboxes share neither an address nor a workspace, and removing one does not affect the other.
pub async fn sandboxes_are_separate(
    backend: &(impl SandboxBackend + SandboxLifecycle),
    one: &SandboxLaunch,
    two: &SandboxLaunch,
) {
    let (at_one, at_two) = futures::join!(backend.start(one), backend.start(two));
    let (at_one, at_two) = (at_one.expect("start"), at_two.expect("start"));
    assert_ne!(at_one.agent_url, at_two.agent_url);
    // In isolated sandboxes the same path is another directory.
    if !backend.capabilities().isolated {
        assert_ne!(at_one.workspace, at_two.workspace);
    }
    backend.remove(&one.id).await.expect("remove");
    assert!(is_running(backend, &two.id).await);
    backend.remove(&two.id).await.expect("remove");
}

/// `watch` reports an exit without a request; `inspect` and `list` show it (not as a stop), and `start` restarts the
/// sandbox. Requested stops and removals are not reported. `exit` ends the main process.
pub async fn an_exit_is_watched<F: Future<Output = ()>>(
    backend: &impl SandboxLifecycle,
    launch: &SandboxLaunch,
    exit: impl FnOnce(SandboxId) -> F,
) {
    let mut facts = backend.watch();
    let before = backend.start(launch).await.expect("start");
    exit(launch.id.clone()).await;
    let reported = async {
        loop {
            let fact = facts.next().await.expect("the stream continues");
            if fact.id == launch.id && !matches!(fact.state, BackendState::Running(_)) {
                return fact.state;
            }
        }
    };
    let state = tokio::time::timeout(Duration::from_secs(30), reported)
        .await
        .expect("an exit within the timeout");
    assert!(matches!(state, BackendState::Exited { .. }), "{state:?}");
    if let BackendState::Exited { detail } = &state {
        for key in [&launch.session_key, &launch.secret_key] {
            assert!(
                !detail.contains(key.expose_secret()),
                "the cause contains no key"
            );
        }
    }
    let seen = backend.inspect(&launch.id).await.expect("inspect");
    assert!(
        matches!(seen, Some(BackendState::Exited { .. })),
        "{seen:?}"
    );
    let states = listed(backend, &launch.id).await;
    assert!(
        matches!(states[..], [BackendState::Exited { .. }]),
        "{states:?}"
    );
    let after = backend.start(launch).await.expect("start after a crash");
    assert_eq!(before.workspace, after.workspace);
    assert!(is_running(backend, &launch.id).await);
    backend.remove(&launch.id).await.expect("remove");
}

/// Requested stops are not reported as exits.
pub async fn requested_stops_are_not_reported(
    backend: &(impl SandboxBackend + SandboxLifecycle),
    launch: &SandboxLaunch,
) {
    let mut facts = backend.watch();
    backend.start(launch).await.expect("start");
    if backend.capabilities().pause {
        backend.stop(&launch.id).await.expect("stop");
        backend.start(launch).await.expect("start again");
    }
    backend.remove(&launch.id).await.expect("remove");
    // A report of the watcher is available by now: it was sent before `remove` returned, or concerns an exit that
    // looked like a crash.
    while let Some(Some(fact)) = futures::FutureExt::now_or_never(facts.next()) {
        assert!(
            fact.id != launch.id || !matches!(fact.state, BackendState::Exited { .. }),
            "{fact:?}"
        );
    }
}

/// Timeout for a written line to arrive.
const LOG_LINE_TIMEOUT: Duration = Duration::from_secs(60);

/// Reads up to and including a text, or to the end.
async fn read_to(logs: &mut LogStream, end: &str) -> String {
    let mut text = String::new();
    let read = async {
        while !text.ends_with(end) {
            let Some(piece) = logs.next().await else {
                return;
            };
            let piece = piece.expect("readable log");
            text.push_str(std::str::from_utf8(&piece).expect("UTF-8 text"));
        }
    };
    let read = tokio::time::timeout(LOG_LINE_TIMEOUT, read).await;
    assert!(read.is_ok(), "the log stops after {text:?}");
    text
}

/// The output of the main process is read without keys: its last lines and what follows until it ends, also of a
/// stopped sandbox, unless its log ends with it. `write_log_line` makes it write a line.
pub async fn logs_are_read_and_followed<F: Future<Output = ()>>(
    backend: &(impl SandboxBackend + SandboxLifecycle + SandboxReader),
    launch: &SandboxLaunch,
    write_log_line: impl Fn(SandboxId, String) -> F,
    keeps_logs: bool,
) {
    let keys = [launch.session_key.clone(), launch.secret_key.clone()];
    let open = async |lines, follow| {
        backend
            .logs(&launch.id, &keys, LogTail { lines, follow })
            .await
    };
    let is_missing = |logs: Result<LogStream, _>| matches!(logs, Err(SandboxError::NotFound));
    assert!(
        is_missing(open(10, true).await),
        "the sandbox does not exist yet"
    );
    backend.start(launch).await.expect("start");
    let mut followed = open(1_000, true).await.expect("follow");
    let key = launch.session_key.expose_secret();
    for line in [
        "first".to_owned(),
        format!("the key {key}"),
        "third".to_owned(),
    ] {
        write_log_line(launch.id.clone(), line).await;
    }
    let text = read_to(&mut followed, "third\n").await;
    assert!(text.ends_with("first\nthe key ***\nthird\n"), "{text:?}");
    let last = async |lines| {
        let mut logs = open(lines, false).await.expect("read the end of the log");
        read_to(&mut logs, "\0").await
    };
    assert_eq!(last(2).await, "the key ***\nthird\n");
    assert_eq!(last(0).await, "");
    let mut later = open(1, true).await.expect("follow");
    // The first read decides which lines are the last ones.
    assert_eq!(read_to(&mut later, "third\n").await, "third\n");
    write_log_line(launch.id.clone(), "fourth".to_owned()).await;
    assert_eq!(read_to(&mut later, "fourth\n").await, "fourth\n");
    if backend.capabilities().pause {
        backend.stop(&launch.id).await.expect("stop");
        // Reads to the end.
        read_to(&mut followed, "\0").await;
        let text = last(1_000).await;
        let expected = if keeps_logs {
            "the key ***\nthird\nfourth\n"
        } else {
            ""
        };
        assert!(text.contains(expected), "{text:?}");
        let mut stopped = open(1_000, true).await.expect("follow a stopped sandbox");
        assert_eq!(read_to(&mut stopped, "\0").await, text);
    }
    backend.remove(&launch.id).await.expect("remove");
    read_to(&mut later, "\0").await;
    assert!(is_missing(open(10, false).await), "the sandbox was removed");
}

/// `check` and `prepare` are fast and change nothing if nothing is missing, also concurrently.
pub async fn a_usable_backend_passes_its_check(
    backend: &impl SandboxBackend,
    launch: &SandboxLaunch,
) {
    backend.check().await.expect("check");
    let silent = PrepareProgress::silent();
    let prepare = || backend.prepare(&launch.spec, &silent);
    let (one, two) = futures::join!(prepare(), prepare());
    one.expect("prepare");
    two.expect("prepare at the same time");
    backend.check().await.expect("check");
}

/// Generates the conformance tests of a backend.
///
/// * `fresh`: expression of a future of a value that derefs to the adapter;
/// * `launch`: `fn() -> SandboxLaunch`, a new sandbox each time (see
///   [`suites::sandboxes::backend::launch`](crate::suites::sandboxes::backend::launch));
/// * `exit`: `async fn(&Fresh, SandboxId)`, makes the sandbox's main process exit;
/// * `write_log_line`: `async fn(&Fresh, SandboxId, String)`, makes the sandbox's main process write a line;
/// * `keeps_logs`: `false` if a stopped sandbox has no log.
#[macro_export]
macro_rules! sandbox_backend_conformance {
    (fresh: $fresh:expr, launch: $launch:expr, exit: $exit:expr, write_log_line: $write_log_line:expr $(,)?) => {
        $crate::sandbox_backend_conformance!(
            fresh: $fresh, launch: $launch, exit: $exit, write_log_line: $write_log_line, keeps_logs: true
        );
    };
    (fresh: $fresh:expr, launch: $launch:expr, exit: $exit:expr, write_log_line: $write_log_line:expr, keeps_logs: $keeps_logs:expr $(,)?) => {
        $crate::sandbox_backend_conformance!(@each $fresh, $launch, [
            two_starts_yield_one_sandbox,
            a_dormant_sandbox_behaves_like_any_other,
            the_recipe_is_stable,
            stop_keeps_the_workspace_for_the_next_start,
            remove_leaves_nothing,
            an_unknown_sandbox_is_not_found,
            paths_stay_inside,
            requested_stops_are_not_reported,
            a_usable_backend_passes_its_check,
        ]);

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn sandboxes_are_separate() {
            let fresh = $fresh.await;
            let (one, two) = ($launch(), $launch());
            $crate::suites::sandboxes::backend::sandboxes_are_separate(&*fresh, &one, &two).await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn logs_are_read_and_followed() {
            let fresh = $fresh.await;
            let launch = $launch();
            let write_log_line = |id, line| $write_log_line(&fresh, id, line);
            $crate::suites::sandboxes::backend::logs_are_read_and_followed(&*fresh, &launch, write_log_line, $keeps_logs).await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn an_exit_is_watched() {
            let fresh = $fresh.await;
            let launch = $launch();
            let exit = |id| $exit(&fresh, id);
            $crate::suites::sandboxes::backend::an_exit_is_watched(&*fresh, &launch, exit).await;
        }
    };
    (@each $fresh:expr, $launch:expr, [$($test:ident),* $(,)?]) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $test() {
            let fresh = $fresh.await;
            $crate::suites::sandboxes::backend::$test(&*fresh, &$launch()).await;
        }
    )*};
}
