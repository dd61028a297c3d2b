//! An agent server that thinks nothing and remembers everything.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use domain::agent::{
    AgentConversation, AgentEndpoint, AgentError, AgentEventPage, AgentRuntime, InitRequest,
    LaunchRequest, LlmProfile, MessageDelivery,
};
use domain::clock::Timestamp;
use domain::conversation::{ExecutionStatus, MessageInput, Metrics};
use domain::event::Event;
use domain::id::{ConversationId, SandboxId};
use url::Url;

use crate::fakes::dormant_servers::DormantServers;
use crate::fakes::message_events::user_message_event;
use crate::fakes::behavior::{FakeAgentCalls, FakeBehavior};

/// Events on one page of the log.
const EVENTS_PER_PAGE: usize = 100;

/// All agent servers at once: conversations are found whatever the URL, as they are when a sandbox is resumed at
/// another port.
#[derive(Default)]
pub struct FakeAgentRuntime {
    state: Mutex<FakeAgentState>,
}

#[expect(clippy::struct_excessive_bools, reason = "independent ways to behave")]
#[derive(Default)]
struct FakeAgentState {
    behavior: FakeBehavior,
    behaviors_by_url: BTreeMap<Url, FakeBehavior>,
    calls: FakeAgentCalls,
    conversations: BTreeMap<ConversationId, FakeConversation>,
    launches: Vec<LaunchRequest>,
    messages: Vec<(ConversationId, MessageInput)>,
    switches: Vec<(ConversationId, String)>,
    profiles: Vec<LlmProfile>,
    refuses_profiles: Option<Duration>,
    refuse_runs: bool,
    lose_answers: bool,
    lose_message_responses: bool,
    /// Messages that were sent and are not taken yet.
    held_messages: Option<Vec<(ConversationId, MessageInput)>>,
    hold_answers: bool,
    idle_time: Option<Duration>,
    dormant_servers: DormantServers,
    init_requests: Vec<(Url, InitRequest)>,
    /// Which cannot be woken.
    unwakeable: BTreeSet<Url>,
    /// How they answer whether they are dormant, if not by their behavior.
    dormancy_behavior: Option<FakeBehavior>,
}

impl FakeAgentState {
    fn behavior_at(&mut self, url: &Url, count: impl FnOnce(&mut FakeAgentCalls)) -> FakeBehavior {
        count(&mut self.calls);
        self.behaviors_by_url.get(url).copied().unwrap_or(self.behavior)
    }
}

struct FakeConversation {
    it: AgentConversation,
    events: Vec<Event>,
}

impl FakeAgentRuntime {
    fn lock(&self) -> MutexGuard<'_, FakeAgentState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How all of them behave from now on, but those with a behavior of their own.
    pub fn set_behavior(&self, behavior: FakeBehavior) {
        self.lock().behavior = behavior;
    }

    /// How the one at this URL behaves from now on.
    pub fn set_behavior_at(&self, url: &Url, behavior: FakeBehavior) {
        self.lock().behaviors_by_url.insert(url.clone(), behavior);
    }

    /// Whether messages are saved without being run.
    pub fn refuse_runs(&self, refuse: bool) {
        self.lock().refuse_runs = refuse;
    }

    /// Whether a start is carried out and then answered with 500.
    pub fn lose_answers(&self, lose: bool) {
        self.lock().lose_answers = lose;
    }

    /// Whether a message is taken, and logged, and then answered with 500.
    pub fn lose_answers_to_messages(&self, lose: bool) {
        self.lock().lose_message_responses = lose;
    }

    /// Messages are from now on taken only when [`Self::take_messages`] says so, and not answered: so it is while an agent is
    /// at a long step. The caller may be gone by then.
    pub fn hold_messages(&self) {
        self.lock().held_messages = Some(Vec::new());
    }

    /// Messages are taken again, but those that were held are lost.
    pub fn drop_messages(&self) {
        self.lock().held_messages = None;
    }

