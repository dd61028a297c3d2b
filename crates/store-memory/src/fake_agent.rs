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

use crate::fake_dormant::DormantServers;
use crate::fake_message::said;
use crate::fake_mood::{Calls, FakeBehavior};

/// Events on one page of the log.
const PAGE: usize = 100;

/// All agent servers at once: conversations are found whatever the URL, as they are when a sandbox is resumed at
/// another port.
#[derive(Default)]
pub struct FakeAgentRuntime {
    inner: Mutex<Inner>,
}

#[expect(clippy::struct_excessive_bools, reason = "independent ways to behave")]
#[derive(Default)]
struct Inner {
    mood: FakeBehavior,
    moods: BTreeMap<Url, FakeBehavior>,
    calls: Calls,
    conversations: BTreeMap<ConversationId, Kept>,
    launches: Vec<LaunchRequest>,
    messages: Vec<(ConversationId, MessageInput)>,
    switches: Vec<(ConversationId, String)>,
    profiles: Vec<LlmProfile>,
    refuses_profiles: Option<Duration>,
    refuse_runs: bool,
    lose_answers: bool,
    lose_words: bool,
    /// Messages that were sent and are not taken yet.
    held_words: Option<Vec<(ConversationId, MessageInput)>>,
    hold_answers: bool,
    idle_time: Option<Duration>,
    sleepers: DormantServers,
    init_requests: Vec<(Url, InitRequest)>,
    /// Which cannot be woken.
    comatose: BTreeSet<Url>,
    /// How they answer whether they are dormant, if not by their mood.
    secretive: Option<FakeBehavior>,
}

impl Inner {
    fn behavior_at(&mut self, url: &Url, count: impl FnOnce(&mut Calls)) -> FakeBehavior {
        count(&mut self.calls);
        self.moods.get(url).copied().unwrap_or(self.mood)
    }
}

struct Kept {
    it: AgentConversation,
    events: Vec<Event>,
}

impl FakeAgentRuntime {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How all of them behave from now on, but those with a mood of their own.
    pub fn set_behavior(&self, mood: FakeBehavior) {
        self.lock().mood = mood;
    }

    /// How the one at this URL behaves from now on.
    pub fn set_behavior_at(&self, url: &Url, mood: FakeBehavior) {
        self.lock().moods.insert(url.clone(), mood);
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
        self.lock().lose_words = lose;
    }

    /// Messages are from now on taken only when [`Self::take_messages`] says so, and not answered: so it is while an agent is
    /// at a long step. The caller may be gone by then.
    pub fn hold_messages(&self) {
        self.lock().held_words = Some(Vec::new());
    }

    /// Messages are taken again, but those that were held are lost.
    pub fn drop_messages(&self) {
        self.lock().held_words = None;
    }

