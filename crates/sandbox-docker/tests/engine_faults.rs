//! Engines that are killed, restarted, shut down, frozen or absent (a private engine), and a lost connection to the shared one.
#![expect(clippy::unwrap_used, reason = "a failed helper fails its test")]

use crate::{private, support};

use std::time::Duration;

use bollard::query_parameters::RemoveVolumeOptions;
use domain::error::{Classify, ErrorClass};
use domain::sandbox::{
    BackendReachability, BackendState, SandboxBackend, SandboxError, SandboxLifecycle,
};
use futures::StreamExt;
use futures::stream::BoxStream;
use private::PrivateEngine;
use sandbox_docker::DockerSandboxes;
use support::{
    DockerFixture, SPEC, WAIT_TIMEOUT, container_name, exit_detail, launch, next_state,
    wait_until_connected,
};

async fn next(reachability: &mut BoxStream<'static, BackendReachability>) -> BackendReachability {
    let next = tokio::time::timeout(WAIT_TIMEOUT, reachability.next());
    next.await
        .expect("a change of reachability")
        .expect("the stream does not end")
}

/// Every operation fails instead of hanging, and its error names the cause.
async fn assert_all_fail(backend: &DockerSandboxes, is_expected: fn(&SandboxError) -> bool) {
    let launch = launch(SPEC);
    let id = &launch.id;
    let silent = domain::sandbox::PrepareProgress::silent();
    let operations = async {
        futures::join!(
            async { backend.start(&launch).await.map(drop) },
            backend.stop(id),
            backend.remove(id),
            async { backend.inspect(id).await.map(drop) },
            async { backend.list().await.map(drop) },
            backend.prepare(&launch.spec, &silent),
            backend.check(),
        )
    };
    let outcomes = tokio::time::timeout(WAIT_TIMEOUT, operations).await;
    let outcomes = outcomes.expect("operations fail instead of hanging");
    let (start, stop, remove, inspect, list, prepare, check) = outcomes;
    for outcome in [start, stop, remove, inspect, list, prepare, check] {
        let error = outcome.unwrap_err();
        assert_eq!(error.class(), ErrorClass::Unavailable, "{error:?}");
        assert!(is_expected(&error), "{error:?}");
    }
}

fn names_the_socket(error: &SandboxError) -> bool {
    error.to_string().contains("WORKSPACE_DOCKER__SOCKET")
}

#[tokio::test]
async fn sandboxes_of_a_killed_engine_are_restored() {
    let mut engine = PrivateEngine::started().await;
    let fixture = DockerFixture::on(engine.docker(), Some(engine.socket())).await;
    let backend =
        fixture.backend_with(|config| config.metadata = sandbox_docker::MetadataBlocking::Off);
    let mut reachability = backend.watch_reachability();
    assert_eq!(
        next(&mut reachability).await,
        BackendReachability::Reachable
    );
    let (running, stopped) = (launch(SPEC), launch(SPEC));
    backend.start(&running).await.unwrap();
    backend.start(&stopped).await.unwrap();
    fixture
        .exec(&running.id, &["sh", "-c", "echo kept > note"])
        .await;
    backend.stop(&stopped.id).await.unwrap();
    let mut facts = backend.watch();

    engine.kill();
    let lost = next(&mut reachability).await;
    assert!(
        matches!(&lost, BackendReachability::Unreachable { detail } if detail.contains("WORKSPACE_DOCKER__SOCKET")),
        "{lost:?}"
    );
    assert_all_fail(&backend, names_the_socket).await;

    engine.start().await;
    assert_eq!(
        next(&mut reachability).await,
        BackendReachability::Reachable
    );
    let cause = exit_detail(Some(next_state(&mut facts, &running.id).await));
    assert!(
        cause.starts_with("the container engine was unreachable"),
        "{cause}"
    );
    backend.check().await.unwrap();
    let mut states: Vec<_> = backend.list().await.unwrap();
    states.sort_by_key(|fact| fact.id != running.id);
    assert!(
        matches!(states[0].state, BackendState::Exited { .. }),
        "{states:?}"
    );
    assert_eq!(
        states[1].state,
        BackendState::Stopped,
        "the stopped sandbox is unchanged"
    );

    let endpoints = backend.start(&running).await.unwrap();
    let (_, note) = fixture.exec(&running.id, &["cat", "note"]).await;
    assert_eq!(note, "kept\n");
    let seen = backend.inspect(&running.id).await.unwrap();
    assert_eq!(seen, Some(BackendState::Running(endpoints)));
    backend.start(&stopped).await.unwrap();
    for launch in [&running, &stopped] {
        backend.remove(&launch.id).await.unwrap();
    }
    assert_eq!(backend.list().await.unwrap(), []);
}

#[tokio::test]
async fn an_engine_that_shuts_down_stops_its_sandboxes() {
    let mut engine = PrivateEngine::started().await;
    let fixture = DockerFixture::on(engine.docker(), Some(engine.socket())).await;
    let backend =
        fixture.backend_with(|config| config.metadata = sandbox_docker::MetadataBlocking::Off);
    wait_until_connected(&backend).await;
    let launch = launch(SPEC);
    backend.start(&launch).await.unwrap();
    let mut facts = backend.watch();
    engine.shut_down().await;
    engine.start().await;
    // The engine stopped the container, not the service, so the exit is reported.
    exit_detail(Some(next_state(&mut facts, &launch.id).await));
    backend.start(&launch).await.unwrap();
    backend.remove(&launch.id).await.unwrap();
}

