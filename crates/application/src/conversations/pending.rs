//! Messages that are said before a conversation can hear them: kept, and delivered in their order once it can.
//!
//! **Exactly once.** `begin` is committed before the agent server is called. Whoever finds a message that was begun before
//! (the service died, or the answer was lost) looks for it in the agent server's own log first. Where several processes serve
//! a host, what another one has begun is left alone until its call must be over.
//!
//! An agent server takes a message only between two steps of its agent, and a step lasts as long as a command does: what was
//! not answered may still come, and is not said again before that is past.

mod message_match;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use domain::agent::{AgentEndpoint, AgentError, MessageDelivery};
use domain::clock::Timestamp;
use domain::conversation::{ExecutionStatus, MessageInput};
use domain::error::{ErrorClass, chain};
use domain::id::{ConversationId, SandboxId, UserId};
use domain::json::serialized_bytes;
use domain::pending::{MessageTarget, MAX_PENDING_MESSAGES, NewPendingMessage, PendingMessage, EnqueueOutcome};
use domain::scope::Scope;
use domain::start_task::CLOCK_SKEW_GRACE;
use domain::usage::Quota;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::time::{Instant, MissedTickBehavior};
use uuid::Uuid;

use self::message_match::{is_permanent_refusal, is_event_of};
use crate::conversations::mark_running;
use crate::idempotency::{IdempotentResult, IdempotentCall, earlier_response};
use crate::sandboxes::endpoint;
use crate::{AppError, Inner};

/// Conversations that are spoken to at once.
const MAX_PARALLEL_DELIVERIES: usize = 8;
/// Conversations that are looked at in one round.
const MAX_DUE_CONVERSATIONS: usize = 256;
/// One call of an agent server takes no longer.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// What an agent server takes so long for, with an agent that does not run, it does not do any more: before its first message
/// an agent starts its tools, which may have to be downloaded.
const IDLE_AGENT_TIMEOUT: Duration = Duration::from_secs(2 * 60);
/// The same with an agent that runs: it is at one step for no longer.
const RUNNING_AGENT_TIMEOUT: Duration = Duration::from_secs(15 * 60);
/// Pages of a log that are searched for a message: it is among the first events after its delivery began.
const MAX_LOG_PAGES: usize = 20;
/// The first pause after a failure; doubles up to the longest.
const MIN_RETRY_BACKOFF: Duration = Duration::from_secs(2);
const MAX_RETRY_BACKOFF: Duration = Duration::from_secs(5 * 60);

/// A message that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueuedMessage {
    /// Its id.
    pub id: Uuid,
    /// How many wait for the conversation, with it.
    pub position: usize,
}

/// Takes messages that shall wait.
#[derive(Clone)]
pub struct PendingMessages(Arc<Inner>);

impl PendingMessages {
    pub(crate) fn new(inner: Arc<Inner>) -> Self {
        Self(inner)
    }

    /// Adds a message behind those that wait. It is delivered as soon as the conversation can hear it.
    pub async fn enqueue(
        &self,
        owner: &UserId,
        awaited: MessageTarget,
        message: MessageInput,
    ) -> Result<QueuedMessage, AppError> {
        let new = self.new_message(owner, awaited, message);
        self.check_quota(&new).await?;
        match self.add(&new).await? {
            IdempotentResult::New(placed) => Ok(placed),
            // Without a key there is nothing to be repeated.
            IdempotentResult::Repeated(_) => Err(AppError::IdempotencyKeyReused),
        }
    }

    /// The same for a request that its sender may repeat.
    pub async fn enqueue_once(
        &self,
        owner: &UserId,
        awaited: MessageTarget,
        message: MessageInput,
        repeatable: &IdempotentCall<'_, QueuedMessage>,
    ) -> Result<IdempotentResult<QueuedMessage>, AppError> {
        let mut new = self.new_message(owner, awaited, message);
        if let Err(refusal) = self.check_quota(&new).await {
            let earlier = repeatable.earlier(&self.0.ports, owner).await?;
            return earlier.map(IdempotentResult::Repeated).ok_or(refusal);
        }
        let answer = |position| {
            let placed = QueuedMessage {
                id: new.id,
                position,
            };
            repeatable.answer(&self.0.ports, owner, &placed)
        };
        new.answers = (1..=MAX_PENDING_MESSAGES).map(answer).collect();
        self.add(&new).await
    }

