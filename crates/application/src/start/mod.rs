//! Starts of conversations: check at once, commit a start task, let a worker run it.

mod interrupted;
mod launch_request;
mod prepare;
mod profile_seeding;
mod request_checks;
mod run_stop;
mod sandbox_choice;
mod start_run;
mod updates;
mod warm_claim;
mod worker;
mod working_dir;

use std::collections::BTreeMap;
use std::sync::Arc;

use domain::agent::AgentKind;
use domain::clock::Clock;
use domain::conversation::{ConversationRepository, ConversationView};
use domain::encryption::cipher::Cipher;
use domain::error::{Entity, StoreError, chain};
use domain::id::{ConversationId, HostId, IdGenerator, OwnerId, SandboxId, StartTaskId};
use domain::json::text_bytes;
use domain::page::{Page, PageRequest};
use domain::sandbox::{
    MAX_SHARED_CONVERSATIONS, Sandbox, SandboxCaps, SandboxRepository, SandboxSpecCatalog,
};
use domain::start_task::{
    NewStartTask, SandboxAssignment, StartRequest, StartStatus, StartTask, StartTaskFilter,
    StartTaskInsertOutcome, StartTaskOrder, StartTaskRepository,
};
use domain::user::scope::Scope;
use domain::user::usage::Quota;
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::{Notify, mpsc};

pub use request_checks::check_secrets;
pub(crate) use start_run::StartRunner;
pub use updates::StartUpdates;
pub(crate) use worker::StartWorker;
pub use working_dir::agent_directory;
pub(crate) use working_dir::{plan_path, project_of};

use self::sandbox_choice::SandboxChoice;

use crate::idempotency::{IdempotencyService, IdempotentCall, IdempotentResult, earlier_response};
use crate::quotas::Quotas;
use crate::sandboxes::SandboxFactory;
use crate::settings::SettingsService;
use crate::single_user::SingleUserCheck;
use crate::trace::TracePropagation;
use crate::warm::WarmSandboxPool;
use crate::{AppError, LiveSetting, Policy, Ports, trace};

#[derive(Clone)]
pub struct StartService {
    tasks: Arc<dyn StartTaskRepository>,
    conversations: Arc<dyn ConversationRepository>,
    sandboxes: Arc<dyn SandboxRepository>,
    specs: Arc<dyn SandboxSpecCatalog>,
    cipher: Arc<dyn Cipher>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdGenerator>,
    factory: SandboxFactory,
    idempotency: IdempotencyService,
    host: HostId,
    caps: LiveSetting<SandboxCaps>,
    traces: Option<TracePropagation>,
    settings: SettingsService,
    quotas: Quotas,
    single_user: SingleUserCheck,
    warm: WarmSandboxPool,
    updates: StartUpdates,
    /// Wakes the worker after a commit in this process.
    wake: Arc<Notify>,
}

#[derive(Debug, Clone, Default)]
pub struct StartInput {
    /// The request without secret values.
    pub request: StartRequest,
    pub secrets: Option<BTreeMap<String, SecretString>>,
}

struct PlannedStart {
    start: NewStartTask,
    /// Sandboxes that it may share instead of a new one, best first.
    shared: Vec<Sandbox>,
}

impl StartService {
    pub(crate) fn new(
        ports: &Ports,
        policy: &Policy,
        settings: SettingsService,
        quotas: Quotas,
        (factory, warm): (SandboxFactory, WarmSandboxPool),
    ) -> Self {
        Self {
            tasks: Arc::clone(&ports.start_tasks),
            conversations: Arc::clone(&ports.conversations),
            sandboxes: Arc::clone(&ports.sandboxes),
            specs: Arc::clone(&ports.specs),
            cipher: Arc::clone(&ports.cipher),
            clock: Arc::clone(&ports.clock),
            ids: Arc::clone(&ports.ids),
            factory,
            idempotency: IdempotencyService::new(ports),
            host: policy.host.clone(),
            caps: policy.caps.clone(),
            traces: policy.traces,
            settings,
            quotas,
            single_user: SingleUserCheck::new(ports, policy),
            warm,
            updates: StartUpdates::default(),
            wake: Arc::new(Notify::new()),
        }
    }

