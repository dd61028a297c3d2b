//! Conformance tests of `AuditLog`.

use domain::audit::{AuditActor, AuditEntry, AuditFilter, AuditOutcome};
use domain::error::StoreError;
use domain::id::{ApiKeyId, SessionId};
use domain::page::{PageLimit, PageRequest, PageToken};

use crate::fixtures::{at, page, sandbox_id, user, uuid};
use crate::{StorePorts, assert_is};

/// An entry of `ada` at that time.
pub fn entry(n: u64, when: i64) -> AuditEntry {
    AuditEntry {
        id: uuid(n),
        at: at(when),
        actor: AuditActor::User(user("ada")),
        key: None,
        session: None,
        action: "POST /things".to_owned(),
        object: None,
        detail: None,
        source: None,
        outcome: AuditOutcome::Ok,
        status: None,
        request_id: None,
        count: 1,
    }
}

fn full_entry(n: u64, when: i64) -> AuditEntry {
    AuditEntry {
        actor: AuditActor::Sandbox(sandbox_id("s")),
        key: Some(ApiKeyId::new(uuid(77))),
        session: Some(SessionId::new(uuid(78))),
        object: Some("sandbox:s – é \" '".to_owned()),
        detail: Some("secret:TOKEN".to_owned()),
        source: Some("2001:db8::1".to_owned()),
        outcome: AuditOutcome::Failed,
        status: Some(503),
        request_id: Some("r-1".to_owned()),
        count: u32::MAX,
        ..entry(n, when)
    }
}

async fn search(ports: &StorePorts, filter: &AuditFilter) -> Vec<AuditEntry> {
    let found = ports.audit.search(filter, &page(100)).await.unwrap();
    assert_eq!(found.next, None);
    found.items
}

/// Every field is stored. Entries are ordered newest first, and entries of the same time in a fixed order.
pub async fn entries_are_found_newest_first(ports: &StorePorts) {
    ports.audit.append(&[]).await.unwrap();
    let all = [full_entry(1, 1), entry(2, 3), entry(3, 3), entry(4, 2)];
    ports.audit.append(&all).await.unwrap();
    let [one, two, three, four] = all;
    let everything = search(ports, &AuditFilter::default()).await;
    assert_eq!(everything, [three, two, four, one]);
}

/// A stored entry is unchanged, also when a batch with it is sent again.
pub async fn a_batch_can_be_sent_again(ports: &StorePorts) {
    ports.audit.append(&[full_entry(1, 1)]).await.unwrap();
    let again = [entry(1, 9), entry(2, 2)];
    ports.audit.append(&again).await.unwrap();
    let everything = search(ports, &AuditFilter::default()).await;
    assert_eq!(everything, [entry(2, 2), full_entry(1, 1)]);
}

/// A large batch is stored completely.
pub async fn a_large_batch_is_stored(ports: &StorePorts) {
    let all: Vec<_> = (1..=1_200).map(|n| full_entry(n, 1)).collect();
    ports.audit.append(&all).await.unwrap();
    assert_eq!(ports.audit.prune(at(2), 5_000).await.unwrap(), 1_200);
}

/// Every part of a filter applies: `since` is inclusive, `until` is exclusive.
pub async fn a_filter_narrows(ports: &StorePorts) {
    let other = AuditEntry {
        action: "POST /thing".to_owned(),
        ..entry(4, 4)
    };
    let all = [full_entry(1, 1), entry(2, 2), entry(3, 3), other.clone()];
    ports.audit.append(&all).await.unwrap();
    let by = |change: &dyn Fn(&mut AuditFilter)| {
        let mut filter = AuditFilter::default();
        change(&mut filter);
        filter
    };
    let (failed, one) = (AuditOutcome::Failed, full_entry(1, 1));
    let table = [
        (
            by(&|it| it.actor = Some(one.actor.clone())),
            vec![one.clone()],
        ),
        (by(&|it| it.actor = Some(AuditActor::Cli)), vec![]),
        (
            by(&|it| it.action = Some(other.action.clone())),
            vec![other.clone()],
        ),
        (
            by(&|it| it.object.clone_from(&one.object)),
            vec![one.clone()],
        ),
        (by(&|it| it.outcome = Some(failed)), vec![one.clone()]),
        (
            by(&|it| it.since = Some(at(3))),
            vec![other.clone(), entry(3, 3)],
        ),
        (
            by(&|it| it.until = Some(at(3))),
            vec![entry(2, 2), one.clone()],
        ),
        (
            by(&|it| (it.since, it.until) = (Some(at(2)), Some(at(3)))),
            vec![entry(2, 2)],
        ),
    ];
    for (filter, expected) in table {
        assert_eq!(search(ports, &filter).await, expected, "{filter:?}");
    }
}

