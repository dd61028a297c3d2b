//! Deletion of users, and their keys.

use std::time::Duration;

use application::administration::{KeyOptions, Origin};
use domain::audit::AuditActor;
use domain::clock::Timestamp;
use domain::error::{Classify as _, ErrorClass};
use domain::id::{ApiKeyId, UserId};
use domain::page::{PageLimit, PageRequest};
use domain::start_task::StartStatus;
use domain::user::identity::{ApiKey, ApiKeyRepository as _, BOOTSTRAP_KEY_ID, KeyHash};
use domain::user::scope::Scope;
use secrecy::ExposeSecret as _;
use store_memory::FakeBehavior;
use uuid::Uuid;

use crate::fixture::{Fixture, alice, alice_scope, clock, start_input, wait_for};

async fn create_key(fixture: &Fixture) -> &'static str {
    create_key_until(fixture, None).await
}

async fn create_key_until(fixture: &Fixture, expires_at: Option<Timestamp>) -> &'static str {
    let text = "aw_the_key_of_alice";
    let key = ApiKey {
        id: ApiKeyId::new(Uuid::from_u128(1)),
        user: alice().user(),
        hash: KeyHash::of(text),
        prefix: "aw_".to_owned(),
        created_at: clock().now(),
        expires_at,
        last_used_at: None,
        name: None,
        made_by: None,
        is_automation: false,
        organization: None,
    };
    fixture.store.insert(&key).await.expect("it is new");
    text
}

/// The user of a key.
async fn name(fixture: &Fixture, key: &str) -> Option<UserId> {
    let found = fixture.app.authenticate.user(Some(key)).await;
    found.expect("asked").map(|it| it.user)
}

/// The user of a key, from the cache.
fn cached_user(fixture: &Fixture, key: &str) -> Option<UserId> {
    let found = fixture
        .app
        .authenticate
        .cached_user(Some(key), clock().now());
    found.map(|it| it.user)
}

