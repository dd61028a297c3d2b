//! Sandboxes: reading rows, committing intents, and the reconciler that makes the backend follow.

pub(crate) mod client_paths;
pub mod egress;
pub mod gateway;
pub mod inspection;
mod logs;
pub(crate) mod reconcile;
mod run_queue;
pub(crate) mod sandbox_factory;
mod session_key_cache;
mod tokens;

use std::sync::Arc;
use std::time::Duration;

use domain::clock::Clock;
use domain::coordination::change::{ChangeFeed, StoreChange};
use domain::coordination::idempotency::IdempotencyCheck;
use domain::encryption::cipher::{Cipher, CipherError};
use domain::error::{ErrorClass, StoreError, chain};
use domain::id::{ApiKeyId, HostId, OwnerId, SandboxId, SpecId};
use domain::page::{Page, PageRequest};
use domain::sandbox::{
    DesiredState, HostSandboxRepository, Sandbox, SandboxBackend, SandboxCaps, SandboxRepository,
    SandboxSpec, SandboxSpecCatalog, SandboxStatus, SandboxView, SealedSessionKey,
};
use domain::user::scope::Scope;
use futures::StreamExt;
use secrecy::SecretString;

pub use logs::{SandboxLogReader, SandboxLogService};
pub use reconcile::{EndedRuns, SandboxReconciler};
pub(crate) use reconcile::{SpareBootSlot, endpoint, is_state_current, log_failure};
use run_queue::RunQueue;
pub use run_queue::RunRefusal;
pub(crate) use sandbox_factory::{SandboxFactory, SandboxKeys};
use session_key_cache::SessionKeyCache;
pub use tokens::SandboxTokenRefusal;
pub(crate) use tokens::{SandboxTokens, TokenKind, service_url};

use crate::authenticate::AuthenticatedUser;
use crate::idempotency::{IdempotencyService, IdempotentCall, IdempotentResult, earlier_response};
use crate::identity::key_cache::KeyCache;
use crate::policy::{EgressControl, Policy};
use crate::ports::Ports;
use crate::settings::{Settings, SettingsService};
use crate::single_user::SingleUserCheck;
use crate::warm::{WarmClaim, WarmSandboxPool};
use crate::{AppError, BackgroundTasks, LiveSetting};

/// How long a request waits for a pause or a deletion. The work continues without it.
const CONVERGE_TIMEOUT: Duration = Duration::from_secs(30);

/// Rows of one query of [`for_each_on_host`].
const MAX_PAGE_ROWS: usize = 500;

/// Interval of polls for changes by other processes, without a notification.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Passes each sandbox of a host to `each`, page by page. After an error, the sandboxes of earlier pages were passed.
pub(crate) async fn for_each_on_host(
    sandboxes: &dyn HostSandboxRepository,
    host: &HostId,
    mut each: impl FnMut(Sandbox),
) -> Result<(), StoreError> {
    let mut after = None;
    loop {
        let page = sandboxes.list_on_host(host, after.as_ref(), MAX_PAGE_ROWS);
        let page = page.await?;
        let Some(last) = page.last() else {
            return Ok(());
        };
        after = Some(last.id.clone());
        page.into_iter().for_each(&mut each);
    }
}

/// The credential that a conversation in this sandbox keeps for look-ups of secrets and for the service's MCP server. It is
/// the callback token, or the session key if an earlier release created the sandbox.
pub(crate) fn conversation_credential(
    cipher: &dyn Cipher,
    sandbox: &Sandbox,
) -> Result<SecretString, CipherError> {
    let open = |sealed| cipher.open(&Sandbox::key_context(&sandbox.id), sealed);
    if sandbox.callback_token_hash.is_none() {
        return open(&sandbox.session_key);
    }
    Ok(Sandbox::callback_token(
        &sandbox.id,
        &open(&sandbox.secret_key)?,
    ))
}

/// The user's settings. Unreadable settings prevent a sandbox only where they may limit what it reaches.
pub(crate) async fn load_settings(
    settings: &SettingsService,
    owner: &OwnerId,
    factory: &SandboxFactory,
) -> Result<Option<Settings>, AppError> {
    match settings.load(owner).await {
        Err(error) if factory.egress == EgressControl::Unlimited => {
            tracing::warn!(error = %chain(&error), "cannot read the settings; using the default sandbox spec and no grouping");
            Ok(None)
        }
        loaded => loaded,
    }
}

