//! The conformance tests of the port.

use std::fs::File;
use std::future::{Ready, ready};
use std::io::Write;
use std::ops::Deref;

use domain::id::{SandboxId, SpecId};
use domain::sandbox::SandboxLaunch;
use port_conformance::suites::sandboxes::backend as sandbox_backend;
use sandbox_process::ProcessSandboxes;

use super::support::{ProcessFixture, signal};

struct FreshBackend {
    backend: ProcessSandboxes,
    fixture: ProcessFixture,
}

impl Deref for FreshBackend {
    type Target = ProcessSandboxes;
    fn deref(&self) -> &Self::Target {
        &self.backend
    }
}

async fn fresh() -> FreshBackend {
    let fixture = ProcessFixture::new();
    FreshBackend {
        backend: fixture.backend().await,
        fixture,
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "conformance tests need unused ids"
)]
fn launch() -> SandboxLaunch {
    sandbox_backend::launch(uuid::Uuid::new_v4(), &SpecId::parse("process").unwrap())
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "the conformance tests define the signature"
)]
fn exit(fresh: &FreshBackend, id: SandboxId) -> Ready<()> {
    signal("KILL", fresh.fixture.main_pid(&id));
    ready(())
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "the conformance tests define the signature"
)]
fn write_log_line(fresh: &FreshBackend, id: SandboxId, line: String) -> Ready<()> {
    // The output of the main process.
    let out = format!("/proc/{}/fd/1", fresh.fixture.main_pid(&id));
    let mut out = File::options().append(true).open(out).unwrap();
    writeln!(out, "{line}").unwrap();
    ready(())
}

port_conformance::sandbox_backend_conformance!(fresh: fresh(), launch: launch, exit: exit, write_log_line: write_log_line);
