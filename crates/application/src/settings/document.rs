//! The stored document: JSON that only exists in clear between this module and the cipher.
//!
//! Reading is lenient: a value of a wrong type counts as not set and stays in the document, like everything that this
//! version does not know. So no stored value locks a user out, and an older version does not destroy what a newer one
//! wrote.

use std::collections::BTreeMap;

use domain::conversation::GitProvider;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value, json};

use super::mcp::{McpConfig, SecretDisplay};
use super::model::{AgentDocument, GROUPINGS, ProviderToken, Settings, exposed, wipe};
use super::profiles::Profiles;

/// The text is not a JSON object.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NotAnObject;

struct DocumentReader(Map<String, Value>);

impl DocumentReader {
    /// Takes the value out if `read` accepts it; else it stays among the unread ones.
    fn take<T>(&mut self, key: &str, read: impl FnOnce(&Value) -> Option<T>) -> Option<T> {
        let value = read(self.0.get(key)?)?;
        if let Some(mut raw) = self.0.shift_remove(key) {
            wipe(&mut raw);
        }
        Some(value)
    }

    fn text(&mut self, key: &str) -> Option<String> {
        self.take(key, |v| v.as_str().map(str::to_owned))
    }

    fn secret(&mut self, key: &str) -> Option<SecretString> {
        self.take(key, secret)
    }

    fn flag(&mut self, key: &str) -> Option<bool> {
        self.take(key, Value::as_bool)
    }

    fn int(&mut self, key: &str) -> Option<i64> {
        self.take(key, Value::as_i64)
    }

    fn object(&mut self, key: &str) -> Map<String, Value> {
        self.take(key, |v| v.as_object().cloned())
            .unwrap_or_default()
    }
}

fn secret(value: &Value) -> Option<SecretString> {
    let text = value.as_str().filter(|t| !t.trim().is_empty())?;
    Some(SecretString::from(text))
}

fn strings(value: &Value) -> Option<Vec<String>> {
    value
        .as_array()?
        .iter()
        .map(|v| v.as_str().map(str::to_owned))
        .collect()
}

/// Parses the text of a stored document.
pub(super) fn decode(text: &SecretString) -> Result<Settings, NotAnObject> {
    let root: Map<String, Value> =
        serde_json::from_str(text.expose_secret()).map_err(|_| NotAnObject)?;
    let mut r = DocumentReader(root);
    let default = Settings::default();
    let grouping = r.take("sandbox_grouping_strategy", |v| {
        v.as_str()
            .filter(|t| GROUPINGS.contains(t))
            .map(str::to_owned)
    });
    Ok(Settings {
        language: r.text("language"),
        user_version: r.int("user_version"),
        remote_runtime_resource_factor: r.int("remote_runtime_resource_factor"),
        enable_sound_notifications: r
            .flag("enable_sound_notifications")
            .unwrap_or(default.enable_sound_notifications),
        enable_proactive_conversation_starters: r
            .flag("enable_proactive_conversation_starters")
            .unwrap_or(default.enable_proactive_conversation_starters),
        enable_solvability_analysis: r
            .flag("enable_solvability_analysis")
            .unwrap_or(default.enable_solvability_analysis),
        user_consents_to_analytics: r.flag("user_consents_to_analytics"),
        sandbox_base_container_image: r.text("sandbox_base_container_image"),
        sandbox_runtime_container_image: r.text("sandbox_runtime_container_image"),
        disabled_skills: r.take("disabled_skills", strings),
        search_api_key: r.secret("search_api_key"),
        sandbox_api_key: r.secret("sandbox_api_key"),
        max_budget_per_task: r.take("max_budget_per_task", Value::as_f64),
        email: r.text("email"),
        email_verified: r.flag("email_verified"),
        git_user_name: r.text("git_user_name"),
        git_user_email: r.text("git_user_email"),
        git_full_clone: r.flag("git_full_clone").unwrap_or(default.git_full_clone),
        sandbox_grouping_strategy: grouping.unwrap_or(default.sandbox_grouping_strategy),
        default_sandbox_spec_id: r.text("default_sandbox_spec_id"),
        registered_marketplaces: r
            .take("registered_marketplaces", |v| v.as_array().cloned())
            .unwrap_or_default(),
        agent: AgentDocument {
            overlay: r.object("agent_settings"),
            secrets: r.take("agent_secrets", secrets).unwrap_or_default(),
            mcp: r.secret("agent_mcp"),
            key_vendor: r.text("llm_key_vendor"),
        },
        conversation: r.object("conversation_settings"),
        mcp: r.take("mcp_config", |v| {
            v.is_object().then(|| McpConfig::from_json(v))
        }),
        provider_tokens: provider_tokens(&mut r),
        profiles: r.take("llm_profiles", Profiles::read).unwrap_or_default(),
        unread: r.0,
    })
}

