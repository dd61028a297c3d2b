//! Conformance tests of `SpendingRepository`.

use domain::agent::spending::{
    Budgets, Day, NanoUsd, Reservation, ReserveOutcome, SpendingGroup, SpendingKey, Spent,
    TokenCounts,
};
use domain::clock::Timestamp;
use domain::user::organization::OrganizationChange;
use domain::user::permission::MemberRole;
use domain::user::scope::Scope;

use super::organizations;
use crate::StorePorts;
use crate::fixtures::{at, conversation_id, scope, user, uuid};

const EVER: (Day, Day) = (Day::new(0), Day::new(i32::MAX));

fn key(owner: &str, conversation: Option<u64>, day: &str) -> SpendingKey {
    SpendingKey {
        owner: user(owner),
        conversation: conversation.map(conversation_id),
        model: "gpt é".to_owned(),
        day: Day::of_date(day.parse().unwrap()),
    }
}

fn spent(cost: u64) -> Spent {
    Spent {
        calls: 1,
        estimated_calls: 0,
        unpriced_calls: 1,
        tokens: TokenCounts {
            input: 1,
            cached_input: 2,
            cache_write: 3,
            output: 4,
        },
        cost: NanoUsd::new(cost),
    }
}

fn reservation(n: u64, amount: u64, key: SpendingKey) -> Reservation {
    Reservation {
        id: uuid(n),
        key,
        amount: NanoUsd::new(amount),
        at: at(i64::try_from(n).unwrap()),
    }
}

fn budgets(conversation: Option<u64>, month: Option<u64>) -> Budgets {
    Budgets {
        conversation: conversation.map(NanoUsd::new),
        month: month.map(NanoUsd::new),
        organization_month: None,
    }
}

async fn costs(ports: &StorePorts, scope: &Scope, group: SpendingGroup) -> Vec<(String, u64)> {
    let totals = ports.spending.totals(scope, EVER, group).await.unwrap();
    let pair = |it: domain::agent::spending::SpendingTotal| (it.name, it.spent.cost.nanos());
    totals.into_iter().map(pair).collect()
}

fn pairs(all: &[(&str, u64)]) -> Vec<(String, u64)> {
    let pairs = all.iter();
    pairs
        .map(|(name, cost)| ((*name).to_owned(), *cost))
        .collect()
}

/// What calls took is added up by owner, day, conversation and model.
pub async fn calls_are_added_up(ports: &StorePorts) {
    for (name, owner) in [("s", "alice"), ("t", "bob")] {
        ports.insert_sandbox(name, owner).await;
    }
    for (key, cost) in [
        (key("alice", Some(1), "2026-11-27"), 5),
        (key("alice", Some(1), "2026-11-27"), 7),
        (key("alice", None, "2026-11-28"), 30),
        (key("bob", Some(2), "2026-11-28"), 100),
    ] {
        ports
            .spending
            .settle(&key, &spent(cost), None)
            .await
            .unwrap();
    }
    let alice = scope("alice");
    let all = ports
        .spending
        .totals(&alice, EVER, SpendingGroup::Model)
        .await
        .unwrap();
    let expected = Spent {
        calls: 3,
        unpriced_calls: 3,
        estimated_calls: 0,
        tokens: TokenCounts {
            input: 3,
            cached_input: 6,
            cache_write: 9,
            output: 12,
        },
        cost: NanoUsd::new(42),
    };
    assert_eq!((all[0].name.as_str(), all[0].spent), ("gpt é", expected));
    let conversation = conversation_id(1).to_string();
    for (scope, group, expected) in [
        (
            &alice,
            SpendingGroup::Day,
            pairs(&[("2026-11-27", 12), ("2026-11-28", 30)]),
        ),
        (
            &alice,
            SpendingGroup::Conversation,
            pairs(&[("", 30), (&conversation, 12)]),
        ),
        (
            &Scope::System,
            SpendingGroup::User,
            pairs(&[("bob", 100), ("alice", 42)]),
        ),
        (&scope("carol"), SpendingGroup::User, pairs(&[])),
    ] {
        assert_eq!(costs(ports, scope, group).await, expected);
    }
}

