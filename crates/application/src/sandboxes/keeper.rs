//! The keeper: makes backend and rows agree, one action per sandbox at a time.
//!
//! Intent is written by requests; only the keeper acts on it, under a lock per sandbox, always from the row as it is
//! *now*. So it does not matter who asks (a request, the start worker, start-up, the periodic relist) or how often, and
//! a crash between any two lines leaves a row that the next pass converges.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use domain::agent::AgentEndpoint;
use domain::conversation::ExecutionStatus;
use domain::error::Classify;
use domain::id::SandboxId;
use domain::sandbox::{
    BackendFact, BackendState, Desired, Located, Sandbox, SandboxError, SandboxFacts,
    SandboxLaunch, SandboxStatus,
};
use domain::scope::Scope;
use futures::StreamExt;
use futures::stream::BoxStream;
use tokio::sync::OwnedMutexGuard;
use tracing::Instrument;
use url::Url;

use crate::AppError;
use crate::ports::{Policy, Ports};
use crate::sync::Syncer;

/// First pause between two health checks; doubles up to [`SLOWEST_CHECK`].
const FASTEST_CHECK: Duration = Duration::from_millis(10);
const SLOWEST_CHECK: Duration = Duration::from_millis(250);
/// Interrupting a run before a pause takes no longer.
const INTERRUPT_DEADLINE: Duration = Duration::from_secs(5);
/// How many conversations of one sandbox are looked at when it is paused.
const CONVERSATIONS_AT_PAUSE: usize = 100;
/// A process that dies while starting is started once more before the start fails.
const STARTS: u32 = 2;

/// Acts on sandboxes. Cheap to clone.
#[derive(Clone)]
pub struct Keeper(Arc<Shared>);

struct Shared {
    ports: Ports,
    policy: Policy,
    syncer: Syncer,
    /// One lock per sandbox in use; dead entries are swept when the map is next touched.
    locks: Mutex<HashMap<SandboxId, Weak<tokio::sync::Mutex<()>>>>,
}

impl Keeper {
    /// A keeper for the sandboxes of this host.
    pub(crate) fn new(ports: Ports, policy: Policy, syncer: Syncer) -> Self {
        Self(Arc::new(Shared {
            ports,
            policy,
            syncer,
            locks: Mutex::default(),
        }))
    }

