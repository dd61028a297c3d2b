//! `POST /api/settings`: a partial save, which changes only the fields it names.
//!
//! * An absent field stays. (The reference resets it, so that a save of one page loses the settings of another.)
//! * Null resets a plain field to its default. It keeps fields that responses show as null, and those that the
//!   settings page of the 1.3 line sends as null without a change: `llm_model`, `llm_api_key`, `llm_base_url`,
//!   `search_api_key`, `sandbox_api_key`, `mcp_config` and `user_consents_to_analytics`.
//! * Blank clears a secret, and the mask keeps it. That page sends `search_api_key` as `""` in every save, with the
//!   `search_api_key_set` that it was shown: `""` beside `true` is an echo and keeps the key.
//! * A blank `llm_model`, `llm_base_url` or `agent` means not set.
//!
//! V1 fields that this operation does not know stay unchanged.

use domain::id::UserId;
use domain::patch::Patch;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value};

use super::fields::put;
use super::mcp::{McpConfig, SecretDisplay};
use super::model::{AgentDocument, LLM_API_KEY, SecretInput, Settings};
use super::{SettingsService, UpdateError, llm};
use crate::error::AppError;

/// Body of the legacy save. Resettable fields are a [`Patch`]; of the others `None` means absent or null, and keeps
/// them.
#[derive(Debug, Clone, Default)]
#[expect(missing_docs, reason = "the fields of the interface document")]
pub struct LegacySettings {
    pub language: Patch<String>,
    pub agent: Patch<String>,
    pub max_iterations: Patch<i64>,
    pub security_analyzer: Patch<String>,
    pub confirmation_mode: Patch<bool>,
    pub llm_model: Option<String>,
    pub llm_api_key: Option<SecretString>,
    pub llm_base_url: Option<String>,
    pub remote_runtime_resource_factor: Patch<i64>,
    pub enable_default_condenser: Option<bool>,
    pub enable_sound_notifications: Option<bool>,
    pub enable_proactive_conversation_starters: Option<bool>,
    pub enable_solvability_analysis: Option<bool>,
    pub user_consents_to_analytics: Option<bool>,
    pub sandbox_base_container_image: Patch<String>,
    pub sandbox_runtime_container_image: Patch<String>,
    pub mcp_config: Option<McpConfig>,
    pub search_api_key: Option<SecretString>,
    /// Whether the client was shown that the key is set.
    pub search_api_key_set: bool,
    pub sandbox_api_key: Option<SecretString>,
    pub max_budget_per_task: Patch<f64>,
    pub email: Patch<String>,
    pub email_verified: Patch<bool>,
    pub git_user_name: Patch<String>,
    pub git_user_email: Patch<String>,
}

impl SettingsService {
    /// Saves a legacy request.
    pub async fn store_legacy(
        &self,
        owner: &UserId,
        input: &LegacySettings,
    ) -> Result<(), AppError> {
        let saved = self.update(owner, |settings| {
            Ok::<_, std::convert::Infallible>(merge(settings, input))
        });
        match saved.await {
            Ok(_) => Ok(()),
            Err(UpdateError::Failed(error)) => Err(error),
            Err(UpdateError::Refused(never)) => match never {},
        }
    }
}