    fn new_message(&self, owner: &UserId, awaited: MessageTarget, message: MessageInput) -> NewPendingMessage {
        NewPendingMessage {
            id: self.0.ports.ids.uuid(),
            owner: owner.clone(),
            awaited,
            message,
            created_at: self.0.ports.clock.now(),
            answers: Vec::new(),
        }
    }

    async fn check_quota(&self, new: &NewPendingMessage) -> Result<(), AppError> {
        self.0.quotas.check(&new.owner, &cost(new)).await
    }

    async fn add(&self, new: &NewPendingMessage) -> Result<IdempotentResult<QueuedMessage>, AppError> {
        match self.0.ports.pending.enqueue(new).await? {
            EnqueueOutcome::At(position) => {
                self.0.quotas.add(&new.owner, &cost(new));
                self.0.syncer.notify_news();
                Ok(IdempotentResult::New(QueuedMessage {
                    id: new.id,
                    position,
                }))
            }
            EnqueueOutcome::Repeated(known) => {
                let answer = earlier_response(known)?.ok_or(AppError::IdempotencyKeyReused)?;
                Ok(IdempotentResult::Repeated(answer))
            }
            EnqueueOutcome::Full => Err(AppError::refused(
                ErrorClass::RateLimited,
                format!(
                    "Too many pending messages. Maximum {MAX_PENDING_MESSAGES} messages per conversation."
                ),
            )),
            EnqueueOutcome::Unknown => Err(AppError::not_found("Conversation not found")),
            EnqueueOutcome::Failed(cause) => Err(AppError::conflict(format!(
                "The conversation could not be started: {}",
                cause.as_deref().unwrap_or("see its start task")
            ))),
        }
    }
}

/// What a message takes of its owner's quotas.
fn cost(new: &NewPendingMessage) -> [(Quota, u64); 2] {
    [
        (Quota::PendingMessages, 1),
        (Quota::RequestBytes, serialized_bytes(&new.message)),
    ]
}

/// Delivers messages to the agent servers of this host.
pub(crate) struct PendingDelivery {
    inner: Arc<Inner>,
    backoffs: Mutex<HashMap<ConversationId, DeliveryBackoff>>,
}

/// A conversation that is left alone for a while.
#[derive(Debug, Clone, Copy)]
struct DeliveryBackoff {
    until: Instant,
    /// In a row.
    failures: u32,
    /// The attempt of ours that is over, whatever came of it.
    tried: Option<Timestamp>,
    /// When it was given up without an answer.
    unanswered: Option<Instant>,
}

/// Why nothing more is said now.
enum DeliveryStop {
    /// The call did not succeed, or nobody could be called.
    Failed(AppError),
    /// Another process may be saying it.
    OtherProcess,
}

impl<E: Into<AppError>> From<E> for DeliveryStop {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

impl PendingDelivery {
    pub(crate) fn new(inner: Arc<Inner>) -> Self {
        Self {
            inner,
            backoffs: Mutex::default(),
        }
    }

    /// Until the service stops. Looks when something may have become deliverable, and now and then.
    pub(crate) async fn run(self) {
        let mut tick = tokio::time::interval(self.inner.policy.sync_interval);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut busy = BTreeSet::new();
        let mut passes = FuturesUnordered::new();
        loop {
            tokio::select! {
                () = self.inner.syncer.wait_for_news() => {}
                _ = tick.tick() => {}
                () = tokio::time::sleep_until(self.next_turn()) => {}
                Some(id) = passes.next() => {
                    busy.remove(&id);
                }
            }
            if busy.len() < MAX_PARALLEL_DELIVERIES {
                for id in self.due(&busy).await {
                    busy.insert(id);
                    passes.push(self.run_pass(id));
                }
            }
        }
    }