/// Chooses a sandbox spec: the named one; else the one in the user's settings, if it exists; else the first.
pub(crate) async fn choose_spec(
    specs: &dyn SandboxSpecCatalog,
    settings: Option<&Settings>,
    named: Option<&str>,
) -> Result<SandboxSpec, AppError> {
    let specs = specs.list().await?;
    let find_spec = |id: &str| specs.iter().find(|spec| spec.id.as_str() == id).cloned();
    let missing = || AppError::not_found("Sandbox spec not found");
    if let Some(id) = named {
        return find_spec(id).ok_or_else(missing);
    }
    let preferred = settings.and_then(|settings| settings.default_sandbox_spec_id.as_deref());
    if let Some(spec) = preferred.and_then(|id| find_spec(id.trim())) {
        return Ok(spec);
    }
    specs.first().cloned().ok_or_else(missing)
}

/// Sandboxes and sandbox specs as their owner sees them. Reads never call the backend.
#[derive(Clone)]
pub struct SandboxService {
    sandboxes: Arc<dyn SandboxRepository>,
    specs: Arc<dyn SandboxSpecCatalog>,
    backend: Arc<dyn SandboxBackend>,
    changes: Arc<dyn ChangeFeed>,
    cipher: Arc<dyn Cipher>,
    clock: Arc<dyn Clock>,
    factory: SandboxFactory,
    idempotency: IdempotencyService,
    host: HostId,
    caps: LiveSetting<SandboxCaps>,
    settings: SettingsService,
    single_user: SingleUserCheck,
    warm: WarmSandboxPool,
    reconciler: SandboxReconciler,
    session_keys: SessionKeyCache,
    reporter_cache: KeyCache<Sandbox>,
    tasks: BackgroundTasks,
    runs: RunQueue,
}

impl SandboxService {
    pub(crate) fn new(
        ports: &Ports,
        policy: &Policy,
        settings: SettingsService,
        (factory, warm): (SandboxFactory, WarmSandboxPool),
        reconciler: SandboxReconciler,
        reporter_cache: KeyCache<Sandbox>,
        tasks: BackgroundTasks,
    ) -> Self {
        Self {
            sandboxes: Arc::clone(&ports.sandboxes),
            specs: Arc::clone(&ports.specs),
            backend: Arc::clone(&ports.backend),
            changes: Arc::clone(&ports.changes),
            cipher: Arc::clone(&ports.cipher),
            clock: Arc::clone(&ports.clock),
            factory,
            idempotency: IdempotencyService::new(ports),
            host: policy.host.clone(),
            caps: policy.caps.clone(),
            settings,
            single_user: SingleUserCheck::new(ports, policy),
            warm,
            reconciler,
            session_keys: SessionKeyCache::default(),
            reporter_cache,
            tasks,
            runs: RunQueue::default(),
        }
    }

    /// A page, newest first.
    pub async fn search(
        &self,
        scope: &Scope,
        page: &PageRequest,
    ) -> Result<Page<SandboxView>, AppError> {
        Ok(self.sandboxes.search(scope, page).await?)
    }

    /// By id, `None` for unknown ones.
    pub async fn find_many(
        &self,
        scope: &Scope,
        ids: &[SandboxId],
    ) -> Result<Vec<Option<Sandbox>>, AppError> {
        Ok(self.sandboxes.find_many(scope, ids).await?)
    }

    /// Refuses what a caller may not change: with a key of the automations service, a sandbox that it has not created.
    pub async fn check_reachable(
        &self,
        caller: &AuthenticatedUser,
        id: &SandboxId,
    ) -> Result<(), AppError> {
        if !caller.is_automation {
            return Ok(());
        }
        let found = self.sandboxes.find(&caller.scope(), id).await?;
        let is_own = found.is_some_and(|sandbox| sandbox.automation_key.is_some());
        is_own
            .then_some(())
            .ok_or_else(|| AppError::not_found("Sandbox not found"))
    }

