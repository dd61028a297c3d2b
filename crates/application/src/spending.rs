//! What model calls cost, and the budgets that end them.
//!
//! ```text
//!   call ──begin──► reservation, if a budget applies ──► provider ──answer──► settle: tokens, cost
//! ```
//!
//! Without a budget nothing is written before a call. A call whose process dies is not recorded, or, where a budget applies, is
//! recorded with its reservation.

use std::sync::Arc;
use std::time::Duration;

use domain::agent::spending::{
    Budgets, Day, MAX_MODEL_NAME_CHARS, NanoUsd, Reservation, ReserveOutcome, SpendingGroup,
    SpendingKey, SpendingRepository, SpendingTotal, Spent, TokenCounts, TokenPrice,
};
use domain::audit::AuditActor;
use domain::clock::Clock;
use domain::error::chain;
use domain::id::{IdGenerator, OrganizationId, OwnerId};
use domain::user::organization::OrganizationRepository;
use domain::user::scope::Scope;
use uuid::Uuid;

use crate::administration::Origin;
use crate::audit::AuditService;
use crate::models::ModelGrant;
use crate::settings::{Settings, SettingsService, ViewCache};
use crate::{AppError, Policy, Ports};

/// Bytes of a request or an answer for each token, where the provider does not report tokens. It is rather too few.
const BYTES_PER_TOKEN: u64 = 3;
/// Output of a reserved call. The agent's library asks for no longer answer of a model at an address of its own.
const RESERVED_OUTPUT_TOKENS: u64 = 16_384;
/// More tokens than any call takes: a provider that reports more is wrong.
const MAX_TOKENS_OF_CALL: u64 = 20_000_000;
/// Attempts to store what a call took, and the pause before the second one.
const MAX_ATTEMPTS: u32 = 5;
const RETRY_BACKOFF: Duration = Duration::from_millis(200);
/// Status of a refused call. Agents do not repeat it.
const PAYMENT_REQUIRED: u16 = 402;

/// Records what model calls cost. Cheap to clone.
#[derive(Clone)]
pub struct SpendingService {
    repository: Arc<dyn SpendingRepository>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdGenerator>,
    audit: AuditService,
    settings: SettingsService,
    /// The user's budget for a month in each document of settings: billionths of a dollar, 0 for none.
    own_budgets: Arc<ViewCache<[u8; 8]>>,
    organizations: Arc<dyn OrganizationRepository>,
    /// The operator's, of each user in each organization.
    month_budget: Option<NanoUsd>,
}

/// The budgets of a calendar month (UTC).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MonthBudgets {
    /// The operator's for each user in each organization.
    pub service: Option<NanoUsd>,
    /// The user's own, in the settings.
    pub own: Option<NanoUsd>,
    /// Of all members of the shared organization together.
    pub organization: Option<NanoUsd>,
}

impl MonthBudgets {
    /// What the user may spend.
    pub fn of_user(&self) -> Option<NanoUsd> {
        self.service.into_iter().chain(self.own).min()
    }
}

/// A call that may be made, until it is settled.
#[derive(Debug)]
pub struct OpenSpending {
    key: SpendingKey,
    reservation: Option<Uuid>,
}

/// A budget is spent, so the call is not made.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum BudgetSpent {
    #[error(
        "the budget of this conversation, {0} USD, is spent; raise max_budget_per_task in the settings, or ask the operator to \
         raise conversation_budget if that is it, and start a new conversation"
    )]
    Conversation(f64),
    #[error(
        "the budget for model calls of this month, {0} USD, is spent; ask the operator to raise broker.monthly_budget, or wait \
         until the next month"
    )]
    Month(f64),
    #[error(
        "your budget for model calls of this month, {0} USD, is spent; raise max_budget_per_month in the settings, or wait until \
         the next month"
    )]
    OwnMonth(f64),
    #[error(
        "the budget of the organization for model calls of this month, {0} USD, is spent; ask its administrators to raise \
         month_budget, or wait until the next month"
    )]
    OrganizationMonth(f64),
}

/// How a call ended.
#[derive(Debug, Clone, Copy, Default)]
pub struct CallResult {
    /// Whether the provider accepted the call; others cost nothing.
    pub is_success: bool,
    /// As the provider reports them.
    pub tokens: Option<TokenCounts>,
    pub request_bytes: u64,
    pub answer_bytes: u64,
}

