//! Hosts that the egress policy refuses to sandboxes: their owners are asked, and may approve them.

use std::sync::Arc;
use std::time::Duration;

use domain::clock::Clock;
use domain::egress_list::{EgressList, SandboxEgress};
use domain::error::StoreError;
use domain::id::{EgressRequestId, IdGenerator, OwnerId, SandboxId};
use domain::page::{Page, PageRequest};
use domain::sandbox::SandboxSpecCatalog;
use domain::user::egress::{EgressDecision, EgressRequest, EgressRequestRepository};
use moka::sync::Cache;

use super::SandboxTokens;
use crate::{AppError, Ports};

/// Requests of one sandbox that are stored in [`ASKING_PERIOD`]: an agent must not fill the owner's list, or keep the store busy.
const MAX_REQUESTS_PER_SANDBOX: u32 = 100;
const ASKING_PERIOD: Duration = Duration::from_secs(60 * 60);
const MAX_COUNTED_SANDBOXES: u64 = 10_000;

/// Asks owners of sandboxes for hosts, and stores their decisions.
#[derive(Clone)]
pub struct EgressService {
    specs: Arc<dyn SandboxSpecCatalog>,
    requests: Arc<dyn EgressRequestRepository>,
    tokens: SandboxTokens,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdGenerator>,
    asked: Cache<SandboxId, u32>,
}

impl EgressService {
    pub(crate) fn new(ports: &Ports, tokens: SandboxTokens) -> Self {
        Self {
            specs: Arc::clone(&ports.specs),
            requests: Arc::clone(&ports.egress_requests),
            tokens,
            clock: Arc::clone(&ports.clock),
            ids: Arc::clone(&ports.ids),
            asked: Cache::builder()
                .max_capacity(MAX_COUNTED_SANDBOXES)
                .time_to_live(ASKING_PERIOD)
                .build(),
        }
    }

    /// The lists that hold for a sandbox: its template's, and its owner's. One that does not run reaches nothing.
    pub async fn lists(&self, sandbox: &SandboxId) -> Result<SandboxEgress, AppError> {
        let Some(sandbox) = self.tokens.active(sandbox).await? else {
            return Ok(SandboxEgress {
                template: None,
                own: Some(EgressList::default()),
            });
        };
        let specs = self.specs.list().await?;
        let spec = specs.iter().find(|spec| spec.id == sandbox.spec_id);
        Ok(SandboxEgress {
            template: spec.and_then(|spec| spec.egress.clone()),
            own: sandbox.egress.clone(),
        })
    }

    /// Whether its owner lets a sandbox reach a host that the egress policy refuses. If the owner was not asked yet, the request
    /// is stored. Costs at most three queries.
    pub async fn is_approved(
        &self,
        sandbox: &SandboxId,
        host: &str,
        port: u16,
    ) -> Result<bool, AppError> {
        let Some(sandbox) = self.tokens.active(sandbox).await? else {
            return Ok(false);
        };
        let now = self.clock.now();
        let request = EgressRequest {
            id: EgressRequestId::new(self.ids.uuid()),
            owner: sandbox.owner.clone(),
            sandbox_id: sandbox.id.clone(),
            host: host.to_owned(),
            port,
            decision: EgressDecision::Pending,
            created_at: now,
            updated_at: now,
        };
        let decision = self.requests.decision(&request).await?;
        if decision.is_none() {
            self.ask(&request).await?;
        }
        Ok(matches!(
            decision,
            Some(EgressDecision::Approved | EgressDecision::ApprovedForSandbox)
        ))
    }

    async fn ask(&self, request: &EgressRequest) -> Result<(), AppError> {
        let count = self.asked.get(&request.sandbox_id).unwrap_or_default();
        if count >= MAX_REQUESTS_PER_SANDBOX {
            return Ok(());
        }
        self.asked.insert(request.sandbox_id.clone(), count + 1);
        match self.requests.insert(request).await {
            // Another connection asks for the same.
            Err(StoreError::Conflict { .. }) => Ok(()),
            stored => Ok(stored?),
        }
    }

    /// Lists a page of the owner's requests with this decision, newest first.
    pub async fn search(
        &self,
        owner: &OwnerId,
        decision: Option<EgressDecision>,
        page: &PageRequest,
    ) -> Result<Page<EgressRequest>, AppError> {
        Ok(self.requests.search(owner, decision, page).await?)
    }

    /// Stores the owner's decision. Connections that are open stay open.
    pub async fn decide(
        &self,
        owner: &OwnerId,
        id: EgressRequestId,
        decision: EgressDecision,
    ) -> Result<EgressRequest, AppError> {
        let now = self.clock.now();
        let decided = self.requests.decide(owner, id, decision, now).await?;
        decided.ok_or_else(missing)
    }

    /// Deletes a request with its decision, so that the next attempt asks again.
    pub async fn delete(&self, owner: &OwnerId, id: EgressRequestId) -> Result<(), AppError> {
        if self.requests.delete(owner, id).await? {
            Ok(())
        } else {
            Err(missing())
        }
    }
}

fn missing() -> AppError {
    AppError::not_found("Request not found")
}
