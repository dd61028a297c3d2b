//! Disk limits that the service measures, because the engine's storage has no quotas; and a full disk.
#![expect(clippy::unwrap_used, reason = "a failed helper fails its test")]

use crate::{private, support};

use std::fs::{self, File};
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use domain::crash_point;
use domain::error::Classify;
use domain::id::{SandboxId, SpecId};
use domain::sandbox::{
    BackendState, PrepareProgress, SandboxBackend, SandboxError, SandboxLifecycle,
};
use private::PrivateEngine;
use sandbox_docker::DockerSandboxes;

use support::{DockerFixture, SPEC};

const LIMIT: u64 = 8 << 20;

/// Completed measurements of disk usage in this process.
static MEASUREMENTS: AtomicUsize = AtomicUsize::new(0);

fn count_measurement(moment: &'static str, operation: &'static str) {
    if (moment, operation) == ("after", "measuring disk usage") {
        MEASUREMENTS.fetch_add(1, Ordering::SeqCst);
    }
}

/// Waits until that many measurements have completed from now on.
async fn wait_for_measurements(count: usize) {
    let expected = MEASUREMENTS.load(Ordering::SeqCst) + count;
    support::wait_until("disk usage is measured", || async {
        MEASUREMENTS.load(Ordering::SeqCst) >= expected
    })
    .await;
}

fn backend(fixture: &DockerFixture, interval: Duration) -> DockerSandboxes {
    fixture.backend_with(|config| {
        config.disk_interval = interval;
        config.specs[0].resources.disk = Some(LIMIT);
    })
}

async fn start(backend: &DockerSandboxes) -> SandboxId {
    let launch = support::launch(SPEC);
    backend.start(&launch).await.unwrap();
    launch.id
}

async fn fill(fixture: &DockerFixture, id: &SandboxId, file: &str, mebibytes: u32) {
    let script = format!("dd if=/dev/zero of={file} bs=1M count={mebibytes}");
    let (code, output) = fixture.exec(id, &["sh", "-c", &script]).await;
    assert_eq!(code, 0, "{output}");
}

#[tokio::test]
async fn usage_of_volume_and_image_over_the_limit_stops_the_sandbox() {
    let fixture = DockerFixture::new().await;
    let backend = backend(&fixture, Duration::from_millis(200));
    let mut facts = backend.watch();
    let (full, modest) = (start(&backend).await, start(&backend).await);
    fill(&fixture, &modest, "/workspace/file", 5).await;

    fill(&fixture, &full, "/workspace/file", 5).await;
    fill(&fixture, &full, "/file", 5).await;

    let detail = support::exit_detail(Some(support::next_state(&mut facts, &full).await));
    assert!(detail.contains("10 MiB of disk"), "{detail}");
    assert!(detail.contains("limit of 8 MiB"), "{detail}");
    assert!(detail.contains("resume"), "{detail}");
    assert_eq!(fixture.status(&full).await, "exited");
    // Later observations report the same.
    let state = backend.inspect(&full).await.unwrap();
    assert_eq!(support::exit_detail(state), detail);
    assert_eq!(fixture.status(&modest).await, "running");
}

#[tokio::test]
async fn a_resumed_sandbox_over_its_limit_has_two_measurements_of_grace() {
    let fixture = DockerFixture::new().await;
    crash_point::install(count_measurement);
    let backend = backend(&fixture, Duration::from_secs(5));
    let launch = support::launch(SPEC);
    let id = &launch.id;
    let mut facts = backend.watch();
    backend.start(&launch).await.unwrap();
    fill(&fixture, id, "/workspace/file", 10).await;
    support::exit_detail(Some(support::next_state(&mut facts, id).await));

    backend.start(&launch).await.unwrap();
    // The first measurement finds the sandbox over its limit; the third one would stop it.
    wait_for_measurements(1).await;
    let (code, output) = fixture.exec(id, &["rm", "/workspace/file"]).await;
    assert_eq!(code, 0, "{output}");
    wait_for_measurements(3).await;
    assert_eq!(fixture.status(id).await, "running");

    // The grace was used up: exceeding the limit again stops the sandbox.
    fill(&fixture, id, "/workspace/file", 10).await;
    let state = support::next_state(&mut facts, id).await;
    assert!(matches!(state, BackendState::Exited { .. }), "{state:?}");
}

#[tokio::test]
async fn a_full_disk_of_the_engine_fails_a_start_with_its_cause() {
    let mut engine = PrivateEngine::prepared();
    let filler = format!("{}/filler", engine.limit_disk(64));
    engine.start().await;
    let fixture = DockerFixture::on(engine.docker(), Some(engine.socket())).await;
    let backend = fixture.backend();
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
    assert_eq!(fixture.status(&launch.id).await, "running");
}
