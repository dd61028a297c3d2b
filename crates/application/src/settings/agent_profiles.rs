//! Agent profiles: named agents, each of a kind, with a model profile, tools, and the MCP servers and secrets that it may use
//! (`/api/agent-profiles`). The active one applies to starts that name none. A profile holds no secrets.
//!
//! A start applies a profile to a copy of the settings; nothing is stored by that.

use domain::agent::AgentKind;
use domain::id::{AgentProfileId, OwnerId};
use serde_json::{Map, Value};

use super::agent_profile::{
    AGENT_FIELDS, AgentProfile, AgentProfiles, CONTEXT_FIELDS, KIND, MCP_SERVERS, MODEL_PROFILE,
};
use super::issues::{Issue, IssueKind, MAX_DEPTH, depth, nul_issue};
use super::launch::LaunchProfile;
use super::model::Settings;
use super::service::{SettingsService, UpdateError};
use crate::error::AppError;

pub const MAX_AGENT_PROFILES: usize = 50;

const SECRETS: &str = "secret_refs";

/// Fields of the profile itself; requests may repeat them.
const OWN_FIELDS: [&str; 4] = ["id", "name", "revision", "schema_version"];
/// Fields that are stored, and have no effect in this version.
const UNUSED_FIELDS: [&str; 5] = [
    "persona",
    "public_skills",
    "meta_profile_ref",
    "enable_classify_and_switch_llm_tool",
    "acp_startup_timeout",
];

#[derive(Debug, Clone, PartialEq)]
pub enum AgentProfileRefusal {
    NotFound,
    NameTaken,
    /// There are [`MAX_AGENT_PROFILES`].
    Full,
    /// The paths are those of the profile.
    Invalid(Vec<Issue>),
}

impl SettingsService {
    pub async fn agent_profiles(&self, owner: &OwnerId) -> Result<AgentProfiles, AppError> {
        let settings = self.load(owner).await?;
        Ok(settings.unwrap_or_default().agent_profiles)
    }

    /// Stores a profile under a name; one of that name keeps its id, and its revision counts up. `id` is for a new one.
    pub async fn save_agent_profile(
        &self,
        owner: &OwnerId,
        id: AgentProfileId,
        name: &str,
        values: &Map<String, Value>,
    ) -> Result<(), UpdateError<AgentProfileRefusal>> {
        let saved = self.update_shared(owner, |mut settings| {
            let values = checked(values).map_err(AgentProfileRefusal::Invalid)?;
            let list = &mut settings.agent_profiles.list;
            let is_full = list.len() >= MAX_AGENT_PROFILES;
            match list.iter_mut().find(|profile| profile.name == name) {
                Some(profile) => {
                    profile.revision += 1;
                    profile.values = values;
                }
                None if is_full => return Err(AgentProfileRefusal::Full),
                None => list.push(AgentProfile {
                    id,
                    name: name.to_owned(),
                    revision: 0,
                    values,
                }),
            }
            Ok(settings)
        });
        saved.await.map(|_| ())
    }

    /// Deletes a profile if it exists. After the active one, none is active.
    pub async fn delete_agent_profile(&self, owner: &OwnerId, name: &str) -> Result<(), AppError> {
        let deleted = self.update_shared_if(owner, |found| {
            let Some(mut settings) = found else {
                return Ok::<_, AppError>(None);
            };
            let profiles = &mut settings.agent_profiles;
            let Some(id) = profiles.find(name).map(|profile| profile.id) else {
                return Ok(None);
            };
            profiles.list.retain(|profile| profile.id != id);
            profiles.active.take_if(|active| *active == id);
            Ok(Some(settings))
        });
        deleted.await?;
        Ok(())
    }

    /// Renames a profile; it keeps its id.
    pub async fn rename_agent_profile(
        &self,
        owner: &OwnerId,
        name: &str,
        new_name: &str,
    ) -> Result<(), UpdateError<AgentProfileRefusal>> {
        let renamed = self.update_shared(owner, |mut settings| {
            let profiles = &mut settings.agent_profiles;
            if name != new_name && profiles.find(new_name).is_some() {
                return Err(AgentProfileRefusal::NameTaken);
            }
            let mut list = profiles.list.iter_mut();
            let profile = list.find(|profile| profile.name == name);
            new_name.clone_into(&mut profile.ok_or(AgentProfileRefusal::NotFound)?.name);
            Ok(settings)
        });
        renamed.await.map(|_| ())
    }

    /// Makes a profile the one of the user's starts that name none.
    pub async fn activate_agent_profile(
        &self,
        owner: &OwnerId,
        id: AgentProfileId,
    ) -> Result<(), UpdateError<AgentProfileRefusal>> {
        if self.agent_profiles(owner).await?.find_by_id(id).is_none() {
            return Err(UpdateError::Refused(AgentProfileRefusal::NotFound));
        }
        let activated = self.update(owner, |mut settings| {
            settings.agent_profiles.active = Some(id);
            Ok(settings)
        });
        activated.await.map(|_| ())
    }
}

