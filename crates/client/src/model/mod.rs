//! What is sent and answered, as `config/openapi.json` names it. Members that are not always there are `Option`s.

mod administration;
mod conversation;
mod document;
mod event;
mod health;
mod message;
mod sandbox;
mod secret;
mod settings;
mod start;
mod time;
mod words;

pub use administration::{
    AdministeredUser, ApiKey, AuditEntry, AuditFilter, KeyRotation, NewApiKey, NewKey, NewUser,
    UserChange,
};
pub use conversation::{
    Conversation, ConversationChange, ConversationFilter, LaunchedAgentProfile, Metrics, TokenUsage,
};
pub use document::Document;
pub use event::{Event, EventFilter};
pub use health::{Alive, DiskUse, IoUse, MemoryUse, ResourceUse, ServerInfo};
pub use message::{Content, ImageContent, Message, Queued, Sent, TextContent};
pub use sandbox::{ExposedUrl, Sandbox, Spec};
pub use secret::{NewSecret, Said, Secret, SecretChange, SecretName, Success};
pub use settings::{
    Profiles, SecretsStore, SettingsChange, SettingsFields, UserInfo, UserSettings,
};
pub use start::{Plugin, Processor, StartRequest, StartTask, SuggestedTask};
pub use words::{
    AgentType, AuditOutcome, EventOrder, ExecutionStatus, GitProvider, SandboxStatus, StartOrder,
    StartStatus, Trigger, UserRole,
};
