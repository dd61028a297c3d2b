//! The behavior of the fake agent servers, and their calls.

use std::time::Duration;

use domain::agent::AgentError;

/// The behavior of the fake agent servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FakeBehavior {
    /// They respond.
    #[default]
    Responsive,
    /// Connections are refused.
    Unreachable,
    /// They respond after this time (of tokio's clock, which tests can pause).
    Slow(Duration),
    /// They refuse with this HTTP status.
    Rejecting(u16),
}

impl FakeBehavior {
    pub(crate) async fn behave(self) -> Result<(), AgentError> {
        match self {
            Self::Responsive => Ok(()),
            Self::Slow(span) => {
                tokio::time::sleep(span).await;
                Ok(())
            }
            Self::Unreachable => Err(AgentError::Unreachable("connection refused".into())),
            Self::Rejecting(status) => Err(AgentError::Rejected {
                status,
                reason: "the fake agent server refuses".to_owned(),
            }),
        }
    }
}

/// Number of calls of each method, failures included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FakeAgentCalls {
    /// `is_alive`
    pub is_alive: u32,
    /// `is_dormant`
    pub is_dormant: u32,
    /// `prewarm`
    pub prewarm: u32,
    /// `wake`
    pub wake: u32,
    /// `version`
    pub version: u32,
    /// `start`
    pub start: u32,
    /// `snapshot_many`
    pub snapshot_many: u32,
    /// `events`
    pub events: u32,
    /// `count_events`
    pub count_events: u32,
    /// `send`
    pub send: u32,
    /// `interrupt`
    pub interrupt: u32,
    /// `delete_conversation`
    pub delete_conversation: u32,
}