/// Totals are those of the days that are asked for, and old records are deleted.
pub async fn days_bound_totals_and_records(ports: &StorePorts) {
    for day in ["2026-11-27", "2026-11-28"] {
        let key = key("alice", None, day);
        ports.spending.settle(&key, &spent(5), None).await.unwrap();
    }
    let alice = scope("alice");
    let day = |text: &str| Day::of_date(text.parse().unwrap());
    let days = (day("2026-11-28"), day("2026-11-28"));
    let one = ports
        .spending
        .totals(&alice, days, SpendingGroup::Day)
        .await;
    assert_eq!(one.unwrap().len(), 1);
    let before = Timestamp::new("2026-11-28T12:00:00Z".parse().unwrap());
    assert_eq!(ports.spending.prune(before, 9).await.unwrap(), 1);
    assert_eq!(
        costs(ports, &Scope::System, SpendingGroup::Day).await.len(),
        1
    );
}

/// Figures near the limits of the store neither fail nor wrap.
pub async fn no_figure_overflows(ports: &StorePorts) {
    ports.insert_sandbox("s", "alice").await;
    let key = key("alice", Some(1), "2026-11-27");
    for _ in 0..4 {
        let most = Spent {
            tokens: TokenCounts {
                output: u64::MAX,
                ..TokenCounts::default()
            },
            ..spent(u64::MAX)
        };
        ports.spending.settle(&key, &most, None).await.unwrap();
    }
    let outcome = ports
        .spending
        .reserve(&reservation(1, u64::MAX, key), &budgets(Some(5), None))
        .await;
    assert_eq!(outcome.unwrap(), ReserveOutcome::ConversationBudgetSpent);
    let total = costs(ports, &Scope::System, SpendingGroup::User).await;
    assert!(total[0].1 > u64::MAX / 8, "{total:?}");
}

async fn reserve(
    ports: &StorePorts,
    n: u64,
    (conversation, day): (u64, &str),
    budgets: Budgets,
) -> ReserveOutcome {
    let reservation = reservation(n, 60, key("alice", Some(conversation), day));
    let outcome = ports.spending.reserve(&reservation, &budgets).await;
    outcome.unwrap()
}

/// A call is refused once a budget is spent or reserved.
pub async fn budgets_hold(ports: &StorePorts) {
    let (today, first) = ("2026-11-27", "2026-12-01");
    let (of_conversation, of_month) = (budgets(Some(100), None), budgets(None, Some(100)));
    for (n, place, budgets, expected) in [
        (1, (1, today), of_conversation, ReserveOutcome::Reserved),
        (2, (1, today), of_conversation, ReserveOutcome::Reserved),
        (
            3,
            (1, today),
            of_conversation,
            ReserveOutcome::ConversationBudgetSpent,
        ),
        (4, (2, today), of_conversation, ReserveOutcome::Reserved),
        (5, (3, today), of_month, ReserveOutcome::MonthBudgetSpent),
    ] {
        assert_eq!(reserve(ports, n, place, budgets).await, expected, "{n}");
    }
    for (n, conversation) in [(1, 1), (2, 1), (4, 2)] {
        let key = key("alice", Some(conversation), today);
        let took = spent(20);
        let settled = ports.spending.settle(&key, &took, Some(uuid(n)));
        settled.await.unwrap();
    }
    for (n, place, budgets, expected) in [
        (6, (1, today), of_conversation, ReserveOutcome::Reserved),
        (7, (3, first), of_month, ReserveOutcome::Reserved),
        (8, (3, first), of_month, ReserveOutcome::MonthBudgetSpent),
    ] {
        assert_eq!(reserve(ports, n, place, budgets).await, expected, "{n}");
    }
}

