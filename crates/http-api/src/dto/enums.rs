//! Schemas of the domain's enumerations. Their words come from the domain and are not repeated.

use std::borrow::Cow;

use domain::conversation::{ExecutionStatus, GitProvider, Trigger};
use domain::git::{OwnerType, SuggestedTaskType};
use domain::sandbox::SandboxStatus;
use domain::start_task::{AgentType, StartStatus};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

macro_rules! enum_schemas {
    ($($(#[$doc:meta])* $marker:ident = $words:ty, $name:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        pub enum $marker {}

        impl PartialSchema for $marker {
            fn schema() -> RefOr<Schema> {
                let words = <$words>::ALL.iter().map(|(word, _)| *word);
                ObjectBuilder::new().schema_type(Type::String).enum_values(Some(words)).build().into()
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
    /// State of a sandbox.
    SandboxStatusSchema = SandboxStatus, "SandboxStatus";
    /// State of an agent.
    ExecutionStatusSchema = ExecutionStatus, "ConversationExecutionStatus";
    /// Status of a start task.
    StartStatusSchema = StartStatus, "AppConversationStartTaskStatus";
    /// Git providers.
    GitProviderSchema = GitProvider, "ProviderType";
    /// Kind of a repository's owner.
    OwnerTypeSchema = OwnerType, "OwnerType";
    /// Why a task is suggested.
    SuggestedTaskTypeSchema = SuggestedTaskType, "TaskType";
    /// What started a conversation.
    TriggerSchema = Trigger, "ConversationTrigger";
    /// Kind of agent.
    AgentTypeSchema = AgentType, "AgentType";
}
