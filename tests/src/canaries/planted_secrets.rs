//! The places for secrets, and requests that fill them.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::{Value, json};

use super::MARK;
use super::secret_search::Secret;
use crate::client::{Client, Reply};

/// Characters that need escapes in JSON, URLs or shells. The search looks for the letters and digits before them.
const SPECIAL_CHARACTERS: &str = r#""\+/=&%'<"#;
/// No server listens there.
const CLOSED_URL: &str = "http://127.0.0.1:9";

/// The planted texts of one user.
#[derive(Debug, Clone)]
pub struct PlantedSecrets {
    owner: String,
    suffix: &'static str,
}

/// A user's places for secrets, in the order of the API's documents.
const SECRET_PLACES: [&str; 28] = [
    "LlmKey",
    "AwsAccessKeyId",
    "AwsSecretAccessKey",
    "AwsSessionToken",
    "CriticKey",
    "SearchKey",
    "SandboxApiKey",
    "ProfileKey",
    "ProfileAwsKey",
    "McpBearer",
    "McpHeader",
    "McpEnv",
    "McpQuery",
    "SseKey",
    "SseQuery",
    "ShttpKey",
    "ShttpQuery",
    "StdioEnv",
    "Github",
    "Gitlab",
    "Bitbucket",
    "Forgejo",
    "AzureDevops",
    "Custom",
    "CustomLegacy",
    "Request",
    "RequestOther",
    "WrongKey",
];

impl PlantedSecrets {
    /// Texts with characters that need escapes.
    #[must_use]
    pub fn with_special_characters(owner: &str) -> Self {
        let owner = owner.to_owned();
        Self {
            owner,
            suffix: SPECIAL_CHARACTERS,
        }
    }

    /// Texts of letters, digits and dashes, which real programs accept.
    #[must_use]
    pub fn plain(owner: &str) -> Self {
        let owner = owner.to_owned();
        Self {
            owner,
            suffix: "-1",
        }
    }

    /// All of them.
    ///
    /// # Panics
    /// Never: all are long enough to be found.
    #[must_use]
    pub fn secrets(&self) -> Vec<Secret> {
        let secret = |place: &&str| Secret::new(place, &self.owner, &self.core(place));
        SECRET_PLACES.iter().map(secret).collect()
    }

    /// The part to search for.
    ///
    /// # Panics
    /// When there is no such place.
    #[must_use]
    pub fn core(&self, place: &str) -> String {
        assert!(SECRET_PLACES.contains(&place), "unknown place {place}");
        format!("{MARK}{}{place}Z", self.owner)
    }

    /// The text of this place.
    #[must_use]
    pub fn value(&self, place: &str) -> String {
        format!("sk-{}{}", self.core(place), self.suffix)
    }

    /// The secrets of a start request.
    #[must_use]
    pub fn of_request(&self) -> Value {
        json!({"MINE": self.value("Request"), "OTHER": self.value("RequestOther")})
    }
}

/// A master key in base64, and the secret to search for.
///
/// # Panics
/// When there is no such place.
#[must_use]
pub fn master_key(name: &str) -> (String, Secret) {
    let core = format!("{MARK}Master{name}");
    let bytes = format!("{core:Z<32}");
    assert_eq!(bytes.len(), 32, "{name} is too long");
    (
        BASE64_STANDARD.encode(&bytes),
        Secret::new(&core, "", &bytes),
    )
}

/// Saves every secret that the V1 routes accept; returns the responses.
pub async fn plant_in_v1(
    user: &Client,
    of: &PlantedSecrets,
    model: &str,
    base_url: &str,
) -> Vec<Reply> {
    let llm = json!({
        "model": model, "base_url": base_url, "num_retries": 0, "api_key": of.value("LlmKey"),
        "aws_access_key_id": of.value("AwsAccessKeyId"),
        "aws_secret_access_key": of.value("AwsSecretAccessKey"),
        "aws_session_token": of.value("AwsSessionToken"),
    });
    let servers = json!({
        "bearer": {"url": format!("{CLOSED_URL}/mcp?token={}&plain=1", of.core("McpQuery")), "transport": "http",
            "auth": {"strategy": "bearer", "value": of.value("McpBearer")}},
        "header": {"url": format!("{CLOSED_URL}/mcp"), "headers": {"X-Key": of.value("McpHeader")}},
        "process": {"command": "false", "args": ["x"], "env": {"MCP_TOKEN": of.value("McpEnv")}},
    });
    let settings = json!({
        "agent_settings_diff": {"llm": llm, "mcp_config": servers,
            "verification": {"critic_api_key": of.value("CriticKey")}},
        "search_api_key": of.value("SearchKey"),
        "sandbox_api_key": of.value("SandboxApiKey"),
    });
    let profile = json!({"llm": {"model": model, "base_url": base_url,
        "api_key": of.value("ProfileKey"), "aws_session_token": of.value("ProfileAwsKey")}});
    let tokens = json!({"provider_tokens": {
        "github": {"token": of.value("Github"), "host": "github.example.test"},
        "gitlab": {"token": of.value("Gitlab")},
        "azure_devops": {"token": of.value("AzureDevops")},
    }});
    let secret = json!({"name": "CUSTOM", "value": of.value("Custom"), "description": "custom"});
    vec![
        user.post("/api/v1/settings", &settings).await,
        user.post("/api/v1/settings/profiles/other", &profile).await,
        user.post("/api/v1/secrets/git-providers", &tokens).await,
        user.post("/api/v1/secrets", &secret).await,
    ]
}

