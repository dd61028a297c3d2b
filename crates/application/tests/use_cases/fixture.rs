//! A whole application over in-memory stores and fakes.

use std::sync::Arc;
use std::time::Duration;

use application::settings::LegacySettings;
use application::start::StartInput;
use application::{App, AuthMode, BackgroundTasks, Policy, Ports, background};
use domain::clock::{Clock, SystemClock};
use domain::conversation::{ConversationView, MessageInput};
use domain::id::{ConversationId, HostId, OwnerId};
use domain::sandbox::Sandbox;
use domain::start_task::{StartRequest, StartTask};
use domain::user::scope::Scope;
use serde_json::json;
use store_memory::{
    FakeAgentRuntime, FakeGitHosting, FakeIdentityProviders, FakeSandboxBackend, FakeSkills,
    FakeSpecs, FakeWorkspace, MarkerCipher, MarkerPasswords, MemoryStore, SequentialIds,
};

pub(crate) struct Fixture {
    pub(crate) app: App,
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) backend: Arc<FakeSandboxBackend>,
    pub(crate) agents: Arc<FakeAgentRuntime>,
    pub(crate) specs: Arc<FakeSpecs>,
    pub(crate) workspace: Arc<FakeWorkspace>,
    ids: Arc<SequentialIds>,
    tasks: BackgroundTasks,
    change: fn(&mut Policy),
}

impl Fixture {
    /// A running service without settings.
    pub(crate) fn without_settings(change: fn(&mut Policy)) -> Self {
        let store = MemoryStore::new();
        let (backend, agents, specs) = (Arc::default(), Arc::default(), Arc::default());
        let workspace = Arc::default();
        let ids = Arc::new(SequentialIds::default());
        let (app, tasks) = build(&store, &backend, &agents, &specs, &workspace, &ids, change);
        background::spawn(&app);
        Self {
            app,
            store,
            backend,
            agents,
            specs,
            workspace,
            ids,
            tasks,
            change,
        }
    }

    /// A running service whose user alice can start conversations.
    pub(crate) async fn with_policy(change: fn(&mut Policy)) -> Self {
        let fixture = Self::without_settings(change);
        let settings = LegacySettings {
            llm_model: Some("openai/m".to_owned()),
            llm_api_key: Some("sk-1".to_owned().into()),
            ..LegacySettings::default()
        };
        fixture
            .app
            .settings
            .store_legacy(&alice(), &settings)
            .await
            .expect("settings are stored");
        fixture
    }

    pub(crate) async fn new() -> Self {
        Self::with_policy(|_| {}).await
    }

    /// Another process on the same store, with its own sandboxes or (on the same host) the same ones.
    pub(crate) fn replica(&self, change: fn(&mut Policy)) -> Self {
        let backend = if policy_of(change).host == policy_of(self.change).host {
            Arc::clone(&self.backend)
        } else {
            Arc::default()
        };
        let (agents, specs, ids) = (&self.agents, &self.specs, &self.ids);
        let workspace = &self.workspace;
        let (app, tasks) = build(&self.store, &backend, agents, specs, workspace, ids, change);
        background::spawn(&app);
        Self {
            app,
            store: Arc::clone(&self.store),
            backend,
            agents: Arc::clone(agents),
            specs: Arc::clone(specs),
            workspace: Arc::clone(&self.workspace),
            ids: Arc::clone(ids),
            tasks,
            change,
        }
    }

    /// A process with the same sandboxes and another store.
    pub(crate) fn with_an_empty_store(&self) -> Self {
        let store = MemoryStore::new();
        let (backend, agents, specs, ids) = (&self.backend, &self.agents, &self.specs, &self.ids);
        let (app, tasks) = build(
            &store,
            backend,
            agents,
            specs,
            &self.workspace,
            ids,
            self.change,
        );
        background::spawn(&app);
        Self {
            app,
            store,
            backend: Arc::clone(backend),
            agents: Arc::clone(agents),
            specs: Arc::clone(specs),
            workspace: Arc::clone(&self.workspace),
            ids: Arc::clone(ids),
            tasks,
            change: self.change,
        }
    }

    /// The process dies and is not restarted.
    pub(crate) async fn kill(self) {
        assert!(
            self.tasks.stop(Duration::from_secs(5)).await,
            "tasks end when they are dropped"
        );
    }

    /// The process dies: it writes nothing more. Stores and sandboxes live on, and a new process starts.
    pub(crate) async fn kill_and_restart(self) -> Self {
        assert!(
            self.tasks.stop(Duration::from_secs(5)).await,
            "tasks end when they are dropped"
        );
        let (app, tasks) = build(
            &self.store,
            &self.backend,
            &self.agents,
            &self.specs,
            &self.workspace,
            &self.ids,
            self.change,
        );
        background::spawn(&app);
        Self { app, tasks, ..self }
    }

    /// Restarts with another policy.
    pub(crate) async fn restart_with(self, change: fn(&mut Policy)) -> Self {
        Self { change, ..self }.kill_and_restart().await
    }

    pub(crate) async fn start(&self, input: StartInput) -> StartTask {
        self.app
            .starts
            .start(&alice(), input)
            .await
            .expect("the start is accepted")
    }

    /// Starts a conversation and waits until its task has ended.
    pub(crate) async fn start_and_wait(&self, input: StartInput) -> StartTask {
        let task = self.start(input).await;
        self.wait_until_ended(&task).await
    }

