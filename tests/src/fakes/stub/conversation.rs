//! Conversations of the stub: each has an event log, a file, and a run after each message.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The file that lets held runs continue.
pub(super) const CONTINUE_FILE: &str = "go";

/// A conversation, as it is stored.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct StubConversation {
    pub(super) id: String,
    pub(super) status: String,
    pub(super) working_dir: PathBuf,
    pub(super) model: String,
    pub(super) events: Vec<Value>,
    pub(super) last_user_message: Option<String>,
    pub(super) updated_at: String,
}

impl StubConversation {
    pub(super) fn new(id: String, request: &Value) -> Self {
        let text = |at: &str| request.pointer(at).and_then(Value::as_str).unwrap_or("");
        Self {
            id,
            status: "idle".to_owned(),
            working_dir: text("/workspace/working_dir").into(),
            model: text("/agent/llm/model").to_owned(),
            events: Vec::new(),
            last_user_message: None,
            updated_at: now(),
        }
    }

    /// Loads all stored conversations. Those that were running get the status error, as in the real agent server.
    pub(super) fn load_all(dir: &Path) -> Vec<Self> {
        let files = std::fs::read_dir(dir).into_iter().flatten().flatten();
        let read = files.filter_map(|entry| {
            let text = std::fs::read_to_string(entry.path()).ok()?;
            let mut conversation: Self = serde_json::from_str(&text).ok()?;
            if conversation.status == "running" {
                conversation.set_status("error");
            }
            Some(conversation)
        });
        read.collect()
    }

    pub(super) fn store(&self, dir: &Path) {
        let text = serde_json::to_string(self).unwrap_or_default();
        let file = dir.join(format!("{}.json", without_dashes(&self.id)));
        let unfinished = file.with_extension("new");
        // After a failed write the conversation is missing, which fails the test.
        let _ = std::fs::write(&unfinished, text).and_then(|()| std::fs::rename(unfinished, file));
    }

    /// Adds an event and returns it.
    pub(super) fn add(&mut self, kind: &str, source: &str, fields: Value) -> Value {
        let mut event = json!({"id": new_id(), "timestamp": now(), "source": source});
        if let (Some(event), Value::Object(fields)) = (event.as_object_mut(), fields) {
            event.extend(fields);
            event.insert("kind".to_owned(), json!(kind));
        }
        self.updated_at = now();
        self.events.push(event.clone());
        event
    }

    pub(super) fn add_message(&mut self, message: &Value) -> Value {
        let fields =
            json!({"llm_message": {"role": message["role"], "content": message["content"]}});
        let event = self.add("MessageEvent", "user", fields);
        self.last_user_message = event["id"].as_str().map(str::to_owned);
        event
    }

    pub(super) fn set_status(&mut self, status: &str) -> Value {
        status.clone_into(&mut self.status);
        let update = json!({"key": "execution_status", "value": status});
        self.add("ConversationStateUpdateEvent", "environment", update)
    }

    /// The document in responses and reports.
    pub(super) fn info(&self) -> Value {
        json!({
            "id": self.id,
            "execution_status": self.status,
            "workspace": {"kind": "LocalWorkspace", "working_dir": self.working_dir},
            "title": null,
            "tags": {},
            "stats": {"usage_to_metrics": {"agent": {"accumulated_cost": 0.25, "accumulated_token_usage": {"prompt_tokens": 100}}}},
            "agent": {"kind": "Agent", "llm": {"model": self.model, "api_key": "**********"}},
            "last_user_message_id": self.last_user_message,
            "created_at": self.updated_at,
            "updated_at": self.updated_at,
        })
    }
}

/// The run that the words of a message ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RunPlan {
    pub(super) is_fatal: bool,
    pub(super) exhausts_memory: bool,
    pub(super) is_held: bool,
    pub(super) steps: usize,
}

impl RunPlan {
    pub(super) fn of(message: &Value) -> Self {
        let content = message["content"].as_array().map_or(&[][..], Vec::as_slice);
        let texts = content.iter().filter_map(|part| part["text"].as_str());
        let text = texts.collect::<Vec<_>>().join(" ");
        let has = |wanted: &str| text.split_whitespace().any(|word| word == wanted);
        let steps = text
            .split_whitespace()
            .find_map(|word| word.strip_prefix("STEPS=")?.parse().ok());
        Self {
            is_fatal: has("DIE"),
            exhausts_memory: has("HOG"),
            is_held: has("HOLD"),
            steps: steps.unwrap_or(1),
        }
    }

    /// Waits until a held run may continue.
    pub(super) async fn wait_until_continued(self, dir: &Path) {
        while self.is_held && !dir.join(CONTINUE_FILE).exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// An id without dashes, as in the paths of reports.
pub(super) fn without_dashes(id: &str) -> String {
    id.replace('-', "")
}

#[expect(
    clippy::disallowed_methods,
    reason = "the stub is a program with its own clock"
)]
fn now() -> String {
    // Without a time zone, as in the real agent server.
    chrono::Utc::now()
        .format("%Y-%m-%dT%H:%M:%S%.6f")
        .to_string()
}

#[expect(
    clippy::disallowed_methods,
    reason = "the stub is a program that creates its own ids"
)]
fn new_id() -> String {
    uuid::Uuid::new_v4().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_words_set_the_run_plan() {
        let message = json!({"content": [{"type": "text", "text": "please HOLD STEPS=7"}]});
        let plan = RunPlan {
            is_fatal: false,
            exhausts_memory: false,
            is_held: true,
            steps: 7,
        };
        assert_eq!(RunPlan::of(&message), plan);
    }
}
