//! A service in memory with two users.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::dev::{Payload, Service};
use actix_web::test::{TestRequest, init_service};
use application::git::GitPolicy;
use application::single_sign_on::{ProviderRules, SingleSignOnPolicy};
use application::{App, AuthMode, BackgroundTasks, Policy, Ports};
use async_trait::async_trait;
use domain::agent::spending::NanoUsd;
use domain::clock::{Clock, Timestamp};
use domain::id::{HostId, IdGenerator, ProviderName, SpecId, UserId};
use domain::sandbox::{SandboxError, SandboxSpec, SandboxSpecCatalog};
use domain::user::identity::ApiKeyRepository;
use futures::FutureExt as _;
use futures::future::LocalBoxFuture;
use http_api::{
    AddressConfig, HttpConfig, HttpPorts, HttpState, Listener, Readiness, ReadinessCheck,
};
use keyring::{InstallationKey, Keyring, MasterKey};
use serde_json::{Value, json};
use store_memory::{
    FakeAgentRuntime, FakeGitHosting, FakeIdentityProviders, FakeMailer, FakeSandboxBackend,
    FakeSkills, FakeWorkspace, FixedClock, MarkerPasswords, MemoryStore, SequentialIds,
};

pub(crate) use crate::response::{StreamedResponse, TestResponse};
use crate::seed;

pub(crate) const ADA: &str = "aw_ada";
pub(crate) const BOB: &str = "aw_bob";
pub(crate) const ROOT: &str = "aw_root";
pub(crate) const NOW: &str = "2026-01-01T00:00:00.000000Z";
pub(crate) const SPECS: [&str; 2] = ["agent-server:1", "agent-server:2"];
pub(crate) const UNKNOWN: &str = "00000000-0000-0000-0000-000000000001";

struct FakeSpecs(Timestamp);

#[async_trait]
impl SandboxSpecCatalog for FakeSpecs {
    async fn list(&self) -> Result<Arc<[SandboxSpec]>, SandboxError> {
        let spec = |id: &str| SandboxSpec {
            id: SpecId::parse(id).unwrap(),
            command: None,
            created_at: self.0,
            initial_env: [("TZ".to_owned(), "UTC".to_owned())].into(),
            working_dir: "/workspace/project".to_owned(),
            idle_stop: None,
            lifetime: None,
            egress: None,
            conversation_budget: (id == SPECS[1]).then(|| NanoUsd::new(4_000_000_000)),
        };
        Ok(SPECS.map(spec).into())
    }
}

struct AlwaysReady;

#[async_trait]
impl Readiness for AlwaysReady {
    async fn checks(&self) -> Vec<ReadinessCheck> {
        Vec::new()
    }
}

/// Answers a request, with this body if there is one.
type Routes = Rc<dyn Fn(TestRequest, Option<Payload>) -> LocalBoxFuture<'static, HttpResponse>>;

/// The service and its fakes.
pub(crate) struct World {
    pub(crate) app: App,
    state: HttpState,
    routes: RefCell<Vec<(Listener, Routes)>>,
    pub(crate) clock: Arc<FixedClock>,
    pub(crate) agents: Arc<FakeAgentRuntime>,
    pub(crate) backend: Arc<FakeSandboxBackend>,
    pub(crate) git: Arc<FakeGitHosting>,
    pub(crate) skills: Arc<FakeSkills>,
    pub(crate) workspace: Arc<FakeWorkspace>,
    pub(crate) providers: Arc<FakeIdentityProviders>,
    pub(crate) keys: Arc<dyn ApiKeyRepository>,
    pub(crate) store: Arc<MemoryStore>,
}

fn policy(mode: AuthMode) -> Policy {
    let mut policy = Policy::new(
        HostId::parse("host").unwrap(),
        "http://127.0.0.1:3000/api/v1/webhooks".parse().unwrap(),
        mode,
    );
    policy.caps.change(|caps| caps.per_user = 3);
    // Tokens of tests are invented.
    policy.verify_git_tokens = false;
    policy
}

