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

use std::convert::Infallible;

use domain::id::OwnerId;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value};

use super::fields::put;
use super::mcp::McpConfig;
use super::model::Settings;
use super::secret::{SecretInput, SecretVisibility};
use super::service::SettingsService;
use crate::error::AppError;

/// Body of the legacy save; the fields have the types of the documented legacy API.
#[derive(Debug, Clone, Default)]
#[expect(missing_docs, reason = "the fields of the documented legacy API")]
pub struct LegacySettings {
    /// Every other field that the request names; null resets a field to its default.
    pub fields: Map<String, Value>,
    pub llm_model: Option<String>,
    pub llm_api_key: Option<SecretString>,
    pub llm_base_url: Option<String>,
    pub mcp_config: Option<McpConfig>,
    pub search_api_key: Option<SecretString>,
    /// Whether the client was shown that the key is set.
    pub search_api_key_set: bool,
    pub sandbox_api_key: Option<SecretString>,
}

impl SettingsService {
    pub async fn store_legacy(
        &self,
        owner: &OwnerId,
        input: &LegacySettings,
    ) -> Result<(), AppError> {
        let change = |settings| Ok::<_, Infallible>(merge(settings, input));
        self.update(owner, change).await?;
        Ok(())
    }
}

fn merge(mut s: Settings, input: &LegacySettings) -> Settings {
    for (name, value) in &input.fields {
        let set = (!value.is_null()).then(|| value.clone());
        let agent = &mut s.agent.overlay;
        match name.as_str() {
            "agent" => put(agent, name, set.filter(|it| !is_blank(it))),
            "enable_default_condenser" => put(agent, "condenser.enabled", set),
            "max_iterations" | "confirmation_mode" | "security_analyzer" => {
                put(&mut s.conversation, name, set);
            }
            _ => {
                let set = s.set_plain(name, value);
                debug_assert_eq!(set, Ok(()), "{name} has the type of its field");
            }
        }
    }
    if let Some(mcp) = &input.mcp_config {
        s.mcp = Some(mcp.clone().with_stored_secrets(s.mcp.as_ref()));
    }
    let is_echo = |key: &str| input.search_api_key_set && key.is_empty();
    let search_api_key = input
        .search_api_key
        .as_ref()
        .map(ExposeSecret::expose_secret);
    if let Some(key) = search_api_key.filter(|key| !is_echo(key)) {
        SecretInput::from_text(key).apply(&mut s.search_api_key);
    }
    if let Some(key) = &input.sandbox_api_key {
        SecretInput::from_text(key.expose_secret()).apply(&mut s.sandbox_api_key);
    }
    s.agent.change_llm(
        input.llm_model.as_deref(),
        input.llm_base_url.as_deref(),
        input.llm_api_key.as_ref(),
    );
    s.reconcile_profiles();
    s
}

fn is_blank(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.trim().is_empty())
}

/// Legacy views of the V1 documents: null while never set.
impl Settings {
    pub fn legacy_agent(&self) -> Option<&str> {
        self.agent.text("agent")
    }

    pub fn legacy_max_iterations(&self) -> Option<i64> {
        self.conversation_value("max_iterations")?.as_i64()
    }

    pub fn legacy_security_analyzer(&self) -> Option<&str> {
        self.conversation_value("security_analyzer")?.as_str()
    }

    pub fn legacy_confirmation_mode(&self) -> Option<bool> {
        self.conversation_value("confirmation_mode")?.as_bool()
    }

    pub fn legacy_default_condenser(&self) -> bool {
        self.agent.effective("condenser.enabled") != false
    }

    /// `mcp_config` in its normal form with secrets masked; `None` if never set.
    pub fn legacy_mcp(&self) -> Option<Value> {
        Some(self.mcp.as_ref()?.to_json(SecretVisibility::Masked))
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

    fn fields(fields: &Value) -> Map<String, Value> {
        fields.as_object().unwrap().clone()
    }

    fn full() -> Settings {
        merge(
            Settings::default(),
            &input(|i| {
                i.fields = fields(&json!({
                    "language": "en", "agent": "CodeActAgent", "max_iterations": 100,
                    "confirmation_mode": true, "security_analyzer": "llm",
                    "enable_default_condenser": false, "enable_solvability_analysis": false,
                    "user_consents_to_analytics": true, "email": "a@b.c",
                }));
                i.llm_model = Some("anthropic/claude".into());
                i.llm_api_key = Some("sk-1".into());
                i.llm_base_url = Some("https://llm.example".into());
                i.search_api_key = Some("tvly-1".into());
                i.sandbox_api_key = Some("sbx-1".into());
                i.mcp_config = Some(McpConfig::from_json(
                    &json!({"shttp_servers": [{"url": "https://h", "api_key": "m-1"}]}),
                ));
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
            assert!(!s.legacy_default_condenser() && !s.enable_solvability_analysis.0);
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
        let s = merge(
            s,
            &input(|i| i.fields = fields(&json!({"git_user_name": "n"}))),
        );
        same(&s);
        assert_eq!(s.git_user_name.as_deref(), Some("n"));
    }

    #[test]
    fn null_resets_a_plain_field() {
        let s = merge(
            full(),
            &input(|i| {
                let names = ["language", "max_iterations", "agent", "confirmation_mode"];
                i.fields = names
                    .map(|name| (name.to_owned(), Value::Null))
                    .into_iter()
                    .collect();
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
