//! Vendors of language models, to keep their keys and endpoints apart.
//!
//! The reference stores a vendor's default endpoint and keeps it when the model changes, so a vendor's key is sent to
//! another vendor. Here a default endpoint is never stored, and a key records its vendor.

use url::Url;

/// A vendor that needs a key.
struct LlmVendor {
    /// litellm's provider prefix.
    name: &'static str,
    /// Prefixes of bare model names.
    bare: &'static [&'static str],
    default_hosts: &'static [&'static str],
}

const fn vendor(
    name: &'static str,
    bare: &'static [&'static str],
    default_hosts: &'static [&'static str],
) -> LlmVendor {
    LlmVendor {
        name,
        bare,
        default_hosts,
    }
}

const VENDORS: &[LlmVendor] = &[
    vendor("openhands", &[], &["llm-proxy.app.all-hands.dev"]),
    vendor(
        "openai",
        &["gpt-", "o1", "o3", "o4", "chatgpt-", "codex-"],
        &["api.openai.com"],
    ),
    vendor("anthropic", &["claude-"], &["api.anthropic.com"]),
    vendor(
        "gemini",
        &["gemini-"],
        &["generativelanguage.googleapis.com"],
    ),
    vendor(
        "mistral",
        &["mistral-", "devstral-", "codestral-", "magistral-"],
        &["api.mistral.ai"],
    ),
    vendor("deepseek", &["deepseek-"], &["api.deepseek.com"]),
    vendor("xai", &["grok-"], &["api.x.ai"]),
    vendor(
        "moonshot",
        &["kimi-"],
        &["api.moonshot.ai", "api.moonshot.cn"],
    ),
    vendor("openrouter", &[], &["openrouter.ai"]),
    vendor("groq", &[], &["api.groq.com"]),
    vendor("together_ai", &[], &["api.together.xyz"]),
    vendor("fireworks_ai", &[], &["api.fireworks.ai"]),
    vendor("cerebras", &[], &["api.cerebras.ai"]),
    vendor(
        "cohere",
        &["command-"],
        &["api.cohere.ai", "api.cohere.com"],
    ),
    vendor("perplexity", &[], &["api.perplexity.ai"]),
    vendor("nvidia_nim", &[], &["integrate.api.nvidia.com"]),
    vendor(
        "huggingface",
        &[],
        &["router.huggingface.co", "api-inference.huggingface.co"],
    ),
];

/// Vendors of local models, and those with other credentials than a key.
const KEYLESS_VENDORS: [&str; 12] = [
    "ollama",
    "lm_studio",
    "llamafile",
    "docker_model_runner",
    "hosted_vllm",
    "vllm",
    "xinference",
    "oobabooga",
    "bedrock",
    "sagemaker",
    "vertex_ai",
    "github_copilot",
];

/// Other spellings of vendors' prefixes.
const ALIASES: [(&str, &str); 6] = [
    ("google", "gemini"),
    ("ollama_chat", "ollama"),
    ("bedrock_converse", "bedrock"),
    ("sagemaker_chat", "sagemaker"),
    ("vertex_ai_beta", "vertex_ai"),
    ("text-completion-openai", "openai"),
];

/// The vendor of a model: its prefix, or a guess from the bare name.
pub(super) fn vendor_of(model: &str) -> Option<String> {
    let model = model.trim().to_ascii_lowercase();
    if let Some((prefix, _)) = model.split_once('/') {
        let alias = ALIASES.iter().find(|(alias, _)| *alias == prefix);
        return Some(alias.map_or(prefix, |(_, name)| name).to_owned());
    }
    VENDORS
        .iter()
        .find(|v| v.bare.iter().any(|start| model.starts_with(start)))
        .map(|v| v.name.to_owned())
}

/// Whether the model can be used without a key.
pub(super) fn works_without_key(model: &str) -> bool {
    vendor_of(model).is_some_and(|name| KEYLESS_VENDORS.contains(&name.as_str()))
}

fn default_hosts(model: &str) -> &'static [&'static str] {
    let name = vendor_of(model);
    let vendor = VENDORS.iter().find(|it| Some(it.name) == name.as_deref());
    vendor.map_or(&[], |vendor| vendor.default_hosts)
}

/// Whether this is the default endpoint of the model's vendor.
pub(super) fn is_default_endpoint(model: &str, base_url: &str) -> bool {
    Url::parse(base_url.trim()).is_ok_and(|url| {
        let host = url.host_str().unwrap_or_default();
        url.port_or_known_default() == Some(443) && default_hosts(model).contains(&host)
    })
}

/// The endpoint of a model: the given one, else its vendor's; `None` if unknown.
pub fn llm_endpoint(model: &str, base_url: Option<&str>) -> Option<Url> {
    let given = base_url.map(str::trim).filter(|url| !url.is_empty());
    if let Some(url) = given {
        return Url::parse(url).ok().filter(Url::has_host);
    }
    let host = default_hosts(model).first()?;
    Url::parse(&format!("https://{host}/")).ok()
}

/// The endpoint to store after a change of the model from `before` to `model`. `given`: whether the same request sets
/// the endpoint.
pub(super) fn settled_endpoint(
    before: &str,
    model: &str,
    base_url: Option<String>,
    given: bool,
) -> Option<String> {
    base_url
        .map(|url| url.trim().to_owned())
        .filter(|url| !url.is_empty())
        .filter(|url| !is_default_endpoint(model, url))
        .filter(|url| given || !is_default_endpoint(before, url))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vendors_are_known_by_prefix_and_by_bare_name() {
        for (model, vendor) in [
            ("openai/gpt-5", Some("openai")),
            ("gpt-5.5", Some("openai")),
            ("google/gemini-x", Some("gemini")),
            ("gemini-x", Some("gemini")),
            ("claude-sonnet-4-5", Some("anthropic")),
            ("OpenHands/claude-sonnet-4-5", Some("openhands")),
            ("litellm_proxy/anything", Some("litellm_proxy")),
            ("something", None),
        ] {
            assert_eq!(vendor_of(model).as_deref(), vendor, "{model}");
        }
        assert!(works_without_key("ollama/llama3"));
        assert!(works_without_key("ollama_chat/llama3"));
        assert!(works_without_key("bedrock/anthropic.claude"));
        assert!(!works_without_key("openai/gpt-5"));
        assert!(!works_without_key("something"));
    }

    #[test]
    fn a_default_endpoint_never_outlives_its_model() {
        let openai = || Some("https://api.openai.com/v1".to_owned());
        let own = || Some("http://llm.internal:8000/v1".to_owned());
        // model before, model after, endpoint, given with the request, kept?
        for (before, after, url, given, kept) in [
            ("gpt-5.5", "anthropic/claude", openai(), false, None),
            ("gpt-5.5", "gpt-5.5", openai(), false, None),
            ("gpt-5.5", "openai/gpt-5", openai(), true, None),
            ("gpt-5.5", "anthropic/claude", own(), false, own()),
            ("gpt-5.5", "anthropic/claude", openai(), true, openai()),
            (
                "anthropic/claude",
                "litellm_proxy/x",
                openai(),
                false,
                openai(),
            ),
            ("gpt-5.5", "gpt-5.5", Some("  ".into()), true, None),
            ("gpt-5.5", "gpt-5.5", None, false, None),
        ] {
            assert_eq!(
                settled_endpoint(before, after, url.clone(), given),
                kept,
                "{before} -> {after}, {url:?}"
            );
        }
    }
}
