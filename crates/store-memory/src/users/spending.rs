//! `SpendingRepository`.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use async_trait::async_trait;
use domain::agent::spending::{
    Budgets, Day, MAX_SPENDING_GROUPS, NanoUsd, Reservation, ReserveOutcome, SpendingGroup,
    SpendingKey, SpendingRepository, SpendingTotal, Spent,
};
use domain::clock::Timestamp;
use domain::error::StoreError;
use domain::id::{OrganizationId, OwnerId};
use domain::user::scope::Scope;
use uuid::Uuid;

use crate::MemoryStore;
use crate::state::MemoryState;

impl MemoryState {
    fn spent_or_reserved(&self, is_counted: impl Fn(&SpendingKey, bool) -> bool) -> NanoUsd {
        let spent = self.spending.iter();
        let spent = spent.filter(|(key, _)| is_counted(key, false));
        let reserved = self.reservations.values();
        let reserved = reserved.filter(|it| is_counted(&it.key, true));
        spent
            .map(|(_, spent)| spent.cost)
            .chain(reserved.map(|it| it.amount))
            .fold(NanoUsd::default(), NanoUsd::plus)
    }

    fn is_owner_there(&self, owner: &OwnerId) -> bool {
        let user = self.users.get(&owner.user());
        let organization = owner.shared_organization();
        let is_deleted = organization.is_some_and(|id| {
            let found = self.organizations.get(&id);
            found.is_none_or(|it| it.deleted_at.is_some())
        });
        // The local user of open mode has no row.
        user.is_none_or(|it| it.deleted_at.is_none()) && !is_deleted
    }

    fn add_spent(&mut self, key: &SpendingKey, more: &Spent) {
        if self.is_owner_there(&key.owner) {
            let row = self.spending.entry(key.clone()).or_default();
            *row = row.plus(more);
        }
    }
}

#[async_trait]
impl SpendingRepository for MemoryStore {
    async fn reserve(
        &self,
        reservation: &Reservation,
        budgets: &Budgets,
    ) -> Result<ReserveOutcome, StoreError> {
        let mut state = self.lock();
        let key = &reservation.key;
        let first = key.day.month_start();
        let of_conversation = state.spent_or_reserved(|it, _| {
            it.owner == key.owner && it.conversation == key.conversation
        });
        let of_month = state.spent_or_reserved(|it, is_reserved| {
            it.owner == key.owner && (is_reserved || it.day >= first)
        });
        if budgets.conversation.is_some_and(|it| of_conversation >= it) {
            return Ok(ReserveOutcome::ConversationBudgetSpent);
        }
        if budgets.month.is_some_and(|it| of_month >= it) {
            return Ok(ReserveOutcome::MonthBudgetSpent);
        }
        let organization = key.owner.shared_organization();
        let of_organization = state.spent_or_reserved(|it, is_reserved| {
            it.owner.shared_organization() == organization && (is_reserved || it.day >= first)
        });
        if organization
            .and(budgets.organization_month)
            .is_some_and(|it| of_organization >= it)
        {
            return Ok(ReserveOutcome::OrganizationBudgetSpent);
        }
        state
            .reservations
            .insert(reservation.id, reservation.clone());
        Ok(ReserveOutcome::Reserved)
    }

    async fn settle(
        &self,
        key: &SpendingKey,
        spent: &Spent,
        reservation: Option<Uuid>,
    ) -> Result<(), StoreError> {
        let mut state = self.lock();
        let has_ended = reservation.is_some_and(|id| state.reservations.remove(&id).is_none());
        if !has_ended && spent.calls > 0 {
            state.add_spent(key, spent);
        }
        Ok(())
    }

    async fn settle_abandoned(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        let mut state = self.lock();
        let mut old: Vec<Reservation> = state.reservations.values().cloned().collect();
        old.retain(|it| it.at < before);
        old.sort_by_key(|it| it.at);
        old.truncate(limit);
        for reservation in &old {
            state.reservations.remove(&reservation.id);
            let spent = Spent {
                calls: 1,
                estimated_calls: 1,
                cost: reservation.amount,
                ..Spent::default()
            };
            state.add_spent(&reservation.key, &spent);
        }
        Ok(old.len() as u64)
    }

    async fn totals(
        &self,
        scope: &Scope,
        (first, last): (Day, Day),
        group: SpendingGroup,
    ) -> Result<Vec<SpendingTotal>, StoreError> {
        let state = self.lock();
        let mut groups: BTreeMap<String, Spent> = BTreeMap::new();
        for (key, spent) in &state.spending {
            if !scope.sees(&key.owner) || key.day < first || key.day > last {
                continue;
            }
            let name = match group {
                SpendingGroup::Day => key.day.date().to_string(),
                SpendingGroup::Model => key.model.clone(),
                SpendingGroup::Conversation => key
                    .conversation
                    .map(|it| it.to_string())
                    .unwrap_or_default(),
                SpendingGroup::User => key.owner.user().to_string(),
            };
            let row = groups.entry(name).or_default();
            *row = row.plus(spent);
        }
        let all = groups.into_iter();
        let mut all: Vec<_> = all
            .map(|(name, spent)| SpendingTotal { name, spent })
            .collect();
        if group != SpendingGroup::Day {
            all.sort_by_key(|it| Reverse(it.spent.cost));
        }
        all.truncate(MAX_SPENDING_GROUPS);
        Ok(all)
    }

    async fn total_of_organization(
        &self,
        id: OrganizationId,
        first: Day,
    ) -> Result<NanoUsd, StoreError> {
        let state = self.lock();
        let all = state
            .spending
            .iter()
            .filter(|(key, _)| key.owner.shared_organization() == Some(id) && key.day >= first);
        Ok(all.fold(NanoUsd::default(), |sum, (_, spent)| sum.plus(spent.cost)))
    }

    async fn prune(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        let mut state = self.lock();
        let before = Day::of(before);
        let old = state.spending.keys().filter(|key| key.day < before);
        let old: Vec<SpendingKey> = old.take(limit).cloned().collect();
        for key in &old {
            state.spending.remove(key);
        }
        Ok(old.len() as u64)
    }
}
