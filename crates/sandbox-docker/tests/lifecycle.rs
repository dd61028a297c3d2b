//! Starts, stops, exits and removals of sandboxes on a real engine.

use crate::support;

use std::collections::HashMap;
use std::io::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bollard::query_parameters::{
    EventsOptionsBuilder, KillContainerOptionsBuilder, RemoveVolumeOptions,
};
use domain::sandbox::{BackendState, SandboxError, SandboxLaunch, SandboxLifecycle, SandboxReader};
use futures::StreamExt as _;
use sandbox_docker::{DockerSandboxes, PauseMode};
use support::{DockerFixture, SPEC, container_name, launch, next_state, script, spec};

#[tokio::test]
async fn every_exposed_port_is_reachable() {
    let fixture = DockerFixture::new().await;
    let serve =
        "mkdir -p /www; for p in 8000 8001 8011 8012; do httpd -p $p -h /www; done; sleep 600";
    let backend = fixture.backend_with(|config| config.specs = vec![script(SPEC, serve)]);
    let launch = launch(SPEC);
    let endpoints = backend.start(&launch).await.unwrap();
    let ports = endpoints.exposed_urls.iter();
    let ports: Vec<_> = ports
        .map(|exposed| (exposed.name.as_str(), exposed.port))
        .collect();
    let expected = [
        ("AGENT_SERVER", 8000),
        ("VSCODE", 8001),
        ("WORKER_1", 8011),
        ("WORKER_2", 8012),
    ];
    assert_eq!(ports, expected);
    assert_eq!(endpoints.agent_url, endpoints.exposed_urls[0].url);
    assert_eq!(endpoints.workspace, "/workspace/project");
    for exposed in &endpoints.exposed_urls {
        let port = exposed.url.port().unwrap();
        support::wait_until("the port answers", || support::serves_http(port)).await;
    }
    let (_, workers) = fixture
        .exec(&launch.id, &["sh", "-c", "echo $WORKER_1 $WORKER_2"])
        .await;
    assert_eq!(workers.trim(), "8011 8012");
    let listed = backend.list().await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].state, BackendState::Running(endpoints));
}

#[tokio::test]
async fn a_workspace_outlives_its_container_and_is_removed_with_the_sandbox() {
    let fixture = DockerFixture::new().await;
    let backend = fixture.backend();
    let (launch, other) = (launch(SPEC), launch(SPEC));
    let (one, two) = futures::join!(backend.start(&launch), backend.start(&other));
    one.unwrap();
    two.unwrap();
    let write = [
        "sh",
        "-c",
        "pwd; echo kept > note; echo kept > /in-the-container",
    ];
    assert_eq!(
        fixture.exec(&launch.id, &write).await,
        (0, "/workspace/project\n".to_owned())
    );
    let (code, _) = fixture.exec(&other.id, &["cat", "note"]).await;
    assert_ne!(code, 0, "another sandbox has another workspace");

    backend.stop(&launch.id).await.unwrap();
    assert_eq!(
        fixture.status(&launch.id).await,
        "exited",
        "the container is stopped"
    );
    backend.start(&launch).await.unwrap();
    let read = ["cat", "note", "/in-the-container"];
    let (_, text) = fixture.exec(&launch.id, &read).await;
    assert_eq!(text, "kept\nkept\n", "the same container again");

    backend.stop(&launch.id).await.unwrap();
    fixture.remove_container(&launch.id).await;
    let state = backend.inspect(&launch.id).await.unwrap();
    assert_eq!(state, Some(BackendState::Remains));
    backend
        .stop(&launch.id)
        .await
        .expect("a sandbox without container counts as stopped");
    backend.start(&launch).await.unwrap();
    let (_, text) = fixture.exec(&launch.id, &["cat", "note"]).await;
    assert_eq!(text, "kept\n", "a new container around the same volume");

    backend.remove(&launch.id).await.unwrap();
    assert_eq!(fixture.containers().await, [container_name(&other.id)]);
    assert_eq!(fixture.volumes().await, [container_name(&other.id)]);
}

