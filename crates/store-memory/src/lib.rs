//! Everything behind the ports, in memory: every repository in one mutex, and fakes of sandboxes, agent servers, clock
//! and ids. For tests of use-cases; simple and clear, not fast.
//!
//! Knows: what the ports promise (the conformance tests that the SQL store passes). Must never know: a use-case, I/O.

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
