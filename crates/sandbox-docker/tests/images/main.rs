//! Images that are not there: pulled for real from a registry of the test's own.
#![expect(
    clippy::unwrap_used,
    reason = "a helper that fails is a test that fails"
)]

mod registry;

use crate::support;

use std::time::Duration;

use domain::error::Classify;
use domain::id::SpecId;
use domain::sandbox::{PrepareProgress, SandboxBackend, SandboxError};
use sandbox_docker::{DockerConfig, DockerSandboxes, RegistryCredentials as Credentials};
use tokio::sync::mpsc;

use registry::{Delivery, RegistryCredentials};
use support::{DockerFixture, SPEC};

/// A backend whose one template has this image.
fn backend_of(
    lab: &DockerFixture,
    image: &str,
    change: impl FnOnce(&mut DockerConfig),
) -> DockerSandboxes {
    lab.backend_with(|config| {
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
    let prepared = tokio::time::timeout(Duration::from_secs(120), prepared);
    prepared.await.expect("a pull ends")
}

/// Why it failed, as clients see it.
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

/// Lines as they are told.
fn listen() -> (PrepareProgress, mpsc::UnboundedReceiver<String>) {
    let (sender, lines) = mpsc::unbounded_channel();
    let progress = PrepareProgress::new(move |line| {
        // A test that has heard enough goes on without listening.
        let _ = sender.send(line.to_owned());
    });
    (progress, lines)
}

/// Waits for a line that says how much of the layer is there.
async fn half_way(lines: &mut mpsc::UnboundedReceiver<String>) -> String {
    let handle_event = async {
        while let Some(line) = lines.recv().await {
            if line.contains(" of 9 MiB") {
                return line;
            }
        }
        panic!("it ended without telling how far it was");
    };
    tokio::time::timeout(Duration::from_secs(60), handle_event)
        .await
        .expect("a pull tells how far it is")
}

async fn is_there(lab: &DockerFixture, image: &str) -> bool {
    lab.docker.inspect_image(image).await.is_ok()
}

#[tokio::test]
async fn a_missing_image_is_pulled_and_told_about_and_then_known() {
    let lab = DockerFixture::new().await;
    let registry = RegistryCredentials::start(Delivery::Held).await;
    let image = registry.publish("slow");
    let backend = backend_of(&lab, &image, |_| ());
    let (progress, mut lines) = listen();

    let told = async {
        let line = half_way(&mut lines).await;
        let expected = format!("pulling {image}: 0 of 1 layers, ");
        assert!(line.starts_with(&expected), "{line}");
        assert!(!is_there(&lab, &image).await);
        registry.deliver(Delivery::Whole);
    };
    let (prepared, ()) = tokio::join!(prepare(&backend, &progress), told);

    prepared.unwrap();
    assert!(is_there(&lab, &image).await);
    prepare(&backend, &PrepareProgress::silent()).await.unwrap();
    assert_eq!(registry.pulls(), 1);
}

#[tokio::test]
async fn callers_at_the_same_time_share_one_pull_and_hear_the_same() {
    let lab = DockerFixture::new().await;
    let registry = RegistryCredentials::start(Delivery::Held).await;
    let backend = backend_of(&lab, &registry.publish("shared"), |_| ());
    let ((first, mut first_lines), (second, mut second_lines)) = (listen(), listen());

    let told = async {
        half_way(&mut first_lines).await;
        half_way(&mut second_lines).await;
        registry.deliver(Delivery::Whole);
    };
    let (first, second, ()) =
        tokio::join!(prepare(&backend, &first), prepare(&backend, &second), told);

    first.unwrap();
    second.unwrap();
    assert_eq!(registry.pulls(), 1);
}

#[tokio::test]
async fn a_caller_that_goes_away_does_not_stop_the_pull() {
    let lab = DockerFixture::new().await;
    let registry = RegistryCredentials::start(Delivery::Held).await;
    let image = registry.publish("left");
    let backend = backend_of(&lab, &image, |_| ());
    let (progress, mut lines) = listen();

    tokio::select! {
        ended = prepare(&backend, &progress) => panic!("{ended:?}"),
        _ = half_way(&mut lines) => {}
    }
    registry.deliver(Delivery::Whole);

    support::until("the image is there", || is_there(&lab, &image)).await;
    prepare(&backend, &PrepareProgress::silent()).await.unwrap();
    assert_eq!(registry.pulls(), 1);
}

#[tokio::test]
async fn an_image_that_the_registry_does_not_have_is_a_cause_and_asked_for_again() {
    let lab = DockerFixture::new().await;
    let registry = RegistryCredentials::start(Delivery::Whole).await;
    let image = registry.reference("late");
    let backend = backend_of(&lab, &image, |_| ());

    let cause = cause(&backend).await;
    assert!(cause.contains(&image), "{cause}");
    assert!(cause.contains("does not have it"), "{cause}");

    registry.publish("late");
    prepare(&backend, &PrepareProgress::silent()).await.unwrap();
}

#[tokio::test]
async fn a_private_registry_wants_its_own_credentials() {
    // Spelled so that the header in which the engine gets it holds `+` and `/`.
    let password = "canary>>>>>?????";
    let lab = DockerFixture::new().await;
    let registry = RegistryCredentials::private("alice", password).await;
    let image = registry.publish("private");
    let credentials = |server: String, password: &str| Credentials {
        server,
        username: "alice".to_owned(),
        password: password.into(),
    };

    let without = cause(&backend_of(&lab, &image, |_| ())).await;
    assert!(without.contains("gives no access"), "{without}");
    assert!(without.contains(&registry.server()), "{without}");

    let elsewhere = credentials("ghcr.io".to_owned(), password);
    let elsewhere = backend_of(&lab, &image, |config| config.registry = Some(elsewhere));
    cause(&elsewhere).await;
    assert_eq!(
        registry.presented(),
        [""; 0],
        "credentials of another registry were shown"
    );

    let wrong = credentials(registry.server(), "canary-wrong");
    let wrong = backend_of(&lab, &image, |config| config.registry = Some(wrong));
    let wrong = cause(&wrong).await;
    assert!(wrong.contains("gives no access"), "{wrong}");
    assert!(!wrong.contains("canary"), "{wrong}");

    let right = credentials(registry.server(), password);
    let right = backend_of(&lab, &image, |config| config.registry = Some(right));
    prepare(&right, &PrepareProgress::silent()).await.unwrap();
}

#[tokio::test]
async fn a_connection_that_breaks_once_does_not_fail_the_pull() {
    let lab = DockerFixture::new().await;
    let registry = RegistryCredentials::start(Delivery::CutOnce).await;
    let image = registry.publish("cut");
    let backend = backend_of(&lab, &image, |_| ());

    prepare(&backend, &PrepareProgress::silent()).await.unwrap();

    assert!(is_there(&lab, &image).await);
}

#[tokio::test]
async fn a_pull_without_progress_is_given_up_and_the_next_one_may_succeed() {
    let lab = DockerFixture::new().await;
    for delivery in [Delivery::Held, Delivery::Cut] {
        let registry = RegistryCredentials::start(delivery).await;
        let image = registry.publish("stuck");
        let backend = backend_of(&lab, &image, |config| {
            config.pull_stall = Duration::from_secs(3);
        });

        let cause = cause(&backend).await;
        assert!(
            cause.contains("no progress for 3s"),
            "{delivery:?}: {cause}"
        );
        assert!(cause.contains(&registry.server()), "{delivery:?}: {cause}");

        registry.deliver(Delivery::Whole);
        let patient = backend_of(&lab, &image, |_| ());
        prepare(&patient, &PrepareProgress::silent()).await.unwrap();
    }
}

#[tokio::test]
async fn a_registry_that_cannot_be_reached_is_a_cause() {
    let lab = DockerFixture::new().await;
    // The port is bound, but nothing listens on it.
    let nobody = tokio::net::TcpSocket::new_v4().unwrap();
    nobody.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = nobody.local_addr().unwrap();
    let backend = backend_of(&lab, &format!("{address}/none:1"), |_| ());

    let cause = cause(&backend).await;

    assert!(cause.contains("could not reach the registry"), "{cause}");
    assert!(cause.contains(&address.to_string()), "{cause}");
}

#[tokio::test]
async fn an_engine_that_cannot_be_reached_is_another_cause() {
    let lab = DockerFixture::new().await;
    let backend = lab.backend_with(|config| {
        config.socket = Some("unix:///nonexistent/engine.sock".to_owned());
    });

    let cause = cause(&backend).await;

    assert!(cause.contains("container engine"), "{cause}");
    assert!(!cause.contains("registry"), "{cause}");
}

#[tokio::test]
async fn an_image_that_is_removed_by_hand_is_pulled_again() {
    let lab = DockerFixture::new().await;
    let registry = RegistryCredentials::start(Delivery::Whole).await;
    let image = registry.publish("removed");
    let backend = backend_of(&lab, &image, |_| ());
    prepare(&backend, &PrepareProgress::silent()).await.unwrap();
    let none = None::<bollard::query_parameters::RemoveImageOptions>;
    lab.docker.remove_image(&image, none, None).await.unwrap();

    // What was seen a moment ago is trusted, so this start is the one to find out.
    let error = backend.start(&support::launch(SPEC)).await.unwrap_err();
    let cause = error.public();
    assert!(cause.contains("image"), "{cause}");
    prepare(&backend, &PrepareProgress::silent()).await.unwrap();

    assert_eq!(registry.pulls(), 2);
    assert!(is_there(&lab, &image).await);
}