/// A page continues after the previous one, whatever is added or deleted meanwhile.
pub async fn pages_are_stable(ports: &StorePorts) {
    let all: Vec<_> = (1..=5).map(|n| entry(n, i64::from(n > 2))).collect();
    ports.audit.append(&all).await.unwrap();
    let (any, limit) = (AuditFilter::default(), PageLimit::new(2).unwrap());
    let ask = async |after: Option<PageToken>| {
        let found = ports
            .audit
            .search(&any, &PageRequest { after, limit })
            .await;
        let found = found.unwrap();
        let ids: Vec<_> = found.items.iter().map(|it| it.id).collect();
        (ids, found.next)
    };
    let (first, next) = ask(None).await;
    assert_eq!(first, [uuid(5), uuid(4)]);
    ports.audit.append(&[entry(9, 9)]).await.unwrap();
    let (second, next) = ask(next).await;
    assert_eq!(second, [uuid(3), uuid(2)]);
    let (third, next) = ask(next).await;
    assert_eq!((third, next), (vec![uuid(1)], None));
    let strange = PageRequest {
        after: Some(PageToken("2".to_owned())),
        limit,
    };
    assert_is!(
        ports.audit.search(&any, &strange).await,
        Err(StoreError::InvalidPageToken)
    );
}

/// Pruning deletes old entries, oldest first, up to the limit.
pub async fn old_entries_are_pruned(ports: &StorePorts) {
    let all = [(1, 3), (2, 1), (3, 2), (4, 5)];
    let all: Vec<_> = all.into_iter().map(|(n, when)| entry(n, when)).collect();
    ports.audit.append(&all).await.unwrap();
    assert_eq!(ports.audit.prune(at(5), 2).await.unwrap(), 2);
    let left = search(ports, &AuditFilter::default()).await;
    assert_eq!(left, [entry(4, 5), entry(1, 3)]);
    assert_eq!(ports.audit.prune(at(5), 2).await.unwrap(), 1);
    assert_eq!(ports.audit.prune(at(5), 2).await.unwrap(), 0);
}

/// The entries of a deleted user stay.
pub async fn entries_outlive_their_user(ports: &StorePorts) {
    let key = super::repository::key(1, "ada", 0);
    ports.keys.insert(&key).await.unwrap();
    ports.audit.append(&[entry(1, 1)]).await.unwrap();
    let purged = ports.users.purge(&user("ada"), at(2), 100).await.unwrap();
    assert!(purged.is_some_and(|purged| !purged.more));
    assert_eq!(search(ports, &AuditFilter::default()).await, [entry(1, 1)]);
}

/// Generates the conformance tests of `AuditLog`. `$fresh` is a future of a value
/// that derefs to [`StorePorts`].
#[macro_export]
macro_rules! audit_log_conformance {
    ($fresh:expr) => {
        $crate::conformance_tests!(
            (users::audit_log),
            $fresh,
            [
                entries_are_found_newest_first,
                a_batch_can_be_sent_again,
                a_large_batch_is_stored,
                a_filter_narrows,
                pages_are_stable,
                old_entries_are_pruned,
                entries_outlive_their_user,
            ]
        );
    };
}
