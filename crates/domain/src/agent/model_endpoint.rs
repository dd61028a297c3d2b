//! Where the calls of a language model go, so that the service can make them for a sandbox.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use url::Url;

use super::LlmConfig;

/// How an endpoint takes the key, and which paths it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelProtocol {
    /// Chat completions and responses with a bearer token.
    #[serde(rename = "openai")]
    OpenAi,
    /// The same, with a list of models and their limits.
    Proxy,
    /// Messages with the header `x-api-key`.
    Anthropic,
    /// Generated content with the header `x-goog-api-key`. The path of a call names the model.
    Gemini,
    /// Chat completions and responses of Azure with the header `api-key`. The path may name the deployment, the query the version.
    Azure,
}

impl ModelProtocol {
    /// The name in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::Proxy => "proxy",
            Self::Anthropic => "anthropic",
            Self::Gemini => "gemini",
            Self::Azure => "azure",
        }
    }
}

/// The endpoint of a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelEndpoint {
    pub protocol: ModelProtocol,
    /// The URL before the path of a call, without a slash at its end.
    pub base: Url,
}

/// Knows which models the service can call for a sandbox.
#[async_trait]
pub trait ModelEndpointFinder: Send + Sync + 'static {
    /// The endpoint of the model.
    ///
    /// # Errors
    /// The reason why only the sandbox itself can call this model, for its owner. It begins in the middle of a sentence.
    async fn find(&self, llm: &LlmConfig) -> Result<ModelEndpoint, String>;
}
