//! Fakes of what is not a store: sandboxes, agent servers, git hosts, clock and ids.

mod agent;
mod backend;
mod behavior;
mod cipher;
mod clock_and_ids;
mod dormant_servers;
mod git_hosting;
mod identity_providers;
mod mailer;
mod message_events;
mod new_conversation;
mod passwords;
mod skills;
mod specs;
mod workspace;

pub use agent::FakeAgentRuntime;
pub use backend::FakeSandboxBackend;
pub use behavior::{FakeAgentCalls, FakeBehavior};
pub use cipher::MarkerCipher;
pub use clock_and_ids::{FixedClock, SequentialIds};
pub use dormant_servers::DormantServers;
pub use git_hosting::{FakeGitHosting, FakeProvider};
pub use identity_providers::FakeIdentityProviders;
pub use mailer::FakeMailer;
pub use passwords::MarkerPasswords;
pub use skills::FakeSkills;
pub use specs::FakeSpecs;
pub use workspace::FakeWorkspace;