pub(super) fn secrets(value: &Value) -> Option<BTreeMap<String, SecretString>> {
    let map = value.as_object()?;
    Some(
        map.iter()
            .filter_map(|(k, v)| Some((k.clone(), secret(v)?)))
            .collect(),
    )
}

/// Entries of unknown providers stay in the document.
fn provider_tokens(r: &mut DocumentReader) -> BTreeMap<GitProvider, ProviderToken> {
    let mut known = BTreeMap::new();
    if let Some(Value::Object(map)) = r.0.get_mut("provider_tokens") {
        map.retain(|name, entry| {
            let text = |key: &str| entry.get(key).and_then(Value::as_str).map(str::to_owned);
            match (
                name.parse::<GitProvider>(),
                entry.get("token").and_then(secret),
            ) {
                (Ok(provider), Some(token)) => {
                    let (user_id, host) = (text("user_id"), text("host"));
                    known.insert(
                        provider,
                        ProviderToken {
                            token,
                            user_id,
                            host,
                        },
                    );
                    wipe(entry);
                    false
                }
                _ => true,
            }
        });
    }
    known
}

/// The text to seal. Intermediate copies are overwritten.
pub(super) fn encode(settings: &Settings) -> SecretString {
    let mut document = Value::Object(to_map(settings));
    let text = SecretString::from(document.to_string());
    wipe(&mut document);
    text
}

fn to_map(s: &Settings) -> Map<String, Value> {
    let mut map = s.unread.clone();
    for (key, value) in plain(s).into_iter().chain(secret_parts(s)) {
        if !value.is_null() {
            map.insert(key.to_owned(), value);
        }
    }
    map
}

