//! A start that was cut off when the agent server may have been asked already.

use std::time::Duration;

use domain::agent::{AgentConversation, AgentEndpoint};
use domain::conversation::ExecutionStatus;
use domain::start_task::StartTask;
use tokio::time::Instant;

use super::launch_request::first_message;
use crate::ports::Ports;

/// How long a request may be at work at an agent server after its sender died. Making a conversation takes it some
/// seconds at most, unless it starts slow MCP servers.
const IN_FLIGHT_TIMEOUT: Duration = Duration::from_secs(15);
/// Between two looks. There is no event for it: reports may have been lost while we were away.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The conversation that an earlier run may have asked for, if the request arrived. Whenever a run is taken up again its
/// last request may have been sent a moment ago, so the wait begins anew each time.
///
/// An agent server goes on with a request when its sender is killed, and between making the conversation and saying the
/// first message there is a gap. Asking again in that gap would say the message twice (seen with 1.58.0), and before it
/// would make the conversation twice (1.34 has no lock there). So nothing is sent until the earlier request either shows
/// its result or cannot be at work any more.
pub(super) async fn find_earlier_conversation(
    ports: &Ports,
    at: &AgentEndpoint,
    task: &StartTask,
) -> Option<AgentConversation> {
    let give_up = Instant::now() + IN_FLIGHT_TIMEOUT;
    loop {
        let seen = ports
            .agents
            .snapshot_many(at, &[task.conversation_id])
            .await;
        if let Some(info) = seen.ok().and_then(|mut infos| infos.pop()).flatten() {
            // A first message always begins a run.
            let begun = !matches!(info.execution_status, None | Some(ExecutionStatus::Idle));
            if begun || first_message(&task.request).is_none() {
                return Some(info);
            }
        }
        if Instant::now() >= give_up {
            return None;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
