//! The life of a sandbox on a real engine.

use crate::support;

use std::collections::HashMap;
use std::io::Write as _;
use std::time::Duration;

use bollard::query_parameters::{
    EventsOptionsBuilder, KillContainerOptionsBuilder, RemoveVolumeOptions,
};
use domain::sandbox::{BackendState, SandboxBackend, SandboxError, SandboxLaunch};
use futures::StreamExt as _;
use sandbox_docker::{DockerSandboxes, PauseMode};
use support::{DockerFixture, SPEC, launch, name, script, spec, told};

#[tokio::test]
async fn every_exposed_port_leads_inside() {
    let lab = DockerFixture::new().await;
    let serve =
        "mkdir -p /www; for p in 8000 8001 8011 8012; do httpd -p $p -h /www; done; sleep 600";
    let backend = lab.backend_with(|config| config.specs = vec![script(SPEC, serve)]);
    let launch = launch(SPEC);
    let endpoints = backend.start(&launch).await.unwrap();
    let ports = endpoints.exposed_urls.iter();
    let ports: Vec<_> = ports.map(|it| (it.name.as_str(), it.port)).collect();
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
        support::until("the port answers", || support::answers(port)).await;
    }
    let (_, workers) = lab
        .exec(&launch.id, &["sh", "-c", "echo $WORKER_1 $WORKER_2"])
        .await;
    assert_eq!(workers.trim(), "8011 8012");
    let listed = backend.list().await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].state, BackendState::Running(endpoints));
}

#[tokio::test]
async fn a_workspace_outlives_its_container_and_goes_with_the_sandbox() {
    let lab = DockerFixture::new().await;
    let backend = lab.backend();
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
        lab.exec(&launch.id, &write).await,
        (0, "/workspace/project\n".to_owned())
    );
    let (code, _) = lab.exec(&other.id, &["cat", "note"]).await;
    assert_ne!(code, 0, "another sandbox has another workspace");

    backend.stop(&launch.id).await.unwrap();
    assert_eq!(
        lab.status(&launch.id).await,
        "exited",
        "processor and memory are free"
    );
    backend.start(&launch).await.unwrap();
    let read = ["cat", "note", "/in-the-container"];
    let (_, text) = lab.exec(&launch.id, &read).await;
    assert_eq!(text, "kept\nkept\n", "the same container again");

    backend.stop(&launch.id).await.unwrap();
    lab.remove_container(&launch.id).await;
    let state = backend.inspect(&launch.id).await.unwrap();
    assert_eq!(state, Some(BackendState::Remains));
    backend
        .stop(&launch.id)
        .await
        .expect("nothing to stop, and something to keep");
    backend.start(&launch).await.unwrap();
    let (_, text) = lab.exec(&launch.id, &["cat", "note"]).await;
    assert_eq!(text, "kept\n", "a new container around the same volume");

    backend.remove(&launch.id).await.unwrap();
    assert_eq!(lab.containers().await, [name(&other.id)]);
    assert_eq!(lab.volumes().await, [name(&other.id)]);
}

#[tokio::test]
async fn an_end_by_hand_is_told_with_its_cause() {
    let lab = DockerFixture::new().await;
    let serve = "echo the last words; sleep 600 & wait";
    let backend = lab.backend_with(|config| config.specs = vec![script(SPEC, serve)]);
    let launch = launch(SPEC);
    let mut facts = backend.watch();
    backend.start(&launch).await.unwrap();
    lab.kill(&launch.id).await;
    let detail = support::detail(Some(told(&mut facts, &launch.id).await));
    assert_eq!(
        detail,
        "the agent server was killed (signal 9: by hand, or because memory ran out). The end of its log:\nthe last words"
    );
    let seen = backend.inspect(&launch.id).await.unwrap();
    assert_eq!(support::detail(seen), detail);

    lab.remove_container(&launch.id).await;
    assert_eq!(told(&mut facts, &launch.id).await, BackendState::Remains);
    let none = None::<RemoveVolumeOptions>;
    lab.docker
        .remove_volume(&name(&launch.id), none)
        .await
        .unwrap();
    assert_eq!(backend.inspect(&launch.id).await.unwrap(), None);
    assert_eq!(backend.list().await.unwrap(), []);
}

#[tokio::test]
async fn a_removal_by_hand_of_a_running_sandbox_is_told() {
    let lab = DockerFixture::new().await;
    let backend = lab.backend();
    let launch = launch(SPEC);
    let mut facts = backend.watch();
    backend.start(&launch).await.unwrap();
    lab.remove_container(&launch.id).await;
    // The engine kills it first, which may be seen or not.
    while told(&mut facts, &launch.id).await != BackendState::Remains {}
    let listed = backend.list().await.unwrap();
    assert_eq!(listed[0].state, BackendState::Remains);
    backend.remove(&launch.id).await.unwrap();
    assert_eq!(lab.volumes().await, [] as [String; 0]);
}

