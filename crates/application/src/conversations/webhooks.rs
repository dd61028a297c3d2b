//! Reports of agent servers: hints that are stored, deduplicated, and never trusted to move a conversation.

use std::sync::Arc;
use std::time::Duration;

use domain::agent::AgentConversation;
use domain::agent::document::STREAMING_DELTA;
use domain::clock::Timestamp;
use domain::conversation::{Conversation, ExecutionStatus, Metrics, ConversationReport};
use domain::error::{Classify as _, ErrorClass};
use domain::event::{AppendOutcome, Event};
use domain::id::ConversationId;
use domain::json::text_bytes;
use domain::sandbox::Sandbox;
use domain::scope::Scope;
use domain::usage::Quota;
use serde_json::Value;

use crate::{AppError, Inner};

/// The longest delay that is counted as one: the time of an event comes from its sandbox, which may be wrong by decades.
const MAX_LAG: Duration = Duration::from_secs(60 * 60);

/// Intake. Answers only after the commit.
#[derive(Clone)]
pub struct Webhooks(Arc<Inner>);

impl Webhooks {
    pub(crate) fn new(inner: Arc<Inner>) -> Self {
        Self(inner)
    }

    /// A batch of events of one conversation. Unknown kinds and fields are as good as known ones; what has no usable id
    /// is left out. A conversation that the agent server made by itself is adopted; one that was deleted stays deleted.
    /// A report about a conversation of another sandbox changes nothing and gets the answer of one that was stored.
    pub async fn events(
        &self,
        from: &Sandbox,
        conversation: ConversationId,
        batch: Vec<Value>,
    ) -> Result<(), AppError> {
        let sent = batch.len();
        let taken = self.store_events(from, conversation, batch).await;
        self.0.measures.reported(sent, &taken);
        taken
    }

    async fn store_events(
        &self,
        from: &Sandbox,
        conversation: ConversationId,
        batch: Vec<Value>,
    ) -> Result<(), AppError> {
        let now = self.0.ports.clock.now();
        let sent = batch.len();
        let quotas = &self.0.quotas;
        let bytes = batch.iter().map(|it| text_bytes(it) as u64).sum();
        quotas.reported(&from.id, bytes);
        let events: Vec<_> = batch
            .into_iter()
            .filter_map(|body| Event::from_document(body, now))
            .filter(|event| event.kind != STREAMING_DELTA)
            .collect();
        // Of the events as they came: a status is not lost with its event.
        let observation = ConversationReport::from_events(&events);
        let admitted = quotas.admit(&from.owner, events, bytes).await;
        let events = &admitted.events;
        let append = || {
            self.0
                .ports
                .events
                .append(&from.id, conversation, events, &observation, now)
        };
        let mut appended = append().await?;
        if is_foreign_or_unknown(&appended) {
            let adopted = self.adopt(from, &adopted_conversation(from, conversation, now)).await?;
            appended = resolve_outcome(from, conversation, &adopted, append().await?)?;
        }
        if let AppendOutcome::Stored { new } = appended
            && new > 0
        {
            quotas.stored(&from.owner, &admitted, new);
            if let Some(oldest) = events.iter().map(|event| event.timestamp).min() {
                let lag = self.0.ports.clock.now().since(oldest);
                self.0.measures.lag(lag.min(MAX_LAG));
            }
            self.0.followers.wake(conversation);
        }
        tracing::debug!(conversation.id = %conversation, sandbox.id = %from.id, sent, kept = events.len(), "events taken in");
        // The tail of a run may be lost with its process: once it says it is done, read the log.
        if observation
            .execution_status
            .is_some_and(|(status, _)| status.is_terminal())
        {
            self.0.syncer.request(&from.id);
        }
        Ok(())
    }