    /// Checks the request, commits a task with its sandbox, and returns it. A repetition with the same
    /// `conversation_id` returns the existing task.
    pub async fn start(&self, owner: &OwnerId, input: StartInput) -> Result<StartTask, AppError> {
        self.start_once(owner, input, None).await?.into_new()
    }

    /// Starts like [`StartService::start`]; a repetition of an idempotent request starts nothing.
    pub async fn start_once(
        &self,
        owner: &OwnerId,
        input: StartInput,
        idempotent_call: Option<&IdempotentCall<'_, StartTask>>,
    ) -> Result<IdempotentResult<StartTask>, AppError> {
        let Some(idempotent_call) = idempotent_call else {
            let planned = self.plan(owner, input).await?;
            return self.commit(planned).await;
        };
        if let Some(response) = idempotent_call
            .find_earlier(&self.idempotency, owner)
            .await?
        {
            return Ok(IdempotentResult::Repeated(response));
        }
        let mut planned = self.plan(owner, input).await?;
        let start = &mut planned.start;
        start.response = Some(idempotent_call.response(&self.idempotency, owner, &start.task));
        let id = start.task.id;
        match self.commit(planned).await? {
            IdempotentResult::New(earlier) if earlier.id != id => {
                idempotent_call
                    .store(&self.idempotency, owner, earlier)
                    .await
            }
            result => Ok(result),
        }
    }

    /// Follows an existing task: its current state, and every later one.
    pub async fn follow(
        &self,
        scope: &Scope,
        id: StartTaskId,
    ) -> Result<Option<(StartTask, mpsc::Receiver<StartTask>)>, AppError> {
        let find = async || {
            let found = self.find_many(scope, &[id]).await?;
            Ok::<_, AppError>(found.into_iter().next().flatten())
        };
        let Some(before) = find().await? else {
            return Ok(None);
        };
        // Subscribe before the second read, so that no state is missed.
        let updates = self.updates.subscribe(&before);
        let Some(now) = find().await? else {
            self.updates.end(id);
            return Ok(None);
        };
        if now.status.is_terminal() {
            self.updates.end(id);
        }
        Ok(Some((now, updates)))
    }

    /// The same as [`StartService::start`], with every later state of the task. The stream ends after READY or ERROR;
    /// dropping it stops nothing.
    pub async fn start_streaming(
        &self,
        owner: &OwnerId,
        input: StartInput,
    ) -> Result<(StartTask, mpsc::Receiver<StartTask>), AppError> {
        let planned = self.plan(owner, input).await?;
        let id = planned.start.task.id;
        // The poll for other processes' tasks would treat the uncommitted task as deleted.
        let uncommitted = self.updates.track_local(id);
        // Subscribe before the commit, so that no state is missed.
        let updates = self.updates.subscribe(&planned.start.task);
        let committed = self.commit(planned).await;
        drop(uncommitted);
        let task = committed.and_then(IdempotentResult::into_new);
        let task = task.inspect_err(|_| self.updates.end(id))?;
        if task.id == id {
            return Ok((task, updates));
        }
        // An earlier request for the same conversation has a task: follow that.
        self.updates.end(id);
        let followed = self.follow(&Scope::Owner(owner.clone()), task.id).await?;
        Ok(followed.unwrap_or((task, updates)))
    }

    pub async fn search(
        &self,
        scope: &Scope,
        filter: &StartTaskFilter,
        order: StartTaskOrder,
        page: &PageRequest,
    ) -> Result<Page<StartTask>, AppError> {
        Ok(self.tasks.search(scope, filter, order, page).await?)
    }

    /// How many `search` would find in all.
    pub async fn count(&self, scope: &Scope, filter: &StartTaskFilter) -> Result<u64, AppError> {
        Ok(self.tasks.count(scope, filter).await?)
    }

    /// By id, `None` for unknown ones.
    pub async fn find_many(
        &self,
        scope: &Scope,
        ids: &[StartTaskId],
    ) -> Result<Vec<Option<StartTask>>, AppError> {
        Ok(self.tasks.find_many(scope, ids).await?)
    }

