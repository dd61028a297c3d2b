//! Sandboxes: reading rows, committing intents, and the reconciler that makes the backend follow.

pub(crate) mod client_paths;
pub mod gateway;
pub mod inspection;
mod logs;
mod reconcile;
mod session_key_cache;

use std::sync::Arc;
use std::time::Duration;

use domain::coordination::change::StoreChange;
use domain::coordination::idempotency::IdempotencyCheck;
use domain::encryption::cipher::{CipherError, Sealed};
use domain::error::{ErrorClass, StoreError, chain};
use domain::id::{HostId, SandboxId, SpecId, UserId};
use domain::page::{Page, PageRequest};
use domain::sandbox::{
    DesiredState, Sandbox, SandboxSpec, SandboxStatus, SandboxView, SealedSessionKey,
};
use domain::user::identity::KeyHash;
use domain::user::scope::Scope;
use futures::StreamExt;
use secrecy::{ExposeSecret, SecretString};

pub use logs::SandboxLogReader;
pub(crate) use logs::{LogReaders, log_readers};
pub use reconcile::SandboxReconciler;
pub(crate) use reconcile::{SpareBootSlot, endpoint, is_known, log_failure};
pub(crate) use session_key_cache::SessionKeyCache;

use crate::idempotency::{IdempotentCall, IdempotentResult, earlier_response};
use crate::ports::{Policy, Ports};
use crate::settings::{Settings, SettingsService};
use crate::warm::WarmClaim;
use crate::{AppError, Inner};

/// How long a request waits for a pause or a deletion. The work continues without it.
const CONVERGE_TIMEOUT: Duration = Duration::from_secs(30);

/// Rows of one query of [`list_on_host`].
const MAX_PAGE_ROWS: usize = 500;

/// Interval of polls for changes by other processes, without a notification.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) struct SandboxKeys {
    pub(crate) id: SandboxId,
    pub(crate) key_hash: KeyHash,
    pub(crate) session_key: Sealed,
    pub(crate) secret_key: Sealed,
}

impl SandboxKeys {
    pub(crate) fn generate(ports: &Ports, id: SandboxId) -> Result<Self, CipherError> {
        let (session_key, context) = (ports.ids.secret(), Sandbox::key_context(&id));
        Ok(Self {
            key_hash: KeyHash::of(session_key.expose_secret()),
            session_key: ports.cipher.seal(&context, &session_key)?,
            secret_key: ports.cipher.seal(&context, &ports.ids.secret())?,
            id,
        })
    }

    /// A new row with these keys. The caller stores it.
    pub(crate) fn into_row(
        self,
        ports: &Ports,
        policy: &Policy,
        owner: &UserId,
        spec_id: SpecId,
    ) -> Sandbox {
        let (now, context) = (ports.clock.now(), Sandbox::key_context(&self.id));
        // A secret key that does not open cannot wake the sandbox either.
        let secret_key = ports.cipher.open(&context, &self.secret_key).ok();
        let callback_token = secret_key.map(|key| Sandbox::callback_token(&self.id, &key));
        Sandbox {
            owner: owner.clone(),
            spec_id,
            host: policy.host.clone(),
            desired: DesiredState::Running,
            status: SandboxStatus::Starting,
            status_detail: None,
            key_hash: self.key_hash,
            session_key: self.session_key,
            secret_key: self.secret_key,
            callback_token_hash: callback_token.map(|it| KeyHash::of(it.expose_secret())),
            agent_url: None,
            exposed_urls: Arc::default(),
            workspace: None,
            created_at: now,
            updated_at: now,
            paused_at: None,
            id: self.id,
        }
    }
}

pub(crate) fn new_sandbox_row(
    ports: &Ports,
    policy: &Policy,
    owner: &UserId,
    spec_id: SpecId,
) -> Result<Sandbox, AppError> {
    let keys = SandboxKeys::generate(ports, ports.ids.sandbox_id())?;
    Ok(keys.into_row(ports, policy, owner, spec_id))
}

pub(crate) async fn list_on_host(ports: &Ports, host: &HostId) -> Result<Vec<Sandbox>, StoreError> {
    let mut rows: Vec<Sandbox> = Vec::new();
    loop {
        let after = rows.last().map(|row| &row.id);
        let page = ports.sandboxes.list_on_host(host, after, MAX_PAGE_ROWS);
        let page = page.await?;
        if page.is_empty() {
            return Ok(rows);
        }
        rows.extend(page);
    }
}

