//! Messages of users.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::string_enums::SandboxStatus;

/// A message.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// The role of the author; `user` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// The content.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub content: Vec<MessageContent>,
    /// Whether the agent runs after it.
    #[serde(skip_serializing_if = "Option::is_none")]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextContent {
    /// `text`.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The text.
    pub text: String,
    /// Whether the model's provider may keep it for later requests.
    #[serde(skip_serializing_if = "Option::is_none")]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageContent {
    /// `image`.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// URLs, or the images themselves as `data:` URLs.
    pub image_urls: Vec<String>,
    /// Whether the model's provider may keep them for later requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_prompt: Option<bool>,
}

/// A message was delivered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageSent {
    /// Always true.
    pub success: bool,
    /// The sandbox's status.
    pub sandbox_status: SandboxStatus,
    /// A remark of the service.
    pub message: Option<String>,
}

/// A message that waits until its conversation is ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageQueued {
    /// Its id.
    pub id: String,
    /// Always true.
    pub queued: bool,
    /// Its position in the queue, from 1.
    pub position: u64,
}
