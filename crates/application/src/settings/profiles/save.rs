//! Saving of profiles.

use std::fmt;

use domain::id::ProviderConnectionId;
use serde_json::{Map, Value};

use super::super::agent_document::{AgentDocument, LLM, MASKED_LLM_OBJECTS};
use super::super::fields::AGENT;
use super::super::issues::{Issue, IssueKind, MAX_DEPTH, depth, nul_issue};
use super::super::mcp::with_masks_restored;
use super::super::model::Settings;
use super::{MAX_PROFILES_PER_USER, Profile, ProfileRefusal, Profiles};

/// A field of every shown configuration, so requests contain it. It is derived from `auth_type`.
const DERIVED_FIELD: &str = "is_subscription";
/// The connection of a profile. It is not part of the agent's own configuration.
const CONNECTION_FIELD: &str = "provider_connection_id";

#[derive(Clone)]
pub struct SaveProfile {
    /// The configuration; `None` for the one in force. Absent, null or masked secrets keep those of the existing
    /// profile; a blank one is cleared.
    pub llm: Option<Map<String, Value>>,
    /// Whether secrets are stored with the profile.
    pub include_secrets: bool,
    /// Whether an existing profile keeps its key, or the lack of one.
    pub preserve_existing_api_key: bool,
}

impl Default for SaveProfile {
    fn default() -> Self {
        Self {
            llm: None,
            include_secrets: true,
            preserve_existing_api_key: false,
        }
    }
}

impl fmt::Debug for SaveProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SaveProfile").finish_non_exhaustive()
    }
}

pub(super) fn save(
    mut settings: Settings,
    name: &str,
    input: &SaveProfile,
) -> Result<Settings, ProfileRefusal> {
    let existing = settings.profiles.find(name).map(|profile| &profile.agent);
    let mut agent = match &input.llm {
        Some(llm) => {
            configured(llm, existing, &settings.profiles).map_err(ProfileRefusal::Invalid)?
        }
        None => settings.agent.llm_part(),
    };
    if input.preserve_existing_api_key
        && let Some(existing) = existing
    {
        agent.copy_key_from(existing);
    }
    if !input.include_secrets {
        agent.clear_secrets();
    }
    let profiles = &mut settings.profiles;
    let is_full = profiles.list.len() >= MAX_PROFILES_PER_USER;
    let mut known = profiles.list.iter_mut();
    match known.find(|profile| profile.name == name) {
        Some(profile) => profile.agent = agent,
        None if is_full => return Err(ProfileRefusal::Full),
        None => profiles.list.push(Profile {
            name: name.to_owned(),
            agent,
        }),
    }
    if settings.agent.has_llm() || settings.profiles.active().is_some() {
        settings.reconcile_profiles();
        return Ok(settings);
    }
    // The first model is the one that its owner wants to use.
    let activated = settings.with_active(name);
    activated.ok_or_else(|| ProfileRefusal::NotFound(name.to_owned()))
}

/// Builds the configuration of the request, over the secrets of the existing profile.
fn configured(
    llm: &Map<String, Value>,
    existing: Option<&AgentDocument>,
    profiles: &Profiles,
) -> Result<AgentDocument, Vec<Issue>> {
    let mut llm = llm.clone();
    llm.shift_remove(DERIVED_FIELD);
    let connection = llm.shift_remove(CONNECTION_FIELD).unwrap_or_default();
    let mut issues = precheck(&llm);
    for key in MASKED_LLM_OBJECTS {
        if let Some(value) = llm.get_mut(key) {
            let before = existing.and_then(|agent| agent.llm_values()?.get(key));
            *value = with_masks_restored(value.take(), before);
        }
    }
    let mut agent = AgentDocument::default();
    if let Some(existing) = existing {
        agent.secrets = existing.llm_secrets();
        agent.key_vendor.clone_from(&existing.key_vendor);
    }
    let mut diff = Map::new();
    diff.insert(LLM.to_owned(), Value::Object(llm));
    // Shown configurations have null secrets.
    issues.extend(agent.merge_fields(&diff, true));
    match connection_of(&connection, profiles) {
        Ok(connection) => agent.connect(connection),
        Err(issue) => issues.push(issue),
    }
    if issues.is_empty() {
        Ok(agent)
    } else {
        Err(issues)
    }
}

fn connection_of(
    value: &Value,
    profiles: &Profiles,
) -> Result<Option<ProviderConnectionId>, Issue> {
    if value.is_null() {
        return Ok(None);
    }
    let id = value.as_str().and_then(|text| text.parse().ok());
    let known = id.filter(|id| profiles.connection(*id).is_some());
    known.map(Some).ok_or_else(|| {
        let unknown = "there is no provider connection of this id".to_owned();
        Issue::at(&[LLM, CONNECTION_FIELD], IssueKind::Other(unknown))
    })
}

/// Issues that can be found without the fields' rules.
fn precheck(llm: &Map<String, Value>) -> Vec<Issue> {
    let mut issues = Vec::new();
    match llm.get("model") {
        None => issues.push(Issue::at(&[LLM, "model"], IssueKind::Missing)),
        Some(Value::String(text)) if text.trim().is_empty() => {
            let blank = IssueKind::Other("model must not be blank".to_owned());
            issues.push(Issue::at(&[LLM, "model"], blank));
        }
        Some(_) => {}
    }
    for (key, value) in llm {
        if AGENT.field(&format!("{LLM}.{key}")).is_none() {
            issues.push(Issue::at(&[LLM, key], IssueKind::Unknown));
        } else if depth(value) > MAX_DEPTH {
            let deep = format!("nested more than {MAX_DEPTH} levels deep");
            issues.push(Issue::at(&[LLM, key], IssueKind::Other(deep)));
        } else {
            issues.extend(nul_issue(&[LLM], key, value));
        }
    }
    issues
}
