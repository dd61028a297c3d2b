//! Messages of users to agents: text and images.

use std::ops::RangeFrom;

use application::conversations::SentMessage;
use domain::conversation::MessageInput;
use domain::sandbox::SandboxStatus;
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::decode::{Choice, ChoiceKind, Decode, FieldErrors, Object, Path, items, union};
use crate::dto::enums::SandboxStatusSchema;

macro_rules! literal {
    ($(#[$doc:meta])* $name:ident: $($word:literal)|+) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        struct $name(&'static str);

        impl Choice for $name {
            const KIND: ChoiceKind = ChoiceKind::Literal;
            const CHOICES: &'static [(&'static str, Self)] = &[$(($word, Self($word)),)+];
        }
    };
}

literal!(
    /// The role in a first message.
    Role: "user" | "system" | "assistant" | "tool"
);
literal!(
    /// The role in a later message.
    UserRole: "user"
);
literal!(TextType: "text");
literal!(ImageType: "image");

/// A part of a message, with its members in the order in which responses show them.
pub(crate) struct ContentItem(Value);

impl Decode for ContentItem {
    fn decode(value: &Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Self> {
        union(
            value,
            at,
            errors,
            &[("TextContent", text), ("ImageContent", image)],
        )
    }
}

fn text(value: &Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<ContentItem> {
    let mut object = Object::<ContentItem>::open(value, at, errors)?;
    let cache_prompt = object.default("cache_prompt", || false);
    let kind = object.default("type", || TextType("text"));
    let text = object.required::<String>("text");
    // Old clients send it; it has no effect.
    let _ = object.default("enable_truncation", || Value::Null);
    object.forbid_extra();
    Some(ContentItem(
        json!({"cache_prompt": cache_prompt?, "type": kind?.0, "text": text?}),
    ))
}

/// Ignores other members, as the reference does; only texts are strict.
fn image(value: &Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<ContentItem> {
    let mut object = Object::<ContentItem>::open(value, at, errors)?;
    let cache_prompt = object.default("cache_prompt", || false);
    let kind = object.default("type", || ImageType("image"));
    let urls = object.required::<Vec<String>>("image_urls");
    Some(ContentItem(
        json!({"cache_prompt": cache_prompt?, "type": kind?.0, "image_urls": urls?}),
    ))
}

pub(crate) fn content_values(content: Vec<ContentItem>) -> Vec<Value> {
    content.into_iter().map(|part| part.0).collect()
}

/// The first message of a start request.
#[derive(Debug, Clone)]
pub struct FirstMessage(pub MessageInput);

impl Decode for FirstMessage {
    fn decode(value: &Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Self> {
        let mut object = Object::<Self>::open(value, at, errors)?;
        let role = object.default("role", || Role("user"));
        let content = object.default::<Vec<ContentItem>>("content", Vec::new);
        let run = object.default("run", || false);
        Some(Self(MessageInput {
            role: role?.0.to_owned(),
            content: content_values(content?),
            run: run?,
        }))
    }
}

/// A later message.
#[derive(Debug, Clone)]
pub struct NextMessage(pub MessageInput);

const AT_LEAST_ONE: RangeFrom<u64> = 1..;

impl Decode for NextMessage {
    fn decode(value: &Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Self> {
        let mut object = Object::<Self>::open(value, at, errors)?;
        let role = object.default("role", || UserRole("user"));
        let content = object
            .required::<Vec<ContentItem>>("content")
            .map(content_values);
        object.rule("content", content.as_ref(), items(AT_LEAST_ONE));
        let run = object.default("run", || true);
        Some(Self(MessageInput {
            role: role?.0.to_owned(),
            content: content?,
            run: run?,
        }))
    }
}

/// A text in a message.
#[derive(Debug, ToSchema)]
#[schema(as = TextContent)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "for the document only; see `Content`")]
pub struct TextContent {
    #[schema(default = false, required = false)]
    cache_prompt: bool,
    #[schema(required = false, pattern = "^text$", default = "text")]
    r#type: String,
    text: String,
}

/// Images in a message.
#[derive(Debug, ToSchema)]
#[expect(dead_code, reason = "for the document only; see `Content`")]
pub struct ImageContent {
    #[schema(default = false, required = false)]
    cache_prompt: bool,
    #[schema(required = false, pattern = "^image$", default = "image")]
    r#type: String,
    /// `https:` or `data:` URLs.
    image_urls: Vec<String>,
}

/// A part of a message.
#[derive(Debug, ToSchema)]
#[serde(untagged)]
pub enum MessageContent {
    /// Text.
    Text(TextContent),
    /// Images.
    Image(ImageContent),
}

/// Sends a message to the agent.
#[derive(Debug, ToSchema)]
#[expect(dead_code, reason = "for the document only; see `NextMessage`")]
pub struct AppSendMessageRequest {
    #[schema(required = false, pattern = "^user$", default = "user")]
    role: String,
    #[schema(min_items = 1)]
    content: Vec<MessageContent>,
    /// Whether to run the agent.
    #[schema(required = false, default = true)]
    run: bool,
}

/// The first message of a conversation.
#[derive(Debug, ToSchema)]
#[expect(dead_code, reason = "for the document only; see `FirstMessage`")]
pub struct SendMessageRequest {
    #[schema(
        required = false,
        pattern = "^(user|system|assistant|tool)$",
        default = "user"
    )]
    role: String,
    #[schema(required = false)]
    content: Vec<MessageContent>,
    /// Whether to run the agent.
    #[schema(required = false, default = false)]
    run: bool,
}

/// The agent server has accepted the message.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = AppSendMessageResponse)]
pub struct SentMessageDto {
    /// Always `true`.
    success: bool,
    #[schema(value_type = SandboxStatusSchema)]
    sandbox_status: SandboxStatus,
    /// A notice for the sender.
    #[schema(required)]
    message: Option<String>,
}

impl From<SentMessage> for SentMessageDto {
    fn from(sent: SentMessage) -> Self {
        Self {
            success: true,
            sandbox_status: sent.sandbox_status,
            message: sent.note,
        }
    }
}
