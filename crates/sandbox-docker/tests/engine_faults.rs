//! An engine that is killed, restarted, shut down, hung or not there: a private one, and a way to the shared one that is cut.
#![expect(
    clippy::unwrap_used,
    reason = "a helper that fails is a test that fails"
)]

use crate::{private, support};

use std::time::{Duration, Instant};

use bollard::query_parameters::RemoveVolumeOptions;
use domain::error::{Classify, ErrorClass};
use domain::sandbox::{BackendReachability, BackendState, SandboxBackend, SandboxError};
use futures::StreamExt;
use futures::stream::BoxStream;
use private::PrivateEngine;
use sandbox_docker::DockerSandboxes;
use support::{DockerFixture, SPEC, detail, in_contact, launch, name, told};

/// For what takes an engine and a machine that are busy; what it bounds takes a second or two.
const EVENT_TIMEOUT: Duration = Duration::from_secs(20);

async fn next(contact: &mut BoxStream<'static, BackendReachability>) -> BackendReachability {
    let next = tokio::time::timeout(EVENT_TIMEOUT, contact.next());
    next.await
        .expect("contact is told")
        .expect("the stream does not end")
}

/// Every operation fails soon, and says what is wrong.
async fn everything_fails(backend: &DockerSandboxes, class: fn(&SandboxError) -> bool) {
    let launch = launch(SPEC);
    let id = &launch.id;
    let began = Instant::now();
    let silent = domain::sandbox::PrepareProgress::silent();
    let outcomes = futures::join!(
        async { backend.start(&launch).await.map(drop) },
        backend.stop(id),
        backend.remove(id),
        async { backend.inspect(id).await.map(drop) },
        async { backend.list().await.map(drop) },
        backend.prepare(&launch.spec, &silent),
        backend.check(),
    );
    let (start, stop, remove, inspect, list, prepare, check) = outcomes;
    for outcome in [start, stop, remove, inspect, list, prepare, check] {
        let error = outcome.unwrap_err();
        assert_eq!(error.class(), ErrorClass::Unavailable, "{error:?}");
        assert!(class(&error), "{error:?}");
    }
    assert!(
        began.elapsed() < EVENT_TIMEOUT,
        "took {:?}",
        began.elapsed()
    );
}

fn names_the_socket(error: &SandboxError) -> bool {
    error.to_string().contains("WORKSPACE_DOCKER__SOCKET")
}

