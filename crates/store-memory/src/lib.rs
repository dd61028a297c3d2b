//! In-memory adapters of all ports, for tests of use cases: a store whose repositories share one mutex, and fakes of
//! sandboxes, agent servers, git providers, clock and ids. They are simple, not fast.
//!
//! Knows: the ports and their promises; the store passes the same conformance tests as the SQL store.
//! Must never know: a use case, I/O.

mod conversations;
mod fakes;
mod idempotency;
mod leases;
mod page;
mod sandboxes;
mod secrets;
mod start_tasks;
mod state;
mod users;

pub use fakes::{
    DormantServers, FakeAgentCalls, FakeAgentRuntime, FakeBehavior, FakeGitHosting,
    FakeIdentityProviders, FakeMailer, FakeProvider, FakeSandboxBackend, FakeSkills, FakeSpecs,
    FakeWorkspace, FixedClock, MarkerCipher, MarkerPasswords, SequentialIds,
};
pub use state::MemoryStore;