impl CallResult {
    /// What the call took at this price.
    pub fn spent(&self, price: Option<TokenPrice>) -> Spent {
        if !self.is_success {
            return Spent::default();
        }
        let tokens = self.tokens.unwrap_or(TokenCounts {
            input: self.request_bytes / BYTES_PER_TOKEN,
            output: self.answer_bytes / BYTES_PER_TOKEN,
            ..TokenCounts::default()
        });
        let tokens = TokenCounts {
            input: tokens.input.min(MAX_TOKENS_OF_CALL),
            cached_input: tokens.cached_input.min(MAX_TOKENS_OF_CALL),
            cache_write: tokens.cache_write.min(MAX_TOKENS_OF_CALL),
            output: tokens.output.min(MAX_TOKENS_OF_CALL),
        };
        Spent {
            calls: 1,
            estimated_calls: u64::from(self.tokens.is_none()),
            unpriced_calls: u64::from(price.is_none()),
            tokens,
            cost: price.map(|it| it.cost(&tokens)).unwrap_or_default(),
        }
    }
}

impl SpendingService {
    pub(crate) fn new(
        ports: &Ports,
        policy: &Policy,
        audit: AuditService,
        settings: SettingsService,
    ) -> Self {
        Self {
            repository: Arc::clone(&ports.spending),
            clock: Arc::clone(&ports.clock),
            ids: Arc::clone(&ports.ids),
            audit,
            settings,
            own_budgets: Arc::default(),
            organizations: Arc::clone(&ports.organizations),
            month_budget: policy.month_budget,
        }
    }

    /// The budgets of a month that hold for this owner. One query, and one more in a shared organization.
    pub async fn month_budgets(&self, owner: &OwnerId) -> Result<MonthBudgets, AppError> {
        let shown = |settings: &Settings| {
            let own = settings.max_budget_per_month;
            let own = own.and_then(NanoUsd::from_dollars).unwrap_or_default();
            Ok::<_, AppError>(own.nanos().to_le_bytes())
        };
        let own = self.settings.cached_view(owner, &self.own_budgets, shown);
        let organization = async {
            let Some(id) = owner.shared_organization() else {
                return Ok(None);
            };
            let found = self.organizations.find(id).await?;
            Ok::<_, AppError>(found.and_then(|it| it.month_budget))
        };
        let (own, organization) = futures::try_join!(own, organization)?;
        let own = own.map(|nanos| NanoUsd::new(u64::from_le_bytes(*nanos)));
        Ok(MonthBudgets {
            service: self.month_budget,
            own: own.filter(|it| *it > NanoUsd::default()),
            organization,
        })
    }

    pub fn today(&self) -> Day {
        Day::of(self.clock.now())
    }

    /// Before a call. `request_bytes` is an upper bound.
    pub async fn begin(
        &self,
        grant: &ModelGrant,
        price: Option<TokenPrice>,
        request_bytes: u64,
    ) -> Result<Result<OpenSpending, BudgetSpent>, AppError> {
        let now = self.clock.now();
        let key = SpendingKey {
            owner: grant.owner.clone(),
            conversation: grant.conversation,
            model: short_name(&grant.model),
            day: Day::of(now),
        };
        let of_month = self.month_budgets(&grant.owner).await?;
        let budgets = Budgets {
            conversation: grant.conversation.and(grant.conversation_budget),
            month: of_month.of_user(),
            organization_month: of_month.organization,
        };
        if budgets == Budgets::default() {
            let reservation = None;
            return Ok(Ok(OpenSpending { key, reservation }));
        }
        let most = TokenCounts {
            input: request_bytes / BYTES_PER_TOKEN,
            output: RESERVED_OUTPUT_TOKENS,
            ..TokenCounts::default()
        };
        let reservation = Reservation {
            id: self.ids.uuid(),
            key,
            amount: price.map(|it| it.cost(&most)).unwrap_or_default(),
            at: now,
        };
        let dollars = |it: Option<NanoUsd>| it.unwrap_or_default().dollars();
        let spent = match self.repository.reserve(&reservation, &budgets).await? {
            ReserveOutcome::Reserved => {
                return Ok(Ok(OpenSpending {
                    key: reservation.key,
                    reservation: Some(reservation.id),
                }));
            }
            ReserveOutcome::ConversationBudgetSpent => {
                BudgetSpent::Conversation(dollars(budgets.conversation))
            }
            ReserveOutcome::MonthBudgetSpent if budgets.month == of_month.service => {
                BudgetSpent::Month(dollars(budgets.month))
            }
            ReserveOutcome::MonthBudgetSpent => BudgetSpent::OwnMonth(dollars(budgets.month)),
            ReserveOutcome::OrganizationBudgetSpent => {
                BudgetSpent::OrganizationMonth(dollars(budgets.organization_month))
            }
        };
        self.record_refusal(grant, &spent);
        Ok(Err(spent))
    }