/// The store, the fakes, and real keys.
fn ports(
    store: &Arc<MemoryStore>,
    (agents, backend, workspace): (
        &Arc<FakeAgentRuntime>,
        &Arc<FakeSandboxBackend>,
        &Arc<FakeWorkspace>,
    ),
    (git, skills): (&Arc<FakeGitHosting>, &Arc<FakeSkills>),
    (clock, ids): (&Arc<FixedClock>, &Arc<dyn IdGenerator>),
    providers: Arc<FakeIdentityProviders>,
) -> Ports {
    Ports {
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
        sandbox_reader: backend.clone(),
        specs: Arc::new(FakeSpecs(clock.now())),
        agents: agents.clone(),
        agent_lifecycle: agents.clone(),
        agent_reader: agents.clone(),
        settings: store.clone(),
        secrets: store.clone(),
        workspace: workspace.clone(),
        pending: store.clone(),
        skills: skills.clone(),
        git: git.clone(),
        clone_sources: git.clone(),
        api_keys: store.clone(),
        users: store.clone(),
        sessions: store.clone(),
        passwords: store.clone(),
        organizations: store.clone(),
        organization_deletions: store.clone(),
        identities: store.clone(),
        device_logins: store.clone(),
        egress_requests: store.clone(),
        identity_providers: providers,
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
        cipher: Arc::new(Keyring::new(&MasterKey::generate().unwrap(), &[])),
        fingerprints: Arc::new(InstallationKey::generate().unwrap()),
        models: None,
        clock: clock.clone(),
        ids: Arc::clone(ids),
    }
}

impl World {
    /// Idle: start tasks do not advance, so that their first state can be read.
    pub(crate) async fn idle() -> Self {
        Self::build(HttpConfig::default(), AuthMode::ApiKey).await
    }

    /// Idle, with this configuration of public addresses.
    pub(crate) async fn reached_at(addresses: AddressConfig) -> Self {
        let config = HttpConfig {
            addresses,
            ..HttpConfig::default()
        };
        Self::build(config, AuthMode::ApiKey).await
    }

    /// Idle, in open mode with Ada as the local user.
    pub(crate) async fn open_mode() -> Self {
        let ada = UserId::parse("ada").unwrap();
        Self::build(HttpConfig::default(), AuthMode::Open(ada)).await
    }

    /// Idle, with this configuration, in this mode.
    pub(crate) async fn build(config: HttpConfig, mode: AuthMode) -> Self {
        Self::build_with(config, mode, None).await
    }

    /// Idle, and sends mail by `mailer`.
    pub(crate) async fn build_with(
        config: HttpConfig,
        mode: AuthMode,
        mailer: Option<Arc<FakeMailer>>,
    ) -> Self {
        Self::build_under(config, policy(mode), mailer).await
    }

    /// Idle, with this configuration, with other limits of agents' git.
    pub(crate) async fn build_with_git_policy(config: HttpConfig, git: GitPolicy) -> Self {
        let policy = Policy {
            git,
            ..policy(AuthMode::ApiKey)
        };
        Self::build_under(config, policy, None).await
    }

