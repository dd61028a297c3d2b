//! Providers and their endpoints.

use std::borrow::Cow;

use domain::agent::LlmConfig;
use domain::agent::model_endpoint::{ModelEndpoint, ModelProtocol};
use url::Url;

/// A provider whose calls the service can make.
struct CallableProvider {
    /// The prefix of model names.
    prefix: &'static str,
    protocol: ModelProtocol,
    /// The endpoint that the agent's library uses without another one. Empty: there is none.
    default_base: &'static str,
    /// Beginnings of model names without a prefix.
    bare: &'static [&'static str],
}

const fn provider(
    prefix: &'static str,
    protocol: ModelProtocol,
    default_base: &'static str,
    bare: &'static [&'static str],
) -> CallableProvider {
    CallableProvider {
        prefix,
        protocol,
        default_base,
        bare,
    }
}

const fn compatible(prefix: &'static str, default_base: &'static str) -> CallableProvider {
    provider(prefix, ModelProtocol::OpenAi, default_base, &[])
}

const PROVIDERS: &[CallableProvider] = &[
    provider(
        "openai",
        ModelProtocol::OpenAi,
        "https://api.openai.com/v1",
        &["gpt-", "o1", "o3", "o4", "chatgpt-", "codex-"],
    ),
    provider(
        "anthropic",
        ModelProtocol::Anthropic,
        "https://api.anthropic.com",
        &["claude-"],
    ),
    provider(
        "openhands",
        ModelProtocol::Proxy,
        "https://llm-proxy.app.all-hands.dev",
        &[],
    ),
    provider("litellm_proxy", ModelProtocol::Proxy, "", &[]),
    provider("azure", ModelProtocol::Azure, "", &[]),
    // The agent's library takes bare names of these models for Vertex AI.
    provider(
        "gemini",
        ModelProtocol::Gemini,
        "https://generativelanguage.googleapis.com",
        &[],
    ),
    compatible("cerebras", "https://api.cerebras.ai/v1"),
    compatible("deepseek", "https://api.deepseek.com/beta"),
    compatible("fireworks_ai", "https://api.fireworks.ai/inference/v1"),
    compatible("groq", "https://api.groq.com/openai/v1"),
    compatible("hosted_vllm", ""),
    compatible("mistral", "https://api.mistral.ai/v1"),
    compatible("moonshot", "https://api.moonshot.ai/v1"),
    compatible("nvidia_nim", "https://integrate.api.nvidia.com/v1"),
    compatible("openrouter", "https://openrouter.ai/api/v1"),
    compatible("together_ai", "https://api.together.ai/v1"),
    compatible("xai", "https://api.x.ai/v1"),
];

/// Options of a model that make the agent's library sign in, or call, in another way.
const OTHER_SIGN_IN: [&str; 4] = [
    "auth_type",
    "aws_region_name",
    "api_version",
    "ollama_base_url",
];

/// The endpoint of a model with a key, and whether it is the provider's own.
///
/// # Errors
/// The reason why the service cannot call it.
pub(crate) fn endpoint(llm: &LlmConfig) -> Result<(ModelEndpoint, bool), String> {
    let model = llm.model.trim();
    let (prefix, name) = model.split_once('/').unwrap_or(("", model));
    let lower = name.to_ascii_lowercase();
    let is_it = |it: &&CallableProvider| match prefix {
        "" => it.bare.iter().any(|start| lower.starts_with(start)),
        prefix => it.prefix == prefix,
    };
    let Some(provider) = PROVIDERS.iter().find(is_it) else {
        let unknown = match prefix {
            "" => "a model without the name of its provider".to_owned(),
            prefix => format!("models of {}", short(prefix)),
        };
        return Err(format!("the service does not call {unknown}"));
    };
    let signs_in = |name: &&&str| {
        let value = llm.options.get(**name);
        let is_known = **name == "api_version" && provider.protocol == ModelProtocol::Azure;
        value
            .is_some_and(|value| !is_known && !value.is_null() && value != "api_key" && value != "")
    };
    if let Some(option) = OTHER_SIGN_IN.iter().find(signs_in) {
        return Err(format!("the option {option} of the model is set"));
    }
    if !llm.secret_options.is_empty() {
        return Err("the model has further secrets than its key".to_owned());
    }
    let given = llm.base_url.as_deref().map(str::trim);
    let base = given.filter(|url| !url.is_empty());
    let is_own = base.is_none();
    let base = match base {
        Some(base) => Cow::Borrowed(base),
        None if provider.protocol == ModelProtocol::Gemini => {
            format!("{}/{}", provider.default_base, gemini_version(&lower)).into()
        }
        None => provider.default_base.into(),
    };
    let base = normal_base(provider, &base);
    let base = base.ok_or("the model has no valid endpoint (llm_base_url)")?;
    let endpoint = ModelEndpoint {
        protocol: provider.protocol,
        base,
    };
    Ok((endpoint, is_own))
}