/// The budget of an organization is that of all its members, also of former ones, in that organization.
pub async fn budgets_of_organizations_hold(ports: &StorePorts) {
    organizations::found(ports).await;
    organizations::add(ports, 900, "bob", MemberRole::Member).await;
    let (today, next) = ("2026-11-27", "2026-12-01");
    let of = |name: &str, day: &str| SpendingKey {
        owner: organizations::shared_owner(name),
        ..key(name, Some(1), day)
    };
    let budgets = Budgets {
        organization_month: Some(NanoUsd::new(100)),
        ..Budgets::default()
    };
    let settled = [
        of("ada", today),
        of("ada", "2026-10-31"),
        key("ada", None, today),
    ];
    for key in settled {
        let stored = ports.spending.settle(&key, &spent(60), None).await;
        stored.unwrap();
    }
    for (n, key, expected) in [
        (1, of("bob", today), ReserveOutcome::Reserved),
        (2, of("ada", today), ReserveOutcome::OrganizationBudgetSpent),
        (3, of("bob", today), ReserveOutcome::OrganizationBudgetSpent),
        (4, key("ada", None, today), ReserveOutcome::Reserved),
    ] {
        let reservation = reservation(n, 60, key);
        let outcome = ports.spending.reserve(&reservation, &budgets).await;
        assert_eq!(outcome.unwrap(), expected, "{n}");
    }
    let (bob, took) = (of("bob", today), spent(70));
    let stored = ports.spending.settle(&bob, &took, Some(uuid(1))).await;
    stored.unwrap();
    let leave = OrganizationChange::RemoveMember {
        organization: organizations::organization_id(),
        user: user("bob"),
        before: MemberRole::Member,
    };
    organizations::change(ports, leave).await.unwrap();
    for (day, expected) in [(today, 130), (next, 0)] {
        let first = Day::of_date(day.parse().unwrap()).month_start();
        let id = organizations::organization_id();
        let total = ports.spending.total_of_organization(id, first).await;
        assert_eq!(total.unwrap(), NanoUsd::new(expected), "{day}");
    }
    for (n, day, expected) in [
        (5, today, ReserveOutcome::OrganizationBudgetSpent),
        (6, next, ReserveOutcome::Reserved),
    ] {
        let reservation = reservation(n, 60, of("ada", day));
        let outcome = ports.spending.reserve(&reservation, &budgets).await;
        assert_eq!(outcome.unwrap(), expected, "{n}");
    }
}

/// Concurrent calls of many members exceed their organization's budget by at most one reservation.
pub async fn a_race_of_members_exceeds_a_budget_by_one_reservation(ports: &StorePorts) {
    organizations::found(ports).await;
    organizations::add(ports, 900, "bob", MemberRole::Member).await;
    let races = (0..50).map(|n| {
        let spending = ports.spending.clone();
        let name = if n % 2 == 0 { "ada" } else { "bob" };
        let key = SpendingKey {
            owner: organizations::shared_owner(name),
            ..key(name, Some(n), "2026-11-27")
        };
        async move {
            let budgets = Budgets {
                organization_month: Some(NanoUsd::new(100)),
                ..Budgets::default()
            };
            let reservation = reservation(n, 30, key);
            spending.reserve(&reservation, &budgets).await.unwrap()
        }
    });
    let outcomes = futures::future::join_all(races).await;
    let reserved = outcomes
        .iter()
        .filter(|it| **it == ReserveOutcome::Reserved);
    assert_eq!(reserved.count(), 4);
}

/// A settled reservation counts with what the call took, once; a call that took nothing leaves nothing.
pub async fn a_reservation_is_settled_once(ports: &StorePorts) {
    let (today, budget) = ("2026-11-27", budgets(Some(50), None));
    let key = key("alice", Some(1), today);
    let outcome = reserve(ports, 1, (1, today), budget).await;
    assert_eq!(outcome, ReserveOutcome::Reserved);
    for _ in 0..2 {
        let took = spent(20);
        let settled = ports.spending.settle(&key, &took, Some(uuid(1)));
        settled.await.unwrap();
    }
    let expected = [("alice".to_owned(), 20)];
    let found = costs(ports, &Scope::System, SpendingGroup::User).await;
    assert_eq!(found, expected);
    for n in [2, 3] {
        let outcome = reserve(ports, n, (1, today), budget).await;
        assert_eq!(outcome, ReserveOutcome::Reserved);
        let nothing = Spent::default();
        let settled = ports.spending.settle(&key, &nothing, Some(uuid(n)));
        settled.await.unwrap();
    }
    let found = costs(ports, &Scope::System, SpendingGroup::User).await;
    assert_eq!(found, expected);
}