    /// Conversations to speak to now.
    async fn due(&self, busy: &BTreeSet<ConversationId>) -> Vec<ConversationId> {
        let (ports, host) = (&self.inner.ports, &self.inner.policy.host);
        let found = match ports.pending.list_deliverable(host, MAX_DUE_CONVERSATIONS).await {
            Ok(found) => found,
            Err(error) => {
                tracing::debug!(error = %chain(&error), "cannot look for messages that wait; trying again later");
                return Vec::new();
            }
        };
        let now = Instant::now();
        let mut backoffs = self.backoffs();
        // Of one that has nothing waiting any more nothing is remembered.
        backoffs.retain(|id, rest| rest.until > now || found.contains(id));
        let rested = |id: &ConversationId| backoffs.get(id).is_none_or(|rest| rest.until <= now);
        let due = found.into_iter().filter(|id| !busy.contains(id));
        due.filter(rested).take(MAX_PARALLEL_DELIVERIES - busy.len()).collect()
    }

    /// When the next rest ends.
    fn next_turn(&self) -> Instant {
        let now = Instant::now();
        let backoffs = self.backoffs();
        let ends = backoffs.values().map(|rest| rest.until);
        let next = ends.filter(|until| *until > now).min();
        next.unwrap_or(now + MAX_RETRY_BACKOFF)
    }

    async fn run_pass(&self, id: ConversationId) -> ConversationId {
        match self.deliver_all(id).await {
            Ok(()) => {
                self.backoffs().remove(&id);
            }
            Err(DeliveryStop::OtherProcess) => self.rest(id, |rest| rest.until = Instant::now() + MIN_RETRY_BACKOFF),
            Err(DeliveryStop::Failed(error)) => {
                tracing::debug!(conversation.id = %id, error = %chain(&error), "waiting messages not delivered; trying again later");
                self.rest(id, |rest| {
                    let pause = MIN_RETRY_BACKOFF.saturating_mul(1 << rest.failures.min(16));
                    rest.until = Instant::now() + pause.min(MAX_RETRY_BACKOFF);
                    rest.failures = rest.failures.saturating_add(1);
                });
            }
        }
        id
    }

    fn rest(&self, id: ConversationId, change: impl FnOnce(&mut DeliveryBackoff)) {
        change(self.backoffs().entry(id).or_insert(DeliveryBackoff {
            until: Instant::now(),
            failures: 0,
            tried: None,
            unanswered: None,
        }));
    }

    fn backoffs(&self) -> std::sync::MutexGuard<'_, HashMap<ConversationId, DeliveryBackoff>> {
        self.backoffs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says what waits for a conversation, one after the other, until nothing does.
    async fn deliver_all(&self, id: ConversationId) -> Result<(), DeliveryStop> {
        let ports = &self.inner.ports;
        // Read anew each time: another process may have said the first one by now.
        while let Some(message) = ports.pending.list_waiting(id).await?.into_iter().next() {
            let (sandbox, at) = self.locate(id).await?;
            if let Some(tried) = message.tried_at {
                self.check_call_ended(id, tried)?;
                if self.has_arrived(&at, id, &message, tried).await? {
                    tracing::info!(conversation.id = %id, message.id = %message.id, "a waiting message had arrived");
                    ports.pending.complete_delivery(message.id).await?;
                    continue;
                }
            }
            self.deliver(&sandbox, &at, id, &message).await?;
        }
        Ok(())
    }

    /// Where the conversation is now.
    async fn locate(&self, id: ConversationId) -> Result<(SandboxId, AgentEndpoint), AppError> {
        let ports = &self.inner.ports;
        let found = ports.conversations.find(&Scope::System, id).await?;
        let sandbox = found.and_then(|view| view.sandbox);
        let sandbox = sandbox.ok_or_else(|| AppError::not_found("Sandbox not found"))?;
        let url = sandbox.agent_url.as_ref();
        let url = url.ok_or_else(|| {
            AppError::refused(ErrorClass::Unavailable, "The sandbox has no address yet")
        })?;
        Ok((sandbox.id.clone(), endpoint(ports, &sandbox, url)?))
    }

    /// Whether the call that was begun then must have ended. Ours of this life have; those of earlier lives, too, unless
    /// other processes serve this host.
    fn check_call_ended(&self, id: ConversationId, tried: Timestamp) -> Result<(), DeliveryStop> {
        let is_ours = || {
            self.backoffs()
                .get(&id)
                .is_some_and(|it| it.tried == Some(tried))
        };
        let end = tried.plus(CALL_TIMEOUT + CLOCK_SKEW_GRACE);
        if !self.inner.policy.is_host_shared || is_ours() || self.inner.ports.clock.now() > end {
            Ok(())
        } else {
            Err(DeliveryStop::OtherProcess)
        }
    }