fn merge(mut s: Settings, input: &LegacySettings) -> Settings {
    let input = input.clone();
    input.language.apply(&mut s.language);
    let factor = input.remote_runtime_resource_factor;
    factor.apply(&mut s.remote_runtime_resource_factor);
    let base_image = input.sandbox_base_container_image;
    base_image.apply(&mut s.sandbox_base_container_image);
    let runtime_image = input.sandbox_runtime_container_image;
    runtime_image.apply(&mut s.sandbox_runtime_container_image);
    input.max_budget_per_task.apply(&mut s.max_budget_per_task);
    input.email.apply(&mut s.email);
    input.email_verified.apply(&mut s.email_verified);
    input.git_user_name.apply(&mut s.git_user_name);
    input.git_user_email.apply(&mut s.git_user_email);
    for (switch, given) in [
        (
            &mut s.enable_sound_notifications,
            input.enable_sound_notifications,
        ),
        (
            &mut s.enable_proactive_conversation_starters,
            input.enable_proactive_conversation_starters,
        ),
        (
            &mut s.enable_solvability_analysis,
            input.enable_solvability_analysis,
        ),
    ] {
        *switch = given.unwrap_or(*switch);
    }
    let analytics = input.user_consents_to_analytics;
    s.user_consents_to_analytics = analytics.or(s.user_consents_to_analytics);
    if let Some(mcp) = input.mcp_config {
        s.mcp = Some(mcp.with_stored_secrets(s.mcp.as_ref()));
    }
    let shown_as_set = input.search_api_key_set;
    let is_echo = |key: &SecretString| shown_as_set && key.expose_secret().is_empty();
    if let Some(key) = input.search_api_key.filter(|key| !is_echo(key)) {
        SecretInput::from_text(key.expose_secret()).apply(&mut s.search_api_key);
    }
    if let Some(key) = input.sandbox_api_key {
        SecretInput::from_text(key.expose_secret()).apply(&mut s.sandbox_api_key);
    }
    let conversation = &mut s.conversation;
    patch(conversation, "max_iterations", input.max_iterations);
    patch(conversation, "confirmation_mode", input.confirmation_mode);
    patch(conversation, "security_analyzer", input.security_analyzer);
    let overlay = &mut s.agent.overlay;
    let agent = match input.agent {
        Patch::Set(text) if text.trim().is_empty() => Patch::Clear,
        other => other,
    };
    patch(overlay, "agent", agent);
    if let Some(enabled) = input.enable_default_condenser {
        put(overlay, "condenser.enabled", Some(enabled.into()));
    }
    s.agent
        .change_llm(input.llm_model, input.llm_base_url, input.llm_api_key);
    s.settle_profiles();
    s
}

/// Changes a field of a sparse document; an absent field has its default.
fn patch<T: Into<Value>>(overlay: &mut Map<String, Value>, key: &str, change: Patch<T>) {
    match change {
        Patch::Keep => {}
        Patch::Set(value) => put(overlay, key, Some(value.into())),
        Patch::Clear => put(overlay, key, None),
    }
}

fn filled(text: Option<String>) -> Option<String> {
    text.filter(|t| !t.trim().is_empty())
}

impl AgentDocument {
    /// Sets the given values (blank means not set), and settles endpoint and key with the model.
    fn change_llm(
        &mut self,
        model: Option<String>,
        base_url: Option<String>,
        api_key: Option<SecretString>,
    ) {
        let before = self.effective_model();
        if let Some(model) = model {
            put(
                &mut self.overlay,
                "llm.model",
                filled(Some(model)).map(Value::from),
            );
        }
        let url_given = base_url.is_some();
        if let Some(url) = base_url {
            put(&mut self.overlay, "llm.base_url", Some(Value::from(url)));
        }
        let mut key_given = false;
        if let Some(key) = api_key {
            let key = SecretInput::from_text(key.expose_secret());
            key_given = matches!(key, SecretInput::Set(_));
            self.set_secret(LLM_API_KEY, key);
        }
        self.settle_llm(&before, url_given, key_given);
    }

    /// The model in force.
    pub(super) fn effective_model(&self) -> String {
        let default = self.effective("llm.model");
        self.llm_model()
            .or(default.as_str())
            .unwrap_or_default()
            .to_owned()
    }

    /// Changes one of the secrets.
    pub(super) fn set_secret(&mut self, pointer: &str, input: SecretInput) {
        let mut slot = self.secrets.remove(pointer);
        input.apply(&mut slot);
        if let Some(secret) = slot {
            self.secrets.insert(pointer.to_owned(), secret);
        }
    }

