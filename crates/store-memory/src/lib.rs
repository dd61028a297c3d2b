//! In-memory adapters of all ports, for tests of use cases: a store whose repositories share one mutex, and fakes of
//! sandboxes, agent servers, clock and ids. They are simple and clear, not fast.
//!
//! Knows: the promises of the ports (it passes the conformance tests that the SQL store passes). Must never know: a use
//! case, I/O.

mod administration;
mod api_keys;
mod audit;
mod conversations;
mod deletion;
mod events;
mod fakes;
mod hosts;
mod idempotency;
mod leases;
mod page;
mod pending;
mod sandboxes;
mod secrets;
mod settings;
mod start_tasks;
mod state;
mod usage;
mod users;
mod vault;
mod warm;

pub use fakes::{
    DormantServers, FakeAgentCalls, FakeAgentRuntime, FakeBehavior, FakeGitHosting, FakeProvider,
    FakeSandboxBackend, FakeSkills, FakeSpecs, FakeWorkspace, FixedClock, MarkerCipher,
    SequentialIds,
};
pub use state::MemoryStore;
