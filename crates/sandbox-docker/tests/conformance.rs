//! The conformance tests of the port, on a real engine.
#![expect(
    clippy::unwrap_used,
    reason = "a helper that fails is a test that fails"
)]

mod support;

use std::ops::Deref;

use domain::id::{SandboxId, SpecId};
use domain::sandbox::{SandboxBackend, SandboxLaunch};
use port_conformance::suites::sandboxes::backend as sandbox_backend;
use sandbox_docker::DockerSandboxes;
use support::{Lab, SPEC};

struct Fresh {
    backend: DockerSandboxes,
    lab: Lab,
}

impl Deref for Fresh {
    type Target = dyn SandboxBackend;
    fn deref(&self) -> &Self::Target {
        &self.backend
    }
}

async fn fresh() -> Fresh {
    let lab = Lab::new().await;
    Fresh {
        backend: lab.backend(),
        lab,
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "conformance tests want unused ids"
)]
fn launch() -> SandboxLaunch {
    sandbox_backend::launch(uuid::Uuid::new_v4(), &SpecId::parse(SPEC).unwrap())
}

async fn exit(fresh: &Fresh, id: SandboxId) {
    fresh.lab.kill(&id).await;
}

async fn say(fresh: &Fresh, id: SandboxId, line: String) {
    // What its main process, which is behind an init process, writes to.
    let command = ["sh", "-c", "echo \"$1\" > /proc/1/fd/1", "sh", &line];
    let (code, said) = fresh.lab.exec(&id, &command).await;
    assert_eq!(code, 0, "{said}");
}

port_conformance::sandbox_backend_conformance!(
    fresh: fresh(),
    launch: launch,
    exit: exit,
    say: say,
);