#[tokio::test]
async fn a_killed_container_is_reported_with_its_cause() {
    let fixture = DockerFixture::new().await;
    let serve = "echo the last words; sleep 600 & wait";
    let backend = fixture.backend_with(|config| config.specs = vec![script(SPEC, serve)]);
    let launch = launch(SPEC);
    let mut facts = backend.watch();
    backend.start(&launch).await.unwrap();
    fixture.kill(&launch.id).await;
    let detail = support::exit_detail(Some(next_state(&mut facts, &launch.id).await));
    assert_eq!(
        detail,
        "the agent server was killed (signal 9: by hand, or because memory ran out). The end of its log:\nthe last words"
    );
    let seen = backend.inspect(&launch.id).await.unwrap();
    assert_eq!(support::exit_detail(seen), detail);

    fixture.remove_container(&launch.id).await;
    assert_eq!(
        next_state(&mut facts, &launch.id).await,
        BackendState::Remains
    );
    let none = None::<RemoveVolumeOptions>;
    fixture
        .docker
        .remove_volume(&container_name(&launch.id), none)
        .await
        .unwrap();
    assert_eq!(backend.inspect(&launch.id).await.unwrap(), None);
    assert_eq!(backend.list().await.unwrap(), []);
}

#[tokio::test]
async fn a_removed_container_is_reported() {
    let fixture = DockerFixture::new().await;
    let backend = fixture.backend();
    let launch = launch(SPEC);
    let mut facts = backend.watch();
    backend.start(&launch).await.unwrap();
    fixture.remove_container(&launch.id).await;
    // The engine kills the container first, which may be reported separately.
    while next_state(&mut facts, &launch.id).await != BackendState::Remains {}
    let listed = backend.list().await.unwrap();
    assert_eq!(listed[0].state, BackendState::Remains);
    backend.remove(&launch.id).await.unwrap();
    assert_eq!(fixture.volumes().await, [] as [String; 0]);
}

#[tokio::test]
async fn an_unrequested_orderly_exit_is_not_reported_as_a_pause() {
    let fixture = DockerFixture::new().await;
    let backend = fixture.backend();
    let launch = launch(SPEC);
    let mut facts = backend.watch();
    backend.start(&launch).await.unwrap();
    let term = KillContainerOptionsBuilder::new().signal("TERM").build();
    fixture
        .docker
        .kill_container(&container_name(&launch.id), Some(term))
        .await
        .unwrap();
    let detail = support::exit_detail(Some(next_state(&mut facts, &launch.id).await));
    assert!(detail.contains("was ended by signal 15"), "{detail}");
    let listed = backend.list().await.unwrap();
    assert!(
        matches!(listed[0].state, BackendState::Exited { .. }),
        "{listed:?}"
    );
}

#[tokio::test]
async fn lack_of_memory_is_reported_as_the_cause() {
    let fixture = DockerFixture::new().await;
    // `tail` keeps all input in memory, and /dev/zero never ends.
    let hungry = "while ! test -e /workspace/go; do sleep 0.05; done; exec tail /dev/zero";
    let backend = fixture.backend_with(|config| {
        let mut spec = script(SPEC, hungry);
        spec.resources.memory = Some(16 << 20);
        config.specs = vec![spec];
    });
    let launch = launch(SPEC);
    let mut facts = backend.watch();
    backend.start(&launch).await.unwrap();
    fixture.exec(&launch.id, &["touch", "/workspace/go"]).await;
    let detail = support::exit_detail(Some(next_state(&mut facts, &launch.id).await));
    // Engines on cgroup v1 sometimes do not report lack of memory when the container ends with it.
    let is_reported = detail
        .starts_with("the agent server was ended because it ran out of memory (limit 16 MiB)");
    assert!(
        is_reported || detail.contains("or because memory ran out"),
        "{detail}"
    );
}

