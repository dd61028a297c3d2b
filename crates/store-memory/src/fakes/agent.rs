//! Fake agent servers: they run no agent and record all calls.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use domain::agent::{
    AgentConversation, AgentConversationReader, AgentEndpoint, AgentError, AgentEventPage,
    AgentLifecycle, AgentRuntime, InitRequest, LaunchRequest, LlmProfile, MessageDelivery,
};
use domain::clock::Timestamp;
use domain::conversation::{ExecutionStatus, MessageInput};
use domain::event::Event;
use domain::id::{ConversationId, SandboxId};
use url::Url;

use crate::fakes::behavior::{FakeAgentCalls, FakeBehavior};
use crate::fakes::dormant_servers::DormantServers;
use crate::fakes::message_events::user_message_event;
use crate::fakes::new_conversation::new_conversation;

/// Maximum number of events of one page of the log.
const EVENTS_PER_PAGE: usize = 100;

/// The fake of all agent servers. A conversation is found at every URL, because a resumed sandbox may have another
/// port.
#[derive(Default)]
pub struct FakeAgentRuntime {
    state: Mutex<FakeAgentState>,
}

#[expect(clippy::struct_excessive_bools, reason = "independent switches")]
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
    lose_responses: bool,
    lose_message_responses: bool,
    /// Messages that were sent and are not accepted yet.
    held_messages: Option<Vec<(ConversationId, MessageInput)>>,
    hold_responses: bool,
    idle_time: Option<Duration>,
    dormant_servers: DormantServers,
    init_requests: Vec<(Url, InitRequest)>,
    /// Servers that cannot be woken.
    unwakeable: BTreeSet<Url>,
    /// The behavior of `is_dormant`, if it differs from the general one.
    dormancy_behavior: Option<FakeBehavior>,
}

impl FakeAgentState {
    fn behavior_at(&mut self, url: &Url, count: impl FnOnce(&mut FakeAgentCalls)) -> FakeBehavior {
        count(&mut self.calls);
        self.behaviors_by_url
            .get(url)
            .copied()
            .unwrap_or(self.behavior)
    }
}

struct FakeConversation {
    conversation: AgentConversation,
    events: Vec<Event>,
}

impl FakeAgentRuntime {
    fn lock(&self) -> MutexGuard<'_, FakeAgentState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the behavior of all servers without a behavior of their own.
    pub fn set_behavior(&self, behavior: FakeBehavior) {
        self.lock().behavior = behavior;
    }

    /// Sets the behavior of the server at this URL.
    pub fn set_behavior_at(&self, url: &Url, behavior: FakeBehavior) {
        self.lock().behaviors_by_url.insert(url.clone(), behavior);
    }

    /// Sets whether messages are stored without running the agent.
    pub fn refuse_runs(&self, refuse: bool) {
        self.lock().refuse_runs = refuse;
    }

    /// Sets whether a start succeeds but returns 500.
    pub fn lose_responses(&self, lose: bool) {
        self.lock().lose_responses = lose;
    }

    /// Sets whether a message is stored and logged but returns 500.
    pub fn lose_message_responses(&self, lose: bool) {
        self.lock().lose_message_responses = lose;
    }

    /// Holds messages until [`Self::accept_messages`] is called, without a response, as an agent server does during a
    /// long step. The caller may have given up by then.
    pub fn hold_messages(&self) {
        self.lock().held_messages = Some(Vec::new());
    }

    /// Accepts messages again and drops the held ones.
    pub fn drop_messages(&self) {
        self.lock().held_messages = None;
    }

    /// Accepts the held messages and new ones.
    pub fn accept_messages(&self) {
        let mut state = self.lock();
        for (id, message) in state.held_messages.take().unwrap_or_default() {
            let event = user_message_event(state.messages.len(), &message);
            if let Some(stored) = state.conversations.get_mut(&id) {
                stored.events.push(event);
            }
            state.messages.push((id, message));
        }
    }

    /// Sets whether a start succeeds but never returns.
    pub fn hold_responses(&self, hold: bool) {
        self.lock().hold_responses = hold;
    }

    /// Sets the idle time that all servers report.
    pub fn set_idle_time(&self, idle: Option<Duration>) {
        self.lock().idle_time = idle;
    }

    /// Makes the servers in this list dormant until they are woken.
    pub fn share_dormant_servers(&self, dormant_servers: DormantServers) {
        self.lock().dormant_servers = dormant_servers;
    }

    /// Makes the dormant server at this URL impossible to wake.
    pub fn refuse_to_wake(&self, url: &Url) {
        self.lock().unwakeable.insert(url.clone());
    }

    /// Sets the behavior of `is_dormant`, if it differs from the general one.
    pub fn set_dormancy_behavior(&self, behavior: Option<FakeBehavior>) {
        self.lock().dormancy_behavior = behavior;
    }

