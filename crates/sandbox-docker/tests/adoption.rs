//! A service that is killed, replaced, or not alone on its engine.
#![expect(
    clippy::unwrap_used,
    reason = "a helper that fails is a test that fails"
)]

use crate::support;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::Duration;

use bollard::models::{ContainerCreateBody, VolumeCreateRequest};
use bollard::query_parameters::CreateContainerOptionsBuilder;
use domain::sandbox::{
    BackendFact, BackendState, SandboxBackend, SandboxEndpoints, SandboxError, SandboxLaunch,
};
use endpoint_guard::{EndpointGuard, GuardError};
use support::{DockerFixture, IMAGE, SPEC, launch, name, told};

/// Leaves a sandbox in a state that a service which was killed could have left.
async fn left(lab: &DockerFixture, state: &str) -> SandboxLaunch {
    let launch = launch(SPEC);
    let before = lab.backend();
    before.start(&launch).await.unwrap();
    match state {
        "running" => {}
        "stopped" => before.stop(&launch.id).await.unwrap(),
        "crashed" => lab.kill(&launch.id).await,
        "frozen" => lab.docker.pause_container(&name(&launch.id)).await.unwrap(),
        "volume" => lab.remove_container(&launch.id).await,
        "created" => created_only(lab, &launch).await,
        other => panic!("no such state: {other}"),
    }
    launch
}

/// The container of a running sandbox, replaced by one that was made and never started.
async fn created_only(lab: &DockerFixture, launch: &SandboxLaunch) {
    let seen = lab.container(&launch.id).await;
    lab.remove_container(&launch.id).await;
    let config = seen.config.unwrap();
    let body = ContainerCreateBody {
        image: config.image,
        env: config.env,
        labels: config.labels,
        exposed_ports: config.exposed_ports,
        host_config: seen.host_config,
        ..ContainerCreateBody::default()
    };
    let options = CreateContainerOptionsBuilder::new()
        .name(&name(&launch.id))
        .build();
    lab.docker
        .create_container(Some(options), body)
        .await
        .unwrap();
}

/// The next service sees the state, starts the sandbox from it, stops it, and removes it.
async fn is_taken_over(state: &str, expected: fn(&BackendState) -> bool) {
    let lab = DockerFixture::new().await;
    let launch = left(&lab, state).await;
    let next = lab.backend();
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
    support::until("the port answers", || support::answers(port)).await;
    assert_eq!(lab.containers().await.len(), 1);
    drop(next);

    // And once more without a start.
    let last = lab.backend();
    last.stop(&launch.id).await.unwrap();
    last.remove(&launch.id).await.unwrap();
    assert_eq!(last.list().await.unwrap(), []);
    assert_eq!(lab.volumes().await, [] as [String; 0]);
}

#[tokio::test]
async fn a_running_one_is_taken_over() {
    is_taken_over("running", |state| matches!(state, BackendState::Running(_))).await;
}

#[tokio::test]
async fn a_stopped_one_is_taken_over() {
    is_taken_over("stopped", |state| *state == BackendState::Stopped).await;
}

#[tokio::test]
async fn a_frozen_one_is_taken_over() {
    is_taken_over("frozen", |state| *state == BackendState::Stopped).await;
}

#[tokio::test]
async fn one_that_was_never_started_is_taken_over() {
    is_taken_over("created", |state| *state == BackendState::Stopped).await;
}

#[tokio::test]
async fn one_that_crashed_meanwhile_is_taken_over() {
    is_taken_over("crashed", |state| {
        matches!(state, BackendState::Exited { .. })
    })
    .await;
}

#[tokio::test]
async fn what_is_left_of_one_is_taken_over() {
    is_taken_over("volume", |state| *state == BackendState::Remains).await;
}

#[tokio::test]
async fn every_left_over_can_be_removed_at_once() {
    let lab = DockerFixture::new().await;
    for state in [
        "running", "stopped", "frozen", "created", "crashed", "volume",
    ] {
        let launch = left(&lab, state).await;
        let next = lab.backend();
        next.remove(&launch.id).await.unwrap();
        assert_eq!(lab.containers().await, [] as [String; 0], "{state}");
        assert_eq!(lab.volumes().await, [] as [String; 0], "{state}");
    }
}

#[tokio::test]
async fn the_next_service_watches_what_it_found() {
    let lab = DockerFixture::new().await;
    let launch = left(&lab, "running").await;
    let next = lab.backend();
    let mut facts = next.watch();
    support::in_contact(&next).await;
    lab.kill(&launch.id).await;
    let detail = support::detail(Some(told(&mut facts, &launch.id).await));
    assert!(
        detail.starts_with("the agent server was killed"),
        "{detail}"
    );
}

#[tokio::test]
async fn a_caller_that_gives_up_leaves_nothing_that_is_not_found() {
    let lab = DockerFixture::new().await;
    let backend = lab.backend();
    // At every point of a start.
    for millis in [0, 2, 5, 10, 20, 40, 80, 160] {
        let launch = launch(SPEC);
        let start = tokio::time::timeout(Duration::from_millis(millis), backend.start(&launch));
        let _ = start.await;
        backend.remove(&launch.id).await.unwrap();
        assert_eq!(
            lab.containers().await,
            [] as [String; 0],
            "after {millis} ms"
        );
        assert_eq!(lab.volumes().await, [] as [String; 0], "after {millis} ms");
    }
}

