//! Intake of webhook reports. Reports are hints: stored, deduplicated, and not trusted to move a conversation.

use std::sync::Arc;
use std::time::Duration;

use domain::agent::AgentConversation;
use domain::agent::document::STREAMING_DELTA;
use domain::clock::{Clock, Timestamp};
use domain::conversation::{
    Conversation, ConversationReport, ConversationReportRepository, ExecutionStatus, Trigger,
};
use domain::error::{Classify as _, ErrorClass};
use domain::event::{AppendOutcome, Event, EventStore};
use domain::id::ConversationId;
use domain::json::text_bytes;
use domain::sandbox::{Sandbox, SandboxRepository};
use domain::user::scope::Scope;
use domain::user::usage::Quota;
use serde_json::Value;

use super::new_conversation_row;
use crate::authenticate::SandboxAuthenticator;
use crate::conversations::stream_registry::StreamRegistry;
use crate::quotas::Quotas;
use crate::runtime::metrics::MetricsRecorder;
use crate::sync::ConversationSyncer;
use crate::{AppError, Ports};

/// Longest lag that is recorded: an event has the clock of its sandbox, which may be wrong by decades.
const MAX_LAG: Duration = Duration::from_secs(60 * 60);

/// Intake of reports. Returns after the commit.
#[derive(Clone)]
pub struct WebhookService {
    events: Arc<dyn EventStore>,
    conversations: Arc<dyn ConversationReportRepository>,
    sandboxes: Arc<dyn SandboxRepository>,
    clock: Arc<dyn Clock>,
    authenticator: SandboxAuthenticator,
    quotas: Quotas,
    streams: StreamRegistry,
    syncer: ConversationSyncer,
    metrics: Arc<MetricsRecorder>,
}

impl WebhookService {
    pub(crate) fn new(
        ports: &Ports,
        authenticator: SandboxAuthenticator,
        quotas: Quotas,
        streams: StreamRegistry,
        syncer: ConversationSyncer,
        metrics: Arc<MetricsRecorder>,
    ) -> Self {
        Self {
            events: Arc::clone(&ports.events),
            conversations: Arc::clone(&ports.conversation_reports),
            sandboxes: Arc::clone(&ports.sandboxes),
            clock: Arc::clone(&ports.clock),
            authenticator,
            quotas,
            streams,
            syncer,
            metrics,
        }
    }

    /// Stores a batch of events of one conversation. Unknown kinds and fields are kept; events without a usable id are
    /// dropped. A conversation that the agent server made by itself is adopted; a deleted one stays deleted. A report
    /// about another sandbox's conversation changes nothing and gets the response of a stored one.
    pub async fn events(
        &self,
        from: &Sandbox,
        conversation: ConversationId,
        batch: Vec<Value>,
    ) -> Result<(), AppError> {
        let sent = batch.len();
        let taken = self.store_events(from, conversation, batch).await;
        self.metrics.count_report(sent, &taken);
        taken
    }

    async fn store_events(
        &self,
        from: &Sandbox,
        conversation: ConversationId,
        batch: Vec<Value>,
    ) -> Result<(), AppError> {
        let now = self.clock.now();
        let sent = batch.len();
        let quotas = &self.quotas;
        let bytes = batch.iter().map(|it| text_bytes(it) as u64).sum();
        quotas.count_report(&from.id, bytes);
        let events: Vec<_> = batch
            .into_iter()
            .filter_map(|body| Event::from_document(body, now))
            .filter(|event| event.kind != STREAMING_DELTA)
            .collect();
        // From the events before the quota applies: a status is not lost with its event.
        let observation = ConversationReport::from_events(&events);
        let admitted = quotas.admit(&from.owner, events, bytes).await;
        let events = &admitted.events;
        let append = || {
            self.events
                .append(&from.id, conversation, events, &observation, now)
        };
        let mut appended = append().await?;
        if is_foreign_or_unknown(&appended) {
            let adopted = adopted_conversation(from, conversation, now);
            let adopted = self.adopt(from, &adopted).await?;
            appended = resolve_outcome(from, conversation, &adopted, append().await?)?;
        }
        if let AppendOutcome::Stored { new } = appended
            && new > 0
        {
            quotas.count_stored(&from.owner, &admitted, new);
            if let Some(oldest) = events.iter().map(|event| event.timestamp).min() {
                let lag = self.clock.now().since(oldest);
                self.metrics.record_lag(lag.min(MAX_LAG));
            }
            self.streams.wake(conversation);
        }
        tracing::debug!(conversation.id = %conversation, sandbox.id = %from.id, sent, kept = events.len(), "stored reported events");
        // The tail of a run may be lost with its process, so the end of a run triggers a sync.
        let status = observation.execution_status;
        if status.is_some_and(|(status, _)| status.is_terminal()) {
            self.syncer.request(&from.id);
        }
        Ok(())
    }

