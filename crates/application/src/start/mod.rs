//! Starting a conversation: check at once, commit the intent, let a worker do it.

mod check;
mod earlier;
mod launch;
mod prepare;
mod run;
mod updates;
mod worker;

use std::collections::BTreeMap;
use std::sync::Arc;

use domain::conversation::ConversationView;
use domain::error::StoreError;
use domain::id::{ConversationId, StartTaskId, UserId};
use domain::page::{Page, PageRequest};
use domain::sandbox::{Desired, Sandbox, SandboxStatus};
use domain::scope::Scope;
use domain::start_task::{
    Inserted, NewStart, StartRequest, StartStatus, StartTask, StartTaskFilter, StartTaskOrder,
};
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::{Notify, mpsc};

pub use check::check_secrets;
pub use updates::Updates;

use crate::repeat::{Answer, Repeatable, repeated};
use crate::sandboxes::{choose_spec, reserve};
use crate::secrets::SecretsService;
use crate::settings::SettingsService;
use crate::{AppError, Inner};

/// Starts conversations and shows the tasks that do it.
#[derive(Clone)]
pub struct Starts {
    inner: Arc<Inner>,
    settings: SettingsService,
    secrets: SecretsService,
    /// Wakes the worker when a task was committed here.
    wake: Arc<Notify>,
}

/// What a client asked for.
#[derive(Debug, Clone, Default)]
pub struct StartInput {
    /// The request without secret values.
    pub request: StartRequest,
    /// Secrets for the conversation.
    pub secrets: Option<BTreeMap<String, SecretString>>,
}

/// Where a conversation will run.
struct Chosen {
    row: Sandbox,
    /// To be stored with the task.
    is_new: bool,
}

impl Starts {
    pub(crate) fn new(
        inner: Arc<Inner>,
        settings: SettingsService,
        secrets: SecretsService,
    ) -> Self {
        Self {
            inner,
            settings,
            secrets,
            wake: Arc::new(Notify::new()),
        }
    }

    /// Checks the request, commits a task with its sandbox, and answers. Asking again with the same `conversation_id`
    /// answers the task there is.
    pub async fn start(&self, owner: &UserId, input: StartInput) -> Result<StartTask, AppError> {
        let start = self.plan(owner, input).await?;
        match self.commit(start).await? {
            Answer::New(task) => Ok(task),
            // Only a request with a key can have been answered before.
            Answer::Repeated(_) => Err(AppError::KeyReused),
        }
    }

    /// The same for a request that may be sent again: it is carried out once.
    pub async fn start_once(
        &self,
        owner: &UserId,
        input: StartInput,
        repeatable: &Repeatable<'_, StartTask>,
    ) -> Result<Answer<StartTask>, AppError> {
        let ports = &self.inner.ports;
        if let Some(answer) = repeatable.earlier(ports, owner).await? {
            return Ok(Answer::Repeated(answer));
        }
        let mut start = self.plan(owner, input).await?;
        start.answer = Some(repeatable.answer(owner, &start.task, ports.clock.now()));
        self.commit(start).await
    }

