//! The backend of the tutorial "Write a sandbox adapter" (docs/tutorials/sandbox-adapter.md) passes the conformance tests.
//! The tutorial shows parts of this crate.
#![expect(clippy::unwrap_used, reason = "a failed test panics")]

use std::fs::File;
use std::io::Write;
use std::ops::Deref;
use std::process::Command;

use domain::id::{SandboxId, SpecId};
use domain::sandbox::SandboxLaunch;
use port_conformance::suites::sandboxes::backend::launch as new_launch;
use sandbox_example::ExampleSandboxes;
use tempfile::TempDir;

struct FreshBackend {
    backend: ExampleSandboxes,
    root: TempDir,
}

impl Deref for FreshBackend {
    type Target = ExampleSandboxes;
    fn deref(&self) -> &Self::Target {
        &self.backend
    }
}

async fn fresh() -> FreshBackend {
    let root = TempDir::new().unwrap();
    // It runs until it is killed. The words after `--` are the arguments that the backend adds.
    let command = ["sh", "-c", "exec sleep 1000", "--"].map(str::to_owned);
    let backend = ExampleSandboxes::new(root.path(), command.to_vec()).await;
    FreshBackend {
        backend: backend.unwrap(),
        root,
    }
}

#[expect(clippy::disallowed_methods, reason = "each test takes a new id")]
fn launch() -> SandboxLaunch {
    new_launch(uuid::Uuid::new_v4(), &SpecId::parse("example").unwrap())
}

async fn main_pid(fresh: &FreshBackend, id: &SandboxId) -> String {
    let file = fresh.root.path().join(id.as_str()).join("pid");
    tokio::fs::read_to_string(file).await.unwrap()
}

async fn exit(fresh: &FreshBackend, id: SandboxId) {
    let pid = main_pid(fresh, &id).await;
    let killed = Command::new("kill").args(["-KILL", &pid]).status();
    assert!(killed.unwrap().success());
}

async fn write_log_line(fresh: &FreshBackend, id: SandboxId, line: String) {
    let output = format!("/proc/{}/fd/1", main_pid(fresh, &id).await);
    let mut output = File::options().append(true).open(output).unwrap();
    writeln!(output, "{line}").unwrap();
}

port_conformance::sandbox_backend_conformance!(fresh: fresh(), launch: launch, exit: exit, write_log_line: write_log_line);