/// Lets the script use memory. Returns whether the engine reports that memory ran out.
async fn is_out_of_memory_reported(fixture: &DockerFixture, launch: &SandboxLaunch) -> bool {
    let name = container_name(&launch.id);
    let filters = HashMap::from([("event", vec!["oom"]), ("container", vec![name.as_str()])]);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    // The engine replays events since this second, so none is missed.
    let options = EventsOptionsBuilder::new()
        .since(&now.as_secs().to_string())
        .filters(&filters)
        .build();
    let mut events = Box::pin(fixture.docker.events(Some(options)));
    fixture.exec(&launch.id, &["touch", "/workspace/go"]).await;
    let event = tokio::time::timeout(Duration::from_secs(10), events.next());
    matches!(event.await, Ok(Some(Ok(_))))
}

#[tokio::test]
async fn problems_of_a_running_sandbox_are_warnings() {
    let fixture = DockerFixture::new().await;
    // Several times, because an engine may miss one.
    let hungry = "while ! test -e /workspace/go; do sleep 0.05; done; \
                  for i in 1 2 3 4 5; do tail /dev/zero; sleep 0.3; done; httpd -f -p 8000";
    let backend = fixture.backend_with(|config| {
        let mut spec = script(SPEC, hungry);
        spec.resources.memory = Some(16 << 20);
        config.specs = vec![spec];
    });
    let launch = launch(SPEC);
    backend.start(&launch).await.unwrap();
    let is_reported = is_out_of_memory_reported(&fixture, &launch).await;
    let moved = "http://host.docker.internal:2/api/v1/webhooks"
        .parse()
        .unwrap();
    let has_warning = async |text: &str| {
        let warnings = backend.list_warnings(&launch.id, &moved).await;
        warnings.iter().any(|line| line.contains(text))
    };
    if is_reported {
        support::wait_until("memory is named", || has_warning("memory ran out")).await;
    } else {
        // Engines on cgroup v1 may report nothing, so there is no warning. Unit tests cover the warning itself.
        let _ = writeln!(
            std::io::stderr(),
            "this engine does not report lack of memory in a container that keeps running"
        );
    }
    assert!(has_warning("was created to report to http://host.docker.internal:1/").await);
    let state = backend.inspect(&launch.id).await.unwrap();
    assert!(matches!(state, Some(BackendState::Running(_))), "{state:?}");
    backend.stop(&launch.id).await.unwrap();
    backend.remove(&launch.id).await.unwrap();
    assert_eq!(
        backend.list_warnings(&launch.id, &moved).await,
        [] as [String; 0]
    );
}

#[tokio::test]
async fn a_frozen_sandbox_continues_its_processes() {
    let fixture = DockerFixture::new().await;
    let backend = fixture.backend_with(|config| config.specs[0].pause = PauseMode::Freeze);
    let launch = launch(SPEC);
    let before = backend.start(&launch).await.unwrap();
    fixture.exec(&launch.id, &["touch", "/tmp/alive"]).await;
    let pid = fixture.container(&launch.id).await.state.unwrap().pid;
    backend.stop(&launch.id).await.unwrap();
    backend.stop(&launch.id).await.unwrap();
    assert_eq!(fixture.status(&launch.id).await, "paused");
    let state = backend.inspect(&launch.id).await.unwrap();
    assert_eq!(state, Some(BackendState::Stopped));
    assert_eq!(backend.start(&launch).await.unwrap(), before);
    assert_eq!(fixture.container(&launch.id).await.state.unwrap().pid, pid);
    backend.stop(&launch.id).await.unwrap();
    backend.remove(&launch.id).await.unwrap();
    assert_eq!(fixture.containers().await, [] as [String; 0]);
}

#[tokio::test]
async fn a_failed_start_names_the_cause_and_leaves_no_container() {
    let fixture = DockerFixture::new().await;
    let backend = fixture.backend_with(|config| {
        let mut user = spec("missing-user");
        user.user = Some("missing-user-name".to_owned());
        let mut image = spec("missing-image");
        image.image = "agent-workspace-test/no-such-image:1".to_owned();
        config.specs = vec![user, image];
    });
    let failure = async |spec: &str| {
        let error = backend.start(&launch(spec)).await.unwrap_err();
        assert!(
            matches!(error, SandboxError::StartFailed { .. }),
            "{error:?}"
        );
        assert_eq!(fixture.containers().await, [] as [String; 0]);
        error.to_string()
    };
    let text = failure("missing-user").await;
    assert!(
        text.contains("unable to find user missing-user-name"),
        "{text}"
    );
    let text = failure("missing-image").await;
    assert!(text.contains("no longer has the sandbox's image"), "{text}");
    let text = failure("unknown-template").await;
    assert!(
        text.contains("its template unknown-template is not configured"),
        "{text}"
    );
}

