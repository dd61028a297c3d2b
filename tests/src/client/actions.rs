//! Actions of users over the typed client, one call each.

use std::time::Duration;

use ::client::{
    ConversationFilter, Document, Error, Event, EventFilter, EventOrder, Message, SettingsChange,
    StartRequest,
};
use futures::TryStreamExt as _;
use serde_json::{Value, json};

use super::{Client, Conversation, Sandbox, Task};
use crate::wait::wait_for;

/// A real agent server needs 5 to 9 s of an idle processor to start; suites share the processor. Longer than a service of the
/// tests waits for it.
pub(super) const START_TIMEOUT: Duration = Duration::from_secs(9 * 60);
/// A run of a real agent server with a scripted model.
const RUN_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// The result of a call that must succeed.
#[track_caller]
fn expect_success<T>(answer: Result<T, Error>) -> T {
    answer.unwrap_or_else(|error| panic!("{error}: {error:?}"))
}

/// The request as the client's type, which must hold every member of it.
fn typed_start_request(request: &Value) -> StartRequest {
    let read: StartRequest = serde_json::from_value(request.clone())
        .unwrap_or_else(|error| panic!("not a request for a start ({error}): {request}"));
    let reserialized = serde_json::to_value(&read).expect("the request is not JSON");
    for (name, value) in request.as_object().into_iter().flatten() {
        let is_equal = value.is_null() || reserialized[name] == *value;
        assert!(
            is_equal,
            "the client's type changes {name} to {}",
            reserialized[name]
        );
    }
    read
}

fn documents(events: Vec<Event>) -> Vec<Value> {
    let events = events.into_iter().map(|event| Value::Object(event.0.0));
    events.collect()
}

/// The content of a message with one text.
#[must_use]
pub fn text(text: &str) -> Value {
    json!([{"type": "text", "text": text}])
}

impl Client {
    /// Stores the model, its base URL and its key in the settings.
    ///
    /// # Panics
    /// When the settings are refused.
    pub async fn use_model(&self, model: &str, base_url: &str, api_key: &str) {
        let llm =
            json!({"model": model, "base_url": base_url, "api_key": api_key, "num_retries": 0});
        let change = SettingsChange {
            agent_settings_diff: Some(Document([("llm".to_owned(), llm)].into_iter().collect())),
            ..SettingsChange::default()
        };
        expect_success(self.api().settings().update(&change).await);
    }

    /// Requests a start.
    ///
    /// # Panics
    /// When the request is refused.
    pub async fn start(&self, request: &Value) -> Task {
        expect_success(
            self.api()
                .conversations()
                .start(&typed_start_request(request))
                .await,
        )
        .into()
    }

    /// Requests the start of a conversation with this message.
    ///
    /// # Panics
    /// When the request is refused.
    pub async fn start_with(&self, message: &str) -> Task {
        let first = json!({"role": "user", "content": text(message), "run": true});
        self.start(&json!({"initial_message": first})).await
    }

    /// A start task.
    ///
    /// # Panics
    /// When it does not exist.
    pub async fn task(&self, id: &str) -> Task {
        let found = expect_success(self.api().start_tasks().get(id).await);
        found.unwrap_or_else(|| panic!("no start {id}")).into()
    }

    /// Waits until a start has ended, in READY or ERROR.
    ///
    /// # Panics
    /// When it does not end.
    pub async fn wait_for_end(&self, task: &Task) -> Task {
        let what = format!("the end of start {}", task.id);
        wait_for(&what, START_TIMEOUT, || async {
            let now = self.task(&task.id).await;
            matches!(now.status.as_str(), "READY" | "ERROR").then_some(now)
        })
        .await
    }

    /// Waits until a start has succeeded.
    ///
    /// # Panics
    /// When the start fails, or does not end.
    pub async fn wait_until_ready(&self, task: &Task) -> Conversation {
        let ended = self.wait_for_end(task).await;
        assert_eq!(ended.status, "READY", "{ended:?}");
        let id = ended
            .app_conversation_id
            .expect("the READY task names no conversation");
        self.conversation(&id).await
    }

    /// Starts a conversation and waits until it is ready.
    ///
    /// # Panics
    /// When the start fails, or does not end.
    pub async fn converse(&self, message: &str) -> Conversation {
        let task = self.start_with(message).await;
        self.wait_until_ready(&task).await
    }

    /// A conversation, if it exists.
    ///
    /// # Panics
    /// When the request is refused.
    pub async fn find_conversation(&self, id: &str) -> Option<Conversation> {
        let found = expect_success(self.api().conversations().get(id).await);
        found.map(Into::into)
    }