    /// Messages are taken again: those that were held, and those that come.
    pub fn take_messages(&self) {
        let mut state = self.lock();
        for (id, message) in state.held_messages.take().unwrap_or_default() {
            let event = user_message_event(state.messages.len(), &message);
            if let Some(kept) = state.conversations.get_mut(&id) {
                kept.events.push(event);
            }
            state.messages.push((id, message));
        }
    }

    /// Whether a start is carried out and then never answered.
    pub fn hold_answers(&self, hold: bool) {
        self.lock().hold_answers = hold;
    }

    /// How long all of them say that nobody asked them for anything.
    pub fn set_idle_time(&self, idle: Option<Duration>) {
        self.lock().idle_time = idle;
    }

    /// Those that this backend boots dormant are dormant from now on, until they are woken.
    pub fn share_dormant_servers(&self, dormant_servers: DormantServers) {
        self.lock().dormant_servers = dormant_servers;
    }

    /// The dormant one at this URL cannot be woken from now on.
    pub fn refuse_to_wake(&self, url: &Url) {
        self.lock().unwakeable.insert(url.clone());
    }

    /// How all of them answer whether they are dormant from now on, if not by their behavior.
    pub fn set_dormancy_behavior(&self, behavior: Option<FakeBehavior>) {
        self.lock().dormancy_behavior = behavior;
    }

    /// Who was woken, with what, in order. Those that were awake already are not.
    pub fn init_requests(&self) -> Vec<(Url, InitRequest)> {
        self.lock().init_requests.clone()
    }

    /// What was called so far.
    pub fn calls(&self) -> FakeAgentCalls {
        self.lock().calls
    }

    /// What was started (once for each conversation), in order.
    pub fn launches(&self) -> Vec<LaunchRequest> {
        self.lock().launches.clone()
    }

    /// What was said by `send`, in order.
    pub fn messages(&self) -> Vec<(ConversationId, MessageInput)> {
        self.lock().messages.clone()
    }

    /// Which models were switched to, in order: that of a profile, or of a program.
    pub fn switches(&self) -> Vec<(ConversationId, String)> {
        self.lock().switches.clone()
    }

    /// Profiles are refused from now on, each time after so long.
    pub fn refuse_profiles(&self, after: Duration) {
        self.lock().refuses_profiles = Some(after);
    }

    /// The profiles that were handed over last.
    pub fn profiles(&self) -> Vec<LlmProfile> {
        self.lock().profiles.clone()
    }

    /// Whether it has the conversation.
    pub fn knows(&self, id: ConversationId) -> bool {
        self.lock().conversations.contains_key(&id)
    }

    /// Adds an event to a conversation's log. Does nothing for an unknown one.
    pub fn push_event(&self, id: ConversationId, event: Event) {
        if let Some(kept) = self.lock().conversations.get_mut(&id) {
            kept.events.push(event);
        }
    }

    /// Changes what it says about a conversation. Does nothing for an unknown one.
    pub fn change(&self, id: ConversationId, change: impl FnOnce(&mut AgentConversation)) {
        if let Some(kept) = self.lock().conversations.get_mut(&id) {
            change(&mut kept.it);
        }
    }

    /// Counts the call and behaves as told.
    async fn called(&self, url: &Url, count: impl FnOnce(&mut FakeAgentCalls)) -> Result<(), AgentError> {
        let behavior = self.lock().behavior_at(url, count);
        behavior.behave().await?;
        if self.lock().dormant_servers.has(url) {
            return Err(AgentError::Rejected {
                status: 503,
                reason: "dormant".to_owned(),
            });
        }
        Ok(())
    }

    /// The same for what a dormant one answers too.
    async fn asked(&self, url: &Url, count: impl FnOnce(&mut FakeAgentCalls)) -> Result<(), AgentError> {
        let behavior = self.lock().behavior_at(url, count);
        behavior.behave().await
    }

    fn switch_model(&self, id: ConversationId, model: &str) -> Result<(), AgentError> {
        self.with_conversation(id, |kept| kept.it.llm_model = Some(model.to_owned()))?;
        self.lock().switches.push((id, model.to_owned()));
        Ok(())
    }