fn plain(s: &Settings) -> [(&'static str, Value); 23] {
    [
        ("version", json!(1)),
        ("language", json!(s.language)),
        ("user_version", json!(s.user_version)),
        (
            "remote_runtime_resource_factor",
            json!(s.remote_runtime_resource_factor),
        ),
        (
            "enable_sound_notifications",
            json!(s.enable_sound_notifications),
        ),
        (
            "enable_proactive_conversation_starters",
            json!(s.enable_proactive_conversation_starters),
        ),
        (
            "enable_solvability_analysis",
            json!(s.enable_solvability_analysis),
        ),
        (
            "user_consents_to_analytics",
            json!(s.user_consents_to_analytics),
        ),
        (
            "sandbox_base_container_image",
            json!(s.sandbox_base_container_image),
        ),
        (
            "sandbox_runtime_container_image",
            json!(s.sandbox_runtime_container_image),
        ),
        ("disabled_skills", json!(s.disabled_skills)),
        ("max_budget_per_task", json!(s.max_budget_per_task)),
        ("email", json!(s.email)),
        ("email_verified", json!(s.email_verified)),
        ("git_user_name", json!(s.git_user_name)),
        ("git_user_email", json!(s.git_user_email)),
        ("git_full_clone", json!(s.git_full_clone)),
        (
            "sandbox_grouping_strategy",
            json!(s.sandbox_grouping_strategy),
        ),
        ("default_sandbox_spec_id", json!(s.default_sandbox_spec_id)),
        ("registered_marketplaces", json!(s.registered_marketplaces)),
        ("agent_settings", Value::Object(s.agent.overlay.clone())),
        (
            "conversation_settings",
            Value::Object(s.conversation.clone()),
        ),
        ("llm_key_vendor", json!(s.agent.key_vendor)),
    ]
}

fn secret_parts(s: &Settings) -> [(&'static str, Value); 7] {
    let hidden = |secret: &Option<SecretString>| secret.as_ref().map_or(Value::Null, exposed);
    let mcp = s
        .mcp
        .as_ref()
        .map_or(Value::Null, |m| m.to_json(SecretDisplay::Clear));
    [
        ("search_api_key", hidden(&s.search_api_key)),
        ("sandbox_api_key", hidden(&s.sandbox_api_key)),
        ("agent_mcp", hidden(&s.agent.mcp)),
        ("mcp_config", mcp),
        ("agent_secrets", in_clear(&s.agent.secrets)),
        ("provider_tokens", Value::Object(tokens(s))),
        ("llm_profiles", s.profiles.to_json()),
    ]
}

/// Named secrets as a JSON object, which the caller wipes.
pub(super) fn in_clear(secrets: &BTreeMap<String, SecretString>) -> Value {
    let members = secrets.iter().map(|(k, v)| (k.clone(), exposed(v)));
    Value::Object(members.collect())
}

fn tokens(s: &Settings) -> Map<String, Value> {
    let mut map = match s.unread.get("provider_tokens") {
        Some(Value::Object(unknown)) => unknown.clone(),
        _ => Map::new(),
    };
    for (provider, t) in &s.provider_tokens {
        map.insert(
            provider.to_string(),
            json!({"token": t.token.expose_secret(), "user_id": t.user_id, "host": t.host}),
        );
    }
    map
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn round_trip(document: &Value) -> Value {
        let settings = decode(&SecretString::from(document.to_string())).unwrap();
        serde_json::from_str(encode(&settings).expose_secret()).unwrap()
    }

    #[test]
    fn unknown_and_invalid_values_are_kept_and_harmless() {
        let document = json!({
            "version": 7, "from_the_future": {"a": [1]},
            "language": 5, "max_budget_per_task": "abc", "sandbox_grouping_strategy": "BOGUS",
            "email": "a@b.c", "agent_settings": {"llm": 5, "later": true},
            "provider_tokens": {"svn": {"token": "x"}, "github": {"token": "t", "host": null},
                                "gitlab": {"token": 5}},
        });
        let settings = decode(&SecretString::from(document.to_string())).unwrap();
        assert_eq!(settings.language, None);
        assert_eq!(settings.email.as_deref(), Some("a@b.c"));
        assert_eq!(settings.sandbox_grouping_strategy, "NO_GROUPING");
        assert_eq!(settings.provider_tokens.len(), 1);
        let stored = round_trip(&document);
        assert_eq!(stored["from_the_future"], json!({"a": [1]}));
        assert_eq!(stored["language"], 5);
        assert_eq!(stored["agent_settings"], json!({"llm": 5, "later": true}));
        assert_eq!(stored["provider_tokens"]["svn"], json!({"token": "x"}));
        assert_eq!(stored["provider_tokens"]["gitlab"], json!({"token": 5}));
        assert_eq!(stored["provider_tokens"]["github"]["token"], "t");
    }

    #[test]
    fn texts_without_an_object_are_refused() {
        for text in ["", "null", "[]", "{", "5"] {
            assert!(decode(&SecretString::from(text)).is_err(), "{text}");
        }
    }

    #[test]
    fn debug_output_says_nothing() {
        let document = json!({"search_api_key": "s3cret", "unknown": "s3cret",
            "agent_settings": {"llm": {"extra_headers": {"A": "s3cret"}}},
            "provider_tokens": {"github": {"token": "s3cret"}}});
        let settings = decode(&SecretString::from(document.to_string())).unwrap();
        assert!(!format!("{settings:?}").contains("s3cret"));
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[a-z*\" ]{0,12}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-z_]{1,8}", inner, 0..4)
                    .prop_map(|m| Value::Object(m.into_iter().collect())),
            ]
        })
    }

    const KEYS: [&str; 13] = [
        "language",
        "max_budget_per_task",
        "agent_settings",
        "agent_secrets",
        "agent_mcp",
        "conversation_settings",
        "mcp_config",
        "provider_tokens",
        "llm_profiles",
        "registered_marketplaces",
        "search_api_key",
        "disabled_skills",
        "something_else",
    ];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]
        #[test]
        fn any_object_opens_and_settles_after_one_save(
            values in prop::collection::vec((prop::sample::select(&KEYS), any_json()), 0..8)
        ) {
            let document: Map<String, Value> =
                values.into_iter().map(|(k, v)| (k.to_owned(), v)).collect();
            let once = round_trip(&Value::Object(document));
            prop_assert_eq!(round_trip(&once), once);
        }
    }
}
