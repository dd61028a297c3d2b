//! The conformance tests of the port, on a real engine.
#![expect(clippy::unwrap_used, reason = "a failed helper fails its test")]

use crate::support;

use std::ops::Deref;

use domain::id::{SandboxId, SpecId};
use domain::sandbox::SandboxLaunch;
use port_conformance::suites::sandboxes::backend as sandbox_backend;
use sandbox_docker::DockerSandboxes;
use support::{DockerFixture, SPEC};

struct FreshBackend {
    backend: DockerSandboxes,
    fixture: DockerFixture,
}

impl Deref for FreshBackend {
    type Target = DockerSandboxes;
    fn deref(&self) -> &Self::Target {
        &self.backend
    }
}

async fn fresh() -> FreshBackend {
    let fixture = DockerFixture::new().await;
    FreshBackend {
        backend: fixture.backend(),
        fixture,
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "conformance tests need unused ids"
)]
fn launch() -> SandboxLaunch {
    sandbox_backend::launch(uuid::Uuid::new_v4(), &SpecId::parse(SPEC).unwrap())
}

async fn exit(fresh: &FreshBackend, id: SandboxId) {
    fresh.fixture.kill(&id).await;
}

async fn write_log_line(fresh: &FreshBackend, id: SandboxId, line: String) {
    // The output of the main process. Process 1 is the init process, which shares it.
    let command = ["sh", "-c", "echo \"$1\" > /proc/1/fd/1", "sh", &line];
    let (code, output) = fresh.fixture.exec(&id, &command).await;
    assert_eq!(code, 0, "{output}");
}

port_conformance::sandbox_backend_conformance!(
    fresh: fresh(),
    launch: launch,
    exit: exit,
    write_log_line: write_log_line,
);