    /// Whether an earlier attempt has brought the message there after all. Fails while one still may.
    async fn has_arrived(
        &self,
        at: &AgentEndpoint,
        id: ConversationId,
        message: &PendingMessage,
        tried: Timestamp,
    ) -> Result<bool, AppError> {
        if self.is_in_log(at, id, message, tried).await? {
            return Ok(true);
        }
        let ours = self.backoffs().get(&id).copied();
        let ours = ours.filter(|rest| rest.tried == Some(tried));
        let (is_early, is_late) = match ours.map(|rest| rest.unanswered) {
            // It was answered, or broke off: then the log says it all.
            Some(None) => return Ok(false),
            Some(Some(since)) => (since.elapsed() < IDLE_AGENT_TIMEOUT, since.elapsed() >= RUNNING_AGENT_TIMEOUT),
            // Of another life, or another process, which may have called a moment ago.
            None => {
                let now = self.inner.ports.clock.now();
                (
                    self.inner.policy.is_host_shared && tried.plus(IDLE_AGENT_TIMEOUT) > now,
                    tried.plus(RUNNING_AGENT_TIMEOUT) <= now,
                )
            }
        };
        if !is_late && (is_early || self.is_running(at, id).await?) {
            let detail = "The agent server has not answered yet whether it takes a message";
            return Err(AppError::refused(ErrorClass::Unavailable, detail));
        }
        // It may have come since the first look.
        self.is_in_log(at, id, message, tried).await
    }

    async fn is_running(&self, at: &AgentEndpoint, id: ConversationId) -> Result<bool, AppError> {
        let found = self.inner.ports.agents.snapshot_many(at, &[id]).await?;
        let status = found.into_iter().flatten().next();
        Ok(status.is_some_and(|it| it.execution_status == Some(ExecutionStatus::Running)))
    }

    /// Whether the agent server has the message in its log, at or after the moment at which its delivery began.
    async fn is_in_log(
        &self,
        at: &AgentEndpoint,
        id: ConversationId,
        message: &PendingMessage,
        from: Timestamp,
    ) -> Result<bool, AppError> {
        let agents = &self.inner.ports.agents;
        let mut cursor = None;
        for _ in 0..MAX_LOG_PAGES {
            let page = agents.events(at, id, Some(from), cursor.as_deref()).await?;
            let mut events = page.items.iter().filter(|event| event.timestamp >= from);
            if events.any(|event| is_event_of(event, &message.message)) {
                return Ok(true);
            }
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        Ok(false)
    }

    async fn deliver(
        &self,
        sandbox: &SandboxId,
        at: &AgentEndpoint,
        id: ConversationId,
        message: &PendingMessage,
    ) -> Result<(), DeliveryStop> {
        let ports = &self.inner.ports;
        let now = ports.clock.now();
        if !ports
            .pending
            .begin_delivery(message.id, message.tried_at, now)
            .await?
        {
            return Err(DeliveryStop::OtherProcess);
        }
        self.rest(id, |rest| (rest.tried, rest.unanswered) = (Some(now), None));
        let said = ports.agents.send(at, id, &message.message);
        let said = tokio::time::timeout(CALL_TIMEOUT, said).await;
        match said.unwrap_or(Err(AgentError::TimedOut(CALL_TIMEOUT))) {
            Ok(MessageDelivery::Delivered) => {
                ports.pending.complete_delivery(message.id).await?;
                if message.message.run {
                    mark_running(ports, sandbox, id, now).await?;
                }
            }
            Ok(MessageDelivery::RunRefused) => {
                let note = "A message that waited is saved, but the sandbox already ran as many conversations as it may.";
                ports.pending.drop_with_note(message.id, note).await?;
            }
            Err(error) if is_permanent_refusal(&error) => {
                tracing::warn!(conversation.id = %id, message.id = %message.id, "an agent server refuses a waiting message for good; it is dropped");
                let note = format!("A message that waited was dropped: {error}.");
                ports.pending.drop_with_note(message.id, &note).await?;
            }
            Err(error) => {
                if matches!(error, AgentError::TimedOut(_)) {
                    self.rest(id, |rest| rest.unanswered = Some(Instant::now()));
                }
                return Err(error.into());
            }
        }
        Ok(())
    }
}
