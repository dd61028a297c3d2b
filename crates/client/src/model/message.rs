//! Messages of users.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with::skip_serializing_none;

use super::string_enums::SandboxStatus;

/// A message.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// The role of the author; `user` by default.
    pub role: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub content: Vec<MessageContent>,
    /// Whether the agent runs after it.
    pub run: Option<bool>,
}

impl Message {
    /// A user's text, which the agent answers.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self {
            role: Some("user".into()),
            content: vec![MessageContent::Text(TextContent::new(text))],
            run: Some(true),
        }
    }
}

/// A part of a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum MessageContent {
    /// A text.
    Text(TextContent),
    /// Pictures.
    Image(ImageContent),
    /// Content of an unknown kind.
    Other(Value),
}

/// A text.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextContent {
    #[serde(rename = "type")]
    pub kind: Option<String>,
    pub text: String,
    /// Whether the model's provider may keep it for later requests.
    pub cache_prompt: Option<bool>,
}

impl TextContent {
    /// This text.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            kind: Some("text".into()),
            text: text.into(),
            cache_prompt: None,
        }
    }
}

/// Pictures.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageContent {
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// URLs, or the images themselves as `data:` URLs.
    pub image_urls: Vec<String>,
    /// Whether the model's provider may keep them for later requests.
    pub cache_prompt: Option<bool>,
}

/// A message was delivered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageSent {
    pub success: bool,
    pub sandbox_status: SandboxStatus,
    pub message: Option<String>,
}

/// A message that waits until its conversation is ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageQueued {
    pub id: String,
    pub queued: bool,
    /// Its position in the queue, from 1.
    pub position: u64,
}