    /// The session key, which the owner sees while the sandbox is RUNNING. A key that cannot be decrypted is logged and
    /// omitted, so that one damaged row does not fail the whole list.
    pub fn session_key<'a>(
        &self,
        of: impl Into<SealedSessionKey<'a>>,
    ) -> Option<Arc<SecretString>> {
        let of = of.into();
        if of.status != SandboxStatus::Running {
            return None;
        }
        let cipher = &self.cipher;
        let open = || cipher.open(&Sandbox::key_context(of.id), of.sealed);
        self.session_keys
            .get_or_open(of, open)
            .inspect_err(|error| tracing::error!(sandbox.id = %of.id, error = %chain(error), "cannot decrypt the session key of a sandbox; check the master key with `agent-workspace doctor`"))
            .ok()
    }

    /// Starts a sandbox of this spec (the default without one). The row is committed before this returns; the backend
    /// follows in the background.
    pub async fn start(&self, owner: &OwnerId, spec: Option<&str>) -> Result<Sandbox, AppError> {
        self.start_once(owner, spec, None).await?.into_new()
    }

    /// Starts like [`SandboxService::start`]; a repetition of an idempotent request starts nothing.
    pub async fn start_once(
        &self,
        owner: &OwnerId,
        spec: Option<&str>,
        idempotent_call: Option<&IdempotentCall<'_, Sandbox>>,
    ) -> Result<IdempotentResult<Sandbox>, AppError> {
        self.start_row(owner, spec, None, idempotent_call).await
    }

    /// `automation_key`: the automations service requests it, by this key.
    async fn start_row(
        &self,
        owner: &OwnerId,
        spec: Option<&str>,
        automation_key: Option<ApiKeyId>,
        idempotent_call: Option<&IdempotentCall<'_, Sandbox>>,
    ) -> Result<IdempotentResult<Sandbox>, AppError> {
        if let Some(idempotent_call) = idempotent_call
            && let Some(response) = idempotent_call
                .find_earlier(&self.idempotency, owner)
                .await?
        {
            return Ok(IdempotentResult::Repeated(response));
        }
        self.single_user.check_owner(owner).await?;
        let settings = load_settings(&self.settings, owner, &self.factory).await?;
        let egress = self.factory.own_list(None, settings.as_ref())?;
        let spec = choose_spec(&*self.specs, settings.as_ref(), spec).await?;
        let (mut sandbox, claim) = self.claim_or_create_row(owner, spec.id).await?;
        sandbox.automation_key = automation_key;
        sandbox.egress = egress;
        let (sandboxes, caps) = (&self.sandboxes, &self.caps.get());
        let response = idempotent_call.map(|it| it.response(&self.idempotency, owner, &sandbox));
        let check = if let Some(response) = response {
            sandboxes.insert_once(&sandbox, caps, &response).await
        } else {
            let inserted = sandboxes.insert(&sandbox, caps).await;
            inserted.map(|()| IdempotencyCheck::New)
        };
        if let Some(claim) = claim {
            claim.complete_or_abandon(&check, |check| matches!(check, IdempotencyCheck::New));
        }
        if let Some(response) = earlier_response(check?)? {
            return Ok(IdempotentResult::Repeated(response));
        }
        self.reconciler.converge_soon(&sandbox.id);
        Ok(IdempotentResult::New(sandbox))
    }

    /// A row to store: that of a warm sandbox, if there is one.
    async fn claim_or_create_row(
        &self,
        owner: &OwnerId,
        spec: SpecId,
    ) -> Result<(Sandbox, Option<WarmClaim>), AppError> {
        let claim = self.warm.claim(&spec).await;
        let warm = claim.as_ref().and_then(|claim| claim.sandbox(owner));
        let row = match warm {
            Some(warm) => warm,
            None => self.factory.new_row(owner, spec)?,
        };
        Ok((row, claim))
    }

    /// Pauses a sandbox: commits the intent, interrupts runs and stops the processes before it returns. A client that
    /// disconnects does not stop the work.
    pub async fn pause(&self, scope: &Scope, id: &SandboxId) -> Result<(), AppError> {
        if !self.backend.capabilities().pause {
            return Err(AppError::refused(
                ErrorClass::Unsupported,
                "This sandbox backend cannot pause.",
            ));
        }
        let row = self.set_intent(scope, id, DesiredState::Paused).await?;
        if !self.is_on_this_host(&row) {
            let is_down = |row: Option<&Sandbox>| {
                row.is_none_or(|row| row.desired != DesiredState::Paused || !row.status.is_up())
            };
            return self.wait_for_other_process(id, is_down).await;
        }
        self.reconciler.cancel_start(id);
        self.converge_and_wait(id).await
    }

    /// Resumes a sandbox, also one in ERROR. Returns once the intent is committed within the caps; clients poll until
    /// RUNNING.
    pub async fn resume(&self, scope: &Scope, id: &SandboxId) -> Result<(), AppError> {
        if let Scope::Owner(owner) = scope {
            self.single_user.check_owner(owner).await?;
        }
        if self.factory.hosts.counts().lost > 0
            && let Some(row) = self.sandboxes.find(scope, id).await?
        {
            self.factory.hosts.check_alive(&row.host)?;
        }
        let row = self.set_intent(scope, id, DesiredState::Running).await?;
        if self.is_on_this_host(&row) {
            self.reconciler.converge_soon(id);
        }
        Ok(())
    }

    /// Deletes a sandbox: it is hidden at once. Processes and files are gone when this returns, or soon after if the
    /// backend is slow.
    pub async fn delete(&self, scope: &Scope, id: &SandboxId) -> Result<(), AppError> {
        let row = self.set_intent(scope, id, DesiredState::Deleted).await?;
        let done = if self.is_on_this_host(&row) {
            self.reconciler.cancel_start(id);
            self.converge_and_wait(id).await
        } else {
            self.wait_for_other_process(id, |row| row.is_none()).await
        };
        if let Err(error) = done {
            // The intent is committed: the reconciler retries until it is done.
            tracing::warn!(sandbox.id = %id, error = %chain(&error), "cannot remove the sandbox yet; the reconciler tries again");
        }
        Ok(())
    }

    /// All specs, the default first.
    pub async fn specs(&self) -> Result<Arc<[SandboxSpec]>, AppError> {
        Ok(self.specs.list().await?)
    }

    async fn set_intent(
        &self,
        scope: &Scope,
        id: &SandboxId,
        desired: DesiredState,
    ) -> Result<Sandbox, AppError> {
        let (now, caps) = (self.clock.now(), self.caps.get());
        let intent = self.sandboxes.set_desired(scope, id, desired, &caps, now);
        let intent = intent.await;
        self.reporter_cache.clear();
        intent?.ok_or_else(|| AppError::not_found("Not Found"))
    }

    /// Whether this process serves the sandbox's host. If not, the process that does is notified of the intent.
    fn is_on_this_host(&self, row: &Sandbox) -> bool {
        row.host == self.host
    }

    /// Waits until another process has carried out the intent.
    async fn wait_for_other_process(
        &self,
        id: &SandboxId,
        is_done: impl Fn(Option<&Sandbox>) -> bool,
    ) -> Result<(), AppError> {
        let mut changes = self.changes.changes();
        let wait = async {
            loop {
                let row = self.sandboxes.find(&Scope::System, id).await?;
                if is_done(row.as_ref()) {
                    return Ok(());
                }
                // Notifications may be lost, so poll as well.
                let hint = async {
                    while let Some(change) = changes.next().await {
                        if matches!(&change, StoreChange::Sandbox { id: other, .. } if other == id)
                        {
                            return;
                        }
                    }
                    std::future::pending::<()>().await;
                };
                let _ = tokio::time::timeout(POLL_INTERVAL, hint).await;
            }
        };
        let outcome = tokio::time::timeout(CONVERGE_TIMEOUT, wait).await;
        outcome.unwrap_or_else(|_| Err(still_in_progress()))
    }

    /// Lets the reconciler act on the row and waits for the outcome. The work continues if the waiting request is
    /// dropped.
    async fn converge_and_wait(&self, id: &SandboxId) -> Result<(), AppError> {
        let (reconciler, id) = (self.reconciler.clone(), id.clone());
        let (done, outcome) = tokio::sync::oneshot::channel();
        self.tasks.spawn(async move {
            // The receiver may be dropped: then no request waits.
            let _ = done.send(reconciler.converge(&id).await);
        });
        let shutting_down = "The service is shutting down. Try again.";
        match tokio::time::timeout(CONVERGE_TIMEOUT, outcome).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => Err(AppError::refused(ErrorClass::Unavailable, shutting_down)),
            Err(_) => Err(still_in_progress()),
        }
    }
}

fn still_in_progress() -> AppError {
    let seconds = CONVERGE_TIMEOUT.as_secs();
    let detail = format!(
        "The operation is still running after {seconds} seconds. Poll the sandbox's status."
    );
    AppError::refused(ErrorClass::Unavailable, detail)
}