/// The credential that a conversation in this sandbox keeps for look-ups of secrets and for the service's MCP server. It is
/// the callback token, or the session key if an earlier release created the sandbox.
pub(crate) fn conversation_credential(
    ports: &Ports,
    sandbox: &Sandbox,
) -> Result<SecretString, CipherError> {
    let open = |sealed| {
        ports
            .cipher
            .open(&Sandbox::key_context(&sandbox.id), sealed)
    };
    if sandbox.callback_token_hash.is_none() {
        return open(&sandbox.session_key);
    }
    Ok(Sandbox::callback_token(
        &sandbox.id,
        &open(&sandbox.secret_key)?,
    ))
}

/// The user's settings. Unreadable settings are no reason to refuse a sandbox.
pub(crate) async fn load_settings(settings: &SettingsService, owner: &UserId) -> Option<Settings> {
    settings.load(owner).await.unwrap_or_else(|error| {
        tracing::warn!(error = %chain(&error), "cannot read the settings; using the default sandbox spec and no grouping");
        None
    })
}

/// Chooses a sandbox spec: the named one; else the one in the user's settings, if it exists; else the first.
pub(crate) async fn choose_spec(
    ports: &Ports,
    settings: Option<&Settings>,
    named: Option<&str>,
) -> Result<SandboxSpec, AppError> {
    let specs = ports.specs.list().await?;
    let take = |id: &str| specs.iter().find(|spec| spec.id.as_str() == id).cloned();
    let missing = || AppError::not_found("Sandbox spec not found");
    if let Some(id) = named {
        return take(id).ok_or_else(missing);
    }
    let preferred = settings.and_then(|settings| settings.default_sandbox_spec_id.as_deref());
    if let Some(spec) = preferred.and_then(|id| take(id.trim())) {
        return Ok(spec);
    }
    specs.first().cloned().ok_or_else(missing)
}

/// Sandboxes and sandbox specs as their owner sees them. Reads never call the backend.
#[derive(Clone)]
pub struct SandboxService(pub(crate) Arc<Inner>, pub(crate) SettingsService);

impl SandboxService {
    /// A page, newest first.
    pub async fn search(
        &self,
        scope: &Scope,
        page: &PageRequest,
    ) -> Result<Page<SandboxView>, AppError> {
        Ok(self.0.ports.sandboxes.search(scope, page).await?)
    }

    /// By id, `None` for unknown ones.
    pub async fn find_many(
        &self,
        scope: &Scope,
        ids: &[SandboxId],
    ) -> Result<Vec<Option<Sandbox>>, AppError> {
        Ok(self.0.ports.sandboxes.find_many(scope, ids).await?)
    }

