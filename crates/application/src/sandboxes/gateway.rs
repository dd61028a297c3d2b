//! The way to an agent server for whoever asks for it: by the sandbox's key, or by the conversation of a user.
//!
//! One query, or none when another request with the same key came a moment ago; no call of an engine. What is said about a
//! sandbox that cannot be reached says what to do.

use std::sync::Arc;

use domain::agent::AgentEndpoint;
use domain::error::ErrorClass;
use domain::id::{ConversationId, SandboxId, UserId};
use domain::identity::KeyHash;
use domain::sandbox::{DesiredState, Sandbox, SandboxStatus};
use domain::scope::Scope;
use secrecy::SecretString;

use crate::sandboxes::client_paths::{to_sandbox_path, outside_workspace, map_resolve_error};
use crate::sandboxes::endpoint;
use crate::{AppError, Inner};

/// No key of ours is longer; a longer one is refused unhashed.
const MAX_KEY_BYTES: usize = 512;
/// What users' keys begin with, and sandboxes' never do (decisions, section 3; sandboxes' are base62).
const USER_KEY_PREFIX: &str = "aw_";

/// Finds agent servers for requests that are passed on to them.
#[derive(Clone)]
pub struct Gateway(Arc<Inner>);

/// Where a request goes.
#[derive(Debug, Clone)]
pub struct AgentRoute {
    /// Whose agent server it is.
    pub sandbox: SandboxId,
    /// Whose sandbox that is: what is under way of one owner is limited together.
    pub owner: UserId,
    /// Its address, and the key that it wants.
    pub at: AgentEndpoint,
    /// Its workspace.
    workspace: Option<String>,
}

impl Gateway {
    pub(crate) fn new(inner: Arc<Inner>) -> Self {
        Self(inner)
    }

    /// To the sandbox with this key; `None` if no sandbox has it. A user's key is known by its form and costs no query.
    ///
    /// # Errors
    /// What is in the way: the sandbox does not run.
    pub async fn by_key(&self, key: &str) -> Result<Option<AgentRoute>, AppError> {
        if !looks_like_sandbox_key(key) {
            return Ok(None);
        }
        let hash = KeyHash::of(key);
        let sandboxes = &self.0.ports.sandboxes;
        let query = || sandboxes.find_by_key(&hash);
        let answer = self.0.keeper.reporters().find(&hash, query).await?;
        let Some(found) = answer.found else {
            return Ok(None);
        };
        if !answer.is_cached || agent_address(&found).is_ok() {
            return build_route(found.as_ref(), || Ok(SecretString::from(key))).map(Some);
        }
        // It may run since: nothing is refused on the ground of what was so a moment ago.
        match sandboxes.find_by_key(&hash).await? {
            Some(found) => build_route(&found, || Ok(SecretString::from(key))).map(Some),
            None => Ok(None),
        }
    }

    /// To the sandbox of this conversation.
    ///
    /// # Errors
    /// Not found, outside the scope too; or what is in the way.
    pub async fn by_conversation(
        &self,
        scope: &Scope,
        id: ConversationId,
    ) -> Result<AgentRoute, AppError> {
        let found = self.0.ports.conversations.find(scope, id).await?;
        let sandbox = found.and_then(|view| view.sandbox);
        self.route_to(sandbox.as_ref())
    }

    /// To this sandbox.
    ///
    /// # Errors
    /// Not found, outside the scope too; or what is in the way.
    pub async fn by_sandbox(&self, scope: &Scope, id: &SandboxId) -> Result<AgentRoute, AppError> {
        let found = self.0.ports.sandboxes.find(scope, id).await?;
        self.route_to(found.as_ref())
    }

    /// Whether paths in requests must be confined by [`Self::path`], because no wall is around the sandbox.
    pub fn confines_paths(&self) -> bool {
        !self.0.ports.backend.capabilities().isolated
    }

    /// What an agent server that nothing isolates is asked for instead of this path. A relative path stays as it is.
    ///
    /// # Errors
    /// Not found, if the path leads out of what belongs to the sandbox.
    pub async fn path(&self, way: &AgentRoute, asked: &str) -> Result<String, AppError> {
        let root = way.workspace.as_deref().ok_or_else(outside_workspace)?;
        let path = to_sandbox_path(asked, root.trim_end_matches('/'));
        let resolved = self.0.ports.backend.resolve(&way.sandbox, &path);
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
            Ok(endpoint(&self.0.ports, sandbox, url)?.key)
        })
    }
}

/// Whether a key is looked up among those of sandboxes: a user's is known by its form.
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

/// Where the agent server answers, or what is in the way.
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
            "Nothing is left of this sandbox; start another one.",
        )),
        (DesiredState::Running, Running) => sandbox.agent_url.as_deref().ok_or_else(starting),
    }
}