    pub(crate) async fn wait_until_ended(&self, task: &StartTask) -> StartTask {
        wait_for(|| async {
            let found = self
                .app
                .starts
                .find_many(&Scope::System, &[task.id])
                .await
                .expect("readable");
            found
                .into_iter()
                .flatten()
                .find(|task| task.status.is_terminal())
        })
        .await
    }

    /// The current task.
    pub(crate) async fn current_task(&self, task: &StartTask) -> StartTask {
        let found = self.app.starts.find_many(&alice_scope(), &[task.id]).await;
        let mut found = found.expect("readable");
        found.pop().flatten().expect("it is there")
    }

    pub(crate) async fn view(&self, id: ConversationId) -> Option<ConversationView> {
        let found = self
            .app
            .conversations
            .find_many(&alice_scope(), &[id])
            .await
            .expect("readable");
        found.into_iter().flatten().next()
    }

    pub(crate) async fn sandbox(&self, id: &domain::id::SandboxId) -> Option<Sandbox> {
        let found = self
            .app
            .sandboxes
            .find_many(&alice_scope(), std::slice::from_ref(id))
            .await
            .expect("readable");
        found.into_iter().flatten().next()
    }
}

fn build(
    store: &Arc<MemoryStore>,
    backend: &Arc<FakeSandboxBackend>,
    agents: &Arc<FakeAgentRuntime>,
    specs: &Arc<FakeSpecs>,
    workspace: &Arc<FakeWorkspace>,
    ids: &Arc<SequentialIds>,
    change: fn(&mut Policy),
) -> (App, BackgroundTasks) {
    let git = Arc::<FakeGitHosting>::default();
    let ports = Ports {
        conversations: Arc::clone(store) as _,
        conversation_reports: Arc::clone(store) as _,
        conversation_deletions: Arc::clone(store) as _,
        events: Arc::clone(store) as _,
        start_tasks: Arc::clone(store) as _,
        start_queue: Arc::clone(store) as _,
        sandboxes: Arc::clone(store) as _,
        sandbox_keys: Arc::clone(store) as _,
        host_sandboxes: Arc::clone(store) as _,
        warm: Arc::clone(store) as _,
        backend: Arc::clone(backend) as _,
        sandbox_lifecycle: Arc::clone(backend) as _,
        sandbox_reader: Arc::clone(backend) as _,
        specs: Arc::clone(specs) as _,
        agents: Arc::clone(agents) as _,
        agent_lifecycle: Arc::clone(agents) as _,
        agent_reader: Arc::clone(agents) as _,
        settings: Arc::clone(store) as _,
        secrets: Arc::clone(store) as _,
        workspace: Arc::clone(workspace) as _,
        pending: Arc::clone(store) as _,
        skills: Arc::new(FakeSkills::default()),
        git: Arc::clone(&git) as _,
        clone_sources: git,
        api_keys: Arc::clone(store) as _,
        users: Arc::clone(store) as _,
        sessions: Arc::clone(store) as _,
        passwords: Arc::clone(store) as _,
        organizations: Arc::clone(store) as _,
        organization_deletions: Arc::clone(store) as _,
        device_logins: Arc::clone(store) as _,
        egress_requests: Arc::clone(store) as _,
        identities: Arc::clone(store) as _,
        identity_providers: Arc::new(FakeIdentityProviders::default()),
        password_hasher: Arc::new(MarkerPasswords),
        mailer: None,
        administration: Arc::clone(store) as _,
        audit: Arc::clone(store) as _,
        idempotent_responses: Arc::clone(store) as _,
        usage: Arc::clone(store) as _,
        spending: Arc::clone(store) as _,
        hosts: Arc::clone(store) as _,
        leases: Arc::clone(store) as _,
        changes: Arc::clone(store) as _,
        vault: Arc::clone(store) as _,
        cipher: Arc::new(MarkerCipher),
        fingerprints: Arc::new(MarkerCipher),
        models: None,
        clock: clock(),
        ids: Arc::clone(ids) as _,
    };
    let tasks = BackgroundTasks::new(tokio::runtime::Handle::current());
    (App::new(&ports, policy_of(change), tasks.clone()), tasks)
}

fn policy_of(change: fn(&mut Policy)) -> Policy {
    let url = "http://127.0.0.1:3000/api/v1/webhooks"
        .parse()
        .expect("a URL");
    let host = HostId::parse("host").expect("an id");
    let mut policy = Policy::new(host, url, AuthMode::ApiKey);
    // Tokens of tests are invented.
    policy.verify_git_tokens = false;
    change(&mut policy);
    policy
}

pub(crate) fn clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock)
}

pub(crate) fn alice() -> OwnerId {
    OwnerId::parse("alice").expect("a name")
}

pub(crate) fn alice_scope() -> Scope {
    Scope::Owner(alice())
}

pub(crate) fn user_message(text: &str) -> MessageInput {
    let content = vec![json!({"type": "text", "text": text, "cache_prompt": false})];
    MessageInput {
        role: "user".to_owned(),
        content,
        run: true,
    }
}

pub(crate) fn start_input(change: impl FnOnce(&mut StartRequest)) -> StartInput {
    let mut request = StartRequest {
        initial_message: Some(user_message("hi")),
        ..StartRequest::default()
    };
    change(&mut request);
    StartInput {
        request,
        secrets: None,
    }
}

/// Waits for a condition. Time is paused in these tests, so waiting is free and a minute is plenty.
pub(crate) async fn wait_for<T, F: Future<Output = Option<T>>>(mut check: impl FnMut() -> F) -> T {
    let wait = async {
        loop {
            if let Some(found) = check().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(300), wait)
        .await
        .expect("it happens within five minutes")
}
