//! Reports of agent servers: hints that are stored, deduplicated, and never trusted to move a conversation.

use std::sync::Arc;
use std::time::Duration;

use domain::agent::AgentConversation;
use domain::agent::document::STREAMING_DELTA;
use domain::clock::Timestamp;
use domain::conversation::{Conversation, ExecutionStatus, Metrics, Observation};
use domain::event::{Appended, Event};
use domain::id::ConversationId;
use domain::sandbox::Sandbox;
use domain::scope::Scope;
use serde_json::Value;

use crate::{AppError, Inner};

/// The longest delay that is counted as one: the time of an event comes from its sandbox, which may be wrong by decades.
const LONGEST_LAG: Duration = Duration::from_secs(60 * 60);

/// Intake. Answers only after the commit.
#[derive(Clone)]
pub struct Webhooks(Arc<Inner>);

impl Webhooks {
    pub(crate) fn new(inner: Arc<Inner>) -> Self {
        Self(inner)
    }

    /// A batch of events of one conversation. Unknown kinds and fields are as good as known ones; what has no usable id
    /// is left out. A conversation that the agent server made by itself is adopted; one that was deleted stays deleted;
    /// one of another sandbox is not found.
    pub async fn events(
        &self,
        from: &Sandbox,
        conversation: ConversationId,
        batch: Vec<Value>,
    ) -> Result<(), AppError> {
        let sent = batch.len();
        let taken = self.take_in(from, conversation, batch).await;
        self.0.measures.reported(sent, &taken);
        taken
    }

    async fn take_in(
        &self,
        from: &Sandbox,
        conversation: ConversationId,
        batch: Vec<Value>,
    ) -> Result<(), AppError> {
        let now = self.0.ports.clock.now();
        let sent = batch.len();
        let events: Vec<_> = batch
            .into_iter()
            .filter_map(|body| Event::from_document(body, now))
            .filter(|event| event.kind != STREAMING_DELTA)
            .collect();
        let observation = Observation::from_events(&events);
        let append = || {
            self.0
                .ports
                .events
                .append(&from.id, conversation, &events, &observation, now)
        };
        let mut appended = append().await?;
        if appended == Appended::Unknown && self.still_reports(from).await? {
            self.0
                .ports
                .conversations
                .adopt(&found(from, conversation, now))
                .await?;
            appended = append().await?;
        }
        settle(from, conversation, &appended)?;
        if matches!(appended, Appended::Stored { new } if new > 0) {
            if let Some(oldest) = events.iter().map(|event| event.timestamp).min() {
                let lag = self.0.ports.clock.now().since(oldest);
                self.0.measures.lag(lag.min(LONGEST_LAG));
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
                .observe(&from.id, info.id, &info.observation(now), now)
                .await
        };
        let mut applied = observe().await?;
        if applied == Appended::Unknown && self.still_reports(from).await? {
            let mut found = found(from, info.id, now);
            found.agent_kind.clone_from(&info.agent_kind);
            self.0.ports.conversations.adopt(&found).await?;
            applied = observe().await?;
        }
        settle(from, info.id, &applied)
    }

    /// Who reports was looked up a moment ago. Before a row is made for it, it is looked up again: it may be gone by now,
    /// and its user with it.
    async fn still_reports(&self, from: &Sandbox) -> Result<bool, AppError> {
        let found = self.0.ports.sandboxes.find(&Scope::System, &from.id);
        Ok(found.await?.is_some_and(|it| self.0.may_report(&it)))
    }
}

/// The row of a conversation that was made inside the sandbox, not through us.
fn found(from: &Sandbox, id: ConversationId, now: Timestamp) -> Conversation {
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

fn settle(from: &Sandbox, id: ConversationId, outcome: &Appended) -> Result<(), AppError> {
    match outcome {
        Appended::Stored { .. } | Appended::Deleted => Ok(()),
        Appended::Foreign | Appended::Unknown => {
            tracing::warn!(conversation.id = %id, sandbox.id = %from.id, "report about a conversation of another sandbox refused");
            Err(AppError::not_found(
                "Conversation not found in this sandbox",
            ))
        }
    }
}
