//! Settings in a shared organization. Model profiles, provider connections and agent profiles belong to the organization; all
//! else belongs to its members, also which agent profile is active.
//!
//! The organization has a document of the same form, which only holds these parts. Each read completes the member's document
//! by it. Its active profile is the model of the members who have set none of their own; it sends its key nowhere else.

use domain::encryption::cipher::Sealed;
use domain::id::OwnerId;

use super::agent_document::AgentDocument;
use super::model::Settings;
use super::service::{SettingsService, UpdateError};
use crate::error::AppError;

/// The stored documents that make the settings of a user.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Documents {
    own: Option<Sealed>,
    /// The organization's.
    shared: Option<Sealed>,
}

impl Documents {
    #[cfg(test)]
    pub(super) const fn own(document: Sealed) -> Self {
        Self {
            own: Some(document),
            shared: None,
        }
    }

    pub(super) fn bytes(&self) -> usize {
        let all = [&self.own, &self.shared].into_iter().flatten();
        all.map(|document| document.as_text().len()).sum()
    }
}

impl SettingsService {
    /// The documents of a user; `None` if nothing is stored.
    pub(super) async fn documents(&self, owner: &OwnerId) -> Result<Option<Documents>, AppError> {
        let own = self.store.load(&owner.into()).await?;
        let shared = match owner.shared_organization() {
            Some(id) => self.store.load(&id.into()).await?,
            None => None,
        };
        let documents = Documents {
            own: own.map(|it| it.document),
            shared: shared.map(|it| it.document),
        };
        let is_empty = documents.own.is_none() && documents.shared.is_none();
        Ok((!is_empty).then_some(documents))
    }

    /// The settings in force.
    pub(super) fn open_all(
        &self,
        owner: &OwnerId,
        documents: &Documents,
    ) -> Result<Settings, AppError> {
        let own = self.open_own(owner, documents)?;
        let Some(id) = owner.shared_organization() else {
            return Ok(own);
        };
        let shared = documents.shared.as_ref();
        let shared = shared.map(|document| self.open(&id.into(), document));
        Ok(own.in_organization(shared.transpose()?.unwrap_or_default()))
    }

    fn open_own(&self, owner: &OwnerId, documents: &Documents) -> Result<Settings, AppError> {
        let own = documents.own.as_ref();
        let own = own.map(|document| self.open(&owner.into(), document));
        Ok(own.transpose()?.unwrap_or_default())
    }

    /// The settings of a user for programs in their sandboxes, which see secrets. Those of the organization are left out: its
    /// members use them, and do not read them.
    pub async fn load_for_sandbox(&self, owner: &OwnerId) -> Result<Settings, AppError> {
        let Some(documents) = self.documents(owner).await? else {
            return Ok(Settings::default());
        };
        let mut settings = self.open_all(owner, &documents)?;
        if owner.shared_organization().is_some() {
            let own = self.open_own(owner, &documents)?;
            settings.agent.retain_llm_secrets_of(&own.agent);
        }
        Ok(settings)
    }

    /// Like [`SettingsService::update_if`], for what belongs to the organization in a shared one. There, `change` always sees
    /// settings.
    pub(super) async fn update_shared_if<E, F>(
        &self,
        owner: &OwnerId,
        mut change: F,
    ) -> Result<Option<Settings>, UpdateError<E>>
    where
        F: FnMut(Option<Settings>) -> Result<Option<Settings>, E> + Send,
        E: Send,
    {
        let Some(id) = owner.shared_organization() else {
            return self.update_if(owner, change).await;
        };
        let of_organization = |found: Option<Settings>| {
            let before = found.unwrap_or_default();
            let active = before.profiles.active().map(str::to_owned);
            let changed = change(Some(before))?;
            Ok(changed.map(|mut settings| {
                settings.agent = AgentDocument::default();
                settings.profiles.keep_active(active.as_deref());
                settings
            }))
        };
        self.update_document(&id.into(), of_organization).await
    }

    /// Like [`SettingsService::update`], for what belongs to the organization in a shared one.
    pub(super) async fn update_shared<E, F>(
        &self,
        owner: &OwnerId,
        mut change: F,
    ) -> Result<Settings, UpdateError<E>>
    where
        F: FnMut(Settings) -> Result<Settings, E> + Send,
        E: Send,
    {
        let change = |found: Option<Settings>| change(found.unwrap_or_default()).map(Some);
        let stored = self.update_shared_if(owner, change);
        Ok(stored.await?.unwrap_or_default())
    }
}

impl Settings {
    /// The settings of a member, with what belongs to the organization.
    fn in_organization(mut self, organization: Self) -> Self {
        let shared = organization.profiles;
        // Members had connections of their own once.
        if self
            .agent
            .connection
            .is_some_and(|id| shared.connection(id).is_none())
            && let Ok(agent) = self.connected_agent()
        {
            self.agent = agent.into_owned();
            self.agent.connection = None;
        }
        let active = shared.active().and_then(|name| shared.find(name));
        if let Some(profile) = active {
            if !self.agent.has_llm() {
                self.agent.use_llm_of(&profile.agent);
            } else if !self.agent.has_other_destination() {
                let mut agent = profile.agent.clone();
                agent.use_llm_of(&self.agent);
                self.agent.use_llm_of(&agent);
            }
        }
        self.profiles = shared;
        self.agent_profiles
            .take_list_of(organization.agent_profiles);
        self.reconcile_profiles();
        self
    }
}