    /// Messages are taken again: those that were held, and those that come.
    pub fn take_messages(&self) {
        let mut inner = self.lock();
        for (id, message) in inner.held_words.take().unwrap_or_default() {
            let said = said(inner.messages.len(), &message);
            if let Some(kept) = inner.conversations.get_mut(&id) {
                kept.events.push(said);
            }
            inner.messages.push((id, message));
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
    pub fn share_dormant_servers(&self, sleepers: DormantServers) {
        self.lock().sleepers = sleepers;
    }

    /// The dormant one at this URL cannot be woken from now on.
    pub fn refuse_to_wake(&self, url: &Url) {
        self.lock().comatose.insert(url.clone());
    }

    /// How all of them answer whether they are dormant from now on, if not by their mood.
    pub fn set_dormancy_behavior(&self, mood: Option<FakeBehavior>) {
        self.lock().secretive = mood;
    }

    /// Who was woken, with what, in order. Those that were awake already are not.
    pub fn init_requests(&self) -> Vec<(Url, InitRequest)> {
        self.lock().init_requests.clone()
    }

    /// What was called so far.
    pub fn calls(&self) -> Calls {
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
    async fn called(&self, url: &Url, count: impl FnOnce(&mut Calls)) -> Result<(), AgentError> {
        let mood = self.lock().behavior_at(url, count);
        mood.behave().await?;
        if self.lock().sleepers.has(url) {
            return Err(AgentError::Rejected {
                status: 503,
                reason: "dormant".to_owned(),
            });
        }
        Ok(())
    }

    /// The same for what a dormant one answers too.
    async fn asked(&self, url: &Url, count: impl FnOnce(&mut Calls)) -> Result<(), AgentError> {
        let mood = self.lock().behavior_at(url, count);
        mood.behave().await
    }

    fn switched(&self, id: ConversationId, model: &str) -> Result<(), AgentError> {
        self.kept(id, |kept| kept.it.llm_model = Some(model.to_owned()))?;
        self.lock().switches.push((id, model.to_owned()));
        Ok(())
    }

    fn kept<T>(
        &self,
        id: ConversationId,
        with: impl FnOnce(&mut Kept) -> T,
    ) -> Result<T, AgentError> {
        let mut inner = self.lock();
        let kept = inner.conversations.get_mut(&id);
        kept.map(with).ok_or(AgentError::NotFound)
    }
}

fn started(request: &LaunchRequest) -> AgentConversation {
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
        let mood = {
            let mut inner = self.lock();
            let mood = inner.behavior_at(url, |calls| calls.is_dormant += 1);
            inner.secretive.unwrap_or(mood)
        };
        mood.behave().await?;
        Ok(self.lock().sleepers.has(url))
    }

    async fn prewarm(&self, _: &SandboxId, url: &Url) {
        // Whatever comes of it.
        let _ = self.asked(url, |calls| calls.prewarm += 1).await;
    }

    async fn wake(
        &self,
        _: &SandboxId,
        url: &Url,
        awakening: &InitRequest,
    ) -> Result<(), AgentError> {
        self.asked(url, |calls| calls.wake += 1).await?;
        let mut inner = self.lock();
        if inner.comatose.contains(url) {
            return Err(AgentError::Rejected {
                status: 500,
                reason: "the fake agent server was told to stay dormant".to_owned(),
            });
        }
        if inner.sleepers.wake(url) {
            inner.init_requests.push((url.clone(), awakening.clone()));
        }
        Ok(())
    }

    async fn is_alive(&self, _: &SandboxId, url: &Url) -> bool {
        self.asked(url, |calls| calls.alive += 1).await.is_ok()
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
            let mut inner = self.lock();
            if let Some(kept) = inner.conversations.get(&request.conversation_id) {
                return Ok(kept.it.clone());
            }
            inner.launches.push(request.clone());
            let it = started(request);
            let kept = Kept {
                it: it.clone(),
                events: Vec::new(),
            };
            inner.conversations.insert(request.conversation_id, kept);
            if inner.lose_answers {
                return Err(AgentError::Rejected {
                    status: 500,
                    reason: "told to lose the answer".to_owned(),
                });
            }
            (it, inner.hold_answers)
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
        let inner = self.lock();
        let find = |id| inner.conversations.get(id).map(|kept| kept.it.clone());
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
        self.kept(id, |kept| {
            // Pages begin at the event that the cursor names, as those of the real one do; the order is the log's own.
            let log = &kept.events;
            let begins = |event: &Event| match cursor {
                Some(cursor) => event.id.as_str() == cursor,
                None => from.is_none_or(|from| event.timestamp >= from),
            };
            let begin = log.iter().position(begins).unwrap_or(log.len());
            let end = log.len().min(begin + PAGE);
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
        self.kept(id, |kept| {
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
            let mut inner = self.lock();
            let held = inner.held_words.as_mut();
            held.map(|held| held.push((id, message.clone()))).is_some()
        };
        if is_held {
            std::future::pending::<()>().await;
        }
        let mut inner = self.lock();
        let refused = inner.refuse_runs && message.run;
        let kept = inner
            .conversations
            .get_mut(&id)
            .ok_or(AgentError::NotFound)?;
        if message.run && !refused {
            kept.it.execution_status = Some(ExecutionStatus::Running);
        }
        if inner.lose_words {
            let said = said(inner.messages.len(), message);
            if let Some(kept) = inner.conversations.get_mut(&id) {
                kept.events.push(said);
            }
        }
        inner.messages.push((id, message.clone()));
        if inner.lose_words {
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
        self.kept(id, |kept| {
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
        self.switched(id, &profile.llm.model)
    }

    async fn switch_acp_model(
        &self,
        at: &AgentEndpoint,
        id: ConversationId,
        model: &str,
    ) -> Result<(), AgentError> {
        self.called(&at.url, |_| ()).await?;
        self.switched(id, model)
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
        self.called(&at.url, |calls| calls.forget += 1).await?;
        self.lock().conversations.remove(&id);
        Ok(())
    }
}
