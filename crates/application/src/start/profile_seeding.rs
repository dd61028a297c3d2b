//! Seeds an agent server with the user's model profiles.

use std::time::Duration;

use domain::agent::{AgentEndpoint, AgentRuntime};
use domain::error::chain;

use crate::settings::Settings;

/// Ten profiles take far less than a second, and a start does not depend on them.
const SEED_TIMEOUT: Duration = Duration::from_secs(10);

/// Replaces the agent server's list of profiles with the user's, if the user has any
/// (`docs/reference/wire/start-tasks.md`). Returns a note on failure.
pub(super) async fn seed(
    agents: &dyn AgentRuntime,
    at: &AgentEndpoint,
    settings: &Settings,
) -> Option<String> {
    let profiles = settings.llm_profiles();
    if profiles.is_empty() {
        return None;
    }
    let seeding = agents.seed_profiles(at, &profiles);
    let (why, cause) = match tokio::time::timeout(SEED_TIMEOUT, seeding).await {
        Ok(Ok(())) => return None,
        Ok(Err(error)) => (error.to_string(), chain(&error)),
        Err(_) => {
            let why = format!("no end within {} s", SEED_TIMEOUT.as_secs());
            (why.clone(), why)
        }
    };
    tracing::warn!(
        error = cause,
        "cannot send the model profiles to the sandbox; the start continues without them"
    );
    Some(format!(
        "The model profiles were not sent to the sandbox: {why}."
    ))
}
