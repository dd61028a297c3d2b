//! Seeds an agent server with the user's model profiles.

use std::time::Duration;

use domain::agent::{AgentEndpoint, AgentRuntime};
use domain::error::chain;

use crate::AppError;
use crate::models::ModelAccess;
use crate::settings::Settings;

/// Ten profiles take far less than a second, and a start does not depend on them.
const SEED_TIMEOUT: Duration = Duration::from_secs(10);

/// Replaces the agent server's list of profiles with the user's, if the user has any
/// (`docs/reference/wire/start-tasks.md`). Returns notes about failures, and about keys that are inside the sandbox.
pub(super) async fn seed(
    agents: &dyn AgentRuntime,
    models: &ModelAccess,
    at: &AgentEndpoint,
    settings: &Settings,
) -> Result<Vec<String>, AppError> {
    let profiles = settings.llm_profiles();
    if profiles.is_empty() {
        return Ok(Vec::new());
    }
    let placed = models.profiles_for_sandbox(&at.sandbox, profiles);
    let (profiles, mut notes) = placed.await?;
    let seeding = agents.seed_profiles(at, &profiles);
    let (why, cause) = match tokio::time::timeout(SEED_TIMEOUT, seeding).await {
        Ok(Ok(())) => return Ok(notes),
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
    notes.push(format!(
        "The model profiles were not sent to the sandbox: {why}."
    ));
    Ok(notes)
}