    /// A conversation.
    ///
    /// # Panics
    /// When it does not exist.
    pub async fn conversation(&self, id: &str) -> Conversation {
        let found = self.find_conversation(id).await;
        found.unwrap_or_else(|| panic!("no conversation {id}"))
    }

    /// All conversations.
    ///
    /// # Panics
    /// When the list is refused.
    pub async fn conversations(&self) -> Vec<Conversation> {
        let all = self
            .api()
            .conversations()
            .all(&ConversationFilter::default());
        expect_success(all.map_ok(Into::into).try_collect().await)
    }

    /// Waits until a conversation has this `execution_status`.
    ///
    /// # Panics
    /// When it does not reach the status.
    pub async fn wait_for_execution_status(&self, id: &str, status: &str) -> Conversation {
        let what = format!("execution_status {status} of {id}");
        wait_for(&what, RUN_TIMEOUT, || async {
            let now = self.conversation(id).await;
            (now.execution_status.as_deref() == Some(status)).then_some(now)
        })
        .await
    }

    /// Sends a message, which continues the run.
    ///
    /// # Panics
    /// When it is refused.
    pub async fn send_message(&self, id: &str, message: &str) {
        let sent = self
            .api()
            .conversations()
            .send(id, &Message::text(message))
            .await;
        assert!(expect_success(sent).success);
    }

    /// Deletes a conversation.
    ///
    /// # Panics
    /// When it is refused.
    pub async fn delete_conversation(&self, id: &str) {
        expect_success(self.api().conversations().delete(id).await);
    }

    /// All events of a conversation, oldest first.
    ///
    /// # Panics
    /// When the list is refused.
    pub async fn events(&self, id: &str) -> Vec<Value> {
        let events = self.api().events(id);
        let all = events.all(&EventFilter::default(), &EventOrder::OldestFirst);
        documents(expect_success(all.try_collect().await))
    }

    /// The number of events of a conversation.
    ///
    /// # Panics
    /// When the request is refused.
    pub async fn count_events(&self, id: &str) -> usize {
        let count = expect_success(self.api().events(id).count(&EventFilter::default()).await);
        usize::try_from(count).expect("the count is too large")
    }

    /// All sandboxes.
    ///
    /// # Panics
    /// When the list is refused.
    pub async fn sandboxes(&self) -> Vec<Sandbox> {
        let all = self.api().sandboxes().all();
        expect_success(all.map_ok(Into::into).try_collect().await)
    }

    /// A sandbox, if it exists.
    ///
    /// # Panics
    /// When the request is refused.
    pub async fn sandbox(&self, id: &str) -> Option<Sandbox> {
        let found = expect_success(self.api().sandboxes().get(id).await);
        found.map(Into::into)
    }

    /// Starts a sandbox.
    ///
    /// # Panics
    /// When it is refused.
    pub async fn start_sandbox(&self) -> Sandbox {
        expect_success(self.api().sandboxes().create(None).await).into()
    }

    /// Waits until a sandbox has this status.
    ///
    /// # Panics
    /// When it does not reach the status within `limit`.
    pub async fn wait_for_sandbox_status(
        &self,
        id: &str,
        status: &str,
        limit: Duration,
    ) -> Sandbox {
        wait_for(&format!("sandbox {id} {status}"), limit, || async {
            let now = self.sandbox(id).await;
            now.filter(|sandbox| sandbox.status == status)
        })
        .await
    }

    /// Pauses a sandbox.
    ///
    /// # Panics
    /// When it is refused.
    pub async fn pause(&self, id: &str) {
        expect_success(self.api().sandboxes().pause(id).await);
    }

    /// Resumes a sandbox and waits until it runs.
    ///
    /// # Panics
    /// When it is refused, or does not come up.
    pub async fn resume(&self, id: &str) -> Sandbox {
        expect_success(self.api().sandboxes().resume(id).await);
        self.wait_for_sandbox_status(id, "RUNNING", START_TIMEOUT)
            .await
    }

    /// The events that the agent server itself has.
    ///
    /// # Panics
    /// When it does not respond.
    pub async fn events_at_agent_server(&self, conversation: &Conversation) -> Vec<Value> {
        let url = conversation.conversation_url.as_ref();
        let url = url.expect("the conversation has no URL");
        let key = conversation.session_api_key.as_deref();
        let direct = Client::new(
            url.clone(),
            key.expect("the conversation has no session key"),
        );
        direct.get_all_pages("/events/search").await
    }
}
