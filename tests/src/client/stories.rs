//! What users do, in one call each.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{Client, Conversation, Sandbox, Task};
use crate::wait::wait_for;

/// A real agent server needs 5 to 9 s of an idle processor to start; suites share theirs.
pub(super) const READY: Duration = Duration::from_secs(150);
/// One message of a scripted model, with a real agent server.
const RUN: Duration = Duration::from_secs(120);

const CONVERSATIONS: &str = "/api/v1/app-conversations";

fn read<T: DeserializeOwned>(document: &Value) -> T {
    serde_json::from_value(document.clone())
        .unwrap_or_else(|error| panic!("unexpected answer ({error}): {document}"))
}

/// A message of one text.
#[must_use]
pub fn text(text: &str) -> Value {
    json!([{"type": "text", "text": text}])
}

impl Client {
    /// Stores which model is used, where it is, and with which key.
    ///
    /// # Panics
    /// When the settings are refused.
    pub async fn use_model(&self, model: &str, base_url: &str, api_key: &str) {
        let body = json!({"agent_settings_diff":
            {"llm": {"model": model, "base_url": base_url, "api_key": api_key, "num_retries": 0}}});
        let _ = self.post("/api/v1/settings", &body).await.ok();
    }

    /// Asks for a conversation.
    ///
    /// # Panics
    /// When the request is refused.
    pub async fn start(&self, request: &Value) -> Task {
        read(&self.post(CONVERSATIONS, request).await.ok())
    }

    /// Asks for a conversation that begins with this message.
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
    /// When there is none.
    pub async fn task(&self, id: &str) -> Task {
        let path = format!("{CONVERSATIONS}/start-tasks?ids={id}");
        read(&self.get(&path).await.ok()[0])
    }

    /// Waits until a start has ended, in READY or ERROR.
    ///
    /// # Panics
    /// When it does not end.
    pub async fn ended(&self, task: &Task) -> Task {
        let what = format!("the end of start {}", task.id);
        wait_for(&what, READY, || async {
            let now = self.task(&task.id).await;
            matches!(now.status.as_str(), "READY" | "ERROR").then_some(now)
        })
        .await
    }

    /// Waits until a start has succeeded.
    ///
    /// # Panics
    /// When it fails, or does not end.
    pub async fn ready(&self, task: &Task) -> Conversation {
        let ended = self.ended(task).await;
        assert_eq!(ended.status, "READY", "{ended:?}");
        let id = ended
            .app_conversation_id
            .expect("READY names a conversation");
        self.conversation(&id).await
    }

    /// Starts a conversation and waits until it is ready.
    ///
    /// # Panics
    /// When it fails, or does not end.
    pub async fn converse(&self, message: &str) -> Conversation {
        let task = self.start_with(message).await;
        self.ready(&task).await
    }

    /// A conversation, if there is one.
    ///
    /// # Panics
    /// When the question is refused.
    pub async fn find_conversation(&self, id: &str) -> Option<Conversation> {
        let found = self.get(&format!("{CONVERSATIONS}?ids={id}")).await.ok();
        (!found[0].is_null()).then(|| read(&found[0]))
    }

    /// A conversation.
    ///
    /// # Panics
    /// When there is none.
    pub async fn conversation(&self, id: &str) -> Conversation {
        let found = self.find_conversation(id).await;
        found.unwrap_or_else(|| panic!("no conversation {id}"))
    }

    /// All conversations.
    ///
    /// # Panics
    /// When the list is refused.
    pub async fn conversations(&self) -> Vec<Conversation> {
        let all = self.all(&format!("{CONVERSATIONS}/search")).await;
        all.iter().map(read).collect()
    }

    /// Waits for a status of execution.
    ///
    /// # Panics
    /// When it does not come.
    pub async fn executed(&self, id: &str, status: &str) -> Conversation {
        let what = format!("execution_status {status} of {id}");
        wait_for(&what, RUN, || async {
            let now = self.conversation(id).await;
            (now.execution_status.as_deref() == Some(status)).then_some(now)
        })
        .await
    }

    /// Says something; the agent goes on.
    ///
    /// # Panics
    /// When it is refused.
    pub async fn say(&self, id: &str, message: &str) {
        let path = format!("{CONVERSATIONS}/{id}/send-message");
        let body = json!({"role": "user", "content": text(message), "run": true});
        let _ = self.post(&path, &body).await.ok();
    }

    /// Deletes a conversation.
    ///
    /// # Panics
    /// When it is refused.
    pub async fn delete_conversation(&self, id: &str) {
        let _ = self.delete(&format!("{CONVERSATIONS}/{id}")).await.ok();
    }

    /// All events of a conversation, oldest first.
    ///
    /// # Panics
    /// When the list is refused.
    pub async fn events(&self, id: &str) -> Vec<Value> {
        self.all(&format!("/api/v1/conversation/{id}/events/search"))
            .await
    }

    /// Their number.
    ///
    /// # Panics
    /// When the answer is no number.
    pub async fn count_events(&self, id: &str) -> usize {
        let path = format!("/api/v1/conversation/{id}/events/count");
        read(&self.get(&path).await.ok())
    }

    /// All sandboxes.
    ///
    /// # Panics
    /// When the list is refused.
    pub async fn sandboxes(&self) -> Vec<Sandbox> {
        let all = self.all("/api/v1/sandboxes/search").await;
        all.iter().map(read).collect()
    }

    /// A sandbox, if there is one.
    ///
    /// # Panics
    /// When the question is refused.
    pub async fn sandbox(&self, id: &str) -> Option<Sandbox> {
        let found = self.get(&format!("/api/v1/sandboxes?id={id}")).await.ok();
        (!found[0].is_null()).then(|| read(&found[0]))
    }

    /// Starts a sandbox.
    ///
    /// # Panics
    /// When it is refused.
    pub async fn start_sandbox(&self) -> Sandbox {
        read(&self.post("/api/v1/sandboxes", &json!({})).await.ok())
    }

    /// Waits for a status of a sandbox.
    ///
    /// # Panics
    /// When it does not come within `limit`.
    pub async fn sandbox_becomes(&self, id: &str, status: &str, limit: Duration) -> Sandbox {
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
        let path = format!("/api/v1/sandboxes/{id}/pause");
        let _ = self.post(&path, &json!({})).await.ok();
    }

    /// Resumes a sandbox and waits until it runs.
    ///
    /// # Panics
    /// When it is refused, or does not come up.
    pub async fn resume(&self, id: &str) -> Sandbox {
        let path = format!("/api/v1/sandboxes/{id}/resume");
        let _ = self.post(&path, &json!({})).await.ok();
        self.sandbox_becomes(id, "RUNNING", READY).await
    }

    /// What the agent server itself has: for comparison, with the sandbox's key.
    ///
    /// # Panics
    /// When it does not answer.
    pub async fn events_at_agent_server(&self, conversation: &Conversation) -> Vec<Value> {
        let url = conversation.conversation_url.as_ref();
        let url = url.expect("a running conversation has a URL");
        let key = conversation.session_api_key.as_deref();
        let direct = Client::new(url.clone(), key.expect("and a key"));
        direct.all("/events/search").await
    }
}
