//! `POST /api/settings`: the settings page of the 1.3 line of front ends saves everything it knows at once.
//!
//! As in the reference, a field that is absent or null is **reset** to its default, except `llm_model`, `llm_api_key`,
//! `llm_base_url`, `search_api_key` and `user_consents_to_analytics`, which stay. Unlike there, `mcp_config` and
//! `sandbox_api_key` stay as well (a partial request must not lose secrets), and masks that come back keep what is
//! stored. Fields of the V1 API that this operation does not know are never touched.
//!
//! Blanks: `llm_api_key` `""` clears, `search_api_key` `""` keeps (the page sends it whenever the field is untouched),
//! white space clears both. A blank `llm_model`, `llm_base_url` or `agent` means not set.

use domain::id::UserId;
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

use super::fields::put;
use super::mcp::{McpConfig, Show};
use super::model::{AgentDocument, LLM_API_KEY, SecretInput, Settings};
use super::{SettingsService, UpdateError, llm};
use crate::error::AppError;

/// Body of the legacy save. `None` is absent or null.
#[derive(Debug, Clone, Default)]
#[expect(missing_docs, reason = "the fields of the interface document")]
pub struct LegacySettings {
    pub language: Option<String>,
    pub agent: Option<String>,
    pub max_iterations: Option<i64>,
    pub security_analyzer: Option<String>,
    pub confirmation_mode: Option<bool>,
    pub llm_model: Option<String>,
    pub llm_api_key: Option<SecretString>,
    pub llm_base_url: Option<String>,
    pub remote_runtime_resource_factor: Option<i64>,
    pub enable_default_condenser: Option<bool>,
    pub enable_sound_notifications: Option<bool>,
    pub enable_proactive_conversation_starters: Option<bool>,
    pub enable_solvability_analysis: Option<bool>,
    pub user_consents_to_analytics: Option<bool>,
    pub sandbox_base_container_image: Option<String>,
    pub sandbox_runtime_container_image: Option<String>,
    pub mcp_config: Option<McpConfig>,
    pub search_api_key: Option<SecretString>,
    pub sandbox_api_key: Option<SecretString>,
    pub max_budget_per_task: Option<f64>,
    pub email: Option<String>,
    pub email_verified: Option<bool>,
    pub git_user_name: Option<String>,
    pub git_user_email: Option<String>,
}

impl SettingsService {
    /// Saves as the legacy operation does.
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
    let default = Settings::default();
    let input = input.clone();
    s.language = input.language;
    s.remote_runtime_resource_factor = input.remote_runtime_resource_factor;
    s.enable_sound_notifications = input
        .enable_sound_notifications
        .unwrap_or(default.enable_sound_notifications);
    s.enable_proactive_conversation_starters = input
        .enable_proactive_conversation_starters
        .unwrap_or(default.enable_proactive_conversation_starters);
    s.enable_solvability_analysis = input
        .enable_solvability_analysis
        .unwrap_or(default.enable_solvability_analysis);
    s.user_consents_to_analytics = input
        .user_consents_to_analytics
        .or(s.user_consents_to_analytics);
    s.sandbox_base_container_image = input.sandbox_base_container_image;
    s.sandbox_runtime_container_image = input.sandbox_runtime_container_image;
    s.max_budget_per_task = input.max_budget_per_task;
    s.email = input.email;
    s.email_verified = input.email_verified;
    s.git_user_name = input.git_user_name;
    s.git_user_email = input.git_user_email;
    if let Some(mcp) = input.mcp_config {
        s.mcp = Some(mcp.over(s.mcp.as_ref()));
    }
    if let Some(key) = input.search_api_key
        && !key.expose_secret().is_empty()
    {
        SecretInput::from_text(key.expose_secret()).apply(&mut s.search_api_key);
    }
    if let Some(key) = input.sandbox_api_key {
        SecretInput::from_text(key.expose_secret()).apply(&mut s.sandbox_api_key);
    }
    for (key, value) in [
        ("max_iterations", input.max_iterations.map(Value::from)),
        (
            "confirmation_mode",
            input.confirmation_mode.map(Value::from),
        ),
        (
            "security_analyzer",
            input.security_analyzer.map(Value::from),
        ),
    ] {
        put(&mut s.conversation, key, value);
    }
    let overlay = &mut s.agent.overlay;
    put(overlay, "agent", filled(input.agent).map(Value::from));
    put(
        overlay,
        "condenser.enabled",
        input.enable_default_condenser.map(Value::from),
    );
    s.agent
        .change_llm(input.llm_model, input.llm_base_url, input.llm_api_key);
    s
}

