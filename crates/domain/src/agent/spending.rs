//! What model calls cost: tokens, prices, budgets, and the record of what was spent.

use async_trait::async_trait;
use chrono::{Datelike as _, Days, NaiveDate};
use uuid::Uuid;

use crate::clock::Timestamp;
use crate::error::StoreError;
use crate::id::{ConversationId, OrganizationId, OwnerId};
use crate::user::scope::Scope;
use crate::wire_enum::wire_enum;

/// Most groups that [`SpendingRepository::totals`] returns.
pub const MAX_SPENDING_GROUPS: usize = 1_000;

/// An amount in billionths of a US dollar. A price per million tokens has at most three places, so that costs are exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct NanoUsd(u64);

impl NanoUsd {
    /// Saturates at `i64::MAX`, which stores can hold.
    pub const fn new(nanos: u64) -> Self {
        const MAX: u64 = i64::MAX.cast_unsigned();
        Self(if nanos > MAX { MAX } else { nanos })
    }

    pub const fn nanos(self) -> u64 {
        self.0
    }

    /// A positive amount of dollars, rounded to a billionth; `None` for zero, negative and infinite ones.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the cast of a float saturates, and the amount is positive"
    )]
    pub fn from_dollars(dollars: f64) -> Option<Self> {
        let nanos = (dollars * 1e9).round();
        (nanos.is_finite() && nanos >= 1.0).then(|| Self::new(nanos as u64))
    }

    /// For display and for the wire.
    #[expect(clippy::cast_precision_loss, reason = "dollars are shown")]
    pub fn dollars(self) -> f64 {
        self.0 as f64 / 1e9
    }

    #[must_use]
    pub const fn plus(self, more: Self) -> Self {
        Self::new(self.0.saturating_add(more.0))
    }
}

/// Tokens of calls. The four kinds have prices of their own and do not overlap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TokenCounts {
    pub input: u64,
    /// Input that the provider had in its cache.
    pub cached_input: u64,
    /// Input that the provider wrote to its cache.
    pub cache_write: u64,
    /// Output, including what the model thinks.
    pub output: u64,
}

/// Prices of a token in billionths of a US dollar, which is the price of a million tokens in thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenPrice {
    pub input: u64,
    pub cached_input: u64,
    pub cache_write: u64,
    pub output: u64,
}

impl TokenPrice {
    pub fn cost(&self, tokens: &TokenCounts) -> NanoUsd {
        let parts = [
            (self.input, tokens.input),
            (self.cached_input, tokens.cached_input),
            (self.cache_write, tokens.cache_write),
            (self.output, tokens.output),
        ];
        let parts = parts.map(|(price, count)| price.saturating_mul(count));
        NanoUsd::new(parts.into_iter().fold(0, u64::saturating_add))
    }
}

/// A day in UTC, as days since 1970-01-01.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Day(i32);

impl Day {
    pub const fn new(days: i32) -> Self {
        Self(days)
    }

    pub const fn number(self) -> i32 {
        self.0
    }

    pub fn of(at: Timestamp) -> Self {
        let days = at.micros().div_euclid(24 * 60 * 60 * 1_000_000);
        Self(i32::try_from(days).unwrap_or_default())
    }

    pub fn of_date(date: NaiveDate) -> Self {
        Self(date.to_epoch_days())
    }

    pub fn date(self) -> NaiveDate {
        NaiveDate::from_epoch_days(self.0).unwrap_or_default()
    }

    /// The first day of its month.
    #[must_use]
    pub fn month_start(self) -> Self {
        let date = self.date();
        Self::of_date(date - Days::new(u64::from(date.day0())))
    }
}

/// Calls that are counted together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpendingKey {
    pub owner: OwnerId,
    /// `None` for calls with a key that belongs to the whole sandbox.
    pub conversation: Option<ConversationId>,
    /// The model's name, at most [`MAX_MODEL_NAME_CHARS`] characters.
    pub model: String,
    pub day: Day,
}

/// Longest name of a model in records; longer ones are cut.
pub const MAX_MODEL_NAME_CHARS: usize = 100;

/// What calls took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Spent {
    pub calls: u64,
    /// Calls whose tokens the provider did not report. They are estimated from the length of request and answer.
    pub estimated_calls: u64,
    /// Calls of models without a known price, which the cost does not contain.
    pub unpriced_calls: u64,
    pub tokens: TokenCounts,
    pub cost: NanoUsd,
}

