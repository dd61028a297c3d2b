//! Pulls of missing images from a registry of the test.
#![expect(clippy::unwrap_used, reason = "a failed helper fails its test")]

mod registry;

use crate::support;

use std::time::Duration;

use domain::error::Classify;
use domain::id::SpecId;
use domain::sandbox::{PrepareProgress, SandboxBackend, SandboxError, SandboxLifecycle};
use sandbox_docker::{DockerConfig, DockerSandboxes, RegistryCredentials};
use tokio::sync::mpsc;

use registry::{Delivery, FakeRegistry};
use support::{DockerFixture, SPEC};

/// A backend whose one template has this image.
fn backend_of(
    fixture: &DockerFixture,
    image: &str,
    change: impl FnOnce(&mut DockerConfig),
) -> DockerSandboxes {
    fixture.backend_with(|config| {
        image.clone_into(&mut config.specs[0].image);
        change(config);
    })
}

async fn prepare(
    backend: &DockerSandboxes,
    progress: &PrepareProgress,
) -> Result<(), SandboxError> {
    let spec = SpecId::parse(SPEC).unwrap();
    let prepared = backend.prepare(&spec, progress);
    let prepared = tokio::time::timeout(support::WAIT_TIMEOUT, prepared);
    prepared.await.expect("a pull ends")
}

/// The cause of a failed preparation, as clients see it.
async fn cause(backend: &DockerSandboxes) -> String {
    let error = prepare(backend, &PrepareProgress::silent())
        .await
        .unwrap_err();
    assert!(
        matches!(error, SandboxError::Unavailable { .. }),
        "{error:?}"
    );
    error.public().into_owned()
}

/// A receiver of progress lines.
fn progress_lines() -> (PrepareProgress, mpsc::UnboundedReceiver<String>) {
    let (sender, lines) = mpsc::unbounded_channel();
    let progress = PrepareProgress::new(move |line| {
        // A test may drop the receiver.
        let _ = sender.send(line.to_owned());
    });
    (progress, lines)
}

/// Waits for a line with the progress of the layer.
async fn wait_for_progress(lines: &mut mpsc::UnboundedReceiver<String>) -> String {
    let line = async {
        while let Some(line) = lines.recv().await {
            if line.contains(" of 9 MiB") {
                return line;
            }
        }
        panic!("the pull ended without a line of progress");
    };
    tokio::time::timeout(support::WAIT_TIMEOUT, line)
        .await
        .expect("a line of progress")
}

async fn has_image(fixture: &DockerFixture, image: &str) -> bool {
    fixture.docker.inspect_image(image).await.is_ok()
}

#[tokio::test]
async fn a_missing_image_is_pulled_once_with_progress() {
    let fixture = DockerFixture::new().await;
    let registry = FakeRegistry::start(Delivery::Held).await;
    let image = registry.publish("slow");
    let backend = backend_of(&fixture, &image, |_| ());
    let (progress, mut lines) = progress_lines();

    let watch = async {
        let line = wait_for_progress(&mut lines).await;
        let expected = format!("pulling {image}: 0 of 1 layers, ");
        assert!(line.starts_with(&expected), "{line}");
        assert!(!has_image(&fixture, &image).await);
        registry.deliver(Delivery::Whole);
    };
    let (prepared, ()) = tokio::join!(prepare(&backend, &progress), watch);

    prepared.unwrap();
    assert!(has_image(&fixture, &image).await);
    prepare(&backend, &PrepareProgress::silent()).await.unwrap();
    assert_eq!(registry.pulls(), 1);
}

#[tokio::test]
async fn concurrent_callers_share_a_pull_and_its_progress() {
    let fixture = DockerFixture::new().await;
    let registry = FakeRegistry::start(Delivery::Held).await;
    let backend = backend_of(&fixture, &registry.publish("shared"), |_| ());
    let ((first, mut first_lines), (second, mut second_lines)) =
        (progress_lines(), progress_lines());

    let watch = async {
        wait_for_progress(&mut first_lines).await;
        wait_for_progress(&mut second_lines).await;
        registry.deliver(Delivery::Whole);
    };
    let (first, second, ()) =
        tokio::join!(prepare(&backend, &first), prepare(&backend, &second), watch);

    first.unwrap();
    second.unwrap();
    assert_eq!(registry.pulls(), 1);
}

#[tokio::test]
async fn a_cancelled_caller_does_not_stop_the_pull() {
    let fixture = DockerFixture::new().await;
    let registry = FakeRegistry::start(Delivery::Held).await;
    let image = registry.publish("left");
    let backend = backend_of(&fixture, &image, |_| ());
    let (progress, mut lines) = progress_lines();

    tokio::select! {
        ended = prepare(&backend, &progress) => panic!("{ended:?}"),
        _ = wait_for_progress(&mut lines) => {}
    }
    registry.deliver(Delivery::Whole);

    support::wait_until("the engine has the image", || has_image(&fixture, &image)).await;
    prepare(&backend, &PrepareProgress::silent()).await.unwrap();
    assert_eq!(registry.pulls(), 1);
}