    /// Commits the start where there is room. Only the transaction knows whether a sandbox has room. A sandbox that is
    /// full, stopped or deleted by then is skipped, and the new one is the last choice.
    async fn commit(
        &self,
        mut planned: PlannedStart,
    ) -> Result<IdempotentResult<StartTask>, AppError> {
        planned.start.task.request.trace = trace::current_context(self.traces);
        for sandbox in planned.shared {
            let mut start = planned.start.clone();
            start.task.host = sandbox.host;
            start.task.sandbox_id = sandbox.id;
            start.task.owns_sandbox = false;
            start.assignment = SandboxAssignment::Shared {
                max_conversations: MAX_SHARED_CONVERSATIONS,
            };
            match self.insert(&start).await {
                Err(
                    StoreError::Full { .. }
                    | StoreError::NotFound {
                        entity: Entity::Sandbox,
                    },
                ) => {}
                done => return self.finish_commit(start.task, done),
            }
        }
        let mut start = planned.start;
        let claim = self.claim_warm(&mut start).await;
        let done = self.insert(&start).await;
        if let Some(claim) = claim {
            claim.complete_or_abandon(&done, |done| matches!(done, StartTaskInsertOutcome::New));
        }
        self.finish_commit(start.task, done)
    }

    async fn insert(&self, start: &NewStartTask) -> Result<StartTaskInsertOutcome, StoreError> {
        self.tasks.insert(start, &self.caps.get()).await
    }

    /// Converts the outcome of a commit. For a new task it also counts the usage and wakes the worker.
    fn finish_commit(
        &self,
        task: StartTask,
        done: Result<StartTaskInsertOutcome, StoreError>,
    ) -> Result<IdempotentResult<StartTask>, AppError> {
        match done {
            Ok(StartTaskInsertOutcome::New) => {
                let stored = [
                    (Quota::Conversations, 1),
                    (Quota::RequestBytes, text_bytes(&task.request) as u64),
                ];
                self.quotas.add_usage(&task.owner, &stored);
                self.wake.notify_one();
                Ok(IdempotentResult::New(task))
            }
            Ok(StartTaskInsertOutcome::Existing(task)) => Ok(IdempotentResult::New(task)),
            Ok(StartTaskInsertOutcome::KeyUsed(known)) => {
                let response = earlier_response(known)?.ok_or(AppError::IdempotencyKeyReused)?;
                Ok(IdempotentResult::Repeated(response))
            }
            Err(StoreError::Conflict { .. } | StoreError::Full { .. }) => {
                Err(AppError::conflict(request_checks::CONVERSATION_ID_IN_USE))
            }
            Err(StoreError::NotFound {
                entity: Entity::ParentConversation,
            }) => Err(AppError::not_found("Parent conversation not found")),
            Err(StoreError::NotFound { .. }) => Err(AppError::not_found("Sandbox not found")),
            Err(error) => Err(error.into()),
        }
    }

    /// Checks everything that can be refused, before any work, and chooses the sandbox.
    async fn plan(&self, owner: &OwnerId, mut input: StartInput) -> Result<PlannedStart, AppError> {
        if let Some(secrets) = &input.secrets {
            check_secrets(secrets).map_err(AppError::invalid)?;
        }
        request_checks::check_request(&mut input.request).map_err(AppError::invalid)?;
        let scope = Scope::Owner(owner.clone());
        let conversations = &self.conversations;
        if let Some(id) = input.request.conversation_id
            && let Some(existing) = conversations.find(&scope, id).await?
        {
            return self.plan_repetition(existing);
        }
        self.single_user.check_owner(owner).await?;
        let mut parent = None;
        if let Some(id) = input.request.parent_conversation_id {
            let found = conversations.find(&scope, id).await?;
            let found =
                found.ok_or_else(|| AppError::not_found("Parent conversation not found"))?;
            inherit(&mut input.request, &found);
            parent = Some(found);
        }
        let bytes = text_bytes(&input.request) as u64;
        self.quotas.check_new_conversation(owner, bytes).await?;
        let new_id = || ConversationId::new(self.ids.uuid());
        let id = input.request.conversation_id.unwrap_or_else(new_id);
        let request = &mut input.request;
        let chosen = self.choose_sandbox_and_directory(&scope, owner, id, request, parent.as_ref());
        let (sandbox, shared, is_new) = match chosen.await? {
            SandboxChoice::Named(sandbox) => (sandbox, Vec::new(), false),
            SandboxChoice::New { shared, new } => (new, shared, true),
        };
        // The processes of the sandbox's host run the start.
        let (host, sandbox_id) = (sandbox.host.clone(), sandbox.id.clone());
        let mut task = self.new_task(owner, input, id, (host, sandbox_id))?;
        task.owns_sandbox = is_new;
        let assignment = if is_new {
            SandboxAssignment::New(sandbox)
        } else {
            SandboxAssignment::Named
        };
        let start = NewStartTask {
            task,
            assignment,
            response: None,
        };
        Ok(PlannedStart { start, shared })
    }

