//! The domain's closed sets of words in the document. Their spelling stays the domain's: nothing is listed twice.

use std::borrow::Cow;

use domain::conversation::{ExecutionStatus, GitProvider, Trigger};
use domain::git::{OwnerType, SuggestedTaskType};
use domain::sandbox::SandboxStatus;
use domain::start_task::{AgentType, StartStatus};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

macro_rules! words {
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

words! {
    /// State of a sandbox.
    SandboxStatusSchema = SandboxStatus, "SandboxStatus";
    /// State of an agent.
    ExecutionStatusSchema = ExecutionStatus, "ConversationExecutionStatus";
    /// How far a start has come.
    StartStatusSchema = StartStatus, "AppConversationStartTaskStatus";
    /// Git hosts.
    GitProviderSchema = GitProvider, "ProviderType";
    /// Whose a repository is.
    OwnerTypeSchema = OwnerType, "OwnerType";
    /// Why a task is suggested.
    SuggestedTaskTypeSchema = SuggestedTaskType, "TaskType";
    /// What started a conversation.
    TriggerSchema = Trigger, "ConversationTrigger";
    /// Which agent.
    AgentTypeSchema = AgentType, "AgentType";
}