    /// Settles a change: removes a default endpoint of the former model, and records the vendor of the key.
    pub(super) fn settle_llm(&mut self, before: &str, url_given: bool, key_given: bool) {
        let model = self.effective_model();
        let url = self.llm_base_url().map(str::to_owned);
        let url = llm::settled_endpoint(before, &model, url, url_given);
        put(&mut self.overlay, "llm.base_url", url.map(Value::from));
        if !self.secrets.contains_key(LLM_API_KEY) {
            self.key_vendor = None;
        } else if key_given || self.key_vendor.is_none() {
            self.key_vendor = self.llm_model().and_then(llm::vendor_of);
        }
    }
}

/// Legacy views of the V1 documents: null while never set.
impl Settings {
    /// `agent`.
    pub fn legacy_agent(&self) -> Option<&str> {
        self.agent.text("agent")
    }

    /// `max_iterations`.
    pub fn legacy_max_iterations(&self) -> Option<i64> {
        self.conversation_value("max_iterations")?.as_i64()
    }

    /// `security_analyzer`.
    pub fn legacy_security_analyzer(&self) -> Option<&str> {
        self.conversation_value("security_analyzer")?.as_str()
    }

    /// `confirmation_mode`.
    pub fn legacy_confirmation_mode(&self) -> Option<bool> {
        self.conversation_value("confirmation_mode")?.as_bool()
    }

    /// `enable_default_condenser`.
    pub fn legacy_default_condenser(&self) -> bool {
        self.agent.effective("condenser.enabled") != false
    }