    /// Whether a client follows this task, which another process runs.
    pub(crate) fn is_followed_remotely(&self, id: StartTaskId) -> bool {
        self.updates.list_remote().contains(&id)
    }

    /// Publishes the stored states of followed tasks that other processes run.
    pub(crate) async fn poll_other_processes(&self) {
        let ids = self.updates.list_remote();
        if ids.is_empty() {
            return;
        }
        let found = match self.find_many(&Scope::System, &ids).await {
            Ok(found) => found,
            Err(error) => {
                return tracing::debug!(error = %chain(&error), "cannot load start tasks of other processes");
            }
        };
        for (id, task) in ids.into_iter().zip(found) {
            match task {
                Some(task) => self.updates.publish(&task),
                None => self.updates.end(id),
            }
        }
    }

    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    /// A start of a conversation that exists: the store returns its task, or a conflict. It reserves nothing.
    fn plan_repetition(&self, view: ConversationView) -> Result<PlannedStart, AppError> {
        let known = view.conversation;
        let sandbox = (self.host.clone(), known.sandbox_id);
        let task = self.new_task(&known.owner, StartInput::default(), known.id, sandbox)?;
        let start = NewStartTask {
            task,
            // If the existing task fails at this moment, nothing starts in its place.
            assignment: SandboxAssignment::Shared {
                max_conversations: 0,
            },
            response: None,
        };
        let shared = Vec::new();
        Ok(PlannedStart { start, shared })
    }

    fn new_task(
        &self,
        owner: &OwnerId,
        mut input: StartInput,
        conversation_id: ConversationId,
        (host, sandbox_id): (HostId, SandboxId),
    ) -> Result<StartTask, AppError> {
        let (id, now) = (StartTaskId::new(self.ids.uuid()), self.clock.now());
        let secrets = input.secrets.as_ref();
        input.request.secret_names = secrets.map(|it| it.keys().cloned().collect());
        let sealed_secrets = match secrets {
            Some(secrets) if !secrets.is_empty() => {
                let plain = secrets.iter().map(|(k, v)| (k, v.expose_secret()));
                let plain: BTreeMap<_, _> = plain.collect();
                // A map of strings always serializes.
                let text = SecretString::from(serde_json::to_string(&plain).unwrap_or_default());
                Some(self.cipher.seal(&StartTask::secrets_context(id), &text)?)
            }
            _ => None,
        };
        Ok(StartTask {
            id,
            owner: owner.clone(),
            host,
            status: StartStatus::Working,
            detail: None,
            notes: request_checks::unsupported_notes(&input.request),
            conversation_id,
            sandbox_id,
            owns_sandbox: false,
            agent_server_url: None,
            request: input.request,
            sealed_secrets,
            timings: BTreeMap::new(),
            attempts: 0,
            created_at: now,
            updated_at: now,
        })
    }
}

/// A sub-conversation inherits what its request does not set (`docs/reference/wire/start-tasks.md`).
fn inherit(request: &mut StartRequest, parent: &ConversationView) {
    let from = &parent.conversation;
    let sandbox_id = &mut request.sandbox_id;
    sandbox_id.get_or_insert_with(|| from.sandbox_id.clone());
    if request.selected_repository.is_none() {
        let branch = request.selected_branch.take();
        request.selected_branch = branch.or_else(|| from.selected_branch.clone());
        let repository = &from.selected_repository;
        request.selected_repository.clone_from(repository);
        request.git_provider = request.git_provider.or(from.git_provider);
    }
    // An ACP agent's model is not a model for the coding agent.
    if request.llm_model.is_none() && from.agent_kind != AgentKind::Acp {
        request.llm_model.clone_from(&from.llm_model);
    }
}
