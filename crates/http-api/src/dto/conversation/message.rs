//! Messages of users to agents: text and images.

use application::conversations::SentMessage;
use domain::conversation::MessageInput;
use domain::sandbox::SandboxStatus;
use serde::Serialize;
use serde_json::{Value, json};

use crate::decode::{Choice, model};
use crate::dto::enums::choice;

choice!(pub(crate) Literal MessageRole, "The role in a first message." {
    User = "user",
    System = "system",
    Assistant = "assistant",
    Tool = "tool",
});

choice!(pub(crate) Literal UserRole, "The role in a later message." {
    User = "user",
});

choice!(pub(crate) Literal TextType, "The type of a text." {
    Text = "text",
});

choice!(pub(crate) Literal ImageType, "The type of images." {
    Image = "image",
});

/// A text in a message.
#[model(body, deny_unknown_fields)]
#[derive(Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TextContent {
    #[decode(default = false)]
    cache_prompt: bool,
    #[decode(default = TextType::Text)]
    #[schema(value_type = String, pattern = "^text$", default = "text")]
    r#type: TextType,
    text: String,
    /// Old clients send it; it has no effect.
    #[decode(default)]
    #[serde(skip)]
    #[schema(ignore)]
    #[expect(dead_code, reason = "ignored")]
    enable_truncation: Value,
}

/// Images in a message. Other members are ignored, as in the reference; only texts are strict.
#[model(body)]
#[derive(Serialize)]
pub(crate) struct ImageContent {
    #[decode(default = false)]
    cache_prompt: bool,
    #[decode(default = ImageType::Image)]
    #[schema(value_type = String, pattern = "^image$", default = "image")]
    r#type: ImageType,
    /// `https:` or `data:` URLs.
    image_urls: Vec<String>,
}

/// A part of a message.
#[model(body)]
#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum MessageContent {
    /// Text.
    TextContent(TextContent),
    /// Images.
    ImageContent(ImageContent),
}

/// The parts of a message as documents.
pub(crate) fn content_values(content: &[MessageContent]) -> Vec<Value> {
    content.iter().map(|part| json!(part)).collect()
}

/// Sends a message to the agent.
#[model(body = AppSendMessageRequest, into = MessageInput)]
pub(crate) struct NextMessageDto {
    #[decode(default = UserRole::User)]
    #[schema(value_type = String, pattern = "^user$", default = "user")]
    #[into(role.word().to_owned())]
    role: UserRole,
    #[validate(length(min = 1))]
    #[into(content_values(&content))]
    content: Vec<MessageContent>,
    #[decode(default = true)]
    run: bool,
}

/// The first message of a conversation.
#[model(body = SendMessageRequest, into = MessageInput)]
pub(crate) struct FirstMessageDto {
    #[decode(default = MessageRole::User)]
    #[schema(
        value_type = String,
        pattern = "^(user|system|assistant|tool)$",
        default = "user"
    )]
    #[into(role.word().to_owned())]
    role: MessageRole,
    #[decode(default)]
    #[into(content_values(&content))]
    content: Vec<MessageContent>,
    #[decode(default = false)]
    run: bool,
}

/// The agent server has accepted the message.
#[model(response = AppSendMessageResponse, from(sent: SentMessage))]
pub(crate) struct SentMessageDto {
    #[from(true)]
    success: bool,
    sandbox_status: SandboxStatus,
    /// A notice for the sender.
    #[from(sent.note)]
    message: Option<String>,
}
