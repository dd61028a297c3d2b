//! The whole application over stores and fakes in memory.

use std::sync::Arc;

use application::{App, AuthMode, BackgroundTasks, Policy, Ports};
use domain::clock::Clock;
use domain::id::HostId;
use store_memory::{
    FakeAgentRuntime, FakeGitHosting, FakeIdentityProviders, FakeSandboxBackend, FakeSkills,
    FakeSpecs, FakeWorkspace, MarkerCipher, MarkerPasswords, MemoryStore, SequentialIds,
};

/// The application with this store, without background tasks.
#[expect(clippy::too_many_lines, reason = "one line for each port")]
pub(super) fn application(store: &Arc<MemoryStore>, clock: &Arc<dyn Clock>) -> App {
    let agents = Arc::<FakeAgentRuntime>::default();
    let backend = Arc::<FakeSandboxBackend>::default();
    let git = Arc::<FakeGitHosting>::default();
    let ports = Ports {
        conversations: store.clone(),
        conversation_reports: store.clone(),
        conversation_deletions: store.clone(),
        events: store.clone(),
        start_tasks: store.clone(),
        start_queue: store.clone(),
        sandboxes: store.clone(),
        sandbox_keys: store.clone(),
        host_sandboxes: store.clone(),
        warm: store.clone(),
        backend: backend.clone(),
        sandbox_lifecycle: backend.clone(),
        sandbox_reader: backend,
        specs: Arc::new(FakeSpecs::default()),
        agents: agents.clone(),
        agent_lifecycle: agents.clone(),
        agent_reader: agents,
        settings: store.clone(),
        secrets: store.clone(),
        workspace: Arc::new(FakeWorkspace::default()),
        pending: store.clone(),
        skills: Arc::new(FakeSkills::default()),
        git: git.clone(),
        clone_sources: git,
        api_keys: store.clone(),
        users: store.clone(),
        sessions: store.clone(),
        passwords: store.clone(),
        organizations: store.clone(),
        organization_deletions: store.clone(),
        identities: store.clone(),
        device_logins: store.clone(),
        egress_requests: store.clone(),
        identity_providers: Arc::new(FakeIdentityProviders::default()),
        password_hasher: Arc::new(MarkerPasswords),
        mailer: None,
        administration: store.clone(),
        audit: store.clone(),
        idempotent_responses: store.clone(),
        usage: store.clone(),
        spending: store.clone(),
        hosts: store.clone(),
        leases: store.clone(),
        changes: store.clone(),
        vault: store.clone(),
        cipher: Arc::new(MarkerCipher),
        fingerprints: Arc::new(MarkerCipher),
        models: None,
        clock: clock.clone(),
        ids: Arc::new(SequentialIds::default()),
    };
    let mut policy = Policy::new(
        HostId::parse("host").unwrap(),
        "http://127.0.0.1:3000/api/v1/webhooks".parse().unwrap(),
        AuthMode::ApiKey,
    );
    // Tokens of tests are invented.
    policy.verify_git_tokens = false;
    App::new(
        &ports,
        policy,
        BackgroundTasks::new(tokio::runtime::Handle::current()),
    )
}