    fn with_conversation<T>(
        &self,
        id: ConversationId,
        with: impl FnOnce(&mut FakeConversation) -> T,
    ) -> Result<T, AgentError> {
        let mut state = self.lock();
        let kept = state.conversations.get_mut(&id);
        kept.map(with).ok_or(AgentError::NotFound)
    }
}

fn new_conversation(request: &LaunchRequest) -> AgentConversation {
    let runs = request
        .initial_message
        .as_ref()
        .is_some_and(|message| message.run);
    AgentConversation {
        id: request.conversation_id,
        execution_status: Some(if runs {
            ExecutionStatus::Running
        } else {
            ExecutionStatus::Idle
        }),
        title: None,
        metrics: Some(Metrics::default()),
        llm_model: Some(request.llm.model.clone()),
        agent_kind: "openhands".to_owned(),
        tags: request.tags.clone(),
        updated_at: None,
        notes: Vec::new(),
    }
}

#[async_trait]
impl AgentRuntime for FakeAgentRuntime {
    async fn is_dormant(&self, _: &SandboxId, url: &Url) -> Result<bool, AgentError> {
        let behavior = {
            let mut state = self.lock();
            let behavior = state.behavior_at(url, |calls| calls.is_dormant += 1);
            state.dormancy_behavior.unwrap_or(behavior)
        };
        behavior.behave().await?;
        Ok(self.lock().dormant_servers.has(url))
    }

    async fn prewarm(&self, _: &SandboxId, url: &Url) {
        // Whatever comes of it.
        let _ = self.asked(url, |calls| calls.prewarm += 1).await;
    }

    async fn wake(
        &self,
        _: &SandboxId,
        url: &Url,
        init: &InitRequest,
    ) -> Result<(), AgentError> {
        self.asked(url, |calls| calls.wake += 1).await?;
        let mut state = self.lock();
        if state.unwakeable.contains(url) {
            return Err(AgentError::Rejected {
                status: 500,
                reason: "the fake agent server was told to stay dormant".to_owned(),
            });
        }
        if state.dormant_servers.wake(url) {
            state.init_requests.push((url.clone(), init.clone()));
        }
        Ok(())
    }

    async fn is_alive(&self, _: &SandboxId, url: &Url) -> bool {
        self.asked(url, |calls| calls.is_alive += 1).await.is_ok()
    }

    async fn idle_time(&self, at: &AgentEndpoint) -> Result<Option<Duration>, AgentError> {
        self.called(&at.url, |_| ()).await?;
        Ok(self.lock().idle_time)
    }

    async fn version(&self, at: &AgentEndpoint) -> Result<String, AgentError> {
        self.called(&at.url, |calls| calls.version += 1).await?;
        Ok("0.0.0-fake".to_owned())
    }

    async fn start(
        &self,
        at: &AgentEndpoint,
        request: &LaunchRequest,
    ) -> Result<AgentConversation, AgentError> {
        self.called(&at.url, |calls| calls.start += 1).await?;
        let (it, is_held) = {
            let mut state = self.lock();
            if let Some(kept) = state.conversations.get(&request.conversation_id) {
                return Ok(kept.it.clone());
            }
            state.launches.push(request.clone());
            let it = new_conversation(request);
            let kept = FakeConversation {
                it: it.clone(),
                events: Vec::new(),
            };
            state.conversations.insert(request.conversation_id, kept);
            if state.lose_answers {
                return Err(AgentError::Rejected {
                    status: 500,
                    reason: "told to lose the answer".to_owned(),
                });
            }
            (it, state.hold_answers)
        };
        if is_held {
            std::future::pending::<()>().await;
        }
        Ok(it)
    }

    async fn snapshot_many(
        &self,
        at: &AgentEndpoint,
        ids: &[ConversationId],
    ) -> Result<Vec<Option<AgentConversation>>, AgentError> {
        self.called(&at.url, |calls| calls.snapshot_many += 1)
            .await?;
        let state = self.lock();
        let find = |id| state.conversations.get(id).map(|kept| kept.it.clone());
        Ok(ids.iter().map(find).collect())
    }

