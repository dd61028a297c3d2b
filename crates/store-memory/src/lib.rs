//! Everything behind the ports, in memory: every repository in one mutex, and fakes of sandboxes, agent servers, clock
//! and ids. For tests of use-cases; simple and clear, not fast.
//!
//! Knows: what the ports promise (the same laws hold as for the SQL store). Must never know: a use-case, I/O.

mod administration;
mod api_keys;
mod audit;
mod conversations;
mod deletion;
mod events;
mod fake_agent;
mod fake_backend;
mod fake_cipher;
mod fake_clock;
mod fake_dormant;
mod fake_git;
mod fake_message;
mod fake_mood;
mod fake_skills;
mod fake_specs;
mod fake_workspace;
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

pub use fake_agent::FakeAgentRuntime;
pub use fake_backend::FakeSandboxBackend;
pub use fake_cipher::MarkerCipher;
pub use fake_clock::{FixedClock, SequentialIds};
pub use fake_dormant::DormantServers;
pub use fake_git::{FakeGitHosting, FakeProvider};
pub use fake_mood::{Calls, FakeBehavior};
pub use fake_skills::FakeSkills;
pub use fake_specs::FakeSpecs;
pub use fake_workspace::FakeWorkspace;
pub use state::MemoryStore;
