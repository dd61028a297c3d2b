//! Pending messages: stored while a conversation cannot take them, and delivered in order once it can.
//!
//! **Exactly once.** The start of a delivery is committed before the call of the agent server. After a crash or a lost
//! response, the next attempt first searches the agent server's log for the message. Where several processes serve a
//! host, a delivery of another process is left alone until its call must be over.
//!
//! An agent server takes a message only between two steps of its agent, and a step lasts as long as a command. An
//! unanswered message may still arrive, so it is not sent again before that time has passed.

mod message_match;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use domain::agent::{
    AgentConversationReader, AgentEndpoint, AgentError, AgentRuntime, MessageDelivery,
};
use domain::clock::{Clock, Timestamp};
use domain::conversation::pending::{
    EnqueueOutcome, MAX_PENDING_MESSAGES, MessageTarget, NewPendingMessage, PendingMessage,
    PendingMessageRepository,
};
use domain::conversation::{
    ConversationReportRepository, ConversationRepository, ExecutionStatus, MessageInput,
};
use domain::encryption::cipher::Cipher;
use domain::error::{ErrorClass, chain};
use domain::id::{ConversationId, HostId, IdGenerator, OwnerId, SandboxId};
use domain::json::text_bytes;
use domain::start_task::CLOCK_SKEW_GRACE;
use domain::user::scope::Scope;
use domain::user::usage::Quota;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::time::Instant;
use uuid::Uuid;

use self::message_match::{is_event_of, is_permanent_refusal};
use crate::conversations::mark_running;
use crate::idempotency::{IdempotencyService, IdempotentCall, IdempotentResult, earlier_response};
use crate::quotas::Quotas;
use crate::runtime::ticker;
use crate::sandboxes::endpoint;
use crate::sync::ConversationSyncer;
use crate::{AppError, Policy, Ports};

/// Maximum number of conversations with a delivery at the same time.
const MAX_PARALLEL_DELIVERIES: usize = 8;
const MAX_DUE_CONVERSATIONS: usize = 256;
/// Longest call of an agent server.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// After this time an idle agent server does not take an unanswered message any more. Before its first message an
/// agent starts its tools, which may need downloads.
const IDLE_AGENT_TIMEOUT: Duration = Duration::from_secs(2 * 60);
/// The same for a running agent: the longest step.
const RUNNING_AGENT_TIMEOUT: Duration = Duration::from_secs(15 * 60);
/// Pages of the log that are searched. The message is among the first events after the start of its delivery.
const MAX_LOG_PAGES: usize = 20;
/// First pause after a failure; it doubles up to the maximum.
const MIN_RETRY_BACKOFF: Duration = Duration::from_secs(2);
const MAX_RETRY_BACKOFF: Duration = Duration::from_secs(5 * 60);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueuedMessage {
    pub id: Uuid,
    /// Number of waiting messages of the conversation, this one included.
    pub position: usize,
}

#[derive(Clone)]
pub struct PendingMessageService {
    pending: Arc<dyn PendingMessageRepository>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdGenerator>,
    idempotency: IdempotencyService,
    quotas: Quotas,
    syncer: ConversationSyncer,
}

impl PendingMessageService {
    pub(crate) fn new(ports: &Ports, quotas: Quotas, syncer: ConversationSyncer) -> Self {
        Self {
            pending: Arc::clone(&ports.pending),
            clock: Arc::clone(&ports.clock),
            ids: Arc::clone(&ports.ids),
            idempotency: IdempotencyService::new(ports),
            quotas,
            syncer,
        }
    }

    /// Stores a message after the waiting ones. It is delivered as soon as the conversation can take it.
    pub async fn enqueue(
        &self,
        owner: &OwnerId,
        target: MessageTarget,
        message: MessageInput,
    ) -> Result<QueuedMessage, AppError> {
        let queued = self.enqueue_once(owner, target, message, None).await?;
        queued.into_new()
    }