#[tokio::test(start_paused = true)]
async fn deleting_a_user_removes_all_their_data() {
    let fixture = Fixture::new().await;
    let key = create_key(&fixture).await;
    let task = fixture.start_and_wait(start_input(|_| {})).await;
    let sandbox = fixture.sandbox(&task.sandbox_id).await.expect("it runs");
    let sandbox_key = fixture
        .app
        .sandboxes
        .session_key(&sandbox)
        .expect("it runs");
    let known = fixture.app.authenticate.user(Some(key)).await;
    let known = known.expect("asked").map(|it| it.user);
    assert_eq!(known, Some(alice().user()), "and is remembered");
    let administration = &fixture.app.administration;
    let purged = administration
        .purge_user(&alice().user())
        .await
        .expect("deleted");
    let purged = purged.expect("she was there");
    assert_eq!(
        (purged.api_keys, purged.settings, purged.sandboxes),
        (1, 1, 1)
    );
    assert_eq!((purged.conversations, purged.start_tasks), (1, 1));
    let authenticate = &fixture.app.authenticate;
    assert_eq!(authenticate.user(Some(key)).await.expect("asked"), None);
    let sandbox_key = sandbox_key.expose_secret();
    assert_eq!(
        (fixture.app.sandbox_keys)
            .by_session_key(sandbox_key)
            .await
            .expect("asked"),
        None
    );
    assert!(fixture.view(task.conversation_id).await.is_none());
    wait_for(|| async { (fixture.backend.count_sandboxes() == 0).then_some(()) }).await;
    wait_for(|| async {
        let page = PageRequest {
            after: None,
            limit: PageLimit::new(10).expect("in range"),
        };
        let rows = fixture.app.sandboxes.search(&Scope::System, &page).await;
        rows.expect("readable").items.is_empty().then_some(())
    })
    .await;
    // A deleted user may be deleted again; an unknown one may not.
    let again = administration.purge_user(&alice().user()).await;
    assert!(again.expect("asked").is_some());
    let nobody = UserId::parse("nobody").expect("a name");
    let unknown = administration.purge_user(&nobody).await;
    assert!(unknown.expect("asked").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_running_start_ends_with_its_user() {
    let fixture = Fixture::new().await;
    fixture.backend.set_hanging(true);
    let streamed = fixture
        .app
        .starts
        .start_streaming(&alice(), start_input(|_| {}))
        .await;
    let (first, mut updates) = streamed.expect("accepted");
    wait_for(|| async {
        let found = fixture
            .app
            .starts
            .find_many(&alice_scope(), &[first.id])
            .await;
        let now = found.expect("readable").pop().flatten().expect("there");
        (now.status == StartStatus::WaitingForSandbox).then_some(())
    })
    .await;
    fixture
        .app
        .administration
        .purge_user(&alice().user())
        .await
        .expect("deleted");
    // Its followers do not keep waiting.
    let end = async { while updates.recv().await.is_some() {} };
    let end = tokio::time::timeout(Duration::from_secs(30), end).await;
    end.expect("the stream ends");
    fixture.backend.set_hanging(false);
    wait_for(|| async { (fixture.backend.count_sandboxes() == 0).then_some(()) }).await;
    let again = fixture
        .app
        .starts
        .start(&alice(), start_input(|_| {}))
        .await;
    assert!(again.is_err(), "nothing new is made: {again:?}");
    let found = fixture
        .app
        .starts
        .find_many(&alice_scope(), &[first.id])
        .await;
    assert_eq!(found.expect("readable"), [None]);
}

#[tokio::test(start_paused = true)]
async fn a_boot_is_cancelled_when_another_process_deletes_its_user() {
    let fixture = Fixture::new().await;
    fixture.agents.set_behavior(FakeBehavior::Unreachable);
    let sandbox = fixture.app.sandboxes.start(&alice(), None).await;
    let id = sandbox.expect("within the caps").id;
    wait_for(|| async { (fixture.backend.count_sandboxes() == 1).then_some(()) }).await;
    let started = tokio::time::Instant::now();
    // As the command line does it.
    let (users, clock) = (fixture.store.as_ref(), clock());
    let purged = application::users::purge(users, clock.as_ref(), &alice().user()).await;
    assert!(purged.expect("deleted").is_some());
    wait_for(|| async { (fixture.backend.count_sandboxes() == 0).then_some(()) }).await;
    assert!(
        started.elapsed().as_secs() < 100,
        "not by the deadline of the start"
    );
    assert!(fixture.sandbox(&id).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_key_revoked_by_another_process_gives_no_access_after_a_second() {
    let fixture = Fixture::new().await;
    let key = create_key(&fixture).await;
    let who = || name(&fixture, key);
    let wrong = "aw_none";
    let unknown = fixture.app.authenticate.user(Some(wrong)).await;
    assert_eq!(unknown.expect("asked"), None);
    assert_eq!(
        cached_user(&fixture, key),
        None,
        "not cached before a request"
    );
    assert_eq!(who().await, Some(alice().user()));
    assert_eq!(cached_user(&fixture, key), Some(alice().user()));
    let revoked = fixture
        .store
        .revoke(ApiKeyId::new(Uuid::from_u128(1)))
        .await;
    assert!(revoked.expect("revoked"));
    tokio::time::sleep(Duration::from_millis(1_001)).await;
    assert_eq!(cached_user(&fixture, key), None);
    assert_eq!(who().await, None);
    // Misses are not cached.
    create_key(&fixture).await;
    assert_eq!(who().await, Some(alice().user()));
}

#[tokio::test(start_paused = true)]
async fn a_cached_key_expires() {
    let fixture = Fixture::new().await;
    let end = clock().now().plus(Duration::from_secs(3));
    let key = create_key_until(&fixture, Some(end)).await;
    let who = || name(&fixture, key);
    assert_eq!(who().await, Some(alice().user()));
    assert_eq!(cached_user(&fixture, key), Some(alice().user()));
    // The clock of the cache stands still meanwhile.
    let waiting = tokio::task::spawn_blocking(move || {
        let (_keep, never) = std::sync::mpsc::channel::<()>();
        while clock().now() < end {
            let _ = never.recv_timeout(Duration::from_millis(50));
        }
    });
    waiting.await.expect("waited");
    assert_eq!(cached_user(&fixture, key), None);
    assert_eq!(who().await, None);
}

/// A request of alice.
fn origin_with(key: Option<ApiKeyId>) -> Origin {
    Origin {
        actor: AuditActor::User(alice().user()),
        key,
        ..Origin::command("")
    }
}

#[tokio::test(start_paused = true)]
async fn keys_cannot_be_created_without_a_key() {
    let fixture = Fixture::new().await;
    let key = create_key(&fixture).await;
    let (id, wish) = (ApiKeyId::new(Uuid::from_u128(1)), KeyOptions::default());
    let administration = &fixture.app.administration;
    let (open, grace) = (origin_with(None), Duration::ZERO);
    let made = administration
        .create_key(&open, &alice().user(), &wish)
        .await;
    let refused = made.expect_err("a key that outlives open mode");
    assert_eq!(refused.class(), ErrorClass::Conflict);
    let made = administration
        .rotate_key(&open, &alice().user(), id, &wish, grace)
        .await;
    let refused = made.expect_err("a key that outlives open mode");
    assert_eq!(refused.class(), ErrorClass::Conflict);
    let made = administration
        .create_key(&origin_with(Some(id)), &alice().user(), &wish)
        .await;
    made.expect("with a key");
    assert_eq!(name(&fixture, key).await, Some(alice().user()));
}

#[tokio::test(start_paused = true)]
async fn the_configured_key_cannot_be_rotated_or_revoked() {
    let fixture = Fixture::new().await;
    let configured = ApiKey {
        id: BOOTSTRAP_KEY_ID,
        user: alice().user(),
        hash: KeyHash::of("configured"),
        prefix: "conf".to_owned(),
        created_at: clock().now(),
        expires_at: None,
        last_used_at: None,
        name: None,
        made_by: None,
        is_automation: false,
        organization: None,
    };
    fixture.store.insert(&configured).await.expect("it is new");
    create_key(&fixture).await;
    let by = origin_with(Some(ApiKeyId::new(Uuid::from_u128(1))));
    let (administration, wish) = (&fixture.app.administration, KeyOptions::default());
    let revoked = administration
        .revoke_key(&by, &alice().user(), BOOTSTRAP_KEY_ID)
        .await;
    let refused = revoked.expect_err("the next start would store it again");
    assert_eq!(refused.class(), ErrorClass::Conflict);
    let (id, grace) = (BOOTSTRAP_KEY_ID, Duration::ZERO);
    let rotated = administration
        .rotate_key(&by, &alice().user(), id, &wish, grace)
        .await;
    let refused = rotated.expect_err("the next start would store it again");
    assert_eq!(refused.class(), ErrorClass::Conflict);
    assert_eq!(name(&fixture, "configured").await, Some(alice().user()));
}

#[tokio::test(start_paused = true)]
async fn a_request_from_before_the_revocation_creates_no_key() {
    let fixture = Fixture::new().await;
    let key = create_key(&fixture).await;
    assert_eq!(
        name(&fixture, key).await,
        Some(alice().user()),
        "and is let in"
    );
    let id = ApiKeyId::new(Uuid::from_u128(1));
    assert!(fixture.store.revoke(id).await.expect("revoked"));
    let (administration, wish) = (&fixture.app.administration, KeyOptions::default());
    let made = administration
        .create_key(&origin_with(Some(id)), &alice().user(), &wish)
        .await;
    let refused = made.expect_err("a key that outlives the revocation");
    assert_eq!(refused.class(), ErrorClass::Unauthenticated);
    let bob = UserId::parse("bob").expect("a name");
    create_key(&fixture).await;
    let made = administration
        .create_key(&origin_with(Some(id)), &bob, &wish)
        .await;
    let refused = made.expect_err("alice administers nothing");
    assert_eq!(refused.class(), ErrorClass::Forbidden);
}