#[tokio::test]
async fn an_unrequested_orderly_exit_is_no_pause() {
    let lab = DockerFixture::new().await;
    let backend = lab.backend();
    let launch = launch(SPEC);
    let mut facts = backend.watch();
    backend.start(&launch).await.unwrap();
    let term = KillContainerOptionsBuilder::new().signal("TERM").build();
    lab.docker
        .kill_container(&name(&launch.id), Some(term))
        .await
        .unwrap();
    let detail = support::detail(Some(told(&mut facts, &launch.id).await));
    assert!(detail.contains("was ended by signal 15"), "{detail}");
    let listed = backend.list().await.unwrap();
    assert!(
        matches!(listed[0].state, BackendState::Exited { .. }),
        "{listed:?}"
    );
}

#[tokio::test]
async fn running_out_of_memory_is_a_cause() {
    let lab = DockerFixture::new().await;
    // `tail` keeps what it reads until the end, which never comes.
    let hungry = "while ! test -e /workspace/go; do sleep 0.05; done; exec tail /dev/zero";
    let backend = lab.backend_with(|config| {
        let mut spec = script(SPEC, hungry);
        spec.resources.memory = Some(16 << 20);
        config.specs = vec![spec];
    });
    let launch = launch(SPEC);
    let mut facts = backend.watch();
    backend.start(&launch).await.unwrap();
    lab.exec(&launch.id, &["touch", "/workspace/go"]).await;
    let detail = support::detail(Some(told(&mut facts, &launch.id).await));
    // Engines on cgroup v1 sometimes miss that it was memory when the container ends with it.
    let said = detail
        .starts_with("the agent server was ended because it ran out of memory (limit 16 MiB)");
    assert!(
        said || detail.contains("or because memory ran out"),
        "{detail}"
    );
}

/// Lets the script go on; whether the engine tells that memory ran out.
async fn runs_out_of_memory(lab: &DockerFixture, launch: &SandboxLaunch) -> bool {
    let name = name(&launch.id);
    let filters = HashMap::from([("event", vec!["oom"]), ("container", vec![name.as_str()])]);
    let options = EventsOptionsBuilder::new().filters(&filters).build();
    let mut events = Box::pin(lab.docker.events(Some(options)));
    let told = tokio::time::timeout(Duration::from_secs(10), events.next());
    let go = async {
        // The engine has to listen first.
        tokio::time::sleep(Duration::from_millis(500)).await;
        lab.exec(&launch.id, &["touch", "/workspace/go"]).await;
    };
    let (told, ()) = tokio::join!(told, go);
    matches!(told, Ok(Some(Ok(_))))
}

