//! Secrets appear only in the environment of a sandbox.
#![expect(clippy::unwrap_used, reason = "a failed helper fails its test")]

use crate::support;

use std::io;
use std::sync::{Arc, Mutex};

use domain::sandbox::SandboxLifecycle;
use secrecy::SecretString;
use support::{DockerFixture, SPEC, container_name, launch, next_state, script};
use tracing::instrument::WithSubscriber;
use tracing::subscriber::NoSubscriber;

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Runs calls of the test itself without logging them.
async fn unlogged<T>(work: impl Future<Output = T>) -> T {
    work.with_subscriber(NoSubscriber::default()).await
}

#[tokio::test]
async fn secrets_are_in_the_environment_only() {
    let log = Log::default();
    let writer = log.clone();
    // All levels of all crates, also through `log`: the client logs bodies.
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone())
        .init();
    let fixture = DockerFixture::new().await;
    let print_secrets = "env; cat /no-such-file; echo {\\\"message\\\":\\\"using $OH_SECRET_KEY\\\"}; sleep 600 & wait";
    let mut spec = script(SPEC, print_secrets);
    let canary = SecretString::from("canary-template");
    spec.secret_env.insert("TEMPLATE_SECRET".to_owned(), canary);
    let backend = fixture.backend_with(|config| config.specs = vec![spec]);
    let launch = launch(SPEC);
    let mut facts = backend.watch();
    backend.start(&launch).await.unwrap();
    let echo = ["sh", "-c", "echo $OH_SECRET_KEY $TEMPLATE_SECRET"];
    let (_, inside) = unlogged(fixture.exec(&launch.id, &echo)).await;
    assert_eq!(inside.trim(), "canary-secret-key canary-template");
    fixture.kill(&launch.id).await;
    let state = next_state(&mut facts, &launch.id).await;
    let detail = support::exit_detail(Some(state));
    assert!(detail.contains("using ***"), "{detail}");
    let container = unlogged(fixture.container(&launch.id)).await;
    let labels = container.config.unwrap().labels.unwrap();
    let volume = fixture
        .docker
        .inspect_volume(&container_name(&launch.id))
        .await
        .unwrap();
    let listed = backend.list().await.unwrap();
    let config = fixture.config();
    let logged = String::from_utf8_lossy(&log.0.lock().unwrap()).into_owned();
    assert!(
        logged.contains("sandbox_docker"),
        "the log contains lines of the backend"
    );
    for text in [
        detail,
        format!("{labels:?}"),
        format!("{volume:?}"),
        format!("{listed:?}"),
        format!("{backend:?}"),
        format!("{config:?}"),
        format!("{launch:?}"),
    ] {
        assert!(!text.contains("canary"), "{text}");
    }
    let leaks: Vec<_> = logged
        .lines()
        .filter(|line| line.contains("canary"))
        .collect();
    assert!(leaks.is_empty(), "{leaks:#?}");
    backend.remove(&launch.id).await.unwrap();
}