#[tokio::test]
async fn a_killed_engine_comes_back() {
    let mut engine = PrivateEngine::started().await;
    let lab = DockerFixture::on(engine.docker(), Some(engine.socket())).await;
    let backend =
        lab.backend_with(|config| config.metadata = sandbox_docker::MetadataBlocking::Off);
    let mut contact = backend.watch_reachability();
    assert_eq!(next(&mut contact).await, BackendReachability::Reachable);
    let (running, stopped) = (launch(SPEC), launch(SPEC));
    backend.start(&running).await.unwrap();
    backend.start(&stopped).await.unwrap();
    lab.exec(&running.id, &["sh", "-c", "echo kept > note"])
        .await;
    backend.stop(&stopped.id).await.unwrap();
    let mut facts = backend.watch();

    engine.kill();
    let lost = next(&mut contact).await;
    assert!(
        matches!(&lost, BackendReachability::Unreachable { detail } if detail.contains("WORKSPACE_DOCKER__SOCKET")),
        "{lost:?}"
    );
    everything_fails(&backend, names_the_socket).await;

    engine.start().await;
    assert_eq!(next(&mut contact).await, BackendReachability::Reachable);
    let cause = tokio::time::timeout(EVENT_TIMEOUT, told(&mut facts, &running.id));
    let cause = detail(Some(cause.await.expect("told soon")));
    assert!(
        cause.starts_with("the container engine was out of reach"),
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
        "nothing new about the stopped one"
    );

    let endpoints = backend.start(&running).await.unwrap();
    let (_, note) = lab.exec(&running.id, &["cat", "note"]).await;
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
async fn an_engine_that_was_shut_down_took_its_sandboxes_along() {
    let mut engine = PrivateEngine::started().await;
    let lab = DockerFixture::on(engine.docker(), Some(engine.socket())).await;
    let backend =
        lab.backend_with(|config| config.metadata = sandbox_docker::MetadataBlocking::Off);
    in_contact(&backend).await;
    let launch = launch(SPEC);
    backend.start(&launch).await.unwrap();
    let mut facts = backend.watch();
    engine.shut_down().await;
    engine.start().await;
    // Asked to end by the engine, not by us: it was running, and is not.
    let told = tokio::time::timeout(EVENT_TIMEOUT, told(&mut facts, &launch.id));
    detail(Some(told.await.expect("told soon")));
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
    let mut contact = backend.watch_reachability();
    assert!(matches!(
        next(&mut contact).await,
        BackendReachability::Unreachable { .. }
    ));
    everything_fails(&backend, names_the_socket).await;
    engine.start().await;
    assert_eq!(next(&mut contact).await, BackendReachability::Reachable);
    backend.check().await.unwrap();
    assert_eq!(backend.list().await.unwrap(), []);
}

#[tokio::test]
async fn an_engine_that_hangs_holds_nothing_up() {
    let engine = PrivateEngine::started().await;
    let lab = DockerFixture::on(engine.docker(), Some(engine.socket())).await;
    let backend = lab.backend_with(|config| {
        config.metadata = sandbox_docker::MetadataBlocking::Off;
        config.call_limit = Duration::from_secs(2);
    });
    let mut contact = backend.watch_reachability();
    assert_eq!(next(&mut contact).await, BackendReachability::Reachable);
    engine.freeze();
    let lost = next(&mut contact).await;
    assert!(
        matches!(&lost, BackendReachability::Unreachable { detail } if detail.contains("in time")),
        "{lost:?}"
    );
    everything_fails(&backend, |error| error.to_string().contains("time")).await;
    engine.thaw();
    assert_eq!(next(&mut contact).await, BackendReachability::Reachable);
    backend.check().await.unwrap();
}

/// A proxy of the engine that a test can disconnect while the engine keeps running.
struct EngineProxy {
    socket: tempfile::TempDir,
    open: tokio::sync::watch::Sender<bool>,
}

impl EngineProxy {
    #[expect(clippy::disallowed_methods, reason = "a test's own background work")]
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
    let way = EngineProxy::start();
    let lab = DockerFixture::new().await;
    let backend = lab.backend_with(|config| config.socket = Some(way.address()));
    let mut contact = backend.watch_reachability();
    assert_eq!(next(&mut contact).await, BackendReachability::Reachable);
    let launches = [(); 5].map(|()| launch(SPEC));
    for launch in &launches {
        backend.start(launch).await.unwrap();
    }
    let [killed, removed, gone, paused, untouched] = &launches;
    backend.stop(&paused.id).await.unwrap();
    let mut facts = backend.watch();
    way.open.send_replace(false);
    assert!(matches!(
        next(&mut contact).await,
        BackendReachability::Unreachable { .. }
    ));
    lab.kill(&killed.id).await;
    lab.remove_container(&removed.id).await;
    lab.remove_container(&gone.id).await;
    let none = None::<RemoveVolumeOptions>;
    lab.docker
        .remove_volume(&name(&gone.id), none)
        .await
        .unwrap();
    lab.remove_container(&paused.id).await;
    way.open.send_replace(true);
    assert_eq!(next(&mut contact).await, BackendReachability::Reachable);

    let mut seen = std::collections::HashMap::new();
    while seen.len() < 4 {
        let fact = tokio::time::timeout(EVENT_TIMEOUT, facts.next()).await;
        let fact = fact.expect("told soon").unwrap();
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
