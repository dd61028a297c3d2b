//! Requests and responses, named as in `config/openapi.json`. Optional members are `Option`s.

#![expect(
    missing_docs,
    reason = "the wire's names, which the document describes"
)]

mod administration;
mod automation;
mod conversation;
mod document;
mod egress;
mod event;
mod health;
mod message;
mod organization;
mod sandbox;
mod secret;
mod settings;
mod start;
mod string_enums;
mod time;

pub use administration::{
    AdministeredUser, ApiKey, AuditEntry, AuditFilter, KeyRotation, NewApiKey, NewKey, NewUser,
    UserChange,
};
pub use automation::{Automation, AutomationPage, AutomationRun, AutomationRunPage};
pub use conversation::{
    Conversation, ConversationChange, ConversationFilter, ConversationWorkspace,
    LaunchedAgentProfile, Metrics, TokenUsage,
};
pub use document::Document;
pub use egress::{EgressApproval, EgressRequest};
pub use event::{Event, EventFilter};
pub use health::{AliveStatus, DiskUse, IoUse, MemoryUse, ResourceUse, ServerInfo};
pub use message::{ImageContent, Message, MessageContent, MessageQueued, MessageSent, TextContent};
pub use organization::{
    FailedInvitation, Organization, OrganizationInvitation, OrganizationInvite,
    OrganizationInviteResult, OrganizationList, OrganizationMember, OrganizationMemberPage,
};
pub use sandbox::{ExposedUrl, Sandbox, Spec};
pub use secret::{ActionResponse, NewSecret, Secret, SecretChange, SecretName, SuccessResponse};
pub use settings::{
    Profiles, SecretsStore, SettingsChange, SettingsFields, UserInfo, UserSettings,
};
pub use start::{Plugin, Processor, StartRequest, StartTask, SuggestedTask};
pub use string_enums::{
    AgentType, AuditOutcome, EgressDecision, EventOrder, ExecutionStatus, GitProvider,
    MailDelivery, MemberRole, SandboxStatus, StartOrder, StartStatus, Trigger, UserRole,
};
pub use time::UtcTime;