    /// A conversation's record, sent on start, pause, interrupt, change and delete.
    pub async fn conversation(
        &self,
        from: &Sandbox,
        info: &AgentConversation,
    ) -> Result<(), AppError> {
        if info.execution_status == Some(ExecutionStatus::Deleting) {
            return Ok(());
        }
        let now = self.0.ports.clock.now();
        let observe = || async {
            self.0
                .ports
                .conversations
                .apply_report(&from.id, info.id, &info.report(now), now)
                .await
        };
        if is_foreign_or_unknown(&observe().await?) {
            let mut adopted_conversation = adopted_conversation(from, info.id, now);
            adopted_conversation.agent_kind.clone_from(&info.agent_kind);
            let adopted = self.adopt(from, &adopted_conversation).await?;
            resolve_outcome(from, info.id, &adopted, observe().await?)?;
        }
        Ok(())
    }

    /// Makes the conversation one of this sandbox, if it is of none and its owner may have one more. The sandbox that reports
    /// was looked up a moment ago. Before a row is made for it, it is looked up again: it may be gone by now, and its user
    /// with it.
    async fn adopt(
        &self,
        from: &Sandbox,
        conversation: &Conversation,
    ) -> Result<AppendOutcome, AppError> {
        if !self.may_still_report(from).await? {
            return Err(not_found());
        }
        let wanted = [(Quota::Conversations, 1)];
        match self.0.quotas.check(&from.owner, &wanted).await {
            Ok(()) => {}
            // It stays unknown, as it would in a sandbox with too many of them.
            Err(refusal) if refusal.class() == ErrorClass::QuotaExceeded => return Err(not_found()),
            Err(error) => return Err(error),
        }
        let adopted = self.0.ports.conversations.adopt(conversation).await?;
        if matches!(adopted, AppendOutcome::Stored { new } if new > 0) {
            self.0.quotas.add(&from.owner, &wanted);
        }
        Ok(adopted)
    }

    /// Refuses reports of a sandbox that has sent too much in the last minute. Asked before a report is read.
    ///
    /// Nothing is lost: the agent server sends it again a few times, and what it gives up is read from its log later.
    pub fn check_rate(&self, from: &Sandbox) -> Result<(), AppError> {
        self.0.quotas.check_report(&from.id)
    }

    async fn may_still_report(&self, from: &Sandbox) -> Result<bool, AppError> {
        let adopted_conversation = self.0.ports.sandboxes.find(&Scope::System, &from.id);
        Ok(adopted_conversation.await?.is_some_and(|it| self.0.may_report(&it)))
    }
}

/// The row of a conversation that was made inside the sandbox, not through us.
fn adopted_conversation(from: &Sandbox, id: ConversationId, now: Timestamp) -> Conversation {
    Conversation {
        id,
        owner: from.owner.clone(),
        sandbox_id: from.id.clone(),
        title: Some(format!("Conversation {id}")),
        auto_title: true,
        selected_repository: None,
        selected_branch: None,
        git_provider: None,
        trigger: None,
        pr_numbers: Vec::new(),
        llm_model: None,
        agent_kind: "openhands".to_owned(),
        metrics: Metrics::default(),
        parent: None,
        public: None,
        tags: std::collections::BTreeMap::new(),
        execution_status: None,
        created_at: now,
        updated_at: now,
    }
}

/// Whether the conversation is another sandbox's, or of none as yet.
fn is_foreign_or_unknown(outcome: &AppendOutcome) -> bool {
    matches!(outcome, AppendOutcome::Foreign | AppendOutcome::Unknown)
}

/// What became of a report after the attempt to adopt its conversation. A conversation of another sandbox gets the same
/// steps and the same answer as one that exists nowhere, so that no sandbox finds out which ids exist elsewhere.
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
        tracing::warn!(conversation.id = %id, sandbox.id = %from.id, "a report about a conversation that is not this sandbox's was dropped");
        return Ok(outcome);
    }
    // Reserved for a start in this sandbox, which stores the row in a moment. The agent server sends the report again.
    Err(not_found())
}

fn not_found() -> AppError {
    AppError::not_found("Conversation not found in this sandbox")
}
