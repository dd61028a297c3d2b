//! What users say.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::string_enums::SandboxStatus;

/// A message.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Who says it; `user` if nobody else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// What.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub content: Vec<MessageContent>,
    /// Whether the agent goes on with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<bool>,
}

impl Message {
    /// A text of the user's, which the agent is to answer.
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
    /// Something that this client does not know.
    Other(Value),
}

/// A text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextContent {
    /// `text`.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// What it says.
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
    /// Where they are, or themselves as `data:` URLs.
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
    /// A remark.
    pub message: Option<String>,
}

/// A message waits until its conversation is ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageQueued {
    /// Its id.
    pub id: String,
    /// Always true.
    pub queued: bool,
    /// Its place among those that wait, from 1.
    pub position: u64,
}