    /// Like [`Self::enqueue`], but a repeated idempotent request stores nothing.
    pub async fn enqueue_once(
        &self,
        owner: &OwnerId,
        target: MessageTarget,
        message: MessageInput,
        idempotent_call: Option<&IdempotentCall<'_, QueuedMessage>>,
    ) -> Result<IdempotentResult<QueuedMessage>, AppError> {
        let id = self.ids.uuid();
        let cost = [
            (Quota::PendingMessages, 1),
            (Quota::RequestBytes, text_bytes(&message) as u64),
        ];
        if let Err(refusal) = self.quotas.check(owner, &cost).await {
            let earlier = match idempotent_call {
                Some(idempotent_call) => {
                    idempotent_call
                        .find_earlier(&self.idempotency, owner)
                        .await?
                }
                None => None,
            };
            return earlier.map(IdempotentResult::Repeated).ok_or(refusal);
        }
        let responses = idempotent_call.into_iter().flat_map(|idempotent_call| {
            let queued = |position| QueuedMessage { id, position };
            let positions = 1..=MAX_PENDING_MESSAGES;
            positions.map(move |position| {
                idempotent_call.response(&self.idempotency, owner, &queued(position))
            })
        });
        let new = NewPendingMessage {
            id,
            owner: owner.clone(),
            target,
            message,
            created_at: self.clock.now(),
            responses: responses.collect(),
        };
        match self.pending.enqueue(&new).await? {
            EnqueueOutcome::Queued(position) => {
                self.quotas.add_usage(owner, &cost);
                self.syncer.wake_delivery();
                Ok(IdempotentResult::New(QueuedMessage { id, position }))
            }
            EnqueueOutcome::KeyUsed(known) => {
                let response = earlier_response(known)?.ok_or(AppError::IdempotencyKeyReused)?;
                Ok(IdempotentResult::Repeated(response))
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

pub(crate) struct PendingDelivery {
    pending: Arc<dyn PendingMessageRepository>,
    conversations: Arc<dyn ConversationRepository>,
    reports: Arc<dyn ConversationReportRepository>,
    agents: Arc<dyn AgentRuntime>,
    agent_reader: Arc<dyn AgentConversationReader>,
    cipher: Arc<dyn Cipher>,
    clock: Arc<dyn Clock>,
    host: HostId,
    is_host_shared: bool,
    interval: Duration,
    syncer: ConversationSyncer,
    backoffs: Mutex<HashMap<ConversationId, DeliveryBackoff>>,
}

#[derive(Debug, Clone, Copy)]
struct DeliveryBackoff {
    until: Instant,
    failures: u32,
    /// Start of this process' last attempt, which is over.
    attempted_at: Option<Timestamp>,
    /// When the attempt timed out without a response.
    timed_out_at: Option<Instant>,
}

enum DeliveryStop {
    /// The call failed, or there was no agent server to call.
    Failed(AppError),
    /// Another process may be delivering the message.
    OtherProcess,
}

impl<E: Into<AppError>> From<E> for DeliveryStop {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

impl PendingDelivery {
    pub(crate) fn new(ports: &Ports, policy: &Policy, syncer: ConversationSyncer) -> Self {
        Self {
            pending: Arc::clone(&ports.pending),
            conversations: Arc::clone(&ports.conversations),
            reports: Arc::clone(&ports.conversation_reports),
            agents: Arc::clone(&ports.agents),
            agent_reader: Arc::clone(&ports.agent_reader),
            cipher: Arc::clone(&ports.cipher),
            clock: Arc::clone(&ports.clock),
            host: policy.host.clone(),
            is_host_shared: policy.is_host_shared,
            interval: policy.sync_interval,
            syncer,
            backoffs: Mutex::default(),
        }
    }

    /// Runs until the service stops: after each notification and periodically.
    pub(crate) async fn run(self: Arc<Self>) {
        let mut tick = ticker(self.interval);
        let mut busy = BTreeSet::new();
        let mut passes = FuturesUnordered::new();
        loop {
            tokio::select! {
                () = self.syncer.wait_for_delivery_wakeup() => {}
                _ = tick.tick() => {}
                () = tokio::time::sleep_until(self.next_backoff_end()) => {}
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

    /// Conversations with messages to deliver now.
    async fn due(&self, busy: &BTreeSet<ConversationId>) -> Vec<ConversationId> {
        let found = self
            .pending
            .list_deliverable(&self.host, MAX_DUE_CONVERSATIONS);
        let found = match found.await {
            Ok(found) => found,
            Err(error) => {
                tracing::debug!(error = %chain(&error), "cannot list deliverable messages; trying again later");
                return Vec::new();
            }
        };
        let now = Instant::now();
        let mut backoffs = self.backoffs();
        // Forget conversations without waiting messages.
        backoffs.retain(|id, backoff| backoff.until > now || found.contains(id));
        let is_backoff_over =
            |id: &ConversationId| backoffs.get(id).is_none_or(|backoff| backoff.until <= now);
        let due = found.into_iter().filter(|id| !busy.contains(id));
        due.filter(is_backoff_over)
            .take(MAX_PARALLEL_DELIVERIES - busy.len())
            .collect()
    }

    /// When the next pause ends.
    fn next_backoff_end(&self) -> Instant {
        let now = Instant::now();
        let backoffs = self.backoffs();
        let ends = backoffs.values().map(|backoff| backoff.until);
        let next = ends.filter(|until| *until > now).min();
        next.unwrap_or(now + MAX_RETRY_BACKOFF)
    }

    async fn run_pass(&self, id: ConversationId) -> ConversationId {
        match self.deliver_all(id).await {
            Ok(()) => {
                self.backoffs().remove(&id);
            }
            Err(DeliveryStop::OtherProcess) => self.update_backoff(id, |backoff| {
                backoff.until = Instant::now() + MIN_RETRY_BACKOFF;
            }),
            Err(DeliveryStop::Failed(error)) => {
                tracing::debug!(conversation.id = %id, error = %chain(&error), "cannot deliver pending messages; trying again later");
                self.update_backoff(id, |backoff| {
                    let pause = MIN_RETRY_BACKOFF.saturating_mul(1 << backoff.failures.min(16));
                    backoff.until = Instant::now() + pause.min(MAX_RETRY_BACKOFF);
                    backoff.failures = backoff.failures.saturating_add(1);
                });
            }
        }
        id
    }

    fn update_backoff(&self, id: ConversationId, change: impl FnOnce(&mut DeliveryBackoff)) {
        change(self.backoffs().entry(id).or_insert(DeliveryBackoff {
            until: Instant::now(),
            failures: 0,
            attempted_at: None,
            timed_out_at: None,
        }));
    }

    fn backoffs(&self) -> std::sync::MutexGuard<'_, HashMap<ConversationId, DeliveryBackoff>> {
        self.backoffs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn deliver_all(&self, id: ConversationId) -> Result<(), DeliveryStop> {
        // Query each time: another process may have delivered the first message.
        while let Some(message) = self.pending.list_waiting(id).await?.into_iter().next() {
            let (sandbox, at) = self.locate(id).await?;
            if let Some(attempted_at) = message.tried_at {
                self.check_call_ended(id, attempted_at)?;
                if self.has_arrived(&at, id, &message, attempted_at).await? {
                    tracing::info!(conversation.id = %id, message.id = %message.id, "the agent server already has a pending message; not sending it again");
                    self.pending.complete_delivery(message.id).await?;
                    continue;
                }
            }
            self.deliver(&sandbox, &at, id, &message).await?;
        }
        Ok(())
    }

    async fn locate(&self, id: ConversationId) -> Result<(SandboxId, AgentEndpoint), AppError> {
        let found = self.conversations.find(&Scope::System, id).await?;
        let sandbox = found.and_then(|view| view.sandbox);
        let sandbox = sandbox.ok_or_else(|| AppError::not_found("Sandbox not found"))?;
        let url = sandbox.agent_url.as_ref();
        let url = url.ok_or_else(|| {
            AppError::refused(
                ErrorClass::Unavailable,
                "The sandbox has no agent server URL yet",
            )
        })?;
        Ok((sandbox.id.clone(), endpoint(&*self.cipher, &sandbox, url)?))
    }

    /// Checks that the call of the earlier attempt has ended. A call of this process has ended. A call of an earlier process
    /// has ended too, unless other processes serve this host.
    fn check_call_ended(
        &self,
        id: ConversationId,
        attempted_at: Timestamp,
    ) -> Result<(), DeliveryStop> {
        let is_ours = || {
            self.backoffs()
                .get(&id)
                .is_some_and(|it| it.attempted_at == Some(attempted_at))
        };
        let end = attempted_at.plus(CALL_TIMEOUT + CLOCK_SKEW_GRACE);
        if !self.is_host_shared || is_ours() || self.clock.now() > end {
            Ok(())
        } else {
            Err(DeliveryStop::OtherProcess)
        }
    }

    /// Whether an earlier attempt delivered the message after all. Fails while that is still possible.
    async fn has_arrived(
        &self,
        at: &AgentEndpoint,
        id: ConversationId,
        message: &PendingMessage,
        attempted_at: Timestamp,
    ) -> Result<bool, AppError> {
        if self.is_in_log(at, id, message, attempted_at).await? {
            return Ok(true);
        }
        let ours = self.backoffs().get(&id).copied();
        let ours = ours.filter(|backoff| backoff.attempted_at == Some(attempted_at));
        let (may_still_arrive, is_past_timeout) = match ours.map(|backoff| backoff.timed_out_at) {
            // The call ended, so the log is conclusive.
            Some(None) => return Ok(false),
            Some(Some(since)) => (
                since.elapsed() < IDLE_AGENT_TIMEOUT,
                since.elapsed() >= RUNNING_AGENT_TIMEOUT,
            ),
            // The attempt was made by an earlier process, or by another one that may have called a moment ago.
            None => {
                let now = self.clock.now();
                (
                    self.is_host_shared && attempted_at.plus(IDLE_AGENT_TIMEOUT) > now,
                    attempted_at.plus(RUNNING_AGENT_TIMEOUT) <= now,
                )
            }
        };
        if !is_past_timeout && (may_still_arrive || self.is_running(at, id).await?) {
            let detail = "The agent server has not confirmed an earlier message yet";
            return Err(AppError::refused(ErrorClass::Unavailable, detail));
        }
        // The message may have arrived since the first search.
        self.is_in_log(at, id, message, attempted_at).await
    }

    async fn is_running(&self, at: &AgentEndpoint, id: ConversationId) -> Result<bool, AppError> {
        let found = self.agent_reader.snapshot_many(at, &[id]).await?;
        let status = found.into_iter().flatten().next();
        Ok(status.is_some_and(|it| it.execution_status == Some(ExecutionStatus::Running)))
    }

    /// Whether the agent server's log has the message, at or after the start of its delivery.
    async fn is_in_log(
        &self,
        at: &AgentEndpoint,
        id: ConversationId,
        message: &PendingMessage,
        from: Timestamp,
    ) -> Result<bool, AppError> {
        let reader = &self.agent_reader;
        let mut cursor = None;
        for _ in 0..MAX_LOG_PAGES {
            let page = reader.events(at, id, Some(from), cursor.as_deref()).await?;
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
        let now = self.clock.now();
        if !self
            .pending
            .begin_delivery(message.id, message.tried_at, now)
            .await?
        {
            return Err(DeliveryStop::OtherProcess);
        }
        self.update_backoff(id, |backoff| {
            (backoff.attempted_at, backoff.timed_out_at) = (Some(now), None);
        });
        let sent = self.agents.send(at, id, &message.message);
        let sent = tokio::time::timeout(CALL_TIMEOUT, sent).await;
        match sent.unwrap_or(Err(AgentError::TimedOut(CALL_TIMEOUT))) {
            Ok(MessageDelivery::Delivered) => {
                self.pending.complete_delivery(message.id).await?;
                if message.message.run {
                    mark_running(&*self.reports, sandbox, id, now).await?;
                }
            }
            Ok(MessageDelivery::RunRefused) => {
                let note = "A pending message is saved and not started: the sandbox was at its limit of concurrent runs. Send it again when a run ends.";
                self.pending.drop_with_note(message.id, note).await?;
            }
            Err(error) if is_permanent_refusal(&error) => {
                tracing::warn!(conversation.id = %id, message.id = %message.id, "the agent server permanently refuses a pending message; dropping it");
                let note = format!("A pending message was dropped: {error}.");
                self.pending.drop_with_note(message.id, &note).await?;
            }
            Err(error) => {
                if matches!(error, AgentError::TimedOut(_)) {
                    self.update_backoff(id, |backoff| backoff.timed_out_at = Some(Instant::now()));
                }
                return Err(error.into());
            }
        }
        Ok(())
    }
}
