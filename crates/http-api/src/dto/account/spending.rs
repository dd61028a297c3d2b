//! What model calls cost, on the wire. An addition: the reference counts in the agent only.

use application::spending::MonthBudgets;
use domain::agent::spending::{Day, NanoUsd, SpendingGroup, SpendingTotal};
use domain::clock::Timestamp;

use crate::decode::model;
use crate::dto::enums::SpendingGroupSchema;

/// Days without `since`: today and those before.
const DEFAULT_DAYS: i32 = 30;

/// Which calls are added up, and how.
#[model(query)]
pub(crate) struct SpendingQuery {
    /// From this day on (UTC); by default the last 30 days.
    since: Option<Timestamp>,
    /// Up to and including this day (UTC); by default today.
    until: Option<Timestamp>,
    /// By default `day`.
    #[param(inline, value_type = Option<SpendingGroupSchema>)]
    group_by: Option<SpendingGroup>,
}

impl SpendingQuery {
    pub(crate) fn into_parts(self, today: Day) -> ((Day, Day), SpendingGroup) {
        let last = self.until.map_or(today, Day::of);
        let first = self.since.map_or_else(
            || Day::new(last.number().saturating_sub(DEFAULT_DAYS - 1)),
            Day::of,
        );
        ((first, last), self.group_by.unwrap_or(SpendingGroup::Day))
    }
}

/// What the calls of one group took.
#[model(response = SpendingTotal, from(total: SpendingTotal))]
pub(crate) struct SpendingTotalDto {
    /// The day as `2026-11-27`, the model, the conversation (32 hex digits; empty: calls of profiles), or the user.
    name: String,
    /// Successful calls.
    #[from(total.spent.calls)]
    calls: u64,
    /// Calls whose tokens the provider did not report: estimated from the length of request and answer.
    #[from(total.spent.estimated_calls)]
    estimated_calls: u64,
    /// Calls of models without a known price, which `cost` does not contain.
    #[from(total.spent.unpriced_calls)]
    unpriced_calls: u64,
    /// Input that was neither in the provider's cache nor written to it.
    #[from(total.spent.tokens.input)]
    input_tokens: u64,
    /// Input that was in the provider's cache.
    #[from(total.spent.tokens.cached_input)]
    cached_input_tokens: u64,
    /// Input that the provider wrote to its cache.
    #[from(total.spent.tokens.cache_write)]
    cache_write_tokens: u64,
    /// Output, including what the model thinks.
    #[from(total.spent.tokens.output)]
    output_tokens: u64,
    /// In US dollars.
    #[from(total.spent.cost.dollars())]
    cost: f64,
}

/// What model calls of a user cost.
#[model(response = Spending)]
pub(crate) struct SpendingDto {
    /// The groups, at most 1,000: days in order, others by cost.
    pub(crate) items: Vec<SpendingTotalDto>,
    /// What was spent in this calendar month (UTC), in US dollars.
    pub(crate) month_cost: f64,
    /// What the user may spend in the organization and month, in US dollars; `null`: no limit.
    pub(crate) month_budget: Option<f64>,
    /// The same for all members of the shared organization together; `null` in a personal one.
    pub(crate) organization: Option<OrganizationSpendingDto>,
}

/// What model calls of all members of an organization cost.
#[model(response = OrganizationSpending)]
pub(crate) struct OrganizationSpendingDto {
    /// What was spent in this calendar month (UTC), in US dollars.
    pub(crate) month_cost: f64,
    /// What may be spent in a month, in US dollars; `null`: no limit.
    pub(crate) month_budget: Option<f64>,
}

impl SpendingDto {
    pub(crate) fn new(
        totals: Vec<SpendingTotal>,
        month_cost: NanoUsd,
        budgets: &MonthBudgets,
        of_organization: Option<NanoUsd>,
    ) -> Self {
        Self {
            items: totals.into_iter().map(SpendingTotalDto::from).collect(),
            month_cost: month_cost.dollars(),
            month_budget: budgets.of_user().map(NanoUsd::dollars),
            organization: of_organization.map(|cost| OrganizationSpendingDto {
                month_cost: cost.dollars(),
                month_budget: budgets.organization.map(NanoUsd::dollars),
            }),
        }
    }
}
