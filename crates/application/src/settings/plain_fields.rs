//! Plain fields of the settings: one table of their names, for the stored document and for requests.

use domain::egress_list::{EgressList, MAX_EGRESS_ENTRIES};
use domain::sandbox::SandboxGrouping;
use secrecy::SecretString;
use serde_json::{Value, json};

use super::fields::{boolean, integer, number};
use super::issues::IssueKind;
use super::model::{GROUPINGS, Settings};
use super::secret::{SecretInput, SecretVisibility};

/// A field that consists of one value. Null resets every kind but [`PlainField::Switch`] and [`PlainField::Grouping`].
pub(super) enum PlainField<'a> {
    Text(&'a mut Option<String>),
    Texts(&'a mut Option<Vec<String>>),
    Integer(&'a mut Option<i64>),
    Number(&'a mut Option<f64>),
    Flag(&'a mut Option<bool>),
    Switch(&'a mut bool),
    Secret(&'a mut Option<SecretString>),
    Grouping(&'a mut Option<SandboxGrouping>),
    Hosts(&'a mut Option<EgressList>),
}

impl PlainField<'_> {
    /// The stored form; null if the field is not set. The caller wipes secrets.
    pub(super) fn stored(self) -> Value {
        match self {
            Self::Text(text) => json!(text),
            Self::Texts(texts) => json!(texts),
            Self::Integer(integer) => json!(integer),
            Self::Number(number) => json!(number),
            Self::Flag(flag) => json!(flag),
            Self::Switch(switch) => json!(switch),
            Self::Secret(secret) => SecretVisibility::Clear.show(secret.as_ref()),
            Self::Grouping(grouping) => grouping_name(*grouping).into(),
            Self::Hosts(list) => json!(list.as_ref().map(EgressList::entries)),
        }
    }

    /// Takes over a value, as leniently as the reference. A value of a wrong type has no effect.
    pub(super) fn set(self, value: &Value) -> Result<(), IssueKind> {
        match self {
            Self::Text(slot) => set(slot, value, text),
            Self::Texts(slot) => set(slot, value, texts),
            Self::Integer(slot) => set(slot, value, integer),
            Self::Number(slot) => set(slot, value, number),
            Self::Flag(slot) => set(slot, value, boolean),
            Self::Switch(switch) => boolean(value).map(|value| *switch = value),
            Self::Hosts(slot) => set(slot, value, hosts),
            Self::Secret(secret) => SecretInput::from_json(value).map(|input| input.apply(secret)),
            Self::Grouping(slot) => {
                let mut all = GROUPINGS.into_iter();
                let known = all.find(|(name, _)| value.as_str() == Some(name));
                let names = || GROUPINGS.map(|(name, _)| name.to_owned()).to_vec();
                *slot = known.ok_or_else(|| IssueKind::OneOf(names()))?.1;
                Ok(())
            }
        }
    }
}

fn set<T>(
    slot: &mut Option<T>,
    value: &Value,
    read: impl FnOnce(&Value) -> Result<T, IssueKind>,
) -> Result<(), IssueKind> {
    *slot = (!value.is_null()).then(|| read(value)).transpose()?;
    Ok(())
}

fn text(value: &Value) -> Result<String, IssueKind> {
    value.as_str().map(str::to_owned).ok_or(IssueKind::String)
}

fn texts(value: &Value) -> Result<Vec<String>, IssueKind> {
    let items = value.as_array().ok_or(IssueKind::List)?;
    items.iter().map(text).collect()
}

fn hosts(value: &Value) -> Result<EgressList, IssueKind> {
    let entries = texts(value)?;
    if entries.len() > MAX_EGRESS_ENTRIES {
        let problem = format!("a list has at most {MAX_EGRESS_ENTRIES} entries");
        return Err(IssueKind::Other(problem));
    }
    EgressList::parse(entries.iter().map(String::as_str)).map_err(IssueKind::Other)
}

fn grouping_name(grouping: Option<SandboxGrouping>) -> &'static str {
    let known = GROUPINGS.iter().find(|(_, value)| *value == grouping);
    known.unwrap_or(&GROUPINGS[0]).0
}

impl Settings {
    pub(super) fn plain_fields(&mut self) -> [(&'static str, PlainField<'_>); 24] {
        use PlainField::{Flag, Grouping, Hosts, Integer, Number, Secret, Switch, Text, Texts};
        let starters = &mut self.enable_proactive_conversation_starters.0;
        [
            ("language", Text(&mut self.language)),
            ("user_version", Integer(&mut self.user_version)),
            (
                "remote_runtime_resource_factor",
                Integer(&mut self.remote_runtime_resource_factor),
            ),
            (
                "enable_sound_notifications",
                Switch(&mut self.enable_sound_notifications),
            ),
            ("enable_proactive_conversation_starters", Switch(starters)),
            (
                "enable_solvability_analysis",
                Switch(&mut self.enable_solvability_analysis.0),
            ),
            (
                "user_consents_to_analytics",
                Flag(&mut self.user_consents_to_analytics),
            ),
            (
                "sandbox_base_container_image",
                Text(&mut self.sandbox_base_container_image),
            ),
            (
                "sandbox_runtime_container_image",
                Text(&mut self.sandbox_runtime_container_image),
            ),
            ("disabled_skills", Texts(&mut self.disabled_skills)),
            ("enabled_skills", Texts(&mut self.enabled_skills)),
            ("title_llm_profile", Text(&mut self.title_llm_profile)),
            ("search_api_key", Secret(&mut self.search_api_key)),
            ("sandbox_api_key", Secret(&mut self.sandbox_api_key)),
            ("max_budget_per_task", Number(&mut self.max_budget_per_task)),
            (
                "max_budget_per_month",
                Number(&mut self.max_budget_per_month),
            ),
            ("email", Text(&mut self.email)),
            ("email_verified", Flag(&mut self.email_verified)),
            ("git_user_name", Text(&mut self.git_user_name)),
            ("git_user_email", Text(&mut self.git_user_email)),
            ("git_full_clone", Switch(&mut self.git_full_clone)),
            (
                "sandbox_grouping_strategy",
                Grouping(&mut self.sandbox_grouping),
            ),
            (
                "default_sandbox_spec_id",
                Text(&mut self.default_sandbox_spec_id),
            ),
            ("egress_allow", Hosts(&mut self.egress_allow)),
        ]
    }

    /// Sets the plain field of this name. Other names have no effect.
    pub(super) fn set_plain(&mut self, name: &str, value: &Value) -> Result<(), IssueKind> {
        let mut fields = self.plain_fields().into_iter();
        let known = fields.find(|(known, _)| *known == name);
        known.map_or(Ok(()), |(_, field)| field.set(value))
    }

    /// The name of the strategy by which conversations share sandboxes.
    pub fn sandbox_grouping_strategy(&self) -> &'static str {
        grouping_name(self.sandbox_grouping)
    }
}