#[tokio::test]
async fn an_image_unknown_to_the_registry_is_an_error_and_requested_again() {
    let fixture = DockerFixture::new().await;
    let registry = FakeRegistry::start(Delivery::Whole).await;
    let image = registry.reference("late");
    let backend = backend_of(&fixture, &image, |_| ());

    let cause = cause(&backend).await;
    assert!(cause.contains(&image), "{cause}");
    assert!(cause.contains("does not have it"), "{cause}");

    registry.publish("late");
    prepare(&backend, &PrepareProgress::silent()).await.unwrap();
}

#[tokio::test]
async fn a_private_registry_gets_only_its_own_credentials() {
    // In base64 these credentials contain `+` and `/`.
    let password = "canary>>>>>?????";
    let fixture = DockerFixture::new().await;
    let registry = FakeRegistry::private("alice", password).await;
    let image = registry.publish("private");
    let credentials = |server: String, password: &str| RegistryCredentials {
        server,
        username: "alice".to_owned(),
        password: password.into(),
    };

    let without = cause(&backend_of(&fixture, &image, |_| ())).await;
    assert!(without.contains("gives no access"), "{without}");
    assert!(without.contains(&registry.server()), "{without}");

    let elsewhere = credentials("ghcr.io".to_owned(), password);
    let elsewhere = backend_of(&fixture, &image, |config| config.registry = Some(elsewhere));
    cause(&elsewhere).await;
    assert_eq!(
        registry.received_authorizations(),
        [""; 0],
        "credentials of another registry were sent"
    );

    let wrong = credentials(registry.server(), "canary-wrong");
    let wrong = backend_of(&fixture, &image, |config| config.registry = Some(wrong));
    let wrong = cause(&wrong).await;
    assert!(wrong.contains("gives no access"), "{wrong}");
    assert!(!wrong.contains("canary"), "{wrong}");

    let right = credentials(registry.server(), password);
    let right = backend_of(&fixture, &image, |config| config.registry = Some(right));
    prepare(&right, &PrepareProgress::silent()).await.unwrap();
}

#[tokio::test]
async fn a_broken_connection_is_retried() {
    let fixture = DockerFixture::new().await;
    let registry = FakeRegistry::start(Delivery::CutOnce).await;
    let image = registry.publish("cut");
    let backend = backend_of(&fixture, &image, |_| ());

    prepare(&backend, &PrepareProgress::silent()).await.unwrap();

    assert!(has_image(&fixture, &image).await);
}

#[tokio::test]
async fn a_stalled_pull_is_cancelled_and_the_next_one_succeeds() {
    let fixture = DockerFixture::new().await;
    for delivery in [Delivery::Held, Delivery::Cut] {
        let registry = FakeRegistry::start(delivery).await;
        let image = registry.publish("stuck");
        let backend = backend_of(&fixture, &image, |config| {
            config.pull_stall = Duration::from_secs(3);
        });

        let cause = cause(&backend).await;
        assert!(
            cause.contains("no progress for 3s"),
            "{delivery:?}: {cause}"
        );
        assert!(cause.contains(&registry.server()), "{delivery:?}: {cause}");

        registry.deliver(Delivery::Whole);
        let patient = backend_of(&fixture, &image, |_| ());
        prepare(&patient, &PrepareProgress::silent()).await.unwrap();
    }
}

#[tokio::test]
async fn an_unreachable_registry_is_reported() {
    let fixture = DockerFixture::new().await;
    // The port is bound, but nothing listens on it.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    let backend = backend_of(&fixture, &format!("{address}/none:1"), |_| ());

    let cause = cause(&backend).await;

    assert!(cause.contains("could not reach the registry"), "{cause}");
    assert!(cause.contains(&address.to_string()), "{cause}");
}

#[tokio::test]
async fn an_unreachable_engine_is_not_reported_as_a_registry_problem() {
    let fixture = DockerFixture::new().await;
    let backend = fixture.backend_with(|config| {
        config.socket = Some("unix:///nonexistent/engine.sock".to_owned());
    });

    let cause = cause(&backend).await;

    assert!(cause.contains("container engine"), "{cause}");
    assert!(!cause.contains("registry"), "{cause}");
}

#[tokio::test]
async fn a_removed_image_is_pulled_again() {
    let fixture = DockerFixture::new().await;
    let registry = FakeRegistry::start(Delivery::Whole).await;
    let image = registry.publish("removed");
    let backend = backend_of(&fixture, &image, |_| ());
    prepare(&backend, &PrepareProgress::silent()).await.unwrap();
    let none = None::<bollard::query_parameters::RemoveImageOptions>;
    fixture
        .docker
        .remove_image(&image, none, None)
        .await
        .unwrap();

    // The cache still contains the image, so this start fails and corrects the cache.
    let error = backend.start(&support::launch(SPEC)).await.unwrap_err();
    let cause = error.public();
    assert!(cause.contains("image"), "{cause}");
    prepare(&backend, &PrepareProgress::silent()).await.unwrap();

    assert_eq!(registry.pulls(), 2);
    assert!(has_image(&fixture, &image).await);
}