    async fn build_under(
        config: HttpConfig,
        mut policy: Policy,
        mailer: Option<Arc<FakeMailer>>,
    ) -> Self {
        let (clock, store) = (Arc::new(FixedClock::default()), MemoryStore::new());
        let (agents, backend) = (
            Arc::<FakeAgentRuntime>::default(),
            Arc::<FakeSandboxBackend>::default(),
        );
        let git = Arc::<FakeGitHosting>::default();
        let skills = Arc::<FakeSkills>::default();
        let workspace = Arc::<FakeWorkspace>::default();
        let providers = Arc::new(FakeIdentityProviders::new(&["corp"]));
        let ids: Arc<dyn IdGenerator> = Arc::new(SequentialIds::default());
        let mut ports = ports(
            &store,
            (&agents, &backend, &workspace),
            (&git, &skills),
            (&clock, &ids),
            providers.clone(),
        );
        ports.models = config.models.clone().map(|models| models as _);
        ports.mailer = mailer.map(|mailer| mailer as _);
        seed::add_keys(&store, clock.now(), ids.as_ref()).await;
        let tasks = BackgroundTasks::new(tokio::runtime::Handle::current());
        let accounts = policy.auth == AuthMode::Accounts;
        let open = matches!(policy.auth, AuthMode::Open(_));
        let corp = ProviderName::parse("corp").unwrap();
        policy.single_sign_on = SingleSignOnPolicy {
            public_url: config.addresses.public_url.clone(),
            rules: [(corp, ProviderRules::default())].into(),
        };
        let app = App::new(&ports, policy, tasks);
        let http = HttpPorts {
            authenticator: Arc::new(app.clone()),
            readiness: Arc::new(AlwaysReady),
            clock: clock.clone(),
            ids: Arc::new(SequentialIds::default()),
            fingerprints: Arc::new(InstallationKey::generate().unwrap()),
            endpoints: Arc::new(endpoint_guard::Unguarded),
        };
        let mut config = HttpConfig {
            accounts,
            open,
            ..config
        };
        config.limits.access_recheck_interval = Duration::from_millis(100);
        let state = HttpState::new(&config, http);
        Self {
            app,
            state,
            routes: RefCell::default(),
            clock,
            agents,
            backend,
            git,
            skills,
            workspace,
            providers,
            keys: store.clone(),
            store,
        }
    }

    /// With background tasks, and a model in the settings of both users.
    pub(crate) async fn working() -> Self {
        Self::idle().await.at_work().await
    }

    pub(crate) async fn at_work(self) -> Self {
        let world = self;
        application::background::spawn(&world.app);
        let settings = json!({"agent_settings_diff": {"llm": {"model": "openai/gpt-5", "api_key": "sk-secret"}}});
        for key in [ADA, BOB] {
            world.post(key, "/api/v1/settings", &settings).await.ok();
        }
        world
    }

    pub(crate) async fn send(&self, request: TestRequest) -> TestResponse {
        self.send_to(Listener::Public, request).await
    }

    pub(crate) async fn send_to(&self, listener: Listener, request: TestRequest) -> TestResponse {
        let response = self.routes(listener).await(request, None).await;
        TestResponse::of(response).await
    }

    /// Sends requests one after another.
    pub(crate) async fn send_all(
        &self,
        listener: Listener,
        requests: impl IntoIterator<Item = TestRequest>,
    ) -> Vec<TestResponse> {
        let mut answers = Vec::new();
        for request in requests {
            answers.push(self.send_to(listener, request).await);
        }
        answers
    }

    /// The routes of a listener. They are set up once, because that takes longer than most requests.
    async fn routes(&self, listener: Listener) -> Routes {
        let known = self.routes.borrow().iter().find_map(|(it, routes)| {
            let is_it = *it == listener;
            is_it.then(|| Rc::clone(routes))
        });
        if let Some(known) = known {
            return known;
        }
        let app = http_api::app_on_listener(listener, self.state.clone(), self.app.clone());
        let service = Rc::new(init_service(app).await);
        let routes: Routes = Rc::new(move |request: TestRequest, body| {
            let service = Rc::clone(&service);
            let mut request = request.to_request();
            if let Some(body) = body {
                *request.payload() = body;
            }
            let answer = async move {
                match service.call(request).await {
                    Ok(response) => response.into_parts().1,
                    Err(error) => error.error_response(),
                }
            };
            answer.boxed_local()
        });
        self.routes
            .borrow_mut()
            .push((listener, Rc::clone(&routes)));
        routes
    }

