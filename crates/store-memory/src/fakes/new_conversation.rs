//! The conversation that a launch creates at the fake agent server.

use domain::agent::{AgentConversation, AgentKind, LaunchRequest};
use domain::conversation::{ExecutionStatus, Metrics};

pub(super) fn new_conversation(request: &LaunchRequest) -> AgentConversation {
    let runs = request
        .initial_message
        .as_ref()
        .is_some_and(|message| message.run);
    AgentConversation {
        id: request.conversation_id,
        execution_status: Some(if runs {
            ExecutionStatus::Running
        } else {
            ExecutionStatus::Idle
        }),
        title: None,
        metrics: Some(Metrics::default()),
        llm_model: Some(request.llm.model.clone()),
        agent_kind: AgentKind::OpenHands,
        tags: request.tags.clone(),
        updated_at: None,
        notes: Vec::new(),
    }
}
