//! Disk limits that are watched, because the engine's storage here knows none; and a disk that is full.
#![expect(
    clippy::unwrap_used,
    reason = "a helper that fails is a test that fails"
)]

use crate::{private, support};

use std::fs::{self, File};
use std::io::Write;
use std::time::Duration;

use domain::error::Classify;
use domain::id::{SandboxId, SpecId};
use domain::sandbox::{BackendState, PrepareProgress, SandboxBackend, SandboxError};
use private::PrivateEngine;
use sandbox_docker::DockerSandboxes;

use support::{DockerFixture, SPEC};

const LIMIT: u64 = 8 << 20;

fn backend(lab: &DockerFixture, interval: Duration) -> DockerSandboxes {
    lab.backend_with(|config| {
        config.disk_interval = interval;
        config.specs[0].resources.disk = Some(LIMIT);
    })
}

async fn start(backend: &DockerSandboxes) -> SandboxId {
    let launch = support::launch(SPEC);
    backend.start(&launch).await.unwrap();
    launch.id
}

async fn fill(lab: &DockerFixture, id: &SandboxId, file: &str, mebibytes: u32) {
    let script = format!("dd if=/dev/zero of={file} bs=1M count={mebibytes}");
    let (code, said) = lab.exec(id, &["sh", "-c", &script]).await;
    assert_eq!(code, 0, "{said}");
}

#[tokio::test]
async fn too_much_in_volume_and_image_together_ends_the_sandbox_with_a_cause() {
    let lab = DockerFixture::new().await;
    let backend = backend(&lab, Duration::from_millis(200));
    let mut facts = backend.watch();
    let (full, modest) = (start(&backend).await, start(&backend).await);
    fill(&lab, &modest, "/workspace/file", 5).await;

    fill(&lab, &full, "/workspace/file", 5).await;
    fill(&lab, &full, "/file", 5).await;

    let detail = support::detail(Some(support::told(&mut facts, &full).await));
    assert!(detail.contains("10 MiB of disk"), "{detail}");
    assert!(detail.contains("limit of 8 MiB"), "{detail}");
    assert!(detail.contains("resume"), "{detail}");
    assert_eq!(lab.status(&full).await, "exited");
    // Later observations report the same.
    let state = backend.inspect(&full).await.unwrap();
    assert_eq!(support::detail(state), detail);
    assert_eq!(lab.status(&modest).await, "running");
}

#[tokio::test]
async fn one_that_is_resumed_has_time_to_be_tidied() {
    let lab = DockerFixture::new().await;
    let interval = Duration::from_secs(6);
    let backend = backend(&lab, interval);
    let launch = support::launch(SPEC);
    let id = &launch.id;
    let mut facts = backend.watch();
    backend.start(&launch).await.unwrap();
    fill(&lab, id, "/workspace/file", 10).await;
    support::detail(Some(support::told(&mut facts, id).await));

    backend.start(&launch).await.unwrap();
    // It was looked at once at least, and has two intervals from then on.
    tokio::time::sleep(interval * 3 / 2).await;
    let (code, said) = lab.exec(id, &["rm", "/workspace/file"]).await;
    assert_eq!(code, 0, "{said}");
    // Longer than it would have had.
    tokio::time::sleep(interval * 2).await;
    assert_eq!(lab.status(id).await, "running");

    // Not for ever: it is only new once.
    fill(&lab, id, "/workspace/file", 10).await;
    let state = support::told(&mut facts, id).await;
    assert!(matches!(state, BackendState::Exited { .. }), "{state:?}");
}

#[tokio::test]
async fn a_full_disk_of_the_engine_is_a_cause_and_not_the_end() {
    let mut engine = PrivateEngine::prepared();
    let filler = format!("{}/filler", engine.limit_disk(64));
    engine.start().await;
    let lab = DockerFixture::on(engine.docker(), Some(engine.socket())).await;
    let backend = lab.backend();
    let spec = SpecId::parse(SPEC).unwrap();
    backend
        .prepare(&spec, &PrepareProgress::silent())
        .await
        .unwrap();
    let launch = support::launch(SPEC);
    let mut file = File::create(&filler).unwrap();
    for block in [1 << 20, 1 << 12, 1] {
        while file.write_all(&vec![0; block]).is_ok() {}
    }

    let error = backend.start(&launch).await.unwrap_err();
    assert!(
        matches!(error, SandboxError::Unavailable { .. }),
        "{error:?}"
    );
    let cause = error.public();
    assert!(cause.contains("disk is full"), "{cause}");
    assert!(!cause.contains("/tmp"), "a path of the host: {cause}");

    drop(file);
    fs::remove_file(&filler).unwrap();
    backend.start(&launch).await.unwrap();
    assert_eq!(lab.status(&launch.id).await, "running");
}