    /// The init requests of woken servers, in order. Servers that were awake are not included.
    pub fn init_requests(&self) -> Vec<(Url, InitRequest)> {
        self.lock().init_requests.clone()
    }

    /// The number of calls so far.
    pub fn calls(&self) -> FakeAgentCalls {
        self.lock().calls
    }

    /// The started conversations, each once, in order.
    pub fn launches(&self) -> Vec<LaunchRequest> {
        self.lock().launches.clone()
    }

    /// The messages of `send`, in order.
    pub fn messages(&self) -> Vec<(ConversationId, MessageInput)> {
        self.lock().messages.clone()
    }

    /// The models that conversations were switched to, in order.
    pub fn switches(&self) -> Vec<(ConversationId, String)> {
        self.lock().switches.clone()
    }

    /// Refuses profiles from now on, each time after this delay.
    pub fn refuse_profiles(&self, after: Duration) {
        self.lock().refuses_profiles = Some(after);
    }

    /// The profiles of the last call.
    pub fn profiles(&self) -> Vec<LlmProfile> {
        self.lock().profiles.clone()
    }

    /// Whether the conversation exists.
    pub fn has_conversation(&self, id: ConversationId) -> bool {
        self.lock().conversations.contains_key(&id)
    }

    /// Appends an event to a conversation's log. Does nothing for an unknown one.
    pub fn push_event(&self, id: ConversationId, event: Event) {
        if let Some(stored) = self.lock().conversations.get_mut(&id) {
            stored.events.push(event);
        }
    }

    /// Changes a conversation. Does nothing for an unknown one.
    pub fn change(&self, id: ConversationId, change: impl FnOnce(&mut AgentConversation)) {
        if let Some(stored) = self.lock().conversations.get_mut(&id) {
            change(&mut stored.conversation);
        }
    }

    /// Counts the call and applies the behavior. Fails if the server is dormant.
    async fn call_awake(
        &self,
        url: &Url,
        count: impl FnOnce(&mut FakeAgentCalls),
    ) -> Result<(), AgentError> {
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

    /// Counts the call and applies the behavior, for calls that a dormant server also supports.
    async fn call(
        &self,
        url: &Url,
        count: impl FnOnce(&mut FakeAgentCalls),
    ) -> Result<(), AgentError> {
        let behavior = self.lock().behavior_at(url, count);
        behavior.behave().await
    }

    fn switch_model(&self, id: ConversationId, model: &str) -> Result<(), AgentError> {
        self.with_conversation(id, |stored| {
            stored.conversation.llm_model = Some(model.to_owned());
        })?;
        self.lock().switches.push((id, model.to_owned()));
        Ok(())
    }

    fn with_conversation<T>(
        &self,
        id: ConversationId,
        with: impl FnOnce(&mut FakeConversation) -> T,
    ) -> Result<T, AgentError> {
        let mut state = self.lock();
        let stored = state.conversations.get_mut(&id);
        stored.map(with).ok_or(AgentError::NotFound)
    }
}

#[async_trait]
impl AgentRuntime for FakeAgentRuntime {
    async fn start(
        &self,
        at: &AgentEndpoint,
        request: &LaunchRequest,
    ) -> Result<AgentConversation, AgentError> {
        self.call_awake(&at.url, |calls| calls.start += 1).await?;
        let (conversation, is_held) = {
            let mut state = self.lock();
            if let Some(stored) = state.conversations.get(&request.conversation_id) {
                return Ok(stored.conversation.clone());
            }
            state.launches.push(request.clone());
            let conversation = new_conversation(request);
            let stored = FakeConversation {
                conversation: conversation.clone(),
                events: Vec::new(),
            };
            state.conversations.insert(request.conversation_id, stored);
            if state.lose_responses {
                return Err(AgentError::Rejected {
                    status: 500,
                    reason: "the fake agent server lost the response".to_owned(),
                });
            }
            (conversation, state.hold_responses)
        };
        if is_held {
            std::future::pending::<()>().await;
        }
        Ok(conversation)
    }

    async fn send(
        &self,
        at: &AgentEndpoint,
        id: ConversationId,
        message: &MessageInput,
    ) -> Result<MessageDelivery, AgentError> {
        self.call_awake(&at.url, |calls| calls.send += 1).await?;
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
        let stored = state
            .conversations
            .get_mut(&id)
            .ok_or(AgentError::NotFound)?;
        if message.run && !refused {
            stored.conversation.execution_status = Some(ExecutionStatus::Running);
        }
        if state.lose_message_responses {
            let event = user_message_event(state.messages.len(), message);
            if let Some(stored) = state.conversations.get_mut(&id) {
                stored.events.push(event);
            }
        }
        state.messages.push((id, message.clone()));
        if state.lose_message_responses {
            return Err(AgentError::Rejected {
                status: 500,
                reason: "the fake agent server lost the response".to_owned(),
            });
        }
        Ok(if refused {
            MessageDelivery::RunRefused
        } else {
            MessageDelivery::Delivered
        })
    }

