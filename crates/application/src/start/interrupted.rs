//! Starts that were interrupted after the agent server may have been called.

use std::time::Duration;

use domain::agent::{AgentConversation, AgentConversationReader, AgentEndpoint};
use domain::conversation::ExecutionStatus;
use domain::start_task::StartTask;
use tokio::time::Instant;

use super::launch_request::first_message;

/// Longest time that an agent server works on a request after its sender died. Creating a conversation takes seconds,
/// unless it starts slow MCP servers.
const IN_FLIGHT_TIMEOUT: Duration = Duration::from_secs(15);
/// Interval of polls. There is no event: reports may have been lost.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Finds the conversation that an earlier run may have requested. The wait begins anew after each interruption,
/// because the last request may have been sent a moment ago.
///
/// An agent server completes a request whose sender is killed, with a gap between the creation of the conversation and
/// its first message. A retry in that gap would send the message twice (seen with 1.58.0); a retry before it would
/// create the conversation twice (1.34 has no lock there). So nothing is sent until the earlier request shows its
/// result or must be over.
pub(super) async fn find_earlier_conversation(
    reader: &dyn AgentConversationReader,
    at: &AgentEndpoint,
    task: &StartTask,
) -> Option<AgentConversation> {
    let give_up = Instant::now() + IN_FLIGHT_TIMEOUT;
    loop {
        let seen = reader.snapshot_many(at, &[task.conversation_id]).await;
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