    /// The response to a request, with an unread body.
    async fn respond(&self, request: TestRequest) -> HttpResponse {
        self.routes(Listener::Public).await(request, None).await
    }

    /// Sends a request without its body.
    pub(crate) async fn send_without_end(&self, request: TestRequest) -> TestResponse {
        let endless = Payload::Stream {
            payload: Box::pin(futures::stream::pending()) as _,
        };
        let response = self.routes(Listener::Public).await(request, Some(endless)).await;
        TestResponse::of(response).await
    }

    /// Starts to read a stream after the last received event.
    pub(crate) async fn open(&self, key: &str, path: &str, last: Option<&str>) -> StreamedResponse {
        let request = TestRequest::get()
            .uri(path)
            .insert_header(("X-Session-API-Key", key));
        let request = match last {
            Some(id) => request.insert_header(("Last-Event-ID", id)),
            None => request,
        };
        self.open_as(request).await
    }

    /// Starts to read the response to a request.
    pub(crate) async fn open_as(&self, request: TestRequest) -> StreamedResponse {
        let response = self.respond(request).await;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        StreamedResponse {
            status,
            headers,
            body: response.into_body(),
        }
    }

    /// Drops the response after its status.
    pub(crate) async fn post_and_leave(&self, key: &str, path: &str, body: &Value) -> u16 {
        let request = TestRequest::post()
            .uri(path)
            .insert_header(("X-Session-API-Key", key));
        let response = self.respond(request.set_json(body)).await;
        response.status().as_u16()
    }

    /// A response with an unread body.
    pub(crate) async fn unread(&self, key: &str, path: &str) -> HttpResponse {
        let request = TestRequest::get()
            .uri(path)
            .insert_header(("X-Session-API-Key", key));
        self.respond(request).await
    }

    pub(crate) async fn get(&self, key: &str, path: &str) -> TestResponse {
        self.send(
            TestRequest::get()
                .uri(path)
                .insert_header(("X-Session-API-Key", key)),
        )
        .await
    }

    pub(crate) async fn delete(&self, key: &str, path: &str) -> TestResponse {
        self.send(
            TestRequest::delete()
                .uri(path)
                .insert_header(("X-Session-API-Key", key)),
        )
        .await
    }

    pub(crate) async fn post(&self, key: &str, path: &str, body: &Value) -> TestResponse {
        let request = TestRequest::post()
            .uri(path)
            .insert_header(("X-Session-API-Key", key));
        self.send(request.set_json(body)).await
    }

    pub(crate) async fn put(&self, key: &str, path: &str, body: &Value) -> TestResponse {
        let request = TestRequest::put()
            .uri(path)
            .insert_header(("X-Session-API-Key", key));
        self.send(request.set_json(body)).await
    }

    pub(crate) async fn patch(&self, key: &str, path: &str, body: &Value) -> TestResponse {
        let request = TestRequest::patch()
            .uri(path)
            .insert_header(("X-Session-API-Key", key));
        self.send(request.set_json(body)).await
    }

    /// Starts a conversation and waits until it is READY; returns the last state of the task.
    pub(crate) async fn start(&self, key: &str, body: &Value) -> Value {
        let states = self
            .post(key, "/api/v1/app-conversations/stream-start", body)
            .await
            .ok();
        let last = states
            .as_array()
            .and_then(|all| all.last().cloned())
            .unwrap();
        assert_eq!(last["status"], "READY", "{states:#}");
        last
    }

    /// Creates a READY conversation; returns its id.
    pub(crate) async fn conversation(&self, key: &str) -> String {
        let task = self.start(key, &json!({})).await;
        task["app_conversation_id"].as_str().unwrap().to_owned()
    }

    /// A conversation, as its owner reads it.
    pub(crate) async fn read(&self, key: &str, id: &str) -> Value {
        self.get(key, &format!("/api/v1/app-conversations?ids={id}"))
            .await
            .ok()[0]
            .clone()
    }
}
