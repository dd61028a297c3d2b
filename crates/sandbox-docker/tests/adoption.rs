//! Services that are killed or replaced, and several services on one engine.
#![expect(clippy::unwrap_used, reason = "a failed helper fails its test")]

use crate::support;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::Duration;

use bollard::models::{ContainerCreateBody, VolumeCreateRequest};
use bollard::query_parameters::CreateContainerOptionsBuilder;
use domain::sandbox::{
    BackendFact, BackendState, SandboxBackend, SandboxEndpoints, SandboxError, SandboxLaunch,
    SandboxLifecycle,
};
use endpoint_guard::{EndpointGuard, GuardError};
use futures::StreamExt as _;
use support::{DockerFixture, IMAGE, SPEC, container_name, launch, next_state};

/// Leaves a sandbox in a state that a killed service could have left.
async fn leave_sandbox(fixture: &DockerFixture, state: &str) -> SandboxLaunch {
    let launch = launch(SPEC);
    let before = fixture.backend();
    before.start(&launch).await.unwrap();
    match state {
        "running" => {}
        "stopped" => before.stop(&launch.id).await.unwrap(),
        "crashed" => fixture.kill(&launch.id).await,
        "frozen" => fixture
            .docker
            .pause_container(&container_name(&launch.id))
            .await
            .unwrap(),
        "volume" => fixture.remove_container(&launch.id).await,
        "created" => created_only(fixture, &launch).await,
        other => panic!("no such state: {other}"),
    }
    launch
}

/// Replaces the container of a running sandbox by one that was created and never started.
async fn created_only(fixture: &DockerFixture, launch: &SandboxLaunch) {
    let inspected = fixture.container(&launch.id).await;
    fixture.remove_container(&launch.id).await;
    let config = inspected.config.unwrap();
    let body = ContainerCreateBody {
        image: config.image,
        env: config.env,
        labels: config.labels,
        exposed_ports: config.exposed_ports,
        host_config: inspected.host_config,
        ..ContainerCreateBody::default()
    };
    let options = CreateContainerOptionsBuilder::new()
        .name(&container_name(&launch.id))
        .build();
    fixture
        .docker
        .create_container(Some(options), body)
        .await
        .unwrap();
}

/// The next service sees the state, starts the sandbox from it, stops it, and removes it.
async fn check_adoption(state: &str, expected: fn(&BackendState) -> bool) {
    let fixture = DockerFixture::new().await;
    let launch = leave_sandbox(&fixture, state).await;
    let next = fixture.backend();
    let seen = next.inspect(&launch.id).await.unwrap().unwrap();
    assert!(expected(&seen), "{seen:?}");
    let listed = next.list().await.unwrap();
    assert_eq!(
        listed,
        [BackendFact {
            id: launch.id.clone(),
            state: seen.clone()
        }]
    );
    let endpoints = next.start(&launch).await.unwrap();
    if let BackendState::Running(before) = seen {
        assert_eq!(endpoints, before);
    }
    let port = endpoints.agent_url.port().unwrap();
    support::wait_until("the port answers", || support::serves_http(port)).await;
    assert_eq!(fixture.containers().await.len(), 1);
    drop(next);

    // The last service adopts it without a start.
    let last = fixture.backend();
    last.stop(&launch.id).await.unwrap();
    last.remove(&launch.id).await.unwrap();
    assert_eq!(last.list().await.unwrap(), []);
    assert_eq!(fixture.volumes().await, [] as [String; 0]);
}

#[tokio::test]
async fn a_running_sandbox_is_adopted() {
    check_adoption("running", |state| matches!(state, BackendState::Running(_))).await;
}

#[tokio::test]
async fn a_stopped_sandbox_is_adopted() {
    check_adoption("stopped", |state| *state == BackendState::Stopped).await;
}

#[tokio::test]
async fn a_frozen_sandbox_is_adopted() {
    check_adoption("frozen", |state| *state == BackendState::Stopped).await;
}

#[tokio::test]
async fn a_sandbox_that_never_started_is_adopted() {
    check_adoption("created", |state| *state == BackendState::Stopped).await;
}