/// The version of the interface that the agent's library uses for a model (`litellm` 1.9x, `_is_gemini_3_or_newer`).
fn gemini_version(model: &str) -> &'static str {
    let begins = |names: &[&str]| names.iter().any(|name| model.starts_with(name));
    let is_latest = model.ends_with("-latest");
    let is_old = begins(&["gemini-1", "gemini-2", "gemini-exp", "gemma-"])
        || (begins(&["gemini-pro", "gemini-flash"]) && !is_latest);
    if is_old { "v1beta" } else { "v1alpha" }
}

/// The base as the agent's library completes it.
fn normal_base(provider: &CallableProvider, given: &str) -> Option<Url> {
    let mut text = given.trim_end_matches('/').to_owned();
    match provider.prefix {
        "anthropic" => {
            let end = ["/v1/messages", "/v1"]
                .into_iter()
                .find(|end| text.ends_with(end));
            text.truncate(text.len() - end.map_or(0, str::len));
        }
        "mistral" if !text.ends_with("/v1") => text.push_str("/v1"),
        "openai" if text == "https://api.openai.com" => text.push_str("/v1"),
        _ => {}
    }
    let text = text.strip_suffix("/chat/completions").unwrap_or(&text);
    let url = Url::parse(text).ok()?;
    let is_usable = matches!(url.scheme(), "http" | "https")
        // The agent's library completes other paths of Azure in other ways.
        && (provider.protocol != ModelProtocol::Azure || url.path() == "/")
        && url.has_host()
        && url.query().is_none()
        && url.fragment().is_none();
    is_usable.then_some(url)
}

