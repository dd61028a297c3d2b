//! How the fake agent servers behave, and what was asked of them.

use std::time::Duration;

use domain::agent::AgentError;

/// How the agent servers behave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FakeBehavior {
    /// They answer.
    #[default]
    Responsive,
    /// Nobody is there.
    Unreachable,
    /// They answer after this time (of tokio's clock, which tests may pause).
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
                reason: "the fake agent server was told to refuse".to_owned(),
            }),
        }
    }
}

/// How often each call was made, failures included.
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
