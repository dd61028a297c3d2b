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

mod settings {
    use super::fresh;
    port_conformance::settings_repository_conformance!(fresh());
}

mod secrets {
    use super::fresh;
    port_conformance::secret_repository_conformance!(fresh());
}

mod api_keys {
    use super::fresh;
    port_conformance::api_key_repository_conformance!(fresh());
}

mod sandboxes {
    use super::fresh;
    port_conformance::sandbox_repository_conformance!(fresh());
}

mod warm {
    use super::fresh;
    port_conformance::warm_repository_conformance!(fresh());
}

mod conversations {
    use super::fresh;
    port_conformance::conversation_repository_conformance!(fresh());
}

mod events {
    use super::fresh;
    port_conformance::event_store_conformance!(fresh());
}

mod event_sequence {
    use super::fresh;
    port_conformance::event_sequence_conformance!(fresh());
}

mod answers {
    use super::fresh;
    port_conformance::idempotency_repository_conformance!(fresh());
}

mod hosts {
    use super::fresh;
    port_conformance::host_repository_conformance!(fresh());
}

mod leases {
    use super::fresh;
    port_conformance::lease_repository_conformance!(fresh());
}

mod vault {
    use super::fresh;
    port_conformance::vault_repository_conformance!(fresh());
}

mod sealed {
    use super::fresh;
    port_conformance::sealed_records_conformance!(fresh());
}

mod administration {
    use super::fresh;
    port_conformance::administration_conformance!(fresh());
}

mod audit {
    use super::fresh;
    port_conformance::audit_log_conformance!(fresh());
}

mod users {
    use super::fresh;
    port_conformance::user_repository_conformance!(fresh());
}

mod pruning {
    use super::fresh;
    port_conformance::pruning_conformance!(fresh());
}

mod concurrency {
    use super::fresh;
    port_conformance::concurrency_conformance!(fresh());
}

mod usage {
    use super::fresh;
    port_conformance::usage_repository_conformance!(fresh());
}

mod unusual_text {
    use super::fresh;
    port_conformance::unusual_text_conformance!(fresh());
}

mod pending_messages {
    use super::fresh;
    port_conformance::pending_message_repository_conformance!(fresh());
}

mod start_tasks {
    use super::fresh;
    port_conformance::start_task_repository_conformance!(fresh());
}

mod backend {
    use super::{backend, exit, launch, say};
    port_conformance::sandbox_backend_conformance!(fresh: backend(), launch: launch, exit: exit, say: say);
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "called as the conformance tests call it"
)]
fn say(
    backend: &Arc<FakeSandboxBackend>,
    id: domain::id::SandboxId,
    line: String,
) -> std::future::Ready<()> {
    backend.say(&id, &line);
    std::future::ready(())
}

fn backend() -> std::future::Ready<Arc<FakeSandboxBackend>> {
    std::future::ready(Arc::default())
}

fn launch() -> SandboxLaunch {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let id = fixtures::uuid(NEXT.fetch_add(1, Ordering::SeqCst));
    suites::sandboxes::backend::launch(id, &SpecId::parse("fake").expect("a valid id"))
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "the shape that the macro calls"
)]
fn exit(backend: &Arc<FakeSandboxBackend>, id: SandboxId) -> std::future::Ready<()> {
    backend.exit(&id);
    std::future::ready(())
}