impl Spent {
    /// Both together.
    #[must_use]
    pub const fn plus(&self, more: &Self) -> Self {
        let (a, b) = (&self.tokens, &more.tokens);
        Self {
            calls: self.calls.saturating_add(more.calls),
            estimated_calls: self.estimated_calls.saturating_add(more.estimated_calls),
            unpriced_calls: self.unpriced_calls.saturating_add(more.unpriced_calls),
            tokens: TokenCounts {
                input: a.input.saturating_add(b.input),
                cached_input: a.cached_input.saturating_add(b.cached_input),
                cache_write: a.cache_write.saturating_add(b.cache_write),
                output: a.output.saturating_add(b.output),
            },
            cost: self.cost.plus(more.cost),
        }
    }
}

/// Limits of what may be spent. `None`: no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Budgets {
    /// Of one conversation, for ever.
    pub conversation: Option<NanoUsd>,
    /// Of one owner in a calendar month (UTC).
    pub month: Option<NanoUsd>,
    /// Of all members of the owner's shared organization in a calendar month (UTC).
    pub organization_month: Option<NanoUsd>,
}

/// An amount that a call may take, until it is settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    pub id: Uuid,
    pub key: SpendingKey,
    pub amount: NanoUsd,
    pub at: Timestamp,
}

/// The outcome of [`SpendingRepository::reserve`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReserveOutcome {
    Reserved,
    ConversationBudgetSpent,
    MonthBudgetSpent,
    OrganizationBudgetSpent,
}

wire_enum! {
    /// How [`SpendingRepository::totals`] groups.
    SpendingGroup {
        Day = "day",
        Model = "model",
        Conversation = "conversation",
        User = "user",
    }
}

/// What was spent in one group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpendingTotal {
    /// The day as `2026-11-27`, the model, the conversation (32 hex digits, or empty), or the user.
    pub name: String,
    pub spent: Spent,
}

/// The record of what model calls cost.
#[async_trait]
pub trait SpendingRepository: Send + Sync + 'static {
    /// Reserves an amount if less than each budget is spent and reserved. So concurrent calls exceed a budget by at most
    /// one reservation.
    async fn reserve(
        &self,
        reservation: &Reservation,
        budgets: &Budgets,
    ) -> Result<ReserveOutcome, StoreError>;
    /// Adds what a call took and ends its reservation. Adds nothing if the reservation has ended already, or if the user
    /// is gone.
    async fn settle(
        &self,
        key: &SpendingKey,
        spent: &Spent,
        reservation: Option<Uuid>,
    ) -> Result<(), StoreError>;
    /// Settles at most `limit` reservations from before `before` at their whole amount, as one estimated call each: their
    /// process has died. Returns how many.
    async fn settle_abandoned(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError>;
    /// What was spent from `first` to `last`, by group: days in order, others by cost, at most [`MAX_SPENDING_GROUPS`].
    async fn totals(
        &self,
        scope: &Scope,
        days: (Day, Day),
        group: SpendingGroup,
    ) -> Result<Vec<SpendingTotal>, StoreError>;
    /// What all members of a shared organization, present and former, spent in it from `first` on.
    async fn total_of_organization(
        &self,
        id: OrganizationId,
        first: Day,
    ) -> Result<NanoUsd, StoreError>;
    /// Deletes at most `limit` records of days before that of `before`; returns how many.
    async fn prune(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_exact_and_bounded() {
        let price = TokenPrice {
            input: 1_250,
            cached_input: 125,
            cache_write: 1_250,
            output: 10_000,
        };
        let tokens = TokenCounts {
            input: 1_000_000,
            cached_input: 2,
            cache_write: 0,
            output: 3,
        };
        assert_eq!(price.cost(&tokens), NanoUsd::new(1_250_030_250));
        let all = TokenCounts {
            input: u64::MAX,
            ..tokens
        };
        assert_eq!(price.cost(&all).nanos(), i64::MAX.cast_unsigned());
        assert_eq!(
            NanoUsd::from_dollars(2.5),
            Some(NanoUsd::new(2_500_000_000))
        );
        for none in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-12] {
            assert_eq!(NanoUsd::from_dollars(none), None, "{none}");
        }
    }

    #[test]
    fn months_begin_on_their_first_day() {
        let day = |text: &str| Day::of_date(text.parse().unwrap());
        assert_eq!(day("2026-11-27").month_start(), day("2026-11-01"));
        assert_eq!(day("2026-11-01").month_start(), day("2026-11-01"));
        assert_eq!(Day::of(Timestamp::from_micros(-1)), day("1969-12-31"));
    }
}
