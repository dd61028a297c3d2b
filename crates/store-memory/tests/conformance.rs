//! The conformance tests of every repository port and of sandbox backends, in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use domain::id::{SandboxId, SpecId};
use domain::sandbox::SandboxLaunch;
use port_conformance::{StorePorts, fixtures, suites};
use store_memory::{FakeSandboxBackend, MemoryStore};

fn fresh() -> std::future::Ready<StorePorts> {
    std::future::ready(StorePorts::of(MemoryStore::new()))
}

port_conformance::store_conformance!(fresh);

mod backend {
    use super::{backend, exit, launch, write_log_line};
    port_conformance::sandbox_backend_conformance!(fresh: backend(), launch: launch, exit: exit, write_log_line: write_log_line);
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "the signature that the macro calls"
)]
fn write_log_line(
    backend: &Arc<FakeSandboxBackend>,
    id: SandboxId,
    line: String,
) -> std::future::Ready<()> {
    backend.append_log_line(&id, &line);
    std::future::ready(())
}

fn backend() -> std::future::Ready<Arc<FakeSandboxBackend>> {
    std::future::ready(Arc::default())
}

fn launch() -> SandboxLaunch {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let id = fixtures::uuid(NEXT.fetch_add(1, Ordering::SeqCst));
    suites::sandboxes::backend::launch(id, &SpecId::parse("fake").expect("valid spec id"))
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "the signature that the macro calls"
)]
fn exit(backend: &Arc<FakeSandboxBackend>, id: SandboxId) -> std::future::Ready<()> {
    backend.exit(&id);
    std::future::ready(())
}