    fn lock_of(&self, id: &SandboxId) -> Arc<tokio::sync::Mutex<()>> {
        let mut locks = self.0.locks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lock) = locks.get(id).and_then(Weak::upgrade) {
            return lock;
        }
        locks.retain(|_, lock| lock.strong_count() > 0);
        let lock = Arc::new(tokio::sync::Mutex::new(()));
        locks.insert(id.clone(), Arc::downgrade(&lock));
        lock
    }

    async fn lock(&self, id: &SandboxId) -> OwnedMutexGuard<()> {
        self.lock_of(id).lock_owned().await
    }

    async fn row(&self, id: &SandboxId) -> Result<Option<Sandbox>, AppError> {
        Ok(self.0.ports.sandboxes.find(&Scope::System, id).await?)
    }

    /// Makes the backend do what the row wants.
    pub async fn converge(&self, id: &SandboxId) -> Result<(), AppError> {
        let span = tracing::info_span!("sandbox.converge", sandbox.id = %id);
        async {
            let _turn = self.lock(id).await;
            let Some(row) = self.row(id).await? else {
                return Ok(());
            };
            match row.desired {
                Desired::Running => self.bring_up(&row).await.map(drop),
                Desired::Paused => self.put_down(&row).await,
                Desired::Deleted => self.clear(&row).await,
            }
        }
        .instrument(span)
        .await
    }

    /// The running sandbox with its agent server answering; starts it when it does not run. For the start worker.
    pub async fn ensure_running(&self, id: &SandboxId) -> Result<(Sandbox, Located), AppError> {
        let _turn = self.lock(id).await;
        let row = self
            .row(id)
            .await?
            .filter(|row| row.desired == Desired::Running);
        let row = row.ok_or_else(|| {
            AppError::conflict("The sandbox was paused or deleted while it was starting")
        })?;
        let located = self.bring_up(&row).await?;
        Ok((row, located))
    }

    /// How to talk to a sandbox's agent server.
    pub fn endpoint(&self, sandbox: &Sandbox, url: &Url) -> Result<AgentEndpoint, AppError> {
        endpoint(&self.0.ports, sandbox, url)
    }

    async fn bring_up(&self, row: &Sandbox) -> Result<Located, AppError> {
        if let Some(located) = self.already_up(row).await? {
            return Ok(located);
        }
        let outcome = self.start_and_wait(row).await;
        match outcome {
            Ok(located) => {
                self.record(
                    row,
                    Desired::Running,
                    &SandboxFacts::Running {
                        located: located.clone(),
                    },
                )
                .await?;
                self.0.syncer.request(&row.id);
                Ok(located)
            }
            Err(error) => {
                // Nothing may go on running behind a row that says ERROR: capacity is released for real.
                if let Err(stop) = self.0.ports.backend.stop(&row.id).await
                    && !matches!(stop, SandboxError::NotFound)
                {
                    tracing::warn!(sandbox.id = %row.id, error = %stop, "failed sandbox could not be stopped");
                }
                let detail = error.public().into_owned();
                self.record(row, Desired::Running, &SandboxFacts::Error { detail })
                    .await?;
                Err(error)
            }
        }
    }

    /// A sandbox that runs and answers: adopted after a restart of ours, or simply found again.
    async fn already_up(&self, row: &Sandbox) -> Result<Option<Located>, AppError> {
        let Some(BackendState::Running(located)) = self.0.ports.backend.inspect(&row.id).await?
        else {
            return Ok(None);
        };
        if !self.0.ports.agents.alive(&located.agent_url).await {
            return Ok(None);
        }
        if row.status != SandboxStatus::Running
            || row.agent_url.as_ref() != Some(&located.agent_url)
        {
            self.record(
                row,
                Desired::Running,
                &SandboxFacts::Running {
                    located: located.clone(),
                },
            )
            .await?;
            self.0.syncer.request(&row.id);
        }
        Ok(Some(located))
    }

    async fn start_and_wait(&self, row: &Sandbox) -> Result<Located, AppError> {
        let (ports, policy) = (&self.0.ports, &self.0.policy);
        match tokio::time::timeout(policy.prepare_deadline, ports.backend.prepare(&row.spec_id))
            .await
        {
            Ok(prepared) => prepared?,
            Err(_) => {
                return Err(SandboxError::TimedOut {
                    what: "preparing the sandbox backend",
                }
                .into());
            }
        }
        let launch = self.launch(row)?;
        let mut last = None;
        for attempt in 1..=STARTS {
            let mut exits = ports.backend.watch();
            let located = ports.backend.start(&launch).await?;
            self.record(
                row,
                Desired::Running,
                &SandboxFacts::Starting {
                    located: located.clone(),
                },
            )
            .await?;
            match self
                .wait_until_alive(&row.id, &located.agent_url, &mut exits)
                .await
            {
                Ok(()) => return Ok(located),
                Err(Death::Exited(detail)) => {
                    tracing::warn!(sandbox.id = %row.id, attempt, detail, "agent server died while starting");
                    last = Some(detail);
                }
                Err(Death::Silent) => {
                    let seconds = policy.sandbox_start_deadline.as_secs();
                    return Err(start_failed(format!(
                        "the agent server did not answer within {seconds}s"
                    )));
                }
            }
        }
        let detail = last.unwrap_or_default();
        Err(start_failed(format!(
            "the agent server ended while starting ({STARTS} tries): {detail}"
        )))
    }

    fn launch(&self, row: &Sandbox) -> Result<SandboxLaunch, AppError> {
        let context = Sandbox::key_context(&row.id);
        let (cipher, policy) = (&self.0.ports.cipher, &self.0.policy);
        Ok(SandboxLaunch {
            id: row.id.clone(),
            owner: row.owner.clone(),
            spec: row.spec_id.clone(),
            session_key: cipher.open(&context, &row.session_key)?,
            secret_key: cipher.open(&context, &row.secret_key)?,
            webhook_url: policy.webhook_url.clone(),
            cors_origins: policy.cors_origins.clone(),
        })
    }

    /// Checks health, fast at first, until it answers, its process ends, or the deadline passes.
    async fn wait_until_alive(
        &self,
        id: &SandboxId,
        url: &Url,
        exits: &mut BoxStream<'static, BackendFact>,
    ) -> Result<(), Death> {
        let healthy = async {
            let mut pause = FASTEST_CHECK;
            while !self.0.ports.agents.alive(url).await {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(SLOWEST_CHECK);
            }
        };
        let death = async {
            while let Some(fact) = exits.next().await {
                if fact.id == *id {
                    match fact.state {
                        BackendState::Exited { detail } => return detail,
                        BackendState::Absent | BackendState::Stopped => {
                            return "it was removed".to_owned();
                        }
                        BackendState::Running(_) => {}
                    }
                }
            }
            // The stream ended (the backend is going away): only the deadline is left.
            std::future::pending().await
        };
        tokio::select! {
            () = healthy => Ok(()),
            detail = death => Err(Death::Exited(detail)),
            () = tokio::time::sleep(self.0.policy.sandbox_start_deadline) => Err(Death::Silent),
        }
    }

    /// Pause: interrupt what runs (so that the agent server writes it down), stop, settle the rows.
    async fn put_down(&self, row: &Sandbox) -> Result<(), AppError> {
        let (ports, now) = (&self.0.ports, self.0.ports.clock.now());
        if let Some(BackendState::Running(located)) = ports.backend.inspect(&row.id).await? {
            let interrupt = self.interrupt_runs(row, &located.agent_url);
            if tokio::time::timeout(INTERRUPT_DEADLINE, interrupt)
                .await
                .is_err()
            {
                tracing::info!(sandbox.id = %row.id, "interrupting before the pause took too long; stopping anyway");
            }
        }
        match ports.backend.stop(&row.id).await {
            Ok(()) => {
                self.record(row, Desired::Paused, &SandboxFacts::Paused)
                    .await?;
            }
            Err(SandboxError::NotFound) => {
                let detail = "nothing was left of the sandbox when it was to be paused".to_owned();
                self.record(row, Desired::Paused, &SandboxFacts::Missing { detail })
                    .await?;
            }
            Err(error) => return Err(error.into()),
        }
        ports
            .conversations
            .settle_running(&row.id, ExecutionStatus::Paused, now)
            .await?;
        Ok(())
    }

    async fn interrupt_runs(&self, row: &Sandbox, url: &Url) {
        let Ok(at) = self.endpoint(row, url) else {
            return;
        };
        let known = self
            .0
            .ports
            .conversations
            .in_sandbox(&row.id, CONVERSATIONS_AT_PAUSE)
            .await;
        for conversation in known.unwrap_or_default() {
            if conversation.execution_status == Some(ExecutionStatus::Running)
                && let Err(error) = self.0.ports.agents.interrupt(&at, conversation.id).await
            {
                tracing::info!(conversation.id = %conversation.id, %error, "could not interrupt before the pause");
            }
        }
    }

    async fn clear(&self, row: &Sandbox) -> Result<(), AppError> {
        self.0.ports.backend.remove(&row.id).await?;
        let now = self.0.ports.clock.now();
        self.0
            .ports
            .conversations
            .settle_running(&row.id, ExecutionStatus::Error, now)
            .await?;
        self.0.ports.sandboxes.remove(&row.id).await?;
        tracing::info!(sandbox.id = %row.id, "sandbox removed");
        Ok(())
    }

    /// Something ended that nobody asked to end: find out what is true now and write it down.
    pub(crate) async fn note_fact(&self, fact: &BackendFact) -> Result<(), AppError> {
        let _turn = self.lock(&fact.id).await;
        let Some(row) = self.row(&fact.id).await? else {
            return Ok(());
        };
        // Starting was somebody's turn under the lock; what is STARTING now belongs to the next turn.
        if row.desired != Desired::Running || row.status != SandboxStatus::Running {
            return Ok(());
        }
        let facts = match self.0.ports.backend.inspect(&fact.id).await? {
            Some(BackendState::Running(_)) => return Ok(()),
            Some(BackendState::Exited { detail }) => SandboxFacts::Error { detail },
            Some(BackendState::Stopped) => SandboxFacts::Error {
                detail: "the sandbox was stopped from outside".to_owned(),
            },
            Some(BackendState::Absent) | None => SandboxFacts::Missing {
                detail: "the sandbox was removed from outside".to_owned(),
            },
        };
        tracing::warn!(sandbox.id = %row.id, ?facts, "sandbox ended by itself");
        self.record(&row, Desired::Running, &facts).await?;
        let now = self.0.ports.clock.now();
        self.0
            .ports
            .conversations
            .settle_running(&row.id, ExecutionStatus::Error, now)
            .await?;
        Ok(())
    }

    /// One pass over everything of this host: removes what no row owns, converges what is not as it should be.
    /// The backend is listed *before* the rows, and a row exists before its sandbox, so nothing new is taken for an
    /// orphan.
    pub(crate) async fn relist(&self) -> Result<(), AppError> {
        let facts = self.0.ports.backend.list().await?;
        let rows = self.rows().await?;
        for fact in facts.iter().filter(|fact| !rows.contains_key(&fact.id)) {
            tracing::warn!(sandbox.id = %fact.id, "removing a sandbox that no row owns");
            if let Err(error) = self.0.ports.backend.remove(&fact.id).await {
                tracing::warn!(sandbox.id = %fact.id, %error, "orphan not removed yet");
            }
        }
        let states: HashMap<_, _> = facts
            .into_iter()
            .map(|fact| (fact.id, fact.state))
            .collect();
        let pending = rows
            .into_values()
            .filter(|row| needs_action(row, states.get(&row.id)));
        futures::stream::iter(pending)
            .for_each_concurrent(4, |row| async move {
                // Somebody is at it already: their turn ends in a recorded fact.
                if self.lock_of(&row.id).try_lock().is_err() {
                    return;
                }
                let outcome = match (row.desired, row.status) {
                    (Desired::Running, SandboxStatus::Running) => self.recheck(&row.id).await,
                    (Desired::Running, SandboxStatus::Error | SandboxStatus::Missing) => self.stop_again(&row.id).await,
                    _ => self.converge(&row.id).await,
                };
                if let Err(error) = outcome {
                    tracing::warn!(sandbox.id = %row.id, %error, "sandbox not as it should be; trying again later");
                }
            })
            .await;
        Ok(())
    }

    /// A RUNNING row that does not match: its process ended unseen, or its address moved.
    async fn recheck(&self, id: &SandboxId) -> Result<(), AppError> {
        self.note_fact(&BackendFact {
            id: id.clone(),
            state: BackendState::Absent,
        })
        .await?;
        self.refresh(id).await
    }

    /// A sandbox in ERROR whose process still lives (stopping it failed before): it counts in no cap, so it must end.
    async fn stop_again(&self, id: &SandboxId) -> Result<(), AppError> {
        let _turn = self.lock(id).await;
        let failed =
            |row: &Sandbox| matches!(row.status, SandboxStatus::Error | SandboxStatus::Missing);
        if self
            .row(id)
            .await?
            .is_some_and(|row| row.desired == Desired::Running && failed(&row))
        {
            self.0.ports.backend.stop(id).await?;
        }
        Ok(())
    }

    /// A RUNNING row whose process lives: its address may have moved.
    async fn refresh(&self, id: &SandboxId) -> Result<(), AppError> {
        let _turn = self.lock(id).await;
        match self.row(id).await? {
            Some(row)
                if row.desired == Desired::Running && row.status == SandboxStatus::Running =>
            {
                self.already_up(&row).await.map(drop)
            }
            _ => Ok(()),
        }
    }

    async fn rows(&self) -> Result<HashMap<SandboxId, Sandbox>, AppError> {
        let mut rows = HashMap::new();
        let mut after: Option<SandboxId> = None;
        loop {
            let page = self
                .0
                .ports
                .sandboxes
                .on_host(&self.0.policy.host, after.as_ref(), 500)
                .await?;
            let Some(last) = page.last() else {
                return Ok(rows);
            };
            after = Some(last.id.clone());
            rows.extend(page.into_iter().map(|row| (row.id.clone(), row)));
        }
    }

    async fn record(
        &self,
        row: &Sandbox,
        expected: Desired,
        facts: &SandboxFacts,
    ) -> Result<(), AppError> {
        let now = self.0.ports.clock.now();
        if !self
            .0
            .ports
            .sandboxes
            .record(&row.id, expected, facts, now)
            .await?
        {
            tracing::debug!(sandbox.id = %row.id, "intent changed meanwhile; the next turn follows it");
        }
        Ok(())
    }
}

/// Why a starting agent server will not answer.
enum Death {
    Exited(String),
    Silent,
}

fn start_failed(detail: String) -> AppError {
    SandboxError::StartFailed {
        detail,
        source: None,
    }
    .into()
}

/// How to talk to the agent server at `url` of this sandbox.
pub(crate) fn endpoint(
    ports: &Ports,
    sandbox: &Sandbox,
    url: &Url,
) -> Result<AgentEndpoint, AppError> {
    let key = ports
        .cipher
        .open(&Sandbox::key_context(&sandbox.id), &sandbox.session_key)?;
    Ok(AgentEndpoint {
        url: url.clone(),
        key,
    })
}

/// Whether row and backend disagree in a way that the keeper must act on. A sandbox in ERROR waits for its owner.
fn needs_action(row: &Sandbox, state: Option<&BackendState>) -> bool {
    match (row.desired, row.status, state) {
        (Desired::Running, SandboxStatus::Running, Some(BackendState::Running(located))) => {
            row.agent_url.as_ref() != Some(&located.agent_url)
        }
        (Desired::Deleted, _, _) | (_, SandboxStatus::Starting | SandboxStatus::Running, _) => true,
        (_, _, state) => matches!(state, Some(BackendState::Running(_))),
    }
}
