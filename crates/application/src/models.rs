//! The model calls that the service makes for sandboxes, so that the keys of models stay outside of them.
//!
//! ```text
//!   settings ──key──► token ──► agent server ──call with the token──► service ──call with the key──► endpoint
//! ```
//!
//! A token contains the key and the endpoint, sealed for one sandbox. So a call needs no record beside the sandbox's row, and
//! a conversation keeps the key with which it began, whatever changes in the settings.

use std::sync::Arc;

use domain::agent::model_endpoint::{ModelEndpoint, ModelEndpointFinder, ModelProtocol};
use domain::agent::spending::NanoUsd;
use domain::agent::{LlmConfig, LlmProfile};
use domain::encryption::cipher::CipherError;
use domain::id::{ConversationId, OwnerId, SandboxId};
use domain::sandbox::SandboxSpecCatalog;
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};
use url::Url;

pub use crate::sandboxes::SandboxTokenRefusal;
use crate::sandboxes::{SandboxTokens, TokenKind, service_url};
use crate::settings::Settings;
use crate::{AppError, Policy, Ports};

const MODELS: TokenKind = TokenKind {
    prefix: "mb_",
    purpose: "models",
};

/// Makes tokens for the calls of sandboxes, and opens them. Cheap to clone.
#[derive(Clone)]
pub struct ModelAccess(Arc<ModelAccessParts>);

struct ModelAccessParts {
    /// `None` if sandboxes get the keys themselves.
    endpoints: Option<Arc<dyn ModelEndpointFinder>>,
    tokens: SandboxTokens,
    specs: Arc<dyn SandboxSpecCatalog>,
    base: Url,
}

/// What a valid token opens.
#[derive(Debug, Clone)]
pub struct ModelGrant {
    pub sandbox: SandboxId,
    pub owner: OwnerId,
    pub endpoint: ModelEndpoint,
    pub key: SecretString,
    /// The model's name in the settings.
    pub model: String,
    /// The conversation that the call belongs to; `None` for profiles of the whole sandbox.
    pub conversation: Option<ConversationId>,
    /// The smaller of the user's budget, when the token was made, and that of the sandbox's template.
    pub conversation_budget: Option<NanoUsd>,
}

/// The conversation for which a model is used, and what it may spend.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SpendingConversation {
    pub(crate) id: ConversationId,
    pub(crate) budget: Option<NanoUsd>,
}

/// The content of a token.
#[derive(Serialize, Deserialize)]
struct TokenContent {
    endpoint: ModelEndpoint,
    key: String,
    // Absent in tokens of earlier releases.
    #[serde(default)]
    model: String,
    #[serde(default)]
    conversation: Option<ConversationId>,
    /// In billionths of a dollar.
    #[serde(default)]
    budget: Option<u64>,
}

impl ModelAccess {
    pub(crate) fn new(ports: &Ports, policy: &Policy, tokens: SandboxTokens) -> Self {
        Self(Arc::new(ModelAccessParts {
            endpoints: ports.models.clone(),
            tokens,
            specs: Arc::clone(&ports.specs),
            base: service_url(&policy.webhook_url, "llm"),
        }))
    }

    /// The model as the sandbox gets it: with the service's address and a token in place of endpoint and key. A model
    /// without a key, or that only the sandbox can call, stays as it is; the second value then says why, for the owner.
    pub(crate) async fn for_sandbox(
        &self,
        sandbox: &SandboxId,
        conversation: Option<SpendingConversation>,
        mut llm: LlmConfig,
    ) -> Result<(LlmConfig, Option<String>), AppError> {
        let Some(endpoints) = &self.0.endpoints else {
            return Ok((llm, None));
        };
        let Some(key) = llm.api_key.clone().filter(is_set) else {
            let note = secret_note(&llm);
            return Ok((llm, note));
        };
        let endpoint = match endpoints.find(&llm).await {
            Ok(endpoint) => endpoint,
            Err(reason) => {
                let note = note(&llm.model, &reason);
                return Ok((llm, Some(note)));
            }
        };
        let base = base_for(&self.0.base, endpoint.protocol);
        let content = TokenContent {
            endpoint,
            key: key.expose_secret().to_owned(),
            model: llm.model.clone(),
            conversation: conversation.map(|it| it.id),
            budget: conversation.and_then(|it| it.budget).map(NanoUsd::nanos),
        };
        let content = serde_json::to_string(&content);
        let content: SecretString = content
            .map_err(|error| CipherError::Other(error.into()))?
            .into();
        llm.base_url = Some(base);
        llm.api_key = Some(self.0.tokens.seal(MODELS, sandbox, &content)?);
        Ok((llm, None))
    }

