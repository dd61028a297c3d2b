//! New sandboxes: their ids, keys and rows.

use std::sync::Arc;

use domain::clock::Clock;
use domain::egress_list::EgressList;
use domain::encryption::cipher::{Cipher, CipherError, Sealed};
use domain::id::{HostId, IdGenerator, OwnerId, SandboxId, SpecId};
use domain::sandbox::{DesiredState, Sandbox, SandboxStatus};
use domain::user::identity::KeyHash;
use secrecy::ExposeSecret;

use crate::AppError;
use crate::policy::{EgressControl, Policy};
use crate::ports::Ports;
use crate::runtime::known_hosts::KnownHosts;
use crate::settings::Settings;

pub(crate) struct SandboxKeys {
    pub(crate) id: SandboxId,
    pub(crate) key_hash: KeyHash,
    pub(crate) session_key: Sealed,
    pub(crate) secret_key: Sealed,
}

/// A limit that a sandbox could ignore is refused.
const NO_EGRESS_LIMITS: &str = "egress_allow cannot be enforced by this service, because its egress.policy is open: leave it out of \
     the request and the settings, or ask the operator to set egress.policy to allow_list";

/// Creates sandboxes of this host, or of another one while this one is drained. Callers store the rows.
#[derive(Clone)]
pub(crate) struct SandboxFactory {
    cipher: Arc<dyn Cipher>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdGenerator>,
    host: HostId,
    pub(crate) hosts: KnownHosts,
    pub(crate) egress: EgressControl,
}

impl SandboxFactory {
    pub(crate) fn new(ports: &Ports, policy: &Policy, hosts: KnownHosts) -> Self {
        Self {
            cipher: Arc::clone(&ports.cipher),
            clock: Arc::clone(&ports.clock),
            ids: Arc::clone(&ports.ids),
            host: policy.host.clone(),
            hosts,
            egress: policy.egress,
        }
    }

    pub(crate) fn new_id(&self) -> SandboxId {
        self.ids.sandbox_id()
    }

    pub(crate) fn generate_keys(&self, id: SandboxId) -> Result<SandboxKeys, CipherError> {
        let (session_key, context) = (self.ids.secret(), Sandbox::key_context(&id));
        Ok(SandboxKeys {
            key_hash: KeyHash::of(session_key.expose_secret()),
            session_key: self.cipher.seal(&context, &session_key)?,
            secret_key: self.cipher.seal(&context, &self.ids.secret())?,
            id,
        })
    }

    /// A row with a new id and new keys.
    pub(crate) fn new_row(&self, owner: &OwnerId, spec_id: SpecId) -> Result<Sandbox, AppError> {
        let host = self.hosts.for_new_sandbox()?;
        let keys = self.generate_keys(self.new_id())?;
        let row = self.row(keys, owner, spec_id);
        Ok(Sandbox { host, ..row })
    }

    /// The hosts to which an owner limits a new sandbox: those of the request, else of the settings.
    pub(crate) fn own_list(
        &self,
        requested: Option<&[String]>,
        settings: Option<&Settings>,
    ) -> Result<Option<EgressList>, AppError> {
        let requested =
            requested.map(|entries| EgressList::parse(entries.iter().map(String::as_str)));
        let requested = requested.transpose().map_err(AppError::invalid)?;
        let list = requested.or_else(|| settings?.egress_allow.clone());
        if list.is_some() && self.egress == EgressControl::Unlimited {
            return Err(AppError::conflict(NO_EGRESS_LIMITS));
        }
        Ok(list)
    }

    /// A new row of this host with these keys.
    pub(crate) fn row(&self, keys: SandboxKeys, owner: &OwnerId, spec_id: SpecId) -> Sandbox {
        let (now, context) = (self.clock.now(), Sandbox::key_context(&keys.id));
        // A secret key that does not open cannot wake the sandbox either.
        let secret_key = self.cipher.open(&context, &keys.secret_key).ok();
        let callback_token = secret_key.map(|key| Sandbox::callback_token(&keys.id, &key));
        Sandbox {
            owner: owner.clone(),
            spec_id,
            host: self.host.clone(),
            desired: DesiredState::Running,
            status: SandboxStatus::Starting,
            status_detail: None,
            key_hash: keys.key_hash,
            session_key: keys.session_key,
            secret_key: keys.secret_key,
            callback_token_hash: callback_token.map(|it| KeyHash::of(it.expose_secret())),
            agent_url: None,
            exposed_urls: Arc::default(),
            workspace: None,
            has_proxy: false,
            egress: None,
            automation_key: None,
            created_at: now,
            updated_at: now,
            paused_at: None,
            id: keys.id,
        }
    }
}