    fn record_refusal(&self, grant: &ModelGrant, spent: &BudgetSpent) {
        let origin = Origin {
            actor: AuditActor::Sandbox(grant.sandbox.clone()),
            status: Some(PAYMENT_REQUIRED),
            ..Origin::service("model call")
        };
        let conversation = grant.conversation.map(|id| format!("conversation:{id}"));
        self.audit
            .record(origin, conversation, Some(spent.to_string()));
    }

    /// After a call: records what it took under the model's name, and ends its reservation. What cannot be stored is logged.
    pub async fn settle(&self, mut open: OpenSpending, model: &str, spent: &Spent) {
        open.key.model = short_name(model);
        if spent.calls == 0 && open.reservation.is_none() {
            return;
        }
        let mut backoff = RETRY_BACKOFF;
        for attempt in 1..=MAX_ATTEMPTS {
            let stored = self.repository.settle(&open.key, spent, open.reservation);
            match stored.await {
                Ok(()) => return,
                // Only a reservation tells whether a failed attempt has added the call.
                Err(error) if attempt == MAX_ATTEMPTS || open.reservation.is_none() => {
                    let cost = spent.cost.dollars();
                    tracing::error!(error = %chain(&error), cost, "a model call is not recorded");
                    return;
                }
                Err(_) => {
                    tokio::time::sleep(backoff).await;
                    backoff *= 2;
                }
            }
        }
    }

    /// What was spent from the first to the last day.
    pub async fn totals(
        &self,
        scope: &Scope,
        days: (Day, Day),
        group: SpendingGroup,
    ) -> Result<Vec<SpendingTotal>, AppError> {
        Ok(self.repository.totals(scope, days, group).await?)
    }

    /// What all members of an organization have spent in it in this month.
    pub async fn of_organization(&self, id: OrganizationId) -> Result<NanoUsd, AppError> {
        let first = self.today().month_start();
        Ok(self.repository.total_of_organization(id, first).await?)
    }

    /// What the scope has spent in this month.
    pub async fn of_month(&self, scope: &Scope) -> Result<NanoUsd, AppError> {
        let today = self.today();
        let days = (today.month_start(), today);
        let totals = self.totals(scope, days, SpendingGroup::Day).await?;
        let costs = totals.iter().map(|it| it.spent.cost);
        Ok(costs.fold(NanoUsd::default(), NanoUsd::plus))
    }
}

/// A name without control characters, cut to the length that is stored.
fn short_name(model: &str) -> String {
    let shown = model.chars().filter(|c| !c.is_control());
    shown.take(MAX_MODEL_NAME_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRICE: TokenPrice = TokenPrice {
        input: 1_000,
        cached_input: 100,
        cache_write: 2_000,
        output: 10_000,
    };

    #[test]
    fn calls_cost_what_is_reported_or_else_estimated() {
        let counted = TokenCounts {
            input: 10,
            cached_input: 20,
            cache_write: 30,
            output: 40,
        };
        let call = CallResult {
            is_success: true,
            tokens: Some(counted),
            request_bytes: 300,
            answer_bytes: 30,
        };
        let spent = call.spent(Some(PRICE));
        assert_eq!(
            (spent.calls, spent.estimated_calls, spent.unpriced_calls),
            (1, 0, 0)
        );
        assert_eq!(spent.cost.nanos(), 10_000 + 2_000 + 60_000 + 400_000);
        let cut_off = CallResult {
            tokens: None,
            ..call
        };
        let spent = cut_off.spent(Some(PRICE));
        assert_eq!(
            (spent.estimated_calls, spent.cost.nanos()),
            (1, 100_000 + 100_000)
        );
        let unpriced = call.spent(None);
        assert_eq!((unpriced.unpriced_calls, unpriced.cost.nanos()), (1, 0));
        assert_eq!(unpriced.tokens, counted);
        let refused = CallResult {
            is_success: false,
            ..call
        };
        assert_eq!(refused.spent(Some(PRICE)), Spent::default());
        let absurd = TokenCounts {
            output: u64::MAX,
            ..counted
        };
        let spent = CallResult {
            tokens: Some(absurd),
            ..call
        }
        .spent(Some(PRICE));
        assert_eq!(spent.tokens.output, MAX_TOKENS_OF_CALL);
    }
}