/// 100 concurrent calls exceed a budget by at most one reservation.
pub async fn a_race_exceeds_a_budget_by_one_reservation(ports: &StorePorts) {
    ports.insert_sandbox("s", "alice").await;
    let races = (0..100).map(|n| {
        let spending = ports.spending.clone();
        async move {
            let reservation = reservation(n, 30, key("alice", Some(1), "2026-11-27"));
            let budgets = budgets(Some(100), Some(1_000));
            spending.reserve(&reservation, &budgets).await.unwrap()
        }
    });
    let outcomes = futures::future::join_all(races).await;
    let reserved = outcomes
        .iter()
        .filter(|it| **it == ReserveOutcome::Reserved);
    assert_eq!(reserved.count(), 4);
}

/// The reservations of a process that died count with their whole amount, once.
pub async fn abandoned_reservations_count(ports: &StorePorts) {
    ports.insert_sandbox("s", "alice").await;
    for n in [10, 20] {
        let reservation = reservation(n, 30, key("alice", Some(1), "2026-11-27"));
        let outcome = ports
            .spending
            .reserve(&reservation, &Budgets::default())
            .await;
        assert_eq!(outcome.unwrap(), ReserveOutcome::Reserved);
    }
    for expected in [1, 0] {
        let settled = ports.spending.settle_abandoned(at(15), 9).await;
        assert_eq!(settled.unwrap(), expected);
    }
    let late = key("alice", Some(1), "2026-11-27");
    ports
        .spending
        .settle(&late, &spent(5), Some(uuid(10)))
        .await
        .unwrap();
    let totals = ports
        .spending
        .totals(&Scope::System, EVER, SpendingGroup::User)
        .await;
    let total = &totals.unwrap()[0].spent;
    assert_eq!(
        (total.calls, total.estimated_calls, total.cost.nanos()),
        (1, 1, 30)
    );
}

/// Nothing is kept of a deleted user, and nothing is added for one.
pub async fn a_deleted_user_leaves_no_spending(ports: &StorePorts) {
    ports.insert_sandbox("s", "alice").await;
    let key = key("alice", Some(1), "2026-11-27");
    ports.spending.settle(&key, &spent(5), None).await.unwrap();
    let reserved = reservation(1, 30, key.clone());
    ports
        .spending
        .reserve(&reserved, &Budgets::default())
        .await
        .unwrap();
    ports.users.purge(&user("alice"), at(5), 100).await.unwrap();
    assert_eq!(costs(ports, &Scope::System, SpendingGroup::User).await, []);
    ports.spending.settle(&key, &spent(5), None).await.unwrap();
    assert_eq!(
        ports.spending.settle_abandoned(at(100), 9).await.unwrap(),
        0
    );
    assert_eq!(costs(ports, &Scope::System, SpendingGroup::User).await, []);
}

/// Generates the conformance tests of spending. `$fresh` is a future of a value that derefs to [`StorePorts`].
#[macro_export]
macro_rules! spending_conformance {
    ($fresh:expr) => {
        $crate::conformance_tests!(
            (users::spending),
            $fresh,
            [
                calls_are_added_up,
                days_bound_totals_and_records,
                no_figure_overflows,
                budgets_hold,
                budgets_of_organizations_hold,
                a_race_of_members_exceeds_a_budget_by_one_reservation,
                a_reservation_is_settled_once,
                a_race_exceeds_a_budget_by_one_reservation,
                abandoned_reservations_count,
                a_deleted_user_leaves_no_spending,
            ]
        );
    };
}