/// The values of a request, without what the service sets.
fn checked(values: &Map<String, Value>) -> Result<Map<String, Value>, Vec<Issue>> {
    let mut issues = Vec::new();
    let mut values = values.clone();
    values.retain(|key, _| !OWN_FIELDS.contains(&key.as_str()));
    for (key, value) in &values {
        let is_known = [KIND, MODEL_PROFILE, MCP_SERVERS, SECRETS]
            .into_iter()
            .chain(AGENT_FIELDS)
            .chain(CONTEXT_FIELDS)
            .chain(UNUSED_FIELDS)
            .any(|name| name == key);
        if !is_known {
            issues.push(Issue::at(&[key], IssueKind::Unknown));
        } else if depth(value) > MAX_DEPTH {
            let deep = format!("nested more than {MAX_DEPTH} levels deep");
            issues.push(Issue::at(&[key], IssueKind::Other(deep)));
        } else {
            issues.extend(nul_issue(&[], key, value));
        }
    }
    let kind = values.get(KIND).map_or(Some(AgentKind::default()), |kind| {
        kind.as_str().and_then(|name| name.parse().ok())
    });
    match kind {
        None => {
            let unknown = "must be 'openhands' or 'acp'".to_owned();
            issues.push(Issue::at(&[KIND], IssueKind::Other(unknown)));
        }
        Some(kind) if kind == AgentKind::default() => {
            let model = values.get(MODEL_PROFILE).unwrap_or(&Value::Null);
            if model.as_str().is_none_or(str::is_empty) {
                issues.push(Issue::at(&[MODEL_PROFILE], IssueKind::Missing));
            }
        }
        Some(_) => {}
    }
    for key in [MCP_SERVERS, SECRETS] {
        let is_list = |value: &Value| {
            let list = value.as_array();
            value.is_null() || list.is_some_and(|list| list.iter().all(Value::is_string))
        };
        if !values.get(key).is_none_or(is_list) {
            let wrong = "must be null or a list of names".to_owned();
            issues.push(Issue::at(&[key], IssueKind::Other(wrong)));
        }
    }
    if issues.is_empty() {
        Ok(values)
    } else {
        Err(issues)
    }
}

impl AgentProfile {
    /// Leaves out the MCP servers and secrets that the agent may not use.
    fn restrict(&self, launch: &mut LaunchProfile) {
        if let Some(names) = self.mcp_servers() {
            launch
                .mcp
                .retain(|server| names.iter().any(|name| name == server.name()));
        }
        launch.secret_names = self.names(SECRETS);
        let unused = UNUSED_FIELDS.into_iter().filter(|key| {
            let value = self.values.get(*key);
            value.is_some_and(|value| !value.is_null() && *value != false)
        });
        launch.notes.extend(
            unused.map(|key| format!("{key} of the agent profile has no effect in this version.")),
        );
    }
}

/// A profile as a start uses it, and what could not be used.
pub(crate) struct ChosenAgentProfile {
    profile: Option<AgentProfile>,
    notes: Vec<String>,
}

impl ChosenAgentProfile {
    /// What a start with these settings, to which the profile was applied, uses.
    pub(crate) fn launch_profile(
        &self,
        settings: &Settings,
        model: Option<&str>,
    ) -> Result<LaunchProfile, AppError> {
        let mut launch = settings.launch_profile(model)?;
        if let Some(profile) = &self.profile {
            profile.restrict(&mut launch);
        }
        launch.notes.splice(0..0, self.notes.iter().cloned());
        Ok(launch)
    }

    pub(crate) fn tags(&self) -> impl Iterator<Item = (String, String)> {
        self.profile.iter().flat_map(AgentProfile::tags)
    }
}

impl Settings {
    /// Applies the agent profile that a start names, or else the active one. An unknown one costs a note. A model profile
    /// that does not exist is an error.
    pub(crate) fn apply_agent_profile(
        self,
        named: Option<&str>,
    ) -> Result<(Self, ChosenAgentProfile), AppError> {
        let profiles = &self.agent_profiles;
        let found = match named {
            Some(id) => id.parse().ok().and_then(|id| profiles.find_by_id(id)),
            None => profiles.active(),
        };
        let mut notes = Vec::new();
        let Some(profile) = found.cloned() else {
            if named.is_some() {
                let unknown =
                    "There is no agent profile of the given agent_profile_id; the settings apply.";
                notes.push(unknown.to_owned());
            }
            return Ok((
                self,
                ChosenAgentProfile {
                    profile: None,
                    notes,
                },
            ));
        };
        let mut settings = self;
        if profile.kind() == AgentKind::default()
            && let Some(model) = profile.model_profile()
        {
            settings = settings.with_active(model).ok_or_else(|| {
                AppError::invalid(format!(
                    "The agent profile '{}' refers to the model profile '{model}', which does not exist.",
                    profile.name
                ))
            })?;
        }
        let kind = profile.kind().as_str().into();
        settings.agent.overlay.insert(KIND.to_owned(), kind);
        for issue in settings.agent.merge_fields(&profile.agent_fields(), true) {
            notes.push(format!(
                "{} of the agent profile was left out: {}.",
                issue.at.join("."),
                issue.kind
            ));
        }
        let profile = Some(profile);
        Ok((settings, ChosenAgentProfile { profile, notes }))
    }
}

impl AgentProfile {
    /// What a conversation keeps of the profile that it was started with.
    fn tags(&self) -> [(String, String); 2] {
        [
            ("agentprofileid".to_owned(), self.id.dashed()),
            ("agentprofilerevision".to_owned(), self.revision.to_string()),
        ]
    }
}

#[cfg(test)]
mod tests;
