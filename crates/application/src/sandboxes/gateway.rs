//! Resolution of gateway requests to agent servers: by session key, by conversation or by sandbox.
//!
//! Costs one query, or none within a second of another request with the same key, and no call of the backend. Errors
//! about an unreachable sandbox say what to do.

use std::sync::Arc;

use domain::agent::AgentEndpoint;
use domain::conversation::ConversationRepository;
use domain::encryption::cipher::Cipher;
use domain::error::ErrorClass;
use domain::id::{ConversationId, OwnerId, SandboxId};
use domain::sandbox::{
    DesiredState, Sandbox, SandboxBackend, SandboxKeyRepository, SandboxReader, SandboxRepository,
    SandboxStatus,
};
use domain::user::identity::KeyHash;
use domain::user::scope::Scope;
use secrecy::SecretString;

use crate::identity::key_cache::KeyCache;
use crate::sandboxes::client_paths::{map_resolve_error, outside_workspace, to_sandbox_path};
use crate::sandboxes::endpoint;
use crate::{AppError, Ports};

/// Longest key in bytes; longer ones are refused without hashing them.
const MAX_KEY_BYTES: usize = 512;
/// Prefix of API keys. Session keys are base62, so they never have it.
const USER_KEY_PREFIX: &str = "aw_";

/// Finds agent servers for forwarded requests.
#[derive(Clone)]
pub struct GatewayResolver {
    sandboxes: Arc<dyn SandboxRepository>,
    keys: Arc<dyn SandboxKeyRepository>,
    conversations: Arc<dyn ConversationRepository>,
    backend: Arc<dyn SandboxBackend>,
    reader: Arc<dyn SandboxReader>,
    cipher: Arc<dyn Cipher>,
    reporters: KeyCache<Sandbox>,
}

#[derive(Debug, Clone)]
pub struct AgentRoute {
    pub sandbox: SandboxId,
    /// The owner of the sandbox; parallel requests are limited per owner.
    pub owner: OwnerId,
    /// URL and session key of the agent server.
    pub at: AgentEndpoint,
    workspace: Option<String>,
}

impl GatewayResolver {
    pub(crate) fn new(ports: &Ports, reporters: KeyCache<Sandbox>) -> Self {
        Self {
            sandboxes: Arc::clone(&ports.sandboxes),
            keys: Arc::clone(&ports.sandbox_keys),
            conversations: Arc::clone(&ports.conversations),
            backend: Arc::clone(&ports.backend),
            reader: Arc::clone(&ports.sandbox_reader),
            cipher: Arc::clone(&ports.cipher),
            reporters,
        }
    }

    /// Resolves a session key; `None` if no sandbox has it. An API key is recognised by its prefix and costs no query.
    ///
    /// # Errors
    /// The sandbox does not run.
    pub async fn by_key(&self, key: &str) -> Result<Option<AgentRoute>, AppError> {
        if !looks_like_sandbox_key(key) {
            return Ok(None);
        }
        let hash = KeyHash::of(key);
        let query = || self.keys.find_by_key(&hash);
        let answer = self.reporters.find(&hash, query).await?;
        let Some(found) = answer.found else {
            return Ok(None);
        };
        if !answer.is_cached || agent_address(&found).is_ok() {
            return build_route(found.as_ref(), || Ok(SecretString::from(key))).map(Some);
        }
        // A cached row never causes a refusal: the sandbox may run by now.
        match self.keys.find_by_key(&hash).await? {
            Some(found) => build_route(&found, || Ok(SecretString::from(key))).map(Some),
            None => Ok(None),
        }
    }

    /// Resolves a conversation to its sandbox.
    ///
    /// # Errors
    /// Not found, also outside the scope; or the sandbox does not run.
    pub async fn by_conversation(
        &self,
        scope: &Scope,
        id: ConversationId,
    ) -> Result<AgentRoute, AppError> {
        let found = self.conversations.find(scope, id).await?;
        let sandbox = found.and_then(|view| view.sandbox);
        self.route_to(sandbox.as_ref())
    }

    /// Resolves a sandbox.
    ///
    /// # Errors
    /// Not found, also outside the scope; or the sandbox does not run.
    pub async fn by_sandbox(&self, scope: &Scope, id: &SandboxId) -> Result<AgentRoute, AppError> {
        let found = self.sandboxes.find(scope, id).await?;
        self.route_to(found.as_ref())
    }

    /// Maps a path in a request to an agent server: what clients call `/workspace` is the sandbox's workspace. A relative
    /// path stays as it is. Without isolation, the path is confined to the sandbox.
    ///
    /// # Errors
    /// Not found if a path leads out of a sandbox without isolation.
    pub async fn path(&self, way: &AgentRoute, asked: &str) -> Result<String, AppError> {
        if self.backend.capabilities().isolated {
            let root = way.workspace.as_deref();
            return Ok(root.map_or_else(
                || asked.to_owned(),
                |root| to_sandbox_path(asked, root.trim_end_matches('/')),
            ));
        }
        let root = way.workspace.as_deref().ok_or_else(outside_workspace)?;
        let path = to_sandbox_path(asked, root.trim_end_matches('/'));
        let resolved = self.reader.resolve(&way.sandbox, &path);
        let resolved = resolved.await.map_err(map_resolve_error)?;
        Ok(if path.starts_with('/') {
            resolved
        } else {
            path
        })
    }

    fn route_to(&self, sandbox: Option<&Sandbox>) -> Result<AgentRoute, AppError> {
        let sandbox = sandbox.ok_or_else(|| AppError::not_found("Not Found"))?;
        build_route(sandbox, || {
            let url = agent_address(sandbox)?;
            Ok(endpoint(&*self.cipher, sandbox, url)?.key)
        })
    }
}

/// Whether a key may be a session key. API keys are recognised by their prefix.
pub fn looks_like_sandbox_key(key: &str) -> bool {
    !key.is_empty() && key.len() <= MAX_KEY_BYTES && !key.starts_with(USER_KEY_PREFIX)
}

fn build_route(
    sandbox: &Sandbox,
    key: impl FnOnce() -> Result<SecretString, AppError>,
) -> Result<AgentRoute, AppError> {
    let url = agent_address(sandbox)?.clone();
    Ok(AgentRoute {
        sandbox: sandbox.id.clone(),
        owner: sandbox.owner.clone(),
        at: AgentEndpoint {
            sandbox: sandbox.id.clone(),
            url,
            key: key()?,
        },
        workspace: sandbox.workspace.clone(),
    })
}

/// URL of the agent server, or why it cannot be reached.
fn agent_address(sandbox: &Sandbox) -> Result<&url::Url, AppError> {
    use SandboxStatus::{Error, Missing, Paused, Running, Starting};
    let starting = || {
        let detail = "Sandbox is starting; try again when its status is RUNNING.";
        AppError::refused(ErrorClass::Unavailable, detail)
    };
    match (sandbox.desired, sandbox.status) {
        (DesiredState::Deleted, _) => Err(AppError::not_found("Not Found")),
        (DesiredState::Paused, _) | (DesiredState::Running, Paused) => Err(AppError::conflict(
            "Sandbox is paused; resume it before calling its agent server.",
        )),
        (DesiredState::Running, Starting) => Err(starting()),
        (DesiredState::Running, Error) => Err(AppError::conflict(
            "Sandbox has failed; its status_detail says why. Resume it to try again.",
        )),
        (DesiredState::Running, Missing) => Err(AppError::conflict(
            "The sandbox no longer exists; start another one.",
        )),
        (DesiredState::Running, Running) => sandbox.agent_url.as_deref().ok_or_else(starting),
    }
}