fn filled(text: Option<String>) -> Option<String> {
    text.filter(|t| !t.trim().is_empty())
}

impl AgentDocument {
    /// Sets what is `Some` (blank: not set), and settles endpoint and key with the model.
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

    /// After a change: no default endpoint outlives its model, and the key remembers its vendor.
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

/// What the legacy answer shows of the V1 documents: null while never set.
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
        Some(self.mcp.as_ref()?.to_json(Show::Masked))
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
                i.language = Some("en".into());
                i.agent = Some("CodeActAgent".into());
                i.max_iterations = Some(100);
                i.confirmation_mode = Some(true);
                i.security_analyzer = Some("llm".into());
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
                i.email = Some("a@b.c".into());
            }),
        )
    }

    fn clear(secret: Option<&SecretString>) -> Option<&str> {
        secret.map(ExposeSecret::expose_secret)
    }

    #[test]
    fn an_empty_save_resets_all_but_models_secrets_and_servers() {
        let s = merge(full(), &LegacySettings::default());
        assert_eq!(s.language, None);
        assert_eq!(s.email, None);
        assert_eq!(s.legacy_agent(), None);
        assert_eq!(s.legacy_max_iterations(), None);
        assert_eq!(s.legacy_confirmation_mode(), None);
        assert_eq!(s.legacy_security_analyzer(), None);
        assert!(s.legacy_default_condenser());
        assert!(s.enable_solvability_analysis);
        assert_eq!(s.agent.llm_model(), Some("anthropic/claude"));
        assert_eq!(s.agent.llm_base_url(), Some("https://llm.example"));
        assert_eq!(clear(s.agent.llm_api_key()), Some("sk-1"));
        assert_eq!(clear(s.search_api_key.as_ref()), Some("tvly-1"));
        assert_eq!(clear(s.sandbox_api_key.as_ref()), Some("sbx-1"));
        assert_eq!(s.user_consents_to_analytics, Some(true));
        assert_eq!(
            s.legacy_mcp().unwrap()["shttp_servers"][0]["api_key"],
            "**********"
        );
    }

    #[test]
    fn secrets_are_kept_by_masks_and_cleared_by_blanks() {
        // What is sent for each key, and what is stored then.
        for (sent, llm, search, sandbox) in [
            (None, Some("sk-1"), Some("tvly-1"), Some("sbx-1")),
            (
                Some("**********"),
                Some("sk-1"),
                Some("tvly-1"),
                Some("sbx-1"),
            ),
            (Some(""), None, Some("tvly-1"), None),
            (Some("   "), None, None, None),
            (Some(" new "), Some("new"), Some("new"), Some("new")),
        ] {
            let secret = || sent.map(SecretString::from);
            let s = merge(
                full(),
                &input(|i| {
                    i.llm_api_key = secret();
                    i.search_api_key = secret();
                    i.sandbox_api_key = secret();
                }),
            );
            assert_eq!(clear(s.agent.llm_api_key()), llm, "{sent:?}");
            assert_eq!(clear(s.search_api_key.as_ref()), search, "{sent:?}");
            assert_eq!(clear(s.sandbox_api_key.as_ref()), sandbox, "{sent:?}");
        }
    }

    #[test]
    fn what_v1_set_is_seen_here_and_left_alone() {
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
