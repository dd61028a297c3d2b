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
    SandboxStatusWord = SandboxStatus, "SandboxStatus";
    /// State of an agent.
    ExecutionStatusWord = ExecutionStatus, "ConversationExecutionStatus";
    /// How far a start has come.
    StartStatusWord = StartStatus, "AppConversationStartTaskStatus";
    /// Git hosts.
    GitProviderWord = GitProvider, "ProviderType";
    /// Whose a repository is.
    OwnerTypeWord = OwnerType, "OwnerType";
    /// Why a task is suggested.
    SuggestedTaskTypeWord = SuggestedTaskType, "TaskType";
    /// What started a conversation.
    TriggerWord = Trigger, "ConversationTrigger";
    /// Which agent.
    AgentTypeWord = AgentType, "AgentType";
}
