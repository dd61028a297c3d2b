//! The view of sandboxes in lists.

use std::sync::Arc;

use super::{ExposedUrl, Sandbox, SandboxStatus};
use crate::clock::Timestamp;
use crate::egress_list::EgressList;
use crate::encryption::cipher::Sealed;
use crate::id::{OwnerId, SandboxId, SpecId};
use crate::user::identity::KeyHash;

/// The columns of a sandbox that lists show. Lists are read often, so they do not read the rest.
#[derive(Debug, Clone, PartialEq)]
pub struct SandboxView {
    pub id: SandboxId,
    pub owner: OwnerId,
    pub spec_id: SpecId,
    pub status: SandboxStatus,
    pub status_detail: Option<String>,
    pub key_hash: KeyHash,
    pub session_key: Sealed,
    pub exposed_urls: Arc<[ExposedUrl]>,
    pub workspace: Option<String>,
    pub egress: Option<EgressList>,
    pub created_at: Timestamp,
}

impl From<Sandbox> for SandboxView {
    fn from(sandbox: Sandbox) -> Self {
        Self {
            id: sandbox.id,
            owner: sandbox.owner,
            spec_id: sandbox.spec_id,
            status: sandbox.status,
            status_detail: sandbox.status_detail,
            key_hash: sandbox.key_hash,
            session_key: sandbox.session_key,
            exposed_urls: sandbox.exposed_urls,
            workspace: sandbox.workspace,
            egress: sandbox.egress,
            created_at: sandbox.created_at,
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub struct SealedSessionKey<'a> {
    pub id: &'a SandboxId,
    /// Its status. The key is shown only while it is RUNNING.
    pub status: SandboxStatus,
    pub sealed: &'a Sealed,
}

impl<'a> From<&'a Sandbox> for SealedSessionKey<'a> {
    fn from(sandbox: &'a Sandbox) -> Self {
        Self {
            id: &sandbox.id,
            status: sandbox.status,
            sealed: &sandbox.session_key,
        }
    }
}

impl<'a> From<&'a SandboxView> for SealedSessionKey<'a> {
    fn from(sandbox: &'a SandboxView) -> Self {
        Self {
            id: &sandbox.id,
            status: sandbox.status,
            sealed: &sandbox.session_key,
        }
    }
}