#[tokio::test]
async fn a_crashed_sandbox_is_adopted() {
    check_adoption("crashed", |state| {
        matches!(state, BackendState::Exited { .. })
    })
    .await;
}

#[tokio::test]
async fn a_sandbox_without_container_is_adopted() {
    check_adoption("volume", |state| *state == BackendState::Remains).await;
}

#[tokio::test]
async fn a_sandbox_in_any_state_can_be_removed() {
    let fixture = DockerFixture::new().await;
    for state in [
        "running", "stopped", "frozen", "created", "crashed", "volume",
    ] {
        let launch = leave_sandbox(&fixture, state).await;
        let next = fixture.backend();
        next.remove(&launch.id).await.unwrap();
        assert_eq!(fixture.containers().await, [] as [String; 0], "{state}");
        assert_eq!(fixture.volumes().await, [] as [String; 0], "{state}");
    }
}

#[tokio::test]
async fn an_adopted_sandbox_is_watched() {
    let fixture = DockerFixture::new().await;
    let launch = leave_sandbox(&fixture, "running").await;
    let next = fixture.backend();
    let mut facts = next.watch();
    support::wait_until_connected(&next).await;
    fixture.kill(&launch.id).await;
    let detail = support::exit_detail(Some(next_state(&mut facts, &launch.id).await));
    assert!(
        detail.starts_with("the agent server was killed"),
        "{detail}"
    );
}

#[tokio::test]
async fn a_cancelled_start_leaves_only_removable_resources() {
    let fixture = DockerFixture::new().await;
    let backend = fixture.backend();
    // Cancel at different moments of a start.
    for millis in [0, 2, 5, 10, 20, 40, 80, 160] {
        let launch = launch(SPEC);
        let start = tokio::time::timeout(Duration::from_millis(millis), backend.start(&launch));
        let _ = start.await;
        backend.remove(&launch.id).await.unwrap();
        assert_eq!(
            fixture.containers().await,
            [] as [String; 0],
            "after {millis} ms"
        );
        assert_eq!(
            fixture.volumes().await,
            [] as [String; 0],
            "after {millis} ms"
        );
    }
}

#[tokio::test]
async fn concurrent_services_create_one_container() {
    let fixture = DockerFixture::new().await;
    let (one, two) = (fixture.backend(), fixture.backend());
    for _ in 0..3 {
        let launch = launch(SPEC);
        let (first, second) = futures::join!(one.start(&launch), two.start(&launch));
        assert_eq!(first.unwrap(), second.unwrap());
        assert_eq!(fixture.containers().await.len(), 1);
        let (first, second) = futures::join!(one.remove(&launch.id), two.remove(&launch.id));
        first.unwrap();
        second.unwrap();
        assert_eq!(fixture.containers().await, [] as [String; 0]);
        assert_eq!(fixture.volumes().await, [] as [String; 0]);
    }
}

#[tokio::test]
async fn installations_on_one_engine_do_not_touch_each_others_sandboxes() {
    let (ours, theirs) = (DockerFixture::new().await, DockerFixture::new().await);
    let (here, there) = (ours.backend(), theirs.backend());
    let launch = launch(SPEC);
    let mut facts = here.watch();
    there.start(&launch).await.unwrap();
    assert_eq!(here.list().await.unwrap(), []);
    assert_eq!(here.inspect(&launch.id).await.unwrap(), None);
    let stopped = here.stop(&launch.id).await;
    assert!(
        matches!(stopped, Err(SandboxError::NotFound)),
        "{stopped:?}"
    );
    here.remove(&launch.id)
        .await
        .expect("removing a sandbox of another installation does nothing");
    let refused = here.start(&launch).await.unwrap_err().to_string();
    assert!(
        refused.contains("does not belong to this installation"),
        "{refused}"
    );
    assert_eq!(theirs.status(&launch.id).await, "running");
    theirs.kill(&launch.id).await;
    support::wait_until("the foreign container has exited", || async {
        theirs.status(&launch.id).await == "exited"
    })
    .await;
    support::wait_until_connected(&here).await;
    // A later exit of an own sandbox is the first fact, so the foreign one was not reported.
    let own = support::launch(SPEC);
    here.start(&own).await.unwrap();
    ours.kill(&own.id).await;
    let fact = tokio::time::timeout(support::WAIT_TIMEOUT, facts.next()).await;
    let fact = fact.expect("a fact about the own sandbox").unwrap();
    assert_eq!(fact.id, own.id);
}

