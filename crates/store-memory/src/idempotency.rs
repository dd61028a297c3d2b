//! Stored responses of idempotent requests, in memory.

use async_trait::async_trait;
use domain::clock::Timestamp;
use domain::coordination::idempotency::{
    IdempotencyCheck, IdempotencyRepository, IdempotentRequest, IdempotentResponse,
    MAX_RESPONSES_PER_USER,
};
use domain::error::StoreError;

use crate::MemoryStore;
use crate::state::MemoryState;

impl MemoryState {
    pub(crate) fn check_idempotency(&self, request: &IdempotentRequest) -> IdempotencyCheck {
        let key = (request.owner.clone(), request.key.clone());
        match self
            .idempotent_responses
            .get(&key)
            .filter(|stored| stored.at >= request.since)
        {
            None => IdempotencyCheck::New,
            Some(stored) if stored.request.fingerprint == request.fingerprint => {
                IdempotencyCheck::Replay(stored.response.clone())
            }
            Some(_) => IdempotencyCheck::Mismatch,
        }
    }

    pub(crate) fn store_response(&mut self, response: &IdempotentResponse) {
        let request = &response.request;
        let key = (request.owner.clone(), request.key.clone());
        self.idempotent_responses.insert(key, response.clone());
        let responses_of_owner = self
            .idempotent_responses
            .iter()
            .filter(|it| it.0.0 == request.owner);
        let mut responses_of_owner: Vec<_> = responses_of_owner
            .map(|(key, it)| (it.at, key.clone()))
            .collect();
        responses_of_owner.sort();
        for (_, key) in responses_of_owner.iter().rev().skip(MAX_RESPONSES_PER_USER) {
            self.idempotent_responses.remove(key);
        }
    }
}

#[async_trait]
impl IdempotencyRepository for MemoryStore {
    async fn look_up(&self, request: &IdempotentRequest) -> Result<IdempotencyCheck, StoreError> {
        Ok(self.lock().check_idempotency(request))
    }

    async fn store_response(
        &self,
        response: &IdempotentResponse,
    ) -> Result<IdempotencyCheck, StoreError> {
        let mut state = self.lock();
        let check = state.check_idempotency(&response.request);
        if check == IdempotencyCheck::New {
            state.check_active_owner(&response.request.owner)?;
            state.store_response(response);
        }
        Ok(check)
    }

    async fn prune(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        let mut state = self.lock();
        let old: Vec<_> = state
            .idempotent_responses
            .iter()
            .filter(|(_, stored)| stored.at < before)
            .map(|(key, _)| key.clone())
            .take(limit)
            .collect();
        for key in &old {
            state.idempotent_responses.remove(key);
        }
        Ok(old.len() as u64)
    }
}