    /// `mcp_config` in its normal form with secrets masked; `None` if never set.
    pub fn legacy_mcp(&self) -> Option<Value> {
        Some(self.mcp.as_ref()?.to_json(SecretDisplay::Masked))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn input(change: impl FnOnce(&mut LegacySettings)) -> LegacySettings {
        let mut input = LegacySettings::default();
        change(&mut input);
        input
    }

    fn full() -> Settings {
        merge(
            Settings::default(),
            &input(|i| {
                i.language = Patch::Set("en".into());
                i.agent = Patch::Set("CodeActAgent".into());
                i.max_iterations = Patch::Set(100);
                i.confirmation_mode = Patch::Set(true);
                i.security_analyzer = Patch::Set("llm".into());
                i.llm_model = Some("anthropic/claude".into());
                i.llm_api_key = Some("sk-1".into());
                i.llm_base_url = Some("https://llm.example".into());
                i.enable_default_condenser = Some(false);
                i.enable_solvability_analysis = Some(false);
                i.user_consents_to_analytics = Some(true);
                i.search_api_key = Some("tvly-1".into());
                i.sandbox_api_key = Some("sbx-1".into());
                i.mcp_config = Some(McpConfig::from_json(
                    &json!({"shttp_servers": [{"url": "https://h", "api_key": "m-1"}]}),
                ));
                i.email = Patch::Set("a@b.c".into());
            }),
        )
    }

    fn clear(secret: Option<&SecretString>) -> Option<&str> {
        secret.map(ExposeSecret::expose_secret)
    }

    #[test]
    fn a_save_changes_only_what_it_names() {
        let same = |s: &Settings| {
            assert_eq!(s.language.as_deref(), Some("en"));
            assert_eq!(s.email.as_deref(), Some("a@b.c"));
            assert_eq!(s.legacy_agent(), Some("CodeActAgent"));
            assert_eq!(s.legacy_max_iterations(), Some(100));
            assert_eq!(s.legacy_confirmation_mode(), Some(true));
            assert_eq!(s.legacy_security_analyzer(), Some("llm"));
            assert!(!s.legacy_default_condenser() && !s.enable_solvability_analysis);
            assert_eq!(s.agent.llm_model(), Some("anthropic/claude"));
            assert_eq!(s.agent.llm_base_url(), Some("https://llm.example"));
            assert_eq!(clear(s.agent.llm_api_key()), Some("sk-1"));
            assert_eq!(clear(s.search_api_key.as_ref()), Some("tvly-1"));
            assert_eq!(clear(s.sandbox_api_key.as_ref()), Some("sbx-1"));
            assert_eq!(s.user_consents_to_analytics, Some(true));
            let mcp = s.legacy_mcp().unwrap();
            assert_eq!(mcp["shttp_servers"][0]["api_key"], "**********");
        };
        let s = merge(full(), &LegacySettings::default());
        same(&s);
        let s = merge(s, &input(|i| i.git_user_name = Patch::Set("n".into())));
        same(&s);
        assert_eq!(s.git_user_name.as_deref(), Some("n"));
    }

    #[test]
    fn null_resets_a_plain_field() {
        let s = merge(
            full(),
            &input(|i| {
                i.language = Patch::Clear;
                i.max_iterations = Patch::Clear;
                i.agent = Patch::Clear;
                i.confirmation_mode = Patch::Clear;
            }),
        );
        assert_eq!((s.language.as_deref(), s.legacy_agent()), (None, None));
        assert_eq!(s.legacy_max_iterations(), None);
        assert_eq!(s.legacy_confirmation_mode(), None);
        assert_eq!(s.conversation_effective("max_iterations"), 500);
        assert_eq!(s.email.as_deref(), Some("a@b.c"));
    }

    #[test]
    fn secrets_are_kept_by_masks_and_cleared_by_blanks() {
        let (old, new) = (Some("old"), Some("new"));
        // The sent key, and the key that is stored then.
        let table = [
            (None, old),
            (Some("**********"), old),
            (Some(""), None),
            (Some(" "), None),
        ];
        for (sent, kept) in table.into_iter().chain([(Some(" new "), new)]) {
            let all = |text: Option<&str>| {
                let secret = || text.map(SecretString::from);
                input(|i| {
                    i.llm_api_key = secret();
                    i.search_api_key = secret();
                    i.sandbox_api_key = secret();
                })
            };
            let s = merge(merge(full(), &all(old)), &all(sent));
            assert_eq!(clear(s.agent.llm_api_key()), kept, "{sent:?}");
            assert_eq!(clear(s.search_api_key.as_ref()), kept, "{sent:?}");
            assert_eq!(clear(s.sandbox_api_key.as_ref()), kept, "{sent:?}");
        }
    }

    #[test]
    fn the_search_key_that_a_page_did_not_touch_is_kept() {
        for (sent, shown, kept) in [
            ("", true, Some("tvly-1")),
            ("", false, None),
            (" ", true, None),
            ("x", true, Some("x")),
        ] {
            let page = input(|i| {
                i.search_api_key = Some(sent.into());
                i.search_api_key_set = shown;
            });
            let s = merge(full(), &page);
            assert_eq!(clear(s.search_api_key.as_ref()), kept, "{sent:?} {shown}");
        }
    }

    #[test]
    fn v1_values_are_visible_and_kept() {
        let mut s = full();
        put(&mut s.agent.overlay, "llm.temperature", Some(json!(0.5)));
        s.git_full_clone = true;
        let s = merge(s, &input(|i| i.llm_model = Some("openai/gpt-5".into())));
        assert_eq!(s.agent.effective("llm.temperature"), 0.5);
        assert!(s.git_full_clone);
        assert_eq!(
            s.agent.llm_base_url(),
            Some("https://llm.example"),
            "the user's own endpoint stays"
        );
    }

    #[test]
    fn a_blank_model_or_endpoint_is_not_set() {
        let s = merge(
            full(),
            &input(|i| {
                i.llm_model = Some(String::new());
                i.llm_base_url = Some(" ".into());
            }),
        );
        assert_eq!(s.agent.llm_model(), None);
        assert_eq!(s.agent.llm_base_url(), None);
    }
}
