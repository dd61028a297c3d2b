//! `IdempotencyRepository`.

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
            .answers
            .get(&key)
            .filter(|kept| kept.at >= request.since)
        {
            None => IdempotencyCheck::New,
            Some(kept) if kept.request.fingerprint == request.fingerprint => {
                IdempotencyCheck::Replay(kept.answer.clone())
            }
            Some(_) => IdempotencyCheck::Mismatch,
        }
    }

    pub(crate) fn store_response(&mut self, answer: &IdempotentResponse) {
        let request = &answer.request;
        let key = (request.owner.clone(), request.key.clone());
        self.answers.insert(key, answer.clone());
        let theirs = self.answers.iter().filter(|it| it.0.0 == request.owner);
        let mut theirs: Vec<_> = theirs.map(|(key, it)| (it.at, key.clone())).collect();
        theirs.sort();
        for (_, key) in theirs.iter().rev().skip(MAX_RESPONSES_PER_USER) {
            self.answers.remove(key);
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
        answer: &IdempotentResponse,
    ) -> Result<IdempotencyCheck, StoreError> {
        let mut state = self.lock();
        let known = state.check_idempotency(&answer.request);
        if known == IdempotencyCheck::New {
            state.check_not_deleted(&answer.request.owner)?;
            state.store_response(answer);
        }
        Ok(known)
    }

    async fn prune(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        let mut state = self.lock();
        let old: Vec<_> = state
            .answers
            .iter()
            .filter(|(_, kept)| kept.at < before)
            .map(|(key, _)| key.clone())
            .take(limit)
            .collect();
        for key in &old {
            state.answers.remove(key);
        }
        Ok(old.len() as u64)
    }
}