    async fn events(
        &self,
        at: &AgentEndpoint,
        id: ConversationId,
        from: Option<Timestamp>,
        cursor: Option<&str>,
    ) -> Result<AgentEventPage, AgentError> {
        self.called(&at.url, |calls| calls.events += 1).await?;
        self.with_conversation(id, |kept| {
            // Pages begin at the event that the cursor names, as those of the real one do; the order is the log's own.
            let log = &kept.events;
            let begins = |event: &Event| match cursor {
                Some(cursor) => event.id.as_str() == cursor,
                None => from.is_none_or(|from| event.timestamp >= from),
            };
            let begin = log.iter().position(begins).unwrap_or(log.len());
            let end = log.len().min(begin + EVENTS_PER_PAGE);
            AgentEventPage {
                items: log[begin..end].to_vec(),
                next: log.get(end).map(|event| event.id.to_string()),
            }
        })
    }

    async fn count_events(
        &self,
        at: &AgentEndpoint,
        id: ConversationId,
    ) -> Result<u64, AgentError> {
        self.called(&at.url, |calls| calls.count_events += 1)
            .await?;
        self.with_conversation(id, |kept| {
            u64::try_from(kept.events.len()).unwrap_or(u64::MAX)
        })
    }

    async fn send(
        &self,
        at: &AgentEndpoint,
        id: ConversationId,
        message: &MessageInput,
    ) -> Result<MessageDelivery, AgentError> {
        self.called(&at.url, |calls| calls.send += 1).await?;
        let is_held = {
            let mut state = self.lock();
            let held = state.held_messages.as_mut();
            held.map(|held| held.push((id, message.clone()))).is_some()
        };
        if is_held {
            std::future::pending::<()>().await;
        }
        let mut state = self.lock();
        let refused = state.refuse_runs && message.run;
        let kept = state
            .conversations
            .get_mut(&id)
            .ok_or(AgentError::NotFound)?;
        if message.run && !refused {
            kept.it.execution_status = Some(ExecutionStatus::Running);
        }
        if state.lose_message_responses {
            let event = user_message_event(state.messages.len(), message);
            if let Some(kept) = state.conversations.get_mut(&id) {
                kept.events.push(event);
            }
        }
        state.messages.push((id, message.clone()));
        if state.lose_message_responses {
            return Err(AgentError::Rejected {
                status: 500,
                reason: "told to lose the answer".to_owned(),
            });
        }
        Ok(if refused {
            MessageDelivery::RunRefused
        } else {
            MessageDelivery::Delivered
        })
    }

    async fn interrupt(&self, at: &AgentEndpoint, id: ConversationId) -> Result<(), AgentError> {
        self.called(&at.url, |calls| calls.interrupt += 1).await?;
        self.with_conversation(id, |kept| {
            if kept.it.execution_status == Some(ExecutionStatus::Running) {
                kept.it.execution_status = Some(ExecutionStatus::Paused);
            }
        })
    }

    async fn switch_llm(
        &self,
        at: &AgentEndpoint,
        id: ConversationId,
        profile: &LlmProfile,
    ) -> Result<(), AgentError> {
        self.called(&at.url, |_| ()).await?;
        self.switch_model(id, &profile.llm.model)
    }

    async fn switch_acp_model(
        &self,
        at: &AgentEndpoint,
        id: ConversationId,
        model: &str,
    ) -> Result<(), AgentError> {
        self.called(&at.url, |_| ()).await?;
        self.switch_model(id, model)
    }

    async fn seed_profiles(
        &self,
        at: &AgentEndpoint,
        profiles: &[LlmProfile],
    ) -> Result<(), AgentError> {
        self.called(&at.url, |_| ()).await?;
        let refuses = self.lock().refuses_profiles;
        if let Some(after) = refuses {
            tokio::time::sleep(after).await;
            return Err(AgentError::Rejected {
                status: 500,
                reason: "told to refuse profiles".to_owned(),
            });
        }
        self.lock().profiles = profiles.to_vec();
        Ok(())
    }

    async fn delete_conversation(&self, at: &AgentEndpoint, id: ConversationId) -> Result<(), AgentError> {
        self.called(&at.url, |calls| calls.delete_conversation += 1).await?;
        self.lock().conversations.remove(&id);
        Ok(())
    }
}