fn short(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(40).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::{Map, json};

    use super::*;
    use crate::paths::{call_url, check_path};

    fn llm(model: &str, base_url: Option<&str>) -> LlmConfig {
        LlmConfig {
            model: model.to_owned(),
            base_url: base_url.map(str::to_owned),
            api_key: Some("sk".into()),
            options: Map::new(),
            secret_options: BTreeMap::new(),
        }
    }

    /// A model, its `base_url`, its protocol, the path of a call and where it goes.
    type Case = (
        &'static str,
        Option<&'static str>,
        ModelProtocol,
        &'static str,
        &'static str,
    );

    const CASES: &[Case] = &[
        (
            "openai/gpt-5",
            None,
            ModelProtocol::OpenAi,
            "v1/chat/completions",
            "https://api.openai.com/v1/chat/completions",
        ),
        (
            "gpt-5",
            None,
            ModelProtocol::OpenAi,
            "v1/responses",
            "https://api.openai.com/v1/responses",
        ),
        (
            "openai/m",
            Some("https://api.openai.com/"),
            ModelProtocol::OpenAi,
            "v1/responses",
            "https://api.openai.com/v1/responses",
        ),
        (
            "openai/m",
            Some("http://10.0.0.1:8000/v1/"),
            ModelProtocol::OpenAi,
            "v1/chat/completions",
            "http://10.0.0.1:8000/v1/chat/completions",
        ),
        (
            "claude-sonnet-4-5",
            None,
            ModelProtocol::Anthropic,
            "v1/messages",
            "https://api.anthropic.com/v1/messages",
        ),
        (
            "anthropic/claude",
            Some("https://h/p/v1/messages"),
            ModelProtocol::Anthropic,
            "v1/messages",
            "https://h/p/v1/messages",
        ),
        (
            "anthropic/claude",
            Some("https://h/v1"),
            ModelProtocol::Anthropic,
            "v1/messages",
            "https://h/v1/messages",
        ),
        (
            "litellm_proxy/m",
            Some("https://h/"),
            ModelProtocol::Proxy,
            "v1/chat/completions",
            "https://h/chat/completions",
        ),
        (
            "openhands/m",
            None,
            ModelProtocol::Proxy,
            "v1/responses",
            "https://llm-proxy.app.all-hands.dev/responses",
        ),
        (
            "mistral/m",
            Some("https://h"),
            ModelProtocol::OpenAi,
            "v1/chat/completions",
            "https://h/v1/chat/completions",
        ),
        (
            "deepseek/m",
            None,
            ModelProtocol::OpenAi,
            "v1/chat/completions",
            "https://api.deepseek.com/beta/chat/completions",
        ),
        (
            "openrouter/a/b",
            None,
            ModelProtocol::OpenAi,
            "v1/chat/completions",
            "https://openrouter.ai/api/v1/chat/completions",
        ),
        (
            "gemini/gemini-2.5-pro",
            None,
            ModelProtocol::Gemini,
            "v1/models/gemini-2.5-pro:generateContent",
            "https://generativelanguage.googleapis.com/v1beta/models/gemini-2.5-pro:generateContent",
        ),
        (
            "gemini/gemini-3-pro-preview",
            None,
            ModelProtocol::Gemini,
            "v1/models/gemini-3-pro-preview:generateContent",
            "https://generativelanguage.googleapis.com/v1alpha/models/gemini-3-pro-preview:generateContent",
        ),
        (
            "gemini/gemini-flash-latest",
            Some("https://h/v1beta/"),
            ModelProtocol::Gemini,
            "v1/models/gemini-flash-latest:generateContent",
            "https://h/v1beta/models/gemini-flash-latest:generateContent",
        ),
        (
            "azure/my-gpt",
            Some("https://me.openai.azure.com/"),
            ModelProtocol::Azure,
            "openai/deployments/my-gpt/chat/completions",
            "https://me.openai.azure.com/openai/deployments/my-gpt/chat/completions",
        ),
        (
            "azure/my-gpt",
            Some("https://me.openai.azure.com"),
            ModelProtocol::Azure,
            "openai/responses",
            "https://me.openai.azure.com/openai/responses",
        ),
    ];

    #[test]
    fn each_provider_has_its_endpoint() {
        for &(model, base, protocol, path, expected) in CASES {
            let (found, is_own) = endpoint(&llm(model, base)).unwrap();
            assert_eq!(is_own, base.is_none());
            assert_eq!(found.protocol, protocol, "{model}");
            let path = check_path(protocol, "POST", path, "").unwrap();
            let url = call_url(&found.base, &path).unwrap();
            assert_eq!(url.as_str(), expected, "{model}");
        }
    }

    #[test]
    fn other_models_stay_with_the_sandbox() {
        for (model, base) in [
            ("bedrock/anthropic.claude", None),
            ("vertex_ai/gemini", None),
            ("azure/gpt-5", None),
            ("azure/gpt-5", Some("https://h/openai/deployments/gpt-5")),
            ("gemini-2.5-pro", None),
            ("something", Some("https://h/v1")),
            ("litellm_proxy/m", None),
            ("openai/m", Some("ftp://h")),
            ("openai/m", Some("https://h/v1?key=1")),
            ("openai/m", Some("nonsense")),
        ] {
            assert!(endpoint(&llm(model, base)).is_err(), "{model} {base:?}");
        }
        let mut signing = llm("openai/gpt-5", None);
        signing
            .secret_options
            .insert("aws_secret_access_key".into(), "x".into());
        assert!(endpoint(&signing).is_err());
        let mut subscribed = llm("openai/gpt-5", None);
        subscribed
            .options
            .insert("auth_type".into(), json!("subscription"));
        assert!(endpoint(&subscribed).is_err());
        subscribed
            .options
            .insert("auth_type".into(), json!("api_key"));
        assert!(endpoint(&subscribed).is_ok());
        for (model, is_callable) in [("azure/m", true), ("openai/m", false)] {
            let mut versioned = llm(model, Some("https://h"));
            let version = json!("2024-12-01-preview");
            versioned.options.insert("api_version".into(), version);
            assert_eq!(endpoint(&versioned).is_ok(), is_callable, "{model}");
        }
    }
}