    /// The same for profiles, which keep their order.
    pub(crate) async fn profiles_for_sandbox(
        &self,
        sandbox: &SandboxId,
        profiles: Vec<LlmProfile>,
    ) -> Result<(Vec<LlmProfile>, Vec<String>), AppError> {
        let placed = profiles.into_iter().map(|profile| async move {
            let (llm, note) = self.for_sandbox(sandbox, None, profile.llm).await?;
            let name = profile.name;
            Ok::<_, AppError>((LlmProfile { name, llm }, note))
        });
        let placed = futures::future::try_join_all(placed).await?;
        let (profiles, notes): (_, Vec<_>) = placed.into_iter().unzip();
        Ok((profiles, notes.into_iter().flatten().collect()))
    }

    /// The models of a user as a run of an automation gets them, which starts its conversation itself: that of the settings,
    /// and those of the profiles.
    pub async fn for_run(
        &self,
        sandbox: &SandboxId,
        settings: &Settings,
    ) -> Result<(Option<LlmConfig>, Vec<LlmProfile>), AppError> {
        let own = match settings.own_model() {
            Some(llm) => Some(self.for_sandbox(sandbox, None, llm).await?.0),
            None => None,
        };
        let profiles = self.profiles_for_sandbox(sandbox, settings.llm_profiles());
        Ok((own, profiles.await?.0))
    }

    /// What a token opens, if its sandbox runs or starts. Costs at most one query.
    pub async fn open(
        &self,
        token: &str,
    ) -> Result<Result<ModelGrant, SandboxTokenRefusal>, AppError> {
        let (sandbox, content) = match self.0.tokens.open(MODELS, token).await? {
            Ok(opened) => opened,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let content = serde_json::from_str::<TokenContent>(content.expose_secret());
        let Ok(content) = content else {
            return Ok(Err(SandboxTokenRefusal::Unknown));
        };
        let specs = self.0.specs.list().await?;
        let spec = specs.iter().find(|spec| spec.id == sandbox.spec_id);
        let of_spec = spec.and_then(|spec| spec.conversation_budget);
        let budgets = content.budget.map(NanoUsd::new).into_iter().chain(of_spec);
        Ok(Ok(ModelGrant {
            sandbox: sandbox.id.clone(),
            owner: sandbox.owner.clone(),
            endpoint: content.endpoint,
            key: content.key.into(),
            model: content.model,
            conversation: content.conversation,
            conversation_budget: budgets.min(),
        }))
    }
}

fn is_set(key: &SecretString) -> bool {
    !key.expose_secret().trim().is_empty()
}

/// The address that the agent's library completes: it appends `/v1/messages`, or `/openai/…` for Azure, and for the others a
/// path without the version.
fn base_for(base: &Url, protocol: ModelProtocol) -> String {
    let version = match protocol {
        ModelProtocol::Anthropic | ModelProtocol::Azure => "",
        ModelProtocol::OpenAi | ModelProtocol::Proxy | ModelProtocol::Gemini => "/v1",
    };
    format!("{base}{version}")
}

fn secret_note(llm: &LlmConfig) -> Option<String> {
    let has_secrets = !llm.secret_options.is_empty();
    has_secrets.then(|| note(&llm.model, "the service does not sign its calls"))
}

fn note(model: &str, reason: &str) -> String {
    let model: String = model.chars().filter(|c| !c.is_control()).take(80).collect();
    format!("The key of the model {model} is inside the sandbox, because {reason}.")
}