#[tokio::test]
async fn foreign_resources_of_the_same_name_are_not_touched() {
    let fixture = DockerFixture::new().await;
    let backend = fixture.backend();
    let launch = launch(SPEC);
    let volume = VolumeCreateRequest {
        name: Some(container_name(&launch.id)),
        ..VolumeCreateRequest::default()
    };
    fixture.docker.create_volume(volume).await.unwrap();
    let refused = backend.start(&launch).await.unwrap_err().to_string();
    assert!(refused.contains("a volume named"), "{refused}");
    backend.remove(&launch.id).await.unwrap();
    assert_eq!(backend.inspect(&launch.id).await.unwrap(), None);
    let options = None::<bollard::query_parameters::RemoveVolumeOptions>;
    fixture
        .docker
        .remove_volume(&container_name(&launch.id), options)
        .await
        .expect("the foreign volume still exists");

    // A container of an image that was committed from a sandbox carries the sandbox's labels.
    let body = ContainerCreateBody {
        image: Some(IMAGE.to_owned()),
        labels: Some(
            [
                ("agent-workspace.instance", fixture.instance.as_str()),
                ("agent-workspace.sandbox", launch.id.as_str()),
            ]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        ),
        ..ContainerCreateBody::default()
    };
    let copy = support::unique_name("agent-workspace-test-copy-");
    let options = CreateContainerOptionsBuilder::new().name(&copy).build();
    fixture
        .docker
        .create_container(Some(options), body)
        .await
        .unwrap();
    assert_eq!(backend.list().await.unwrap(), []);
    backend.remove(&launch.id).await.unwrap();
    assert_eq!(fixture.containers().await, [copy]);
}

#[tokio::test]
async fn an_existing_container_needs_no_template() {
    let fixture = DockerFixture::new().await;
    for state in ["running", "stopped", "crashed"] {
        let launch = leave_sandbox(&fixture, state).await;
        let upgraded = fixture.backend_with(|config| {
            config.specs[0].id = domain::id::SpecId::parse("newer").unwrap();
        });
        let silent = domain::sandbox::PrepareProgress::silent();
        upgraded.prepare(&launch.spec, &silent).await.unwrap();
        upgraded.start(&launch).await.unwrap();
        upgraded.remove(&launch.id).await.unwrap();
        // Without a container, the missing template is an error.
        let refused = upgraded.start(&launch).await;
        assert!(
            matches!(refused, Err(SandboxError::StartFailed { .. })),
            "{refused:?}"
        );
    }
}

#[tokio::test]
async fn a_port_is_proven_only_for_its_own_sandbox() {
    let fixture = DockerFixture::new().await;
    let backend = fixture.backend();
    let (launch, other) = (launch(SPEC), launch(SPEC));
    let endpoints = backend.start(&launch).await.unwrap();
    let elsewhere = backend.start(&other).await.unwrap();
    let address = |endpoints: &SandboxEndpoints| {
        let port = endpoints.agent_url.port().unwrap();
        SocketAddr::from((Ipv4Addr::LOCALHOST, port))
    };
    let (at, at_other) = (address(&endpoints), address(&elsewhere));
    // Also with a backend that has not cached the ports.
    for backend in [&backend, &fixture.backend()] {
        let sandbox = launch.id.as_str();
        assert!(backend.prove(sandbox, at).await.is_ok());
        let refused = backend.prove(sandbox, at_other).await;
        assert!(
            matches!(refused, Err(GuardError::HeldByAnother(_))),
            "{refused:?}"
        );
    }
    fixture.kill(&launch.id).await;
    support::wait_until("the port is free", || async {
        TcpListener::bind(at).is_ok()
    })
    .await;
    let _other_listener = TcpListener::bind(at).unwrap();
    support::wait_until("the port is refused", || async {
        let refused = backend.prove(launch.id.as_str(), at).await;
        matches!(refused, Err(GuardError::HeldByAnother(_)))
    })
    .await;
}
