//! Agent profiles: named agents, each of a kind, with a model profile, tools, and the MCP servers and secrets that it may use
//! (`/api/agent-profiles`). The active one applies to starts that name none. A profile holds no secrets.
//!
//! A start applies a profile to a copy of the settings; nothing is stored by that.

use std::fmt;

use domain::agent::AgentKind;
use domain::id::{AgentProfileId, OwnerId};
use serde_json::{Map, Value, json};

use super::fields::texts_of;
use super::issues::{Issue, IssueKind, MAX_DEPTH, depth, nul_issue};
use super::launch::LaunchProfile;
use super::model::Settings;
use super::service::{SettingsService, UpdateError};
use crate::error::AppError;

pub const MAX_AGENT_PROFILES: usize = 50;

const KIND: &str = "agent_kind";
const MODEL_PROFILE: &str = "llm_profile_ref";
const MCP_SERVERS: &str = "mcp_server_refs";
const SECRETS: &str = "secret_refs";

/// Fields of the profile itself; requests may repeat them.
const OWN_FIELDS: [&str; 4] = ["id", "name", "revision", "schema_version"];
/// Fields that replace those of the same name in the agent's settings.
const AGENT_FIELDS: [&str; 11] = [
    "agent",
    "tools",
    "tool_concurrency_limit",
    "condenser",
    "verification",
    "acp_server",
    "acp_command",
    "acp_args",
    "acp_model",
    "acp_session_mode",
    "acp_prompt_timeout",
];
/// Fields that replace those of the agent's context.
const CONTEXT_FIELDS: [&str; 2] = ["system_message_suffix", "disabled_skills"];
/// Fields that are stored, and have no effect in this version.
const UNUSED_FIELDS: [&str; 5] = [
    "persona",
    "public_skills",
    "meta_profile_ref",
    "enable_classify_and_switch_llm_tool",
    "acp_startup_timeout",
];

#[derive(Clone)]
pub struct AgentProfile {
    /// Does not change when the profile is renamed.
    pub id: AgentProfileId,
    pub name: String,
    /// Counts the saves.
    pub revision: i64,
    /// Everything else, as it was sent.
    values: Map<String, Value>,
}

impl fmt::Debug for AgentProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentProfile")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// The agent profiles of a user or a shared organization, in the order of creation.
#[derive(Debug, Clone, Default)]
pub struct AgentProfiles {
    list: Vec<AgentProfile>,
    active: Option<AgentProfileId>,
}

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

impl AgentProfiles {
    pub fn iter(&self) -> impl Iterator<Item = &AgentProfile> {
        self.list.iter()
    }

    pub fn find(&self, name: &str) -> Option<&AgentProfile> {
        self.list.iter().find(|profile| profile.name == name)
    }

    fn find_by_id(&self, id: AgentProfileId) -> Option<&AgentProfile> {
        self.list.iter().find(|profile| profile.id == id)
    }

    pub fn active(&self) -> Option<&AgentProfile> {
        self.find_by_id(self.active?)
    }

    /// Replaces the profiles by those of `other`; the active one stays the same.
    pub(super) fn take_list_of(&mut self, other: Self) {
        self.list = other.list;
    }

    /// Parses profiles; `None` if the value is something else.
    pub(super) fn read(value: &Value) -> Option<Self> {
        let list = value.get("list")?.as_array()?;
        let list = list.iter().map(AgentProfile::read).collect::<Option<_>>()?;
        let active = value.get("active").and_then(Value::as_str);
        Some(Self {
            list,
            active: active.and_then(|id| id.parse().ok()),
        })
    }

    /// For the stored document; null if there are none.
    pub(super) fn to_json(&self) -> Value {
        if self.list.is_empty() && self.active.is_none() {
            return Value::Null;
        }
        let list = self.list.iter().map(|profile| {
            let AgentProfile {
                id,
                name,
                revision,
                values,
            } = profile;
            json!({"id": id, "name": name, "revision": revision, "values": values})
        });
        json!({"active": self.active, "list": list.collect::<Vec<_>>()})
    }
}

impl AgentProfile {
    fn read(entry: &Value) -> Option<Self> {
        Some(Self {
            id: entry.get("id")?.as_str()?.parse().ok()?,
            name: entry.get("name")?.as_str()?.to_owned(),
            revision: entry.get("revision")?.as_i64()?,
            values: entry.get("values")?.as_object()?.clone(),
        })
    }

    pub fn kind(&self) -> AgentKind {
        let kind = self.values.get(KIND).and_then(Value::as_str);
        kind.and_then(|name| name.parse().ok()).unwrap_or_default()
    }

    /// The name of its model profile. Agents that bring their own model have none.
    pub fn model_profile(&self) -> Option<&str> {
        self.values.get(MODEL_PROFILE)?.as_str()
    }

    /// The names of the MCP servers that it may use; `None` for all.
    pub fn mcp_servers(&self) -> Option<Vec<String>> {
        self.names(MCP_SERVERS)
    }

    fn names(&self, key: &str) -> Option<Vec<String>> {
        let value = self.values.get(key).filter(|value| !value.is_null());
        value.map(|value| texts_of(Some(value)))
    }

    /// The complete profile, as front ends edit it.
    pub fn view(&self) -> Map<String, Value> {
        let mut view = self.values.clone();
        view.insert(KIND.to_owned(), self.kind().as_str().into());
        view.insert("id".to_owned(), self.id.dashed().into());
        view.insert("name".to_owned(), self.name.as_str().into());
        view.insert("revision".to_owned(), self.revision.into());
        view
    }

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

    /// Its values of the agent's settings.
    fn agent_fields(&self) -> Map<String, Value> {
        let present = |key: &&str| self.values.get(*key).is_some_and(|value| !value.is_null());
        let value = |key: &str| (key.to_owned(), self.values[key].clone());
        let mut fields: Map<String, Value> = AGENT_FIELDS
            .into_iter()
            .filter(present)
            .map(value)
            .collect();
        let context: Map<String, Value> = CONTEXT_FIELDS
            .into_iter()
            .filter(present)
            .map(value)
            .collect();
        if !context.is_empty() {
            fields.insert("agent_context".to_owned(), Value::Object(context));
        }
        fields
    }
}

#[cfg(test)]
mod tests;
