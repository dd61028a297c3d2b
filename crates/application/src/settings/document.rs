//! The stored document: JSON that only exists in plain text between this module and the cipher.
//!
//! Reading is lenient: a value of a wrong type counts as not set and stays in the document, like everything that this
//! version does not know. So no stored value locks a user out, and an older version does not destroy what a newer one
//! wrote.

use std::collections::BTreeMap;

use domain::git::GitProvider;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value, json};

use super::agent_document::AgentDocument;
use super::agent_profile::AgentProfiles;
use super::mcp::McpConfig;
use super::model::{ProviderToken, Settings};
use super::profiles::list::Profiles;
use super::secret::{SecretVisibility, in_clear, read_secret, read_secrets, wipe};

/// The text is not a JSON object.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NotAnObject;

/// Takes a value out of the document if `read` accepts it; else it stays among the unread ones.
fn take<T>(
    document: &mut Map<String, Value>,
    key: &str,
    read: impl FnOnce(&Value) -> Option<T>,
) -> Option<T> {
    let value = read(document.get(key)?)?;
    if let Some(mut raw) = document.shift_remove(key) {
        wipe(&mut raw);
    }
    Some(value)
}

/// Parses the text of a stored document.
pub(super) fn decode(text: &SecretString) -> Result<Settings, NotAnObject> {
    let mut root: Map<String, Value> =
        serde_json::from_str(text.expose_secret()).map_err(|_| NotAnObject)?;
    let mut settings = Settings::default();
    for (name, field) in settings.plain_fields() {
        take(&mut root, name, |value| field.set(value).ok());
    }
    let object = |value: &Value| value.as_object().cloned();
    settings.agent = AgentDocument {
        overlay: take(&mut root, "agent_settings", object).unwrap_or_default(),
        secrets: take(&mut root, "agent_secrets", read_secrets).unwrap_or_default(),
        mcp: take(&mut root, "agent_mcp", read_secret),
        key_vendor: take(&mut root, "llm_key_vendor", |v| {
            v.as_str().map(str::to_owned)
        }),
        connection: take(&mut root, "llm_provider_connection", |v| {
            v.as_str()?.parse().ok()
        }),
    };
    settings.conversation = take(&mut root, "conversation_settings", object).unwrap_or_default();
    let list = |value: &Value| value.as_array().cloned();
    settings.registered_marketplaces =
        take(&mut root, "registered_marketplaces", list).unwrap_or_default();
    settings.mcp = take(&mut root, "mcp_config", |value| {
        value.is_object().then(|| McpConfig::from_json(value))
    });
    settings.provider_tokens = take_provider_tokens(&mut root);
    settings.profiles = take(&mut root, "llm_profiles", Profiles::read).unwrap_or_default();
    settings.agent_profiles =
        take(&mut root, "agent_profiles", AgentProfiles::read).unwrap_or_default();
    settings.unread = root;
    Ok(settings)
}

/// Entries of unknown providers stay in the document.
fn take_provider_tokens(document: &mut Map<String, Value>) -> BTreeMap<GitProvider, ProviderToken> {
    let mut known = BTreeMap::new();
    if let Some(Value::Object(map)) = document.get_mut("provider_tokens") {
        map.retain(|name, entry| {
            let text = |key: &str| entry.get(key).and_then(Value::as_str).map(str::to_owned);
            let token = entry.get("token").and_then(read_secret);
            let (Ok(provider), Some(token)) = (name.parse(), token) else {
                return true;
            };
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
        });
    }
    known
}

/// The text to seal. Intermediate copies are overwritten.
pub(super) fn encode(settings: &Settings) -> SecretString {
    let mut document = Value::Object(to_map(settings.clone()));
    let text = SecretString::from(document.to_string());
    wipe(&mut document);
    text
}

fn to_map(mut s: Settings) -> Map<String, Value> {
    let mut map = std::mem::take(&mut s.unread);
    let plain = s.plain_fields().map(|(name, field)| (name, field.stored()));
    let tokens = tokens(&s, map.get("provider_tokens"));
    let mcp = s.mcp.map(|mcp| mcp.to_json(SecretVisibility::Clear));
    let agent = s.agent;
    let others = [
        ("version", json!(1)),
        ("registered_marketplaces", json!(s.registered_marketplaces)),
        ("agent_settings", Value::Object(agent.overlay)),
        ("conversation_settings", Value::Object(s.conversation)),
        ("llm_key_vendor", json!(agent.key_vendor)),
        ("llm_provider_connection", json!(agent.connection)),
        (
            "agent_mcp",
            SecretVisibility::Clear.show(agent.mcp.as_ref()),
        ),
        ("agent_secrets", in_clear(&agent.secrets)),
        ("mcp_config", mcp.unwrap_or_default()),
        ("provider_tokens", tokens),
        ("llm_profiles", s.profiles.to_json()),
        ("agent_profiles", s.agent_profiles.to_json()),
    ];
    for (key, value) in plain.into_iter().chain(others) {
        if !value.is_null() {
            map.insert(key.to_owned(), value);
        }
    }
    map
}

/// The known tokens, and the entries of unknown providers.
fn tokens(s: &Settings, unknown: Option<&Value>) -> Value {
    let mut map = unknown
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default();
    for (provider, t) in &s.provider_tokens {
        let token = t.token.expose_secret();
        let entry = json!({"token": token, "user_id": t.user_id, "host": t.host});
        map.insert(provider.to_string(), entry);
    }
    Value::Object(map)
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
        assert_eq!(settings.sandbox_grouping_strategy(), "NO_GROUPING");
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

    const KEYS: [&str; 15] = [
        "language",
        "max_budget_per_task",
        "agent_settings",
        "agent_secrets",
        "agent_mcp",
        "conversation_settings",
        "mcp_config",
        "provider_tokens",
        "llm_profiles",
        "llm_provider_connection",
        "agent_profiles",
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
