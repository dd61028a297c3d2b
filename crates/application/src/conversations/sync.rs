//! The conversation syncer. Webhook reports are hints; the log of the agent server is the source of truth.
//!
//! After any gap (a start, a resume, a restart of this service, the end of a run, a long silence) the syncer compares
//! a sandbox's conversations with its agent server: states by one batch call, events from the last known one. All
//! writes are idempotent, so an extra pass only costs time.

mod changes;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::agent::{
    AgentConversation, AgentConversationReader, AgentEndpoint, AgentError, AgentRuntime,
};
use domain::clock::{Clock, Timestamp};
use domain::conversation::{
    Conversation, ConversationDeletionRepository, ConversationReport, ConversationReportRepository,
};
use domain::encryption::cipher::Cipher;
use domain::error::chain;
use domain::event::{AppendOutcome, EventStore};
use domain::id::{ConversationId, EventId, HostId, SandboxId};
use domain::sandbox::{
    DesiredState, HostSandboxRepository, Sandbox, SandboxRepository, SandboxStatus,
};
use domain::user::scope::Scope;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use tokio::sync::Notify;

use self::changes::{changes_row, may_change};
use crate::AppError;
use crate::conversations::stream_registry::StreamRegistry;
use crate::policy::Policy;
use crate::ports::Ports;
use crate::quotas::{Quotas, event_bytes};
use crate::runtime::ticker;
use crate::sandboxes::{endpoint, for_each_on_host};

/// Conversations of one call. Agent servers take fewer than 100 ids.
const MAX_SNAPSHOT_CONVERSATIONS: usize = 99;
const MAX_CONVERSATIONS_PER_SANDBOX: usize = 990;
/// Maximum number of conversations of one query for news. With more, the syncer compares all running sandboxes.
const MAX_UNSETTLED_CONVERSATIONS: usize = 5_000;
/// Pages of one conversation's log in one pass; the next pass continues.
const MAX_LOG_PAGES: usize = 50;
/// Every so many ticks the pass covers all running sandboxes, not only those that may have news.
const FULL_PASS_PERIOD_TICKS: u32 = 6;
const MAX_PARALLEL_PASSES: usize = 8;
/// Longest pass over one sandbox; the next pass continues.
const PASS_TIMEOUT: Duration = Duration::from_secs(120);
/// Deleted conversations of one round.
const MAX_AGENT_DELETIONS: usize = 1_000;
/// After this time the syncer does not wait for an automatic title any more.
const TITLE_TIMEOUT: Duration = Duration::from_secs(10 * 60);
/// Watermarks in memory. The log of a conversation without one is read from its start again.
const MAX_WATERMARKS: u64 = 10_000;

/// Picks the next sandbox in the order of ids, starting over after the last, so that each gets its turn.
fn next_sandbox(
    wanted: &BTreeSet<SandboxId>,
    busy: &BTreeSet<SandboxId>,
    last: Option<&SandboxId>,
) -> Option<SandboxId> {
    let after = last.map_or(Bound::Unbounded, Bound::Excluded);
    let mut in_turn = wanted.range((after, Bound::Unbounded)).chain(wanted);
    in_turn.find(|id| !busy.contains(*id)).cloned()
}

/// Requests and performs comparisons. Cheap to clone.
#[derive(Clone)]
pub struct ConversationSyncer(Arc<SyncerShared>);

struct SyncerShared {
    sandboxes: Arc<dyn SandboxRepository>,
    host_sandboxes: Arc<dyn HostSandboxRepository>,
    conversations: Arc<dyn ConversationReportRepository>,
    deletions: Arc<dyn ConversationDeletionRepository>,
    events: Arc<dyn EventStore>,
    agents: Arc<dyn AgentRuntime>,
    agent_reader: Arc<dyn AgentConversationReader>,
    cipher: Arc<dyn Cipher>,
    clock: Arc<dyn Clock>,
    host: HostId,
    interval: Duration,
    streams: StreamRegistry,
    quotas: Quotas,
    /// Sandboxes to compare. A request during a pass leads to another pass after it.
    wanted: Mutex<BTreeSet<SandboxId>>,
    requested: Notify,
    /// Notified when an agent server must delete a conversation.
    deleted: Notify,
    /// Notified when pending messages may be deliverable.
    delivery_wakeup: Notify,
    watermarks: Cache<ConversationId, LogWatermark>,
}