/// Saves every secret that the legacy routes accept; returns the responses.
pub async fn plant_in_legacy(user: &Client, of: &PlantedSecrets) -> Vec<Reply> {
    let query = |place: &str| format!("{CLOSED_URL}/{place}?api_key={}&x=1", of.core(place));
    let servers = json!({
        "sse_servers": [{"url": query("SseQuery"), "api_key": of.value("SseKey")}],
        "shttp_servers": [{"url": query("ShttpQuery"), "api_key": of.value("ShttpKey"), "timeout": 5}],
        "stdio_servers": [{"name": "local", "command": "false", "env": {"TOKEN": of.value("StdioEnv")}}],
    });
    let settings = json!({
        "llm_api_key": of.value("LlmKey"), "search_api_key": of.value("SearchKey"),
        "sandbox_api_key": of.value("SandboxApiKey"), "mcp_config": servers,
    });
    let tokens = json!({"mcp_config": servers, "provider_tokens": {
        "bitbucket": {"token": of.value("Bitbucket")},
        "forgejo": {"token": of.value("Forgejo"), "host": "https://forgejo.example.test"},
    }});
    let secret = json!({"name": "CUSTOM_LEGACY", "value": of.value("CustomLegacy")});
    vec![
        user.post("/api/settings", &settings).await,
        user.post("/api/add-git-providers", &tokens).await,
        user.post("/api/secrets", &secret).await,
    ]
}

/// Paths and bodies of invalid requests that contain secrets.
#[must_use]
#[expect(clippy::too_many_lines, reason = "it is a table")]
pub fn wrong_types(of: &PlantedSecrets) -> Vec<(&'static str, Value)> {
    let v = |place: &str| of.value(place);
    let message = |text: &Value| json!({"content": [{"type": "text", "text": text}]});
    vec![
        (
            "/api/v1/settings",
            json!({"agent_settings_diff": {"llm": {"api_key": {"a": v("LlmKey")}}}}),
        ),
        (
            "/api/v1/settings",
            json!({"agent_settings_diff": {"llm": {"num_retries": v("LlmKey")}}}),
        ),
        (
            "/api/v1/settings",
            json!({"agent_settings": {"llm": {"api_key": v("LlmKey")}}}),
        ),
        (
            "/api/v1/settings",
            json!({"search_api_key": [v("SearchKey")], "sandbox_api_key": {"a": v("SandboxApiKey")}}),
        ),
        (
            "/api/v1/settings",
            json!({"agent_settings_diff": {"mcp_config": [v("McpEnv")]}}),
        ),
        (
            "/api/v1/settings",
            json!({"agent_settings_diff": {"mcp_config":
            {"a": {"url": format!("http://u:{}@127.0.0.1/", of.core("McpQuery"))}}}}),
        ),
        ("/api/v1/settings", json!(v("LlmKey"))),
        (
            "/api/settings",
            json!({"llm_api_key": [v("LlmKey")], "search_api_key": {"a": v("SearchKey")}}),
        ),
        ("/api/settings", json!({"max_iterations": v("LlmKey")})),
        (
            "/api/settings",
            json!({"mcp_config": {"stdio_servers": [{"name": "a", "command": v("StdioEnv"), "env": 5}]}}),
        ),
        (
            "/api/settings",
            json!({"mcp_config": {"stdio_servers": [{"name": "a b", "command": "c", "env": v("StdioEnv")}]}}),
        ),
        (
            "/api/settings",
            json!({"mcp_config": {"sse_servers": [{"url": format!("ftp://x/?token={}", of.core("SseQuery"))}]}}),
        ),
        (
            "/api/settings",
            json!({"mcp_config": {"shttp_servers": [{"url": "https://x", "api_key": [v("ShttpKey")], "timeout": v("ShttpKey")}]}}),
        ),
        (
            "/api/add-git-providers",
            json!({"provider_tokens": {"github": v("Github"), "gitlab": {"token": [v("Gitlab")]}}}),
        ),
        (
            "/api/add-git-providers",
            json!({"provider_tokens": {"github": {"token": v("Github"), "host": [v("Github")]}}}),
        ),
        (
            "/api/add-git-providers",
            json!({"mcp_config": {"sse_servers": [{"api_key": v("SseKey")}]}}),
        ),
        (
            "/api/v1/secrets/git-providers",
            json!({"provider_tokens": {"nobody": {"token": v("Github")}}}),
        ),
        (
            "/api/v1/secrets/git-providers",
            json!({"provider_tokens": [v("Bitbucket")]}),
        ),
        (
            "/api/v1/settings/profiles/wrong",
            json!({"llm": {"model": 5, "api_key": v("ProfileKey")}}),
        ),
        (
            "/api/v1/settings/profiles/wrong",
            json!({"llm": v("ProfileKey")}),
        ),
        (
            "/api/v1/secrets",
            json!({"name": v("Custom"), "value": v("Custom")}),
        ),
        (
            "/api/v1/secrets",
            json!({"name": "A", "value": [v("Custom")]}),
        ),
        (
            "/api/secrets",
            json!({"name": "A", "value": v("CustomLegacy"), "description": 5}),
        ),
        (
            "/api/secrets",
            json!({"name": "A", "value": {"a": v("CustomLegacy")}}),
        ),
        (
            "/api/v1/app-conversations",
            json!({"secrets": {"LLM_X": v("Request")}}),
        ),
        (
            "/api/v1/app-conversations",
            json!({"secrets": {"X": [v("Request")]}}),
        ),
        (
            "/api/v1/app-conversations",
            json!({"secrets": {v("Request"): "x"}}),
        ),
        (
            "/api/v1/app-conversations",
            json!({"secrets": [v("RequestOther")]}),
        ),
        (
            "/api/v1/app-conversations",
            json!({"secrets": v("RequestOther"), "initial_message": message(&json!(5))}),
        ),
    ]
}