    /// Stores a conversation's state, as reported on start, pause, interrupt, change and deletion.
    pub async fn conversation(
        &self,
        from: &Sandbox,
        info: &AgentConversation,
    ) -> Result<(), AppError> {
        if info.execution_status == Some(ExecutionStatus::Deleting) {
            return Ok(());
        }
        let now = self.clock.now();
        let (conversations, report) = (&self.conversations, info.report(now));
        let observe = || conversations.apply_report(&from.id, info.id, &report, now);
        if is_foreign_or_unknown(&observe().await?) {
            let mut adopted_conversation = adopted_conversation(from, info.id, now);
            adopted_conversation.agent_kind = info.agent_kind;
            let adopted = self.adopt(from, &adopted_conversation).await?;
            resolve_outcome(from, info.id, &adopted, observe().await?)?;
        }
        Ok(())
    }

    /// Adopts the conversation if no sandbox has it and the quota of the owner allows one more. The sandbox is looked
    /// up again before the insert, because it and its user may be deleted by now.
    async fn adopt(
        &self,
        from: &Sandbox,
        conversation: &Conversation,
    ) -> Result<AppendOutcome, AppError> {
        if !self.may_still_report(from).await? {
            return Err(not_found());
        }
        let wanted = [(Quota::Conversations, 1)];
        match self.quotas.check(&from.owner, &wanted).await {
            Ok(()) => {}
            // Above the quota the conversation stays unknown.
            Err(refusal) if refusal.class() == ErrorClass::QuotaExceeded => return Err(not_found()),
            Err(error) => return Err(error),
        }
        let adopted = self.conversations.adopt(conversation).await?;
        if matches!(adopted, AppendOutcome::Stored { new } if new > 0) {
            self.quotas.add_usage(&from.owner, &wanted);
        }
        Ok(adopted)
    }

    /// Refuses reports of a sandbox above its report rate. Called before the body is read.
    ///
    /// No event is lost: the agent server retries, and the syncer reads the rest from the log.
    pub fn check_rate(&self, from: &Sandbox) -> Result<(), AppError> {
        self.quotas.check_report(&from.id)
    }

    async fn may_still_report(&self, from: &Sandbox) -> Result<bool, AppError> {
        let found = self.sandboxes.find(&Scope::System, &from.id);
        Ok(found
            .await?
            .is_some_and(|it| self.authenticator.may_report(&it)))
    }
}

/// The row of a conversation that was created inside the sandbox.
fn adopted_conversation(from: &Sandbox, id: ConversationId, now: Timestamp) -> Conversation {
    Conversation {
        title: Some(format!("Conversation {id}")),
        trigger: from.automation_key.map(|_| Trigger::Automation),
        ..new_conversation_row(id, &from.owner, &from.id, now)
    }
}

/// Whether the conversation belongs to another sandbox or to none.
fn is_foreign_or_unknown(outcome: &AppendOutcome) -> bool {
    matches!(outcome, AppendOutcome::Foreign | AppendOutcome::Unknown)
}

/// The outcome of a report after an attempt to adopt its conversation. A conversation of another sandbox takes the
/// same steps and gets the same response as an unknown one, so that no sandbox learns which ids exist elsewhere.
fn resolve_outcome(
    from: &Sandbox,
    id: ConversationId,
    adopted: &AppendOutcome,
    outcome: AppendOutcome,
) -> Result<AppendOutcome, AppError> {
    if !is_foreign_or_unknown(&outcome) {
        return Ok(outcome);
    }
    if is_foreign_or_unknown(adopted) {
        tracing::warn!(conversation.id = %id, sandbox.id = %from.id, "dropping a report about a conversation of another sandbox");
        return Ok(outcome);
    }
    // A start in this sandbox has reserved the id and will store the row. The agent server sends the report again.
    Err(not_found())
}

fn not_found() -> AppError {
    AppError::not_found("Conversation not found in this sandbox")
}