#[tokio::test]
async fn a_service_starts_before_its_engine() {
    let mut engine = PrivateEngine::prepared();
    let mut config = sandbox_docker::DockerConfig::new(
        domain::id::HostId::parse("early").unwrap(),
        vec![support::spec(SPEC)],
    );
    config.socket = Some(engine.socket());
    let backend = DockerSandboxes::new(config).unwrap();
    let mut reachability = backend.watch_reachability();
    assert!(matches!(
        next(&mut reachability).await,
        BackendReachability::Unreachable { .. }
    ));
    assert_all_fail(&backend, names_the_socket).await;
    engine.start().await;
    assert_eq!(
        next(&mut reachability).await,
        BackendReachability::Reachable
    );
    backend.check().await.unwrap();
    assert_eq!(backend.list().await.unwrap(), []);
}

#[tokio::test]
async fn operations_fail_while_the_engine_hangs() {
    let engine = PrivateEngine::started().await;
    let fixture = DockerFixture::on(engine.docker(), Some(engine.socket())).await;
    let backend = fixture.backend_with(|config| {
        config.metadata = sandbox_docker::MetadataBlocking::Off;
        config.call_limit = Duration::from_secs(2);
    });
    let mut reachability = backend.watch_reachability();
    assert_eq!(
        next(&mut reachability).await,
        BackendReachability::Reachable
    );
    engine.freeze();
    let lost = next(&mut reachability).await;
    assert!(
        matches!(&lost, BackendReachability::Unreachable { detail } if detail.contains("in time")),
        "{lost:?}"
    );
    assert_all_fail(&backend, |error| error.to_string().contains("time")).await;
    engine.thaw();
    assert_eq!(
        next(&mut reachability).await,
        BackendReachability::Reachable
    );
    backend.check().await.unwrap();
}

/// A proxy of the engine that a test can disconnect while the engine keeps running.
struct EngineProxy {
    socket: tempfile::TempDir,
    open: tokio::sync::watch::Sender<bool>,
}

impl EngineProxy {
    #[expect(clippy::disallowed_methods, reason = "background work of a test")]
    fn start() -> Self {
        let socket = tempfile::tempdir().unwrap();
        let listener = tokio::net::UnixListener::bind(socket.path().join("sock")).unwrap();
        let open = tokio::sync::watch::Sender::new(true);
        let receiver = open.subscribe();
        tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let mut open = receiver.clone();
                tokio::spawn(async move {
                    let mut far = tokio::net::UnixStream::connect("/var/run/docker.sock")
                        .await
                        .unwrap();
                    tokio::select! {
                        _ = open.wait_for(|open| !open) => {}
                        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                    }
                });
            }
        });
        Self { socket, open }
    }

    fn address(&self) -> String {
        format!("unix://{}", self.socket.path().join("sock").display())
    }
}

#[tokio::test]
async fn missed_changes_are_reported_after_a_reconnection() {
    let proxy = EngineProxy::start();
    let fixture = DockerFixture::new().await;
    let backend = fixture.backend_with(|config| config.socket = Some(proxy.address()));
    let mut reachability = backend.watch_reachability();
    assert_eq!(
        next(&mut reachability).await,
        BackendReachability::Reachable
    );
    let launches = [(); 5].map(|()| launch(SPEC));
    for launch in &launches {
        backend.start(launch).await.unwrap();
    }
    let [killed, removed, gone, paused, untouched] = &launches;
    backend.stop(&paused.id).await.unwrap();
    let mut facts = backend.watch();
    proxy.open.send_replace(false);
    assert!(matches!(
        next(&mut reachability).await,
        BackendReachability::Unreachable { .. }
    ));
    fixture.kill(&killed.id).await;
    fixture.remove_container(&removed.id).await;
    fixture.remove_container(&gone.id).await;
    let none = None::<RemoveVolumeOptions>;
    fixture
        .docker
        .remove_volume(&container_name(&gone.id), none)
        .await
        .unwrap();
    fixture.remove_container(&paused.id).await;
    proxy.open.send_replace(true);
    assert_eq!(
        next(&mut reachability).await,
        BackendReachability::Reachable
    );

    let mut seen = std::collections::HashMap::new();
    while seen.len() < 4 {
        let fact = tokio::time::timeout(WAIT_TIMEOUT, facts.next()).await;
        let fact = fact.expect("a fact about a missed change").unwrap();
        seen.insert(fact.id, fact.state);
    }
    assert!(
        matches!(seen[&killed.id], BackendState::Exited { .. }),
        "{seen:?}"
    );
    assert_eq!(seen[&removed.id], BackendState::Remains);
    assert_eq!(seen[&gone.id], BackendState::Absent);
    assert_eq!(seen[&paused.id], BackendState::Remains);
    assert!(!seen.contains_key(&untouched.id), "{seen:?}");
}
