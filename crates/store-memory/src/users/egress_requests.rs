//! `EgressRequestRepository`.

use async_trait::async_trait;
use domain::clock::Timestamp;
use domain::error::StoreError;
use domain::id::{EgressRequestId, OwnerId};
use domain::page::{Page, PageRequest};
use domain::user::egress::{
    EgressDecision, EgressRequest, EgressRequestRepository, MAX_EGRESS_REQUESTS_PER_OWNER,
};

use crate::MemoryStore;
use crate::page;

fn is_for_host(request: &EgressRequest, other: &EgressRequest) -> bool {
    request.owner == other.owner && request.host == other.host && request.port == other.port
}

fn is_for_sandbox(request: &EgressRequest, other: &EgressRequest) -> bool {
    is_for_host(request, other) && request.sandbox_id == other.sandbox_id
}

#[async_trait]
impl EgressRequestRepository for MemoryStore {
    async fn search(
        &self,
        owner: &OwnerId,
        decision: Option<EgressDecision>,
        request: &PageRequest,
    ) -> Result<Page<EgressRequest>, StoreError> {
        let state = self.lock();
        let rows = state.egress_requests.values();
        let rows = rows.filter(|it| it.owner == *owner);
        let rows = rows.filter(|it| decision.is_none_or(|wanted| it.decision == wanted));
        let rows = rows.map(|it| ((it.created_at.micros(), it.id.to_string()), it.clone()));
        page::page_by_count("egress_requests", request, true, rows)
    }

    async fn decide(
        &self,
        owner: &OwnerId,
        id: EgressRequestId,
        decision: EgressDecision,
        at: Timestamp,
    ) -> Result<Option<EgressRequest>, StoreError> {
        let mut state = self.lock();
        let found = state.egress_requests.get_mut(&id);
        let Some(request) = found.filter(|it| it.owner == *owner) else {
            return Ok(None);
        };
        request.decision = decision;
        request.updated_at = at;
        let request = request.clone();
        if decision == EgressDecision::Approved {
            let all = &mut state.egress_requests;
            all.retain(|_, it| it.id == id || !is_for_host(it, &request));
        }
        Ok(Some(request))
    }

    async fn delete(&self, owner: &OwnerId, id: EgressRequestId) -> Result<bool, StoreError> {
        let all = &mut self.lock().egress_requests;
        let is_there = all.get(&id).is_some_and(|it| it.owner == *owner);
        Ok(is_there && all.remove(&id).is_some())
    }

    async fn decision(&self, of: &EgressRequest) -> Result<Option<EgressDecision>, StoreError> {
        let state = self.lock();
        let all = || state.egress_requests.values();
        let approved = EgressDecision::Approved;
        if all().any(|it| is_for_host(it, of) && it.decision == approved) {
            return Ok(Some(approved));
        }
        let own = all().find(|it| is_for_sandbox(it, of));
        Ok(own.map(|it| it.decision))
    }

    async fn insert(&self, request: &EgressRequest) -> Result<(), StoreError> {
        let mut state = self.lock();
        let sandbox = state.undeleted_sandbox(&request.sandbox_id);
        let is_alive = sandbox.is_some_and(|it| it.owner == request.owner);
        let all = &mut state.egress_requests;
        if !is_alive || all.values().any(|it| is_for_sandbox(it, request)) {
            return Ok(());
        }
        let of_owner = all.values().filter(|it| it.owner == request.owner);
        if of_owner.clone().count() >= MAX_EGRESS_REQUESTS_PER_OWNER {
            let pending = of_owner.filter(|it| it.decision == EgressDecision::Pending);
            let oldest = pending.min_by_key(|it| (it.created_at, it.id));
            let Some(oldest) = oldest.map(|it| it.id) else {
                return Ok(());
            };
            all.remove(&oldest);
        }
        all.insert(request.id, request.clone());
        Ok(())
    }

    async fn prune(&self, limit: usize) -> Result<u64, StoreError> {
        let mut state = self.lock();
        let gone = state.egress_requests.values().filter(|it| {
            it.decision != EgressDecision::Approved && !state.sandboxes.contains_key(&it.sandbox_id)
        });
        let gone: Vec<_> = gone.map(|it| it.id).take(limit).collect();
        for id in &gone {
            state.egress_requests.remove(id);
        }
        Ok(gone.len() as u64)
    }
}