#[cfg(test)]
mod tests {
    use secrecy::{ExposeSecret, SecretString};
    use serde_json::{Value, json};

    use super::super::document::decode;
    use super::super::launch::language_model;
    use super::*;

    fn settings(document: &Value) -> Settings {
        decode(&SecretString::from(document.to_string())).unwrap()
    }

    /// One profile, which is active, with a key.
    fn crew() -> Settings {
        let llm = json!({
            "model": "openai/fast", "base_url": "https://one.example/v1", "extra_headers": {"A": "s3cret"},
        });
        settings(&json!({"llm_profiles": {"active": "fast", "list": [
            {"name": "fast", "llm": llm, "secrets": {"/llm/api_key": "k1"}, "key_vendor": "openai"},
        ]}}))
    }

    fn in_force(own: &Value) -> Settings {
        settings(own).in_organization(crew())
    }

    fn key_of(settings: &Settings) -> Option<String> {
        let llm = language_model(settings, None).ok()?;
        llm.api_key.map(|key| key.expose_secret().to_owned())
    }

    #[test]
    fn the_active_profile_is_the_model_of_members_without_one() {
        let shown = in_force(&json!({"language": "fr", "llm_profiles": {"list": [
            {"name": "hidden", "llm": {"model": "openai/mine"}},
        ]}}));
        assert_eq!(shown.agent.effective_model(), "openai/fast");
        assert_eq!(key_of(&shown).as_deref(), Some("k1"));
        assert_eq!(shown.profiles.active(), Some("fast"));
        assert_eq!(shown.profiles.iter().count(), 1);
        assert_eq!(shown.language.as_deref(), Some("fr"));
    }

    #[test]
    fn the_key_of_the_organization_goes_to_its_own_destination_only() {
        let one = "https://one.example/v1";
        for (llm, secrets, expected) in [
            (
                json!({"model": "openai/slow", "base_url": one}),
                json!({}),
                Some("k1"),
            ),
            (
                json!({"model": "openai/fast", "base_url": "https://two.example"}),
                json!({}),
                None,
            ),
            (json!({"base_url": "https://two.example"}), json!({}), None),
            (json!({"model": "openai/fast"}), json!({}), None),
            (json!({"model": "anthropic/x"}), json!({}), None),
            (
                json!({"model": "openai/x"}),
                json!({"/llm/api_key": "own"}),
                Some("own"),
            ),
            (
                json!({"base_url": one, "litellm_extra_body": {"api_base": "https://two.example"}}),
                json!({}),
                None,
            ),
            // Nothing is set.
            (json!({"model": null}), json!({}), Some("k1")),
        ] {
            let own = json!({"agent_settings": {"llm": llm}, "agent_secrets": secrets});
            let shown = in_force(&own);
            assert_eq!(key_of(&shown).as_deref(), expected, "{own}");
            let header = &shown.agent.overlay["llm"]["extra_headers"];
            assert_eq!(
                header.is_object(),
                llm["model"].is_null() && expected.is_some(),
                "{own}"
            );
        }
    }

    #[test]
    fn sandboxes_read_no_secret_of_the_organization() {
        let own_key = json!({"/llm/api_key": "own", "/search": "x"});
        for (own, key) in [
            (json!({}), None),
            (
                json!({"agent_settings": {"llm": {"model": "openai/slow", "base_url": "https://one.example/v1"}}}),
                None,
            ),
            (
                json!({"agent_settings": {"llm": {"model": "openai/x"}}, "agent_secrets": own_key}),
                Some("own"),
            ),
        ] {
            let mut shown = in_force(&own);
            shown.agent.retain_llm_secrets_of(&settings(&own).agent);
            let found = shown.agent.llm_api_key().map(ExposeSecret::expose_secret);
            assert_eq!(found, key, "{own}");
            let overlay = Value::Object(shown.agent.overlay).to_string();
            assert!(!overlay.contains("s3cret"), "{overlay}");
        }
    }

    #[test]
    fn a_connection_of_before_still_works() {
        let id = "00000000000000000000000000000007";
        let own = json!({
            "agent_settings": {"llm": {"model": "openai/x"}}, "llm_provider_connection": id, "llm_key_vendor": "openai",
            "llm_profiles": {"list": [], "connections": [{
                "id": id, "display_name": "Mine", "provider": "openai", "base_url": null, "api_key": "c1",
                "created_at": 1, "updated_at": 1,
            }]},
        });
        let shown = in_force(&own);
        assert_eq!(key_of(&shown).as_deref(), Some("c1"));
        assert!(shown.profiles.connections().is_empty());
    }

    #[test]
    fn one_profile_stays_active() {
        let list =
            json!([{"name": "a", "llm": {"model": "m"}}, {"name": "b", "llm": {"model": "m"}}]);
        for (active, before, kept) in [
            (json!(null), None, "a"),
            (json!(null), Some("b"), "b"),
            (json!(null), Some("gone"), "a"),
            (json!("b"), Some("a"), "b"),
        ] {
            let mut shown = settings(&json!({"llm_profiles": {"active": active, "list": list}}));
            shown.profiles.keep_active(before);
            assert_eq!(shown.profiles.active(), Some(kept), "{active} {before:?}");
        }
        let mut none = Settings::default();
        none.profiles.keep_active(Some("a"));
        assert_eq!(none.profiles.active(), None);
    }
}
