//! From a task and its owner's settings to what the agent server is asked for.

use std::collections::BTreeMap;

use domain::agent::{LaunchRequest, LaunchSecret};
use domain::start_task::StartTask;
use secrecy::{ExposeSecret, SecretString};

use super::check::wants_auto_title;
use super::prepare::Prepared;
use crate::AppError;
use crate::ports::Ports;
use crate::settings::LaunchProfile;

/// Assembles the request. Secrets of the request win over those of the settings with the same name.
pub(super) fn request(
    ports: &Ports,
    task: &StartTask,
    profile: LaunchProfile,
    prepared: Prepared,
) -> Result<LaunchRequest, AppError> {
    let suffixes = [
        profile.system_message_suffix,
        task.request.system_message_suffix.clone(),
    ];
    let suffix = suffixes
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join("\n\n");
    let mut secrets = profile.secrets;
    secrets.extend(open_secrets(ports, task)?);
    let secrets = secrets
        .into_iter()
        .map(|(name, value)| (name, LaunchSecret::Value(value)))
        .collect();
    Ok(LaunchRequest {
        conversation_id: task.conversation_id,
        working_dir: prepared.working_dir,
        llm: profile.llm,
        condenser: profile.condenser,
        max_iterations: profile.max_iterations,
        confirmation_mode: profile.confirmation_mode,
        security_analyzer: profile.security_analyzer,
        mcp: profile.mcp,
        search_api_key: profile.search_api_key,
        system_message_suffix: (!suffix.is_empty()).then_some(suffix),
        initial_message: task.request.initial_message.clone(),
        secrets,
        auto_title: wants_auto_title(&task.request),
        agent_type: task.request.agent_type,
        acp: None,
        plugins: Vec::new(),
        hooks: prepared.hooks,
        disabled_skills: profile.disabled_skills,
        tags: BTreeMap::new(),
        max_budget: profile.max_budget_per_task,
    })
}

fn open_secrets(
    ports: &Ports,
    task: &StartTask,
) -> Result<BTreeMap<String, SecretString>, AppError> {
    let Some(sealed) = &task.sealed_secrets else {
        return Ok(BTreeMap::new());
    };
    let plain = ports
        .cipher
        .open(&StartTask::secrets_context(task.id), sealed)?;
    let map: BTreeMap<String, String> = serde_json::from_str(plain.expose_secret())
        .map_err(|_| domain::cipher::CipherError::Damaged)?;
    Ok(map
        .into_iter()
        .map(|(name, value)| (name, SecretString::from(value)))
        .collect())
}