    /// Follows a task that is there: as it is now, and every later state.
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
        // Subscribed before it is read again: no state can be missed.
        let updates = self.inner.updates.subscribe(&before);
        let Some(now) = find().await? else {
            self.inner.updates.end(id);
            return Ok(None);
        };
        if now.status.is_terminal() {
            self.inner.updates.end(id);
        }
        Ok(Some((now, updates)))
    }

    /// The same as [`Starts::start`], with every later state of the task. The stream ends after READY or ERROR; dropping it stops nothing.
    pub async fn start_streaming(
        &self,
        owner: &UserId,
        input: StartInput,
    ) -> Result<(StartTask, mpsc::Receiver<StartTask>), AppError> {
        let start = self.plan(owner, input).await?;
        let id = start.task.id;
        // Subscribed before the commit: no state can be missed.
        let updates = self.inner.updates.subscribe(&start.task);
        let committed = self.commit(start).await;
        let Answer::New(task) = committed.inspect_err(|_| self.inner.updates.end(id))? else {
            return Err(AppError::KeyReused);
        };
        if task.id == id && !task.status.is_terminal() {
            return Ok((task, updates));
        }
        self.inner.updates.end(id);
        if task.status.is_terminal() {
            return Ok((task, updates));
        }
        // Somebody's earlier request for the same conversation is under way: follow that task.
        let updates = self.inner.updates.subscribe(&task);
        let current = self
            .find_many(&Scope::User(owner.clone()), &[task.id])
            .await?
            .pop()
            .flatten();
        match current {
            Some(current) if current.status.is_terminal() => {
                self.inner.updates.end(task.id);
                Ok((current, updates))
            }
            _ => Ok((task, updates)),
        }
    }

    /// A page of tasks.
    pub async fn search(
        &self,
        scope: &Scope,
        filter: &StartTaskFilter,
        order: StartTaskOrder,
        page: &PageRequest,
    ) -> Result<Page<StartTask>, AppError> {
        Ok(self
            .inner
            .ports
            .start_tasks
            .search(scope, filter, order, page)
            .await?)
    }

    /// How many `search` would find in all.
    pub async fn count(&self, scope: &Scope, filter: &StartTaskFilter) -> Result<u64, AppError> {
        Ok(self.inner.ports.start_tasks.count(scope, filter).await?)
    }

    /// By id, `None` for unknown ones.
    pub async fn find_many(
        &self,
        scope: &Scope,
        ids: &[StartTaskId],
    ) -> Result<Vec<Option<StartTask>>, AppError> {
        Ok(self.inner.ports.start_tasks.find_many(scope, ids).await?)
    }

    async fn commit(&self, start: NewStart) -> Result<Answer<StartTask>, AppError> {
        let inserted = self
            .inner
            .ports
            .start_tasks
            .insert(&start, &self.inner.policy.caps)
            .await;
        match inserted {
            Ok(Inserted::New) => {
                self.wake.notify_one();
                Ok(Answer::New(start.task))
            }
            Ok(Inserted::Existing(task)) => Ok(Answer::New(task)),
            Ok(Inserted::Repeated(known)) => {
                let answer = repeated(known)?.ok_or(AppError::KeyReused)?;
                Ok(Answer::Repeated(answer))
            }
            Err(StoreError::Conflict { .. }) => {
                Err(AppError::conflict("conversation_id is already in use"))
            }
            Err(StoreError::NotFound { .. }) => Err(AppError::not_found("Sandbox not found")),
            Err(error) => Err(error.into()),
        }
    }

    /// Everything that can be refused is refused here, before any work.
    async fn plan(&self, owner: &UserId, mut input: StartInput) -> Result<NewStart, AppError> {
        if let Some(secrets) = &input.secrets {
            check_secrets(secrets).map_err(AppError::invalid)?;
        }
        check::check_request(&mut input.request).map_err(AppError::invalid)?;
        let scope = Scope::User(owner.clone());
        if let Some(existing) = self
            .already_asked(&scope, input.request.conversation_id)
            .await?
        {
            return Ok(self.again(existing));
        }
        if let Some(parent) = input.request.parent_conversation_id {
            let parent = self.inner.ports.conversations.find(&scope, parent).await?;
            inherit(
                &mut input.request,
                &parent.ok_or_else(|| AppError::not_found("Parent conversation not found"))?,
            );
        }
        let chosen = self.choose_sandbox(&scope, owner, &input.request).await?;
        let task = self.new_task(owner, input, &chosen)?;
        Ok(NewStart {
            task,
            sandbox: chosen.is_new.then_some(chosen.row),
            answer: None,
        })
    }

    /// Tells followers of tasks that run in other processes what the store says.
    pub(crate) async fn look_elsewhere(&self) {
        let ids = self.inner.updates.elsewhere();
        if ids.is_empty() {
            return;
        }
        match self.find_many(&Scope::System, &ids).await {
            Ok(found) => {
                for (id, task) in ids.into_iter().zip(found) {
                    match task {
                        Some(task) => self.inner.updates.publish(&task),
                        None => self.inner.updates.end(id),
                    }
                }
            }
            Err(error) => tracing::debug!(%error, "cannot look at start tasks of others"),
        }
    }

    /// There may be work for the worker.
    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    /// The unfailed task of a conversation id that the client chose before.
    async fn already_asked(
        &self,
        scope: &Scope,
        id: Option<ConversationId>,
    ) -> Result<Option<ConversationView>, AppError> {
        let Some(id) = id else { return Ok(None) };
        Ok(self.inner.ports.conversations.find(scope, id).await?)
    }

    /// A task that will meet its predecessor in the store (which answers `Existing`), or conflict: it reserves nothing.
    fn again(&self, view: ConversationView) -> NewStart {
        let now = self.inner.ports.clock.now();
        let task = StartTask {
            id: StartTaskId::new(self.inner.ports.ids.uuid()),
            owner: view.conversation.owner,
            host: self.inner.policy.host.clone(),
            status: StartStatus::Working,
            detail: None,
            notes: Vec::new(),
            conversation_id: view.conversation.id,
            sandbox_id: view.conversation.sandbox_id,
            owns_sandbox: false,
            agent_server_url: None,
            request: StartRequest::default(),
            sealed_secrets: None,
            timings: BTreeMap::new(),
            attempts: 0,
            created_at: now,
            updated_at: now,
        };
        NewStart {
            task,
            sandbox: None,
            answer: None,
        }
    }

    /// The named sandbox (resumed if it sleeps; within the caps), or a new row.
    async fn choose_sandbox(
        &self,
        scope: &Scope,
        owner: &UserId,
        request: &StartRequest,
    ) -> Result<Chosen, AppError> {
        let (ports, policy) = (&self.inner.ports, &self.inner.policy);
        let Some(id) = &request.sandbox_id else {
            let spec = choose_spec(ports, &self.settings, owner, None).await?;
            let sandbox = reserve(ports, policy, owner, spec.id)?;
            return Ok(Chosen {
                row: sandbox,
                is_new: true,
            });
        };
        let unknown = || AppError::not_found(format!("Sandbox not found: {id}"));
        let row = ports.sandboxes.find(scope, id).await?.ok_or_else(unknown)?;
        if row.status == SandboxStatus::Missing {
            return Err(AppError::conflict(format!(
                "Sandbox {id} is MISSING and cannot be used"
            )));
        }
        if row.desired != Desired::Running || row.status == SandboxStatus::Error {
            let resumed = ports.sandboxes.set_desired(
                scope,
                id,
                Desired::Running,
                &policy.caps,
                ports.clock.now(),
            );
            resumed.await?.ok_or_else(unknown)?;
        }
        Ok(Chosen { row, is_new: false })
    }

    fn new_task(
        &self,
        owner: &UserId,
        mut input: StartInput,
        sandbox: &Chosen,
    ) -> Result<StartTask, AppError> {
        let ports = &self.inner.ports;
        let id = StartTaskId::new(ports.ids.uuid());
        let now = ports.clock.now();
        input.request.secret_names = input
            .secrets
            .as_ref()
            .map(|secrets| secrets.keys().cloned().collect());
        let sealed_secrets = match &input.secrets {
            Some(secrets) if !secrets.is_empty() => {
                let plain: BTreeMap<_, _> = secrets
                    .iter()
                    .map(|(k, v)| (k, v.expose_secret()))
                    .collect();
                // A map of strings always serializes.
                let text = SecretString::from(serde_json::to_string(&plain).unwrap_or_default());
                Some(ports.cipher.seal(&StartTask::secrets_context(id), &text)?)
            }
            _ => None,
        };
        Ok(StartTask {
            id,
            owner: owner.clone(),
            // Whoever serves the sandbox's host does the work.
            host: sandbox.row.host.clone(),
            status: StartStatus::Working,
            detail: None,
            notes: check::notes(&input.request),
            conversation_id: input
                .request
                .conversation_id
                .unwrap_or_else(|| ConversationId::new(ports.ids.uuid())),
            sandbox_id: sandbox.row.id.clone(),
            owns_sandbox: sandbox.is_new,
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

/// A part takes from its parent what it does not name itself (contract v1, section 2.2).
fn inherit(request: &mut StartRequest, parent: &ConversationView) {
    let from = &parent.conversation;
    request
        .sandbox_id
        .get_or_insert_with(|| from.sandbox_id.clone());
    if request.selected_repository.is_none() {
        request
            .selected_repository
            .clone_from(&from.selected_repository);
        request.selected_branch = request
            .selected_branch
            .take()
            .or_else(|| from.selected_branch.clone());
        request.git_provider = request.git_provider.or(from.git_provider);
    }
    if request.llm_model.is_none() {
        request.llm_model.clone_from(&from.llm_model);
    }
}