    async fn interrupt(&self, at: &AgentEndpoint, id: ConversationId) -> Result<(), AgentError> {
        self.call_awake(&at.url, |calls| calls.interrupt += 1)
            .await?;
        self.with_conversation(id, |stored| {
            if stored.conversation.execution_status == Some(ExecutionStatus::Running) {
                stored.conversation.execution_status = Some(ExecutionStatus::Paused);
            }
        })
    }

    async fn switch_llm(
        &self,
        at: &AgentEndpoint,
        id: ConversationId,
        profile: &LlmProfile,
    ) -> Result<(), AgentError> {
        self.call_awake(&at.url, |_| ()).await?;
        self.switch_model(id, &profile.llm.model)
    }

    async fn switch_acp_model(
        &self,
        at: &AgentEndpoint,
        id: ConversationId,
        model: &str,
    ) -> Result<(), AgentError> {
        self.call_awake(&at.url, |_| ()).await?;
        self.switch_model(id, model)
    }

    async fn seed_profiles(
        &self,
        at: &AgentEndpoint,
        profiles: &[LlmProfile],
    ) -> Result<(), AgentError> {
        self.call_awake(&at.url, |_| ()).await?;
        let refuses = self.lock().refuses_profiles;
        if let Some(after) = refuses {
            tokio::time::sleep(after).await;
            return Err(AgentError::Rejected {
                status: 500,
                reason: "the fake agent server refuses profiles".to_owned(),
            });
        }
        self.lock().profiles = profiles.to_vec();
        Ok(())
    }

    async fn delete_conversation(
        &self,
        at: &AgentEndpoint,
        id: ConversationId,
    ) -> Result<(), AgentError> {
        self.call_awake(&at.url, |calls| calls.delete_conversation += 1)
            .await?;
        self.lock().conversations.remove(&id);
        Ok(())
    }
}

#[async_trait]
impl AgentLifecycle for FakeAgentRuntime {
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
        // A failure does not matter.
        let _ = self.call(url, |calls| calls.prewarm += 1).await;
    }

    async fn wake(&self, _: &SandboxId, url: &Url, init: &InitRequest) -> Result<(), AgentError> {
        self.call(url, |calls| calls.wake += 1).await?;
        let mut state = self.lock();
        if state.unwakeable.contains(url) {
            return Err(AgentError::Rejected {
                status: 500,
                reason: "the fake agent server stays dormant".to_owned(),
            });
        }
        if state.dormant_servers.wake(url) {
            state.init_requests.push((url.clone(), init.clone()));
        }
        Ok(())
    }

    async fn is_alive(&self, _: &SandboxId, url: &Url) -> bool {
        self.call(url, |calls| calls.is_alive += 1).await.is_ok()
    }

    async fn idle_time(&self, at: &AgentEndpoint) -> Result<Option<Duration>, AgentError> {
        self.call_awake(&at.url, |_| ()).await?;
        Ok(self.lock().idle_time)
    }

    async fn version(&self, at: &AgentEndpoint) -> Result<String, AgentError> {
        self.call_awake(&at.url, |calls| calls.version += 1).await?;
        Ok("0.0.0-fake".to_owned())
    }
}

#[async_trait]
impl AgentConversationReader for FakeAgentRuntime {
    async fn snapshot_many(
        &self,
        at: &AgentEndpoint,
        ids: &[ConversationId],
    ) -> Result<Vec<Option<AgentConversation>>, AgentError> {
        self.call_awake(&at.url, |calls| calls.snapshot_many += 1)
            .await?;
        let state = self.lock();
        let find = |id| {
            state
                .conversations
                .get(id)
                .map(|stored| stored.conversation.clone())
        };
        Ok(ids.iter().map(find).collect())
    }

    async fn events(
        &self,
        at: &AgentEndpoint,
        id: ConversationId,
        from: Option<Timestamp>,
        cursor: Option<&str>,
    ) -> Result<AgentEventPage, AgentError> {
        self.call_awake(&at.url, |calls| calls.events += 1).await?;
        self.with_conversation(id, |stored| {
            // Pages begin at the event that the cursor names, like those of the real agent server. The order is that of
            // the log.
            let log = &stored.events;
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
        self.call_awake(&at.url, |calls| calls.count_events += 1)
            .await?;
        self.with_conversation(id, |stored| {
            u64::try_from(stored.events.len()).unwrap_or(u64::MAX)
        })
    }
}