#[derive(Debug, Clone, Default)]
struct LogWatermark {
    /// The last event read, in the order of the log. That is not the order of timestamps: a statistic is stamped
    /// before it is logged. Agent servers page by event id, and begin at the start for an unknown one.
    last: Option<EventId>,
    /// The log was complete at this `updated_at` of the agent server.
    complete_at: Option<Timestamp>,
}

/// How far a pass read a conversation's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Backfill {
    /// To the end of the log.
    Complete,
    /// To the limit of one pass.
    Partial,
    /// To the report rate of the sandbox.
    RateExceeded,
}

impl ConversationSyncer {
    pub(crate) fn new(
        ports: &Ports,
        policy: &Policy,
        streams: StreamRegistry,
        quotas: Quotas,
    ) -> Self {
        let watermarks = Cache::builder().max_capacity(MAX_WATERMARKS);
        let watermarks = watermarks.eviction_policy(EvictionPolicy::lru());
        Self(Arc::new(SyncerShared {
            sandboxes: Arc::clone(&ports.sandboxes),
            host_sandboxes: Arc::clone(&ports.host_sandboxes),
            conversations: Arc::clone(&ports.conversation_reports),
            deletions: Arc::clone(&ports.conversation_deletions),
            events: Arc::clone(&ports.events),
            agents: Arc::clone(&ports.agents),
            agent_reader: Arc::clone(&ports.agent_reader),
            cipher: Arc::clone(&ports.cipher),
            clock: Arc::clone(&ports.clock),
            host: policy.host.clone(),
            interval: policy.sync_interval,
            streams,
            quotas,
            wanted: Mutex::default(),
            requested: Notify::new(),
            deleted: Notify::new(),
            delivery_wakeup: Notify::new(),
            watermarks: watermarks.build(),
        }))
    }

    /// Requests a comparison of this sandbox. Never waits.
    pub fn request(&self, sandbox: &SandboxId) {
        self.wake_delivery();
        self.wanted().insert(sandbox.clone());
        self.0.requested.notify_one();
    }

    fn wanted(&self) -> MutexGuard<'_, BTreeSet<SandboxId>> {
        self.0.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the delivery of messages: a sandbox came up, a start is ready, or a message is new.
    pub(crate) fn wake_delivery(&self) {
        self.0.delivery_wakeup.notify_one();
    }

    /// Waits for the next [`Self::wake_delivery`]. For one listener.
    pub(crate) async fn wait_for_delivery_wakeup(&self) {
        self.0.delivery_wakeup.notified().await;
    }

    /// Serves requests and the periodic pass until the service stops. Call once.
    pub(crate) async fn run(self) {
        tokio::join!(self.run_sync(), self.run_deletions());
    }

    /// Each sandbox has a pass of its own. A sandbox that hangs delays no other; it only occupies one of
    /// [`MAX_PARALLEL_PASSES`] slots for at most [`PASS_TIMEOUT`].
    async fn run_sync(&self) {
        let mut tick = ticker(self.0.interval);
        let mut ticks = 0;
        let mut busy = BTreeSet::new();
        let mut last = None;
        let mut passes = FuturesUnordered::new();
        loop {
            tokio::select! {
                () = self.0.requested.notified() => {}
                _ = tick.tick() => {
                    // The full pass covers clients that use an agent server directly, whose reports may get lost.
                    ticks = (ticks + 1) % FULL_PASS_PERIOD_TICKS;
                    let due = if ticks == 0 {
                        self.list_running().await
                    } else {
                        self.list_unsettled().await
                    };
                    self.wanted().extend(due);
                }
                Some(id) = passes.next() => {
                    busy.remove(&id);
                }
            }
            while busy.len() < MAX_PARALLEL_PASSES
                && let Some(id) = self.take_next(&busy, last.as_ref())
            {
                busy.insert(id.clone());
                last = Some(id.clone());
                passes.push(self.run_pass(id));
            }
        }
    }

    fn take_next(&self, busy: &BTreeSet<SandboxId>, last: Option<&SandboxId>) -> Option<SandboxId> {
        let mut wanted = self.wanted();
        let id = next_sandbox(&wanted, busy, last)?;
        wanted.take(&id)
    }