    /// The session key, which the owner sees while the sandbox is RUNNING. A key that does not open is logged and
    /// shown as none, so that one damaged row does not spoil a list.
    pub fn session_key<'a>(
        &self,
        of: impl Into<SealedSessionKey<'a>>,
    ) -> Option<Arc<SecretString>> {
        let of = of.into();
        if of.status != SandboxStatus::Running {
            return None;
        }
        let cipher = &self.0.ports.cipher;
        let open = || cipher.open(&Sandbox::key_context(of.id), of.sealed);
        self.0
            .session_keys
            .get_or_open(of, open)
            .inspect_err(|error| tracing::error!(sandbox.id = %of.id, error = %chain(error), "session key does not open"))
            .ok()
    }

    /// Starts a sandbox of this spec (the default without one). The row is committed before this returns; the backend
    /// follows in the background.
    pub async fn start(&self, owner: &UserId, spec: Option<&str>) -> Result<Sandbox, AppError> {
        self.start_once(owner, spec, None).await?.into_new()
    }

    /// The same; a repetition of an idempotent request starts nothing.
    pub async fn start_once(
        &self,
        owner: &UserId,
        spec: Option<&str>,
        repeatable: Option<&IdempotentCall<'_, Sandbox>>,
    ) -> Result<IdempotentResult<Sandbox>, AppError> {
        let ports = &self.0.ports;
        if let Some(repeatable) = repeatable
            && let Some(answer) = repeatable.find_earlier(ports, owner).await?
        {
            return Ok(IdempotentResult::Repeated(answer));
        }
        self.0.refuse_second_owner(owner).await?;
        let settings = load_settings(&self.1, owner).await;
        let spec = choose_spec(ports, settings.as_ref(), spec).await?;
        let (sandbox, claim) = self.claim_or_create_row(owner, spec.id).await?;
        let (sandboxes, caps) = (&ports.sandboxes, &self.0.policy.caps.get());
        let answer = repeatable.map(|it| it.response(ports, owner, &sandbox));
        let known = if let Some(answer) = answer {
            sandboxes.insert_once(&sandbox, caps, &answer).await
        } else {
            let inserted = sandboxes.insert(&sandbox, caps).await;
            inserted.map(|()| IdempotencyCheck::New)
        };
        if let Some(claim) = claim {
            claim.settle(&known, |known| matches!(known, IdempotencyCheck::New));
        }
        if let Some(answer) = earlier_response(known?)? {
            return Ok(IdempotentResult::Repeated(answer));
        }
        self.0.reconciler.converge_soon(&sandbox.id);
        Ok(IdempotentResult::New(sandbox))
    }

    /// A row to store: that of a warm sandbox, if there is one.
    async fn claim_or_create_row(
        &self,
        owner: &UserId,
        spec: SpecId,
    ) -> Result<(Sandbox, Option<WarmClaim>), AppError> {
        let claim = self.0.warm.claim(&spec).await;
        let warm = claim.as_ref().and_then(|claim| claim.sandbox(owner));
        let row = match warm {
            Some(warm) => warm,
            None => new_sandbox_row(&self.0.ports, &self.0.policy, owner, spec)?,
        };
        Ok((row, claim))
    }

    /// Pauses a sandbox: commits the intent, interrupts runs and stops the processes before it returns. A client that
    /// disconnects does not stop the work.
    pub async fn pause(&self, scope: &Scope, id: &SandboxId) -> Result<(), AppError> {
        if !self.0.ports.backend.capabilities().pause {
            return Err(AppError::refused(
                ErrorClass::Unsupported,
                "This sandbox backend cannot pause.",
            ));
        }
        let row = self.set_intent(scope, id, DesiredState::Paused).await?;
        if !self.is_here(&row) {
            let is_down = |row: Option<&Sandbox>| {
                row.is_none_or(|row| row.desired != DesiredState::Paused || !row.status.is_up())
            };
            return self.wait_for_other_process(id, is_down).await;
        }
        self.0.reconciler.cancel_start(id);
        self.converge_and_wait(id).await
    }

    /// Resumes a sandbox, also one in ERROR. Returns once the intent is committed within the caps; clients poll until
    /// RUNNING.
    pub async fn resume(&self, scope: &Scope, id: &SandboxId) -> Result<(), AppError> {
        if let Scope::User(owner) = scope {
            self.0.refuse_second_owner(owner).await?;
        }
        let row = self.set_intent(scope, id, DesiredState::Running).await?;
        if self.is_here(&row) {
            self.0.reconciler.converge_soon(id);
        }
        Ok(())
    }

    /// Deletes a sandbox: it is hidden at once. Processes and files are gone when this returns, or soon after if the
    /// backend is slow.
    pub async fn delete(&self, scope: &Scope, id: &SandboxId) -> Result<(), AppError> {
        let row = self.set_intent(scope, id, DesiredState::Deleted).await?;
        let done = if self.is_here(&row) {
            self.0.reconciler.cancel_start(id);
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
        Ok(self.0.ports.specs.list().await?)
    }

    async fn set_intent(
        &self,
        scope: &Scope,
        id: &SandboxId,
        desired: DesiredState,
    ) -> Result<Sandbox, AppError> {
        let (ports, policy) = (&self.0.ports, &self.0.policy);
        let (now, caps) = (ports.clock.now(), policy.caps.get());
        let intent = ports.sandboxes.set_desired(scope, id, desired, &caps, now);
        let intent = intent.await;
        self.0.reconciler.reporters().clear();
        intent?.ok_or_else(|| AppError::not_found("Not Found"))
    }

    /// Whether this process serves the sandbox's host. If not, the process that does is notified of the intent.
    fn is_here(&self, row: &Sandbox) -> bool {
        row.host == self.0.policy.host
    }

    /// Waits until another process has carried out the intent.
    async fn wait_for_other_process(
        &self,
        id: &SandboxId,
        is_done: impl Fn(Option<&Sandbox>) -> bool,
    ) -> Result<(), AppError> {
        let mut changes = self.0.ports.changes.changes();
        let wait = async {
            loop {
                let row = self.0.ports.sandboxes.find(&Scope::System, id).await?;
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
        let (reconciler, id) = (self.0.reconciler.clone(), id.clone());
        let (done, outcome) = tokio::sync::oneshot::channel();
        self.0.tasks.spawn(async move {
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
    let detail = "The operation takes long and continues; the sandbox's status shows its progress.";
    AppError::refused(ErrorClass::Unavailable, detail)
}