/// The cause of an immediate exit, which `start` may or may not see itself.
async fn exit_cause(backend: &DockerSandboxes, launch: &SandboxLaunch) -> String {
    let mut facts = backend.watch();
    match backend.start(launch).await {
        Err(error) => error.to_string(),
        Ok(_) => support::exit_detail(Some(next_state(&mut facts, &launch.id).await)),
    }
}

#[tokio::test]
async fn an_immediate_exit_is_explained_and_a_corrected_template_starts() {
    let fixture = DockerFixture::new().await;
    let mut invalid = spec(SPEC);
    invalid.entrypoint = Some(vec!["/no/such/program".to_owned()]);
    let short = script("short", "echo goodbye; exit 3");
    let backend = fixture.backend_with(|config| config.specs = vec![invalid, short]);
    let cause = exit_cause(&backend, &launch("short")).await;
    let expected = "the agent server ended with exit code 3. The end of its log:\ngoodbye";
    assert!(cause.ends_with(expected), "{cause}");

    let launch = launch(SPEC);
    let cause = exit_cause(&backend, &launch).await;
    assert!(cause.contains("/no/such/program"), "{cause}");
    drop(backend);
    let corrected = fixture.backend();
    corrected
        .start(&launch)
        .await
        .expect("the corrected template starts");
}

#[tokio::test]
async fn a_removed_network_is_recreated() {
    let fixture = DockerFixture::new().await;
    let backend = fixture.backend();
    let launch = launch(SPEC);
    backend.start(&launch).await.unwrap();
    fixture
        .exec(&launch.id, &["touch", "/in-the-container"])
        .await;
    backend.stop(&launch.id).await.unwrap();
    for network in fixture.networks().await {
        fixture.docker.remove_network(&network).await.unwrap();
    }
    let endpoints = backend.start(&launch).await.unwrap();
    let port = endpoints.agent_url.port().unwrap();
    support::wait_until("the port answers", || support::serves_http(port)).await;
    let (code, _) = fixture
        .exec(&launch.id, &["test", "-e", "/in-the-container"])
        .await;
    assert_eq!(code, 0, "the container is the same");
    backend.remove(&launch.id).await.unwrap();
    for network in fixture.networks().await {
        fixture.docker.remove_network(&network).await.unwrap();
    }
    backend
        .start(&launch)
        .await
        .expect("a new container joins a new network");
}

#[tokio::test]
async fn every_start_reports_its_own_ports() {
    let fixture = DockerFixture::new().await;
    let backend = fixture.backend();
    let launch = launch(SPEC);
    for _ in 0..3 {
        let endpoints = backend.start(&launch).await.unwrap();
        let port = endpoints.agent_url.port().unwrap();
        support::wait_until("the port answers", || support::serves_http(port)).await;
        let seen = backend.inspect(&launch.id).await.unwrap();
        assert_eq!(seen, Some(BackendState::Running(endpoints)));
        backend.stop(&launch.id).await.unwrap();
    }
}

#[tokio::test]
async fn concurrent_operations_on_a_sandbox_are_serialized() {
    let fixture = DockerFixture::new().await;
    let backend = fixture.backend();
    let launch = launch(SPEC);
    for _ in 0..3 {
        let (one, two, three, four) = futures::join!(
            backend.start(&launch),
            backend.stop(&launch.id),
            backend.start(&launch),
            backend.remove(&launch.id),
        );
        one.unwrap();
        three.unwrap();
        four.unwrap();
        assert!(
            matches!(two, Ok(()) | Err(SandboxError::NotFound)),
            "{two:?}"
        );
    }
    backend.remove(&launch.id).await.unwrap();
    assert_eq!(backend.list().await.unwrap(), []);
    assert_eq!(fixture.containers().await, [] as [String; 0]);
    assert_eq!(fixture.volumes().await, [] as [String; 0]);
}