#[tokio::test]
async fn two_services_at_once_make_one_container() {
    let lab = DockerFixture::new().await;
    let (one, two) = (lab.backend(), lab.backend());
    for _ in 0..3 {
        let launch = launch(SPEC);
        let (first, second) = futures::join!(one.start(&launch), two.start(&launch));
        assert_eq!(first.unwrap(), second.unwrap());
        assert_eq!(lab.containers().await.len(), 1);
        let (first, second) = futures::join!(one.remove(&launch.id), two.remove(&launch.id));
        first.unwrap();
        second.unwrap();
        assert_eq!(lab.containers().await, [] as [String; 0]);
        assert_eq!(lab.volumes().await, [] as [String; 0]);
    }
}

#[tokio::test]
async fn two_installations_on_one_engine_leave_each_other_alone() {
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
    here.remove(&launch.id).await.expect("nothing of ours");
    let refused = here.start(&launch).await.unwrap_err().to_string();
    assert!(refused.contains("not of this installation"), "{refused}");
    assert_eq!(theirs.status(&launch.id).await, "running");
    theirs.kill(&launch.id).await;
    support::until("it ended", || async {
        theirs.status(&launch.id).await == "exited"
    })
    .await;
    support::in_contact(&here).await;
    let silence = tokio::time::timeout(Duration::from_millis(500), told(&mut facts, &launch.id));
    assert!(
        silence.await.is_err(),
        "nothing is told of what is not ours"
    );
}

#[tokio::test]
async fn a_foreign_container_of_the_name_is_left_alone() {
    let lab = DockerFixture::new().await;
    let backend = lab.backend();
    let launch = launch(SPEC);
    let volume = VolumeCreateRequest {
        name: Some(name(&launch.id)),
        ..VolumeCreateRequest::default()
    };
    lab.docker.create_volume(volume).await.unwrap();
    let refused = backend.start(&launch).await.unwrap_err().to_string();
    assert!(refused.contains("a volume named"), "{refused}");
    backend.remove(&launch.id).await.unwrap();
    assert_eq!(backend.inspect(&launch.id).await.unwrap(), None);
    let options = None::<bollard::query_parameters::RemoveVolumeOptions>;
    lab.docker
        .remove_volume(&name(&launch.id), options)
        .await
        .expect("it is still there");

    // What is made of an image of one of our containers carries its labels.
    let body = ContainerCreateBody {
        image: Some(IMAGE.to_owned()),
        labels: Some(
            [
                ("agent-workspace.instance", lab.instance.as_str()),
                ("agent-workspace.sandbox", launch.id.as_str()),
            ]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        ),
        ..ContainerCreateBody::default()
    };
    let copy = support::fresh("agent-workspace-test-copy-");
    let options = CreateContainerOptionsBuilder::new().name(&copy).build();
    lab.docker
        .create_container(Some(options), body)
        .await
        .unwrap();
    assert_eq!(backend.list().await.unwrap(), []);
    backend.remove(&launch.id).await.unwrap();
    assert_eq!(lab.containers().await, [copy]);
}

#[tokio::test]
async fn a_sandbox_outlives_its_template() {
    let lab = DockerFixture::new().await;
    for state in ["running", "stopped", "crashed"] {
        let launch = left(&lab, state).await;
        let upgraded = lab.backend_with(|config| {
            config.specs[0].id = domain::id::SpecId::parse("newer").unwrap();
        });
        let silent = domain::sandbox::PrepareProgress::silent();
        upgraded.prepare(&launch.spec, &silent).await.unwrap();
        upgraded.start(&launch).await.unwrap();
        upgraded.remove(&launch.id).await.unwrap();
        // Where nothing is there it cannot be made.
        let refused = upgraded.start(&launch).await;
        assert!(
            matches!(refused, Err(SandboxError::StartFailed { .. })),
            "{refused:?}"
        );
    }
}

#[tokio::test]
async fn a_port_is_proven_for_the_sandbox_that_the_engine_gave_it_to_alone() {
    let lab = DockerFixture::new().await;
    let backend = lab.backend();
    let (launch, other) = (launch(SPEC), launch(SPEC));
    let endpoints = backend.start(&launch).await.unwrap();
    let elsewhere = backend.start(&other).await.unwrap();
    let address = |endpoints: &SandboxEndpoints| {
        let port = endpoints.agent_url.port().unwrap();
        SocketAddr::from((Ipv4Addr::LOCALHOST, port))
    };
    let (at, at_other) = (address(&endpoints), address(&elsewhere));
    // One that has not looked around yet, too.
    for backend in [&backend, &lab.backend()] {
        let sandbox = launch.id.as_str();
        assert!(backend.prove(sandbox, at).await.is_ok());
        let refused = backend.prove(sandbox, at_other).await;
        assert!(
            matches!(refused, Err(GuardError::HeldByAnother(_))),
            "{refused:?}"
        );
    }
    lab.kill(&launch.id).await;
    support::until("its port is free", || async {
        TcpListener::bind(at).is_ok()
    })
    .await;
    let _thief = TcpListener::bind(at).unwrap();
    support::until("it is refused", || async {
        let refused = backend.prove(launch.id.as_str(), at).await;
        matches!(refused, Err(GuardError::HeldByAnother(_)))
    })
    .await;
}
