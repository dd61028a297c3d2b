//! Closed sets of words: a macro that declares them, and the schemas of the domain's enumerations, whose words come from the
//! domain and are not repeated.

use std::borrow::Cow;

use domain::agent::spending::SpendingGroup;
use domain::audit::AuditOutcome;
use domain::conversation::{ConversationOrder, ExecutionStatus, Trigger};
use domain::coordination::host::HostStatus;
use domain::event::EventOrder;
use domain::git::{GitProvider, OwnerType, SuggestedTaskType};
use domain::sandbox::SandboxStatus;
use domain::start_task::{AgentType, StartStatus, StartTaskOrder};
use domain::user::egress::EgressDecision;
use domain::user::identity::Role;
use domain::user::mail::MailDelivery;
use domain::user::permission::MemberRole;
use domain::user::usage::EventStorage;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use crate::decode::Choice;

pub(crate) fn words_schema<T: Choice>(description: &str, default: Option<&str>) -> RefOr<Schema> {
    let words = T::CHOICES.iter().map(|(word, _)| *word);
    ObjectBuilder::new()
        .schema_type(Type::String)
        .description(Some(description))
        .enum_values(Some(words))
        .default(default.map(Into::into))
        .build()
        .into()
}

/// Declares a set of words with its decoder, its serialiser and its schema: `choice!(pub(crate) Enum Name, "Description." { … })`. `Literal`
/// instead of `Enum` marks one that is a literal in the reference: its error has another `type`.
macro_rules! choice {
    ($visibility:vis $kind:ident $name:ident, $description:literal { $($variant:ident = $word:literal,)* }) => {
        #[doc = $description]
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        $visibility enum $name { $(#[doc = concat!("`", $word, "`")] $variant,)* }

        impl $crate::decode::Choice for $name {
            const KIND: $crate::decode::ChoiceKind = $crate::decode::ChoiceKind::$kind;
            const CHOICES: &'static [(&'static str, Self)] = &[$(($word, Self::$variant),)*];
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str($crate::decode::Choice::word(*self))
            }
        }

        impl utoipa::PartialSchema for $name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
                $crate::dto::enums::words_schema::<Self>($description, None)
            }
        }

        impl utoipa::ToSchema for $name {}
    };
}
pub(crate) use choice;

macro_rules! enum_schemas {
    ($($marker:ident = $words:ty, $name:literal, $description:literal $(, default $default:literal)?;)*) => {$(
        #[doc = $description]
        #[derive(Debug, Clone, Copy)]
        pub(crate) enum $marker {}

        impl PartialSchema for $marker {
            fn schema() -> RefOr<Schema> {
                let default = [$($default)?].first().copied();
                words_schema::<$words>($description, default)
            }
        }

        impl ToSchema for $marker {
            fn name() -> Cow<'static, str> {
                Cow::Borrowed($name)
            }
        }
    )*};
}

enum_schemas! {
    SandboxStatusSchema = SandboxStatus, "SandboxStatus", "Status of a sandbox.";
    ExecutionStatusSchema = ExecutionStatus, "ConversationExecutionStatus", "State of the agent.";
    StartStatusSchema = StartStatus, "AppConversationStartTaskStatus", "Status of a start task.";
    StartTaskOrderSchema = StartTaskOrder, "AppConversationStartTaskSortOrder", "The order of start tasks.", default "CREATED_AT_DESC";
    ConversationOrderSchema = ConversationOrder, "AppConversationSortOrder", "The order of conversations.", default "CREATED_AT_DESC";
    EventOrderSchema = EventOrder, "EventSortOrder", "The order of events.", default "TIMESTAMP";
    SpendingGroupSchema = SpendingGroup, "SpendingGroup", "How the cost of model calls is added up.";
    EgressDecisionSchema = EgressDecision, "EgressDecision", "What a user decided about a host that the egress policy refused: `pending`, nothing yet; `approved_for_sandbox`, the sandbox that asked reaches it; `approved`, all sandboxes of the user reach it; `denied`.";
    EventStorageSchema = EventStorage, "EventStorageState", "How events are stored.";
    GitProviderSchema = GitProvider, "ProviderType", "A git provider.";
    OwnerTypeSchema = OwnerType, "OwnerType", "The kind of a repository's owner.";
    SuggestedTaskTypeSchema = SuggestedTaskType, "TaskType", "The kind of a suggested task.";
    TriggerSchema = Trigger, "ConversationTrigger", "What started a conversation.";
    AgentTypeSchema = AgentType, "AgentType", "The kind of agent.";
    RoleSchema = Role, "UserRole", "A role.";
    MemberRoleSchema = MemberRole, "MemberRole", "A role in an organization.";
    HostStatusSchema = HostStatus, "HostStatus", "Whether a host takes new starts: `available`; `draining`, after an administrator said so; `lost`, when its service has not answered for 30 seconds; `unknown`, when only an earlier release has served it.";
    MailDeliverySchema = MailDelivery, "MailDelivery", "Whether a mail was sent: `pending` while the service is still trying.";
    AuditOutcomeSchema = AuditOutcome, "AuditOutcome", "The outcome of an audited action.";
}
