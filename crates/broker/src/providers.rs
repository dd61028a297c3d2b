//! Providers: their endpoints and the paths of their calls.

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
        value.is_some_and(|value| !value.is_null() && value != "api_key" && value != "")
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
    let base = normal_base(provider, base.unwrap_or(provider.default_base));
    let base = base.ok_or("the model has no valid endpoint (llm_base_url)")?;
    let endpoint = ModelEndpoint {
        protocol: provider.protocol,
        base,
    };
    Ok((endpoint, is_own))
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
        && url.has_host()
        && url.query().is_none()
        && url.fragment().is_none();
    is_usable.then_some(url)
}

fn short(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(40).collect()
}

/// Why no endpoint has this path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathRefusal {
    /// No call has this path.
    NotFound,
    /// A call with this path has another method.
    MethodNotAllowed,
}

/// The paths of calls below the service's own address, with their methods, and the paths below the endpoint.
const PATHS: &[(ModelProtocol, &str, &str, &str)] = &[
    (
        ModelProtocol::OpenAi,
        "POST",
        "v1/chat/completions",
        "chat/completions",
    ),
    (ModelProtocol::OpenAi, "POST", "v1/responses", "responses"),
    (
        ModelProtocol::Proxy,
        "POST",
        "v1/chat/completions",
        "chat/completions",
    ),
    (ModelProtocol::Proxy, "POST", "v1/responses", "responses"),
    (
        ModelProtocol::Proxy,
        "GET",
        "v1/v1/model/info",
        "v1/model/info",
    ),
    (
        ModelProtocol::Anthropic,
        "POST",
        "v1/messages",
        "v1/messages",
    ),
];

/// The path below an endpoint for a path below the service's own address.
///
/// # Errors
/// The path or the method is none of this protocol.
pub fn check_path(
    protocol: ModelProtocol,
    method: &str,
    path: &str,
) -> Result<&'static str, PathRefusal> {
    let mut known = PATHS.iter().filter(|it| it.0 == protocol && it.2 == path);
    let Some(found) = known.clone().find(|it| it.1 == method) else {
        return Err(match known.next() {
            Some(_) => PathRefusal::MethodNotAllowed,
            None => PathRefusal::NotFound,
        });
    };
    Ok(found.3)
}

/// The URL of a call.
pub(crate) fn call_url(base: &Url, path: &str) -> Option<Url> {
    let base = base.as_str().trim_end_matches('/');
    Url::parse(&format!("{base}/{path}")).ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::{Map, json};

    use super::*;

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
    ];

    #[test]
    fn each_provider_has_its_endpoint() {
        for &(model, base, protocol, path, expected) in CASES {
            let (found, is_own) = endpoint(&llm(model, base)).unwrap();
            assert_eq!(is_own, base.is_none());
            assert_eq!(found.protocol, protocol, "{model}");
            let path = check_path(protocol, "POST", path).unwrap();
            let url = call_url(&found.base, path).unwrap();
            assert_eq!(url.as_str(), expected, "{model}");
        }
    }

    #[test]
    fn other_models_stay_with_the_sandbox() {
        for (model, base) in [
            ("bedrock/anthropic.claude", None),
            ("vertex_ai/gemini", None),
            ("azure/gpt-5", Some("https://h")),
            ("gemini/gemini-2.5-pro", None),
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
    }

    #[test]
    fn no_other_path_is_called() {
        use ModelProtocol::{Anthropic, OpenAi, Proxy};
        use PathRefusal::{MethodNotAllowed, NotFound};
        for (protocol, method, path, refusal) in [
            (OpenAi, "GET", "v1/chat/completions", MethodNotAllowed),
            (OpenAi, "DELETE", "v1/responses", MethodNotAllowed),
            (OpenAi, "POST", "v1/messages", NotFound),
            (OpenAi, "GET", "v1/v1/model/info", NotFound),
            (OpenAi, "POST", "v1/files", NotFound),
            (OpenAi, "POST", "v1/chat/completions/", NotFound),
            (OpenAi, "POST", "v1/../v1/chat/completions", NotFound),
            (OpenAi, "POST", "chat/completions", NotFound),
            (OpenAi, "POST", "", NotFound),
            (Anthropic, "POST", "v1/chat/completions", NotFound),
            (Anthropic, "POST", "v1/messages/batches", NotFound),
            (Proxy, "POST", "v1/key/generate", NotFound),
        ] {
            assert_eq!(check_path(protocol, method, path), Err(refusal), "{path}");
        }
        assert_eq!(
            check_path(Proxy, "GET", "v1/v1/model/info"),
            Ok("v1/model/info")
        );
    }
}
