//! Housekeeping: expired data is deleted, by one process at a time.

use std::time::Duration;

use application::{Policy, Retention};
use domain::clock::{Clock as _, SystemClock, Timestamp};
use domain::conversation::ConversationRepository;
use domain::coordination::lease::LeaseRepository;
use domain::id::ApiKeyId;
use domain::start_task::StartTask;
use domain::user::identity::{
    ApiKey, ApiKeyRepository as _, KeyHash, USER_NAME_REUSE_GRACE, UserRepository,
};
use domain::user::scope::Scope;
use uuid::Uuid;

use crate::fixture::{Fixture, alice, start_input, wait_for};

const HOUR: Duration = Duration::from_secs(3600);

/// Everything that has ended is expired, and a pass runs once a minute of tokio's time.
fn at_once(policy: &mut Policy) {
    policy.housekeeping_interval = Duration::from_secs(60);
    policy.retention.set(Retention {
        start_tasks: Some(Duration::ZERO),
        deleted_conversations: Some(Duration::ZERO),
        pending_messages: Some(Duration::ZERO),
        audit: Some(Duration::ZERO),
    });
}

fn never(policy: &mut Policy) {
    at_once(policy);
    policy.retention.set(Retention {
        start_tasks: None,
        deleted_conversations: None,
        pending_messages: None,
        audit: None,
    });
}

async fn is_there(fixture: &Fixture, task: &StartTask) -> bool {
    let found = fixture
        .app
        .starts
        .find_many(&Scope::System, &[task.id])
        .await;
    found.expect("readable")[0].is_some()
}

async fn is_gone(fixture: &Fixture, task: &StartTask) {
    wait_for(|| async { (!is_there(fixture, task).await).then_some(()) }).await;
}

/// Long enough for several passes.
async fn wait_for_passes() {
    tokio::time::sleep(Duration::from_secs(300)).await;
}

fn now() -> Timestamp {
    SystemClock.now()
}

#[tokio::test(start_paused = true)]
async fn an_ended_start_task_is_deleted_and_its_conversation_stays() {
    let fixture = Fixture::with_policy(at_once).await;
    let task = fixture.start_and_wait(start_input(|_| {})).await;
    is_gone(&fixture, &task).await;
    assert!(fixture.view(task.conversation_id).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn unexpired_data_stays() {
    for change in [never, |_: &mut Policy| {}] {
        let fixture = Fixture::with_policy(change).await;
        let task = fixture.start_and_wait(start_input(|_| {})).await;
        wait_for_passes().await;
        assert!(is_there(&fixture, &task).await);
    }
}

#[tokio::test(start_paused = true)]
async fn one_pass_deletes_all_expired_data() {
    let fixture = Fixture::with_policy(at_once).await;
    let leases: &dyn LeaseRepository = fixture.store.as_ref();
    let old = now().minus(48 * HOUR);
    let take = async |name: &str, holder: &str| {
        let taken = leases.acquire(name, holder, old, old.plus(HOUR)).await;
        taken.expect("the store is there")
    };
    for n in 0..1201 {
        assert!(take(&format!("lease {n:04}"), "one").await);
    }
    wait_for(|| async { take("lease 1200", "two").await.then_some(()) }).await;
    // That was the last of them.
    assert!(take("lease 0000", "two").await);
    assert!(take("lease 0700", "two").await);
}

#[tokio::test(start_paused = true)]
async fn only_the_lease_holder_runs_housekeeping() {
    let fixture = Fixture::with_policy(at_once).await;
    let leases: &dyn LeaseRepository = fixture.store.as_ref();
    let held = leases.acquire("housekeeping", "another process", now(), now().plus(HOUR));
    assert!(held.await.expect("the store is there"));
    let task = fixture.start_and_wait(start_input(|_| {})).await;
    wait_for_passes().await;
    assert!(is_there(&fixture, &task).await, "it was not our turn");
    let given_back = leases.release("housekeeping", "another process").await;
    given_back.expect("the store is there");
    is_gone(&fixture, &task).await;
    let held = leases.acquire("housekeeping", "another process", now(), now().plus(HOUR));
    assert!(!held.await.expect("the store is there"), "now it is ours");
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_deletion_is_completed() {
    let fixture = Fixture::with_policy(at_once).await;
    let task = fixture.start_and_wait(start_input(|_| {})).await;
    let begun = fixture.store.purge(&alice().user(), now(), 1).await;
    assert!(
        begun
            .expect("the store is there")
            .expect("she is there")
            .more
    );
    wait_for(|| async {
        let left = fixture
            .store
            .list_partially_deleted(9)
            .await
            .expect("readable");
        left.is_empty().then_some(())
    })
    .await;
    let found =
        ConversationRepository::find(&*fixture.store, &Scope::System, task.conversation_id).await;
    assert_eq!(found.expect("readable"), None);
    wait_for(|| async { (fixture.backend.count_sandboxes() == 0).then_some(()) }).await;
}

#[tokio::test(start_paused = true)]
async fn the_name_of_a_deleted_user_is_free_after_the_grace() {
    let fixture = Fixture::with_policy(at_once).await;
    for (n, name) in [(1, "early"), (2, "late")] {
        let key = ApiKey {
            id: ApiKeyId::new(Uuid::from_u128(n)),
            user: domain::id::UserId::parse(name).expect("a name"),
            hash: KeyHash::of(name),
            prefix: "aw_".to_owned(),
            created_at: now(),
            expires_at: None,
            last_used_at: None,
            name: None,
            made_by: None,
            is_automation: false,
            organization: None,
        };
        fixture.store.insert(&key).await.expect("it is new");
        let when = if n == 1 {
            now().minus(USER_NAME_REUSE_GRACE + HOUR)
        } else {
            now()
        };
        let purged = fixture.store.purge(&key.user, when, 9).await;
        assert!(purged.expect("the store is there").is_some());
    }
    wait_for(|| async {
        let users = UserRepository::list(&*fixture.store, None, 9)
            .await
            .expect("readable");
        (users.len() == 1 && users[0].id.as_str() == "late").then_some(())
    })
    .await;
    wait_for_passes().await;
    assert_eq!(
        UserRepository::list(&*fixture.store, None, 9)
            .await
            .expect("readable")
            .len(),
        1
    );
}
