//! Conversations of the stub: an event log each, a file each, and a run after each message.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The file that lets runs go on.
pub(super) const GO: &str = "go";

/// One conversation, as it is on disk.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Conversation {
    pub(super) id: String,
    pub(super) status: String,
    pub(super) working_dir: PathBuf,
    pub(super) model: String,
    pub(super) events: Vec<Value>,
    pub(super) last_user_message: Option<String>,
    pub(super) updated_at: String,
}

impl Conversation {
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

    /// All that were stored; what ran when the process ended is in error, as with the real one.
    pub(super) fn load_all(dir: &Path) -> Vec<Self> {
        let files = std::fs::read_dir(dir).into_iter().flatten().flatten();
        let read = files.filter_map(|entry| {
            let text = std::fs::read_to_string(entry.path()).ok()?;
            let mut known: Self = serde_json::from_str(&text).ok()?;
            if known.status == "running" {
                known.set_status("error");
            }
            Some(known)
        });
        read.collect()
    }

    pub(super) fn store(&self, dir: &Path) {
        let text = serde_json::to_string(self).unwrap_or_default();
        let file = dir.join(format!("{}.json", hex(&self.id)));
        let unfinished = file.with_extension("new");
        // A full disk shows up as a lost conversation, which a test would notice.
        let _ = std::fs::write(&unfinished, text).and_then(|()| std::fs::rename(unfinished, file));
    }

    /// Adds an event and returns it.
    pub(super) fn add(&mut self, kind: &str, source: &str, fields: Value) -> Value {
        let mut event = json!({"id": fresh_id(), "timestamp": now(), "source": source});
        if let (Some(event), Value::Object(fields)) = (event.as_object_mut(), fields) {
            event.extend(fields);
            event.insert("kind".to_owned(), json!(kind));
        }
        self.updated_at = now();
        self.events.push(event.clone());
        event
    }

    pub(super) fn add_message(&mut self, message: &Value) -> Value {
        let said = json!({"llm_message": {"role": message["role"], "content": message["content"]}});
        let event = self.add("MessageEvent", "user", said);
        self.last_user_message = event["id"].as_str().map(str::to_owned);
        event
    }

    pub(super) fn set_status(&mut self, status: &str) -> Value {
        status.clone_into(&mut self.status);
        let update = json!({"key": "execution_status", "value": status});
        self.add("ConversationStateUpdateEvent", "environment", update)
    }

    /// The record that is answered and posted.
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

/// What the text of a message asks its run to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) dies: bool,
    pub(super) hogs: bool,
    pub(super) holds: bool,
    pub(super) steps: usize,
}

impl Plan {
    pub(super) fn of(message: &Value) -> Self {
        let content = message["content"].as_array().map_or(&[][..], Vec::as_slice);
        let texts = content.iter().filter_map(|part| part["text"].as_str());
        let text = texts.collect::<Vec<_>>().join(" ");
        let has = |wanted: &str| text.split_whitespace().any(|word| word == wanted);
        let steps = text
            .split_whitespace()
            .find_map(|word| word.strip_prefix("STEPS=")?.parse().ok());
        Self {
            dies: has("DIE"),
            hogs: has("HOG"),
            holds: has("HOLD"),
            steps: steps.unwrap_or(1),
        }
    }

    /// Waits until the run may go on.
    pub(super) async fn wait(self, dir: &Path) {
        while self.holds && !dir.join(GO).exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// Without dashes, as in the paths of reports.
pub(super) fn hex(id: &str) -> String {
    id.replace('-', "")
}

#[expect(
    clippy::disallowed_methods,
    reason = "the stub stands for another program, which has a clock of its own"
)]
fn now() -> String {
    // Without a zone, as the real one does.
    chrono::Utc::now()
        .format("%Y-%m-%dT%H:%M:%S%.6f")
        .to_string()
}

#[expect(
    clippy::disallowed_methods,
    reason = "the stub stands for another program, which makes its own ids"
)]
fn fresh_id() -> String {
    uuid::Uuid::new_v4().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_message_steer_its_run() {
        let message = json!({"content": [{"type": "text", "text": "please HOLD STEPS=7"}]});
        let plan = Plan {
            dies: false,
            hogs: false,
            holds: true,
            steps: 7,
        };
        assert_eq!(Plan::of(&message), plan);
    }
}