#[tokio::test]
async fn what_goes_wrong_in_a_sandbox_that_runs_on_is_advice() {
    let lab = DockerFixture::new().await;
    // More than once, and not while it is being started: an engine may miss one.
    let hungry = "while ! test -e /workspace/go; do sleep 0.05; done; \
                  for i in 1 2 3 4 5; do tail /dev/zero; sleep 0.3; done; httpd -f -p 8000";
    let backend = lab.backend_with(|config| {
        let mut spec = script(SPEC, hungry);
        spec.resources.memory = Some(16 << 20);
        config.specs = vec![spec];
    });
    let launch = launch(SPEC);
    backend.start(&launch).await.unwrap();
    let is_told = runs_out_of_memory(&lab, &launch).await;
    let moved = "http://host.docker.internal:2/api/v1/webhooks"
        .parse()
        .unwrap();
    let has = async |text: &str| {
        let advice = backend.list_warnings(&launch.id, &moved).await;
        advice.iter().any(|line| line.contains(text))
    };
    if is_told {
        support::until("memory is named", || has("memory ran out")).await;
    } else {
        // Seen with engines on cgroup v1: what they do not tell cannot be advice. The units test the rest of the way.
        let _ = writeln!(
            std::io::stderr(),
            "this engine does not tell when memory runs out in a container that lives on"
        );
    }
    assert!(has("was created to report to http://host.docker.internal:1/").await);
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
async fn a_frozen_sandbox_goes_on_where_it_was() {
    let lab = DockerFixture::new().await;
    let backend = lab.backend_with(|config| config.specs[0].pause = PauseMode::Freeze);
    let launch = launch(SPEC);
    let before = backend.start(&launch).await.unwrap();
    lab.exec(&launch.id, &["touch", "/tmp/alive"]).await;
    let pid = lab.container(&launch.id).await.state.unwrap().pid;
    backend.stop(&launch.id).await.unwrap();
    backend.stop(&launch.id).await.unwrap();
    assert_eq!(lab.status(&launch.id).await, "paused");
    let state = backend.inspect(&launch.id).await.unwrap();
    assert_eq!(state, Some(BackendState::Stopped));
    assert_eq!(backend.start(&launch).await.unwrap(), before);
    assert_eq!(lab.container(&launch.id).await.state.unwrap().pid, pid);
    backend.stop(&launch.id).await.unwrap();
    backend.remove(&launch.id).await.unwrap();
    assert_eq!(lab.containers().await, [] as [String; 0]);
}

#[tokio::test]
async fn what_cannot_be_started_says_why_and_leaves_no_broken_container() {
    let lab = DockerFixture::new().await;
    let backend = lab.backend_with(|config| {
        let mut user = spec("missing-user");
        user.user = Some("nobody-here".to_owned());
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
        assert_eq!(lab.containers().await, [] as [String; 0]);
        error.to_string()
    };
    let text = failure("missing-user").await;
    assert!(text.contains("unable to find user nobody-here"), "{text}");
    let text = failure("missing-image").await;
    assert!(text.contains("image is not on the engine"), "{text}");
    let text = failure("unknown-template").await;
    assert!(
        text.contains("no sandbox template unknown-template"),
        "{text}"
    );
}

/// An agent server that ends at once may or may not be seen by `start` itself.
async fn end_of(backend: &DockerSandboxes, launch: &SandboxLaunch) -> String {
    let mut facts = backend.watch();
    match backend.start(launch).await {
        Err(error) => error.to_string(),
        Ok(_) => support::detail(Some(told(&mut facts, &launch.id).await)),
    }
}

#[tokio::test]
async fn what_ends_at_once_says_why_and_can_be_mended() {
    let lab = DockerFixture::new().await;
    let mut wrong = spec(SPEC);
    wrong.entrypoint = Some(vec!["/no/such/program".to_owned()]);
    let short = script("short", "echo goodbye; exit 3");
    let backend = lab.backend_with(|config| config.specs = vec![wrong, short]);
    let told = end_of(&backend, &launch("short")).await;
    let expected = "the agent server ended with exit code 3. The end of its log:\ngoodbye";
    assert!(told.ends_with(expected), "{told}");

    let launch = launch(SPEC);
    let told = end_of(&backend, &launch).await;
    assert!(told.contains("/no/such/program"), "{told}");
    drop(backend);
    let mended = lab.backend();
    mended
        .start(&launch)
        .await
        .expect("with the template as it is now");
}

#[tokio::test]
async fn a_removed_network_is_recreated() {
    let lab = DockerFixture::new().await;
    let backend = lab.backend();
    let launch = launch(SPEC);
    backend.start(&launch).await.unwrap();
    lab.exec(&launch.id, &["touch", "/in-the-container"]).await;
    backend.stop(&launch.id).await.unwrap();
    for network in lab.networks().await {
        lab.docker.remove_network(&network).await.unwrap();
    }
    let endpoints = backend.start(&launch).await.unwrap();
    let port = endpoints.agent_url.port().unwrap();
    support::until("the port answers", || support::answers(port)).await;
    let (code, _) = lab
        .exec(&launch.id, &["test", "-e", "/in-the-container"])
        .await;
    assert_eq!(code, 0, "it is still the same container");
    backend.remove(&launch.id).await.unwrap();
    for network in lab.networks().await {
        lab.docker.remove_network(&network).await.unwrap();
    }
    backend
        .start(&launch)
        .await
        .expect("a new one is put into a new network");
}

#[tokio::test]
async fn the_ports_of_a_start_are_those_of_that_start() {
    let lab = DockerFixture::new().await;
    let backend = lab.backend();
    let launch = launch(SPEC);
    for _ in 0..3 {
        let endpoints = backend.start(&launch).await.unwrap();
        let port = endpoints.agent_url.port().unwrap();
        support::until("the port answers", || support::answers(port)).await;
        let seen = backend.inspect(&launch.id).await.unwrap();
        assert_eq!(seen, Some(BackendState::Running(endpoints)));
        backend.stop(&launch.id).await.unwrap();
    }
}

#[tokio::test]
async fn many_operations_on_one_sandbox_at_once_end_in_a_state_that_is_one() {
    let lab = DockerFixture::new().await;
    let backend = lab.backend();
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
    assert_eq!(lab.containers().await, [] as [String; 0]);
    assert_eq!(lab.volumes().await, [] as [String; 0]);
}