    async fn run_pass(&self, id: SandboxId) -> SandboxId {
        match tokio::time::timeout(PASS_TIMEOUT, self.sync_sandbox(&id)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::debug!(sandbox.id = %id, error = %chain(&error), "cannot sync the conversations of a sandbox; trying again later");
            }
            Err(_) => {
                tracing::debug!(sandbox.id = %id, "the sync of a sandbox takes long; continuing later");
            }
        }
        id
    }

    /// Requests all running sandboxes of this host: after a restart of this process.
    pub(crate) async fn request_all(&self) {
        for id in self.list_running().await {
            self.request(&id);
        }
    }

    async fn list_running(&self) -> BTreeSet<SandboxId> {
        let mut running = BTreeSet::new();
        let add = |row: Sandbox| {
            if is_up(&row) {
                running.insert(row.id);
            }
        };
        let listed = for_each_on_host(&*self.0.host_sandboxes, &self.0.host, add).await;
        if let Err(error) = listed {
            tracing::debug!(error = %chain(&error), "cannot list all sandboxes to sync");
        }
        running
    }

    /// The agent server of a running sandbox.
    async fn find_agent(
        &self,
        id: &SandboxId,
    ) -> Result<Option<(Sandbox, AgentEndpoint)>, AppError> {
        let row = self.0.sandboxes.find(&Scope::System, id).await?;
        let Some(row) = row.filter(is_up) else {
            return Ok(None);
        };
        let Some(url) = row.agent_url.clone() else {
            return Ok(None);
        };
        let at = endpoint(&*self.0.cipher, &row, &url)?;
        Ok(Some((row, at)))
    }

    /// Lists the running sandboxes with a conversation that may have news: one query for all sandboxes.
    async fn list_unsettled(&self) -> BTreeSet<SandboxId> {
        let host = &self.0.host;
        let untitled_since = self.0.clock.now().minus(TITLE_TIMEOUT);
        let (conversations, max) = (&self.0.conversations, MAX_UNSETTLED_CONVERSATIONS);
        match conversations
            .list_unsettled(host, untitled_since, max)
            .await
        {
            Ok(found) if found.len() < max => {
                let found = found.into_iter().filter(may_change);
                return found.map(|it| it.sandbox_id).collect();
            }
            // The query was cut off, so other sandboxes may have news too.
            Ok(_) => {}
            // One unreadable row must not stop the comparison of the others.
            Err(error) => {
                tracing::debug!(error = %chain(&error), "cannot list unsettled conversations; syncing all sandboxes");
            }
        }
        self.list_running().await
    }

    /// Compares one sandbox's conversations with its agent server.
    pub(crate) async fn sync_sandbox(&self, id: &SandboxId) -> Result<(), AppError> {
        let Some((row, at)) = self.find_agent(id).await? else {
            return Ok(());
        };
        let conversations = &self.0.conversations;
        let known = conversations.list_in_sandbox(id, MAX_CONVERSATIONS_PER_SANDBOX);
        for batch in known.await?.chunks(MAX_SNAPSHOT_CONVERSATIONS) {
            let ids: Vec<_> = batch.iter().map(|c| c.id).collect();
            let infos = self.0.agent_reader.snapshot_many(&at, &ids).await?;
            for (conversation, info) in batch.iter().zip(infos) {
                let Some(info) = info else { continue };
                match self.sync_conversation(&row, &at, conversation, &info).await {
                    Ok(()) => {}
                    // Only this conversation's log is affected.
                    Err(AppError::Agent(
                        error @ (AgentError::Rejected { .. } | AgentError::Malformed(_)),
                    )) => {
                        tracing::warn!(conversation.id = %conversation.id, error = %chain(&error), "cannot sync a conversation; the others continue");
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    async fn sync_conversation(
        &self,
        row: &Sandbox,
        at: &AgentEndpoint,
        conversation: &Conversation,
        info: &AgentConversation,
    ) -> Result<(), AppError> {
        let (id, now) = (conversation.id, self.0.clock.now());
        // Events first: a client that sees `finished` also finds the events before it.
        let watermark = self.watermark(id);
        if watermark.complete_at.is_none() || watermark.complete_at != info.updated_at {
            match self.backfill(row, at, id, watermark).await {
                Ok(Backfill::Complete) => {
                    self.update_watermark(id, |k| k.complete_at = info.updated_at);
                }
                // The status is only stored once the log is complete.
                Ok(Backfill::Partial) => {
                    self.request(&row.id);
                    return Ok(());
                }
                // The periodic pass continues.
                Ok(Backfill::RateExceeded) => return Ok(()),
                Err(AppError::Agent(AgentError::NotFound)) => {}
                Err(error) => return Err(error),
            }
        }
        let observation = info.report(now);
        if changes_row(conversation, &observation) {
            let conversations = &self.0.conversations;
            let applied = conversations.apply_report(&row.id, id, &observation, now);
            applied.await?;
        }
        Ok(())
    }

    /// Reads the log from its watermark.
    async fn backfill(
        &self,
        row: &Sandbox,
        at: &AgentEndpoint,
        id: ConversationId,
        watermark: LogWatermark,
    ) -> Result<Backfill, AppError> {
        let quotas = &self.0.quotas;
        let mut cursor = watermark.last.map(|id| id.to_string());
        for _ in 0..MAX_LOG_PAGES {
            // New events in the log count like reported ones.
            if quotas.is_rate_exceeded(&row.id) {
                return Ok(Backfill::RateExceeded);
            }
            let page = self
                .0
                .agent_reader
                .events(at, id, None, cursor.as_deref())
                .await?;
            let observation = ConversationReport::from_events(&page.items);
            let last = page.items.last().map(|event| event.id.clone());
            let bytes = event_bytes(&page.items);
            let admitted = quotas.admit(&row.owner, page.items, bytes).await;
            let (events, now) = (&admitted.events, self.0.clock.now());
            let appended = self.0.events.append(&row.id, id, events, &observation, now);
            match appended.await? {
                AppendOutcome::Stored { new } if new > 0 => {
                    let bytes = quotas.count_stored(&row.owner, &admitted, new);
                    quotas.count_report(&row.id, bytes);
                    self.0.streams.wake(id);
                    tracing::debug!(conversation.id = %id, events = new, "stored missed events from the agent server's log");
                }
                AppendOutcome::Stored { .. } => {}
                AppendOutcome::Unknown | AppendOutcome::Deleted | AppendOutcome::Foreign => {
                    return Ok(Backfill::Complete);
                }
            }
            if let Some(last) = last {
                self.update_watermark(id, |k| k.last = Some(last));
            }
            cursor = page.next;
            if cursor.is_none() {
                return Ok(Backfill::Complete);
            }
        }
        Ok(Backfill::Partial)
    }

    /// Requests the deletion of a conversation in an agent server whose sandbox lives on.
    pub(crate) fn request_agent_deletion(&self) {
        self.0.deleted.notify_one();
    }

    /// Deletes conversations in agent servers, sandbox by sandbox, until the service stops.
    async fn run_deletions(&self) {
        let mut tick = ticker(self.0.interval);
        loop {
            tokio::select! {
                () = self.0.deleted.notified() => {}
                _ = tick.tick() => {}
            }
            let deletions = &self.0.deletions;
            let deleted = deletions.list_pending_agent_deletions(MAX_AGENT_DELETIONS);
            let mut by_sandbox: BTreeMap<SandboxId, Vec<ConversationId>> = BTreeMap::new();
            for entry in deleted.await.unwrap_or_default() {
                let ids = by_sandbox.entry(entry.sandbox_id).or_default();
                ids.push(entry.id);
            }
            futures::stream::iter(by_sandbox)
                .for_each_concurrent(MAX_PARALLEL_PASSES, |(sandbox, ids)| async move {
                    if let Err(error) = self.delete_in_agent(&sandbox, &ids).await {
                        tracing::debug!(sandbox.id = %sandbox, error = %chain(&error), "cannot delete conversations in the agent server; trying again later");
                    }
                })
                .await;
        }
    }

    /// Stops at the first failure: a sandbox that does not answer is tried again in the next round.
    async fn delete_in_agent(
        &self,
        sandbox: &SandboxId,
        ids: &[ConversationId],
    ) -> Result<(), AppError> {
        let Some((_, at)) = self.find_agent(sandbox).await? else {
            return Ok(());
        };
        for id in ids {
            self.0.agents.delete_conversation(&at, *id).await?;
            self.0.deletions.complete_agent_deletion(*id).await?;
            self.0.watermarks.invalidate(id);
        }
        Ok(())
    }

    fn watermark(&self, id: ConversationId) -> LogWatermark {
        self.0.watermarks.get(&id).unwrap_or_default()
    }

    fn update_watermark(&self, id: ConversationId, change: impl FnOnce(&mut LogWatermark)) {
        let mut watermark = self.watermark(id);
        change(&mut watermark);
        self.0.watermarks.insert(id, watermark);
    }
}

fn is_up(row: &Sandbox) -> bool {
    row.desired == DesiredState::Running && row.status == SandboxStatus::Running
}

#[cfg(test)]
mod tests;
