//! Conformance tests of `UserRepository::purge`: it deletes everything of one user and nothing of others.

use domain::conversation::pending::{EnqueueOutcome, MessageTarget, PendingMessage};
use domain::conversation::{
    Conversation, ConversationFilter, ConversationReport, ConversationView,
};
use domain::coordination::idempotency::{IdempotencyCheck, IdempotentRequest, IdempotentResponse};
use domain::encryption::cipher::Sealed;
use domain::error::{Entity, StoreError};
use domain::event::{AppendOutcome, EventFilter, EventOrder};
use domain::id::{HostId, UserId};
use domain::sandbox::DesiredState;
use domain::start_task::{ClaimLimit, NewStartTask, StartStatus, StartTaskFilter, StartTaskOrder};
use domain::user::egress::EgressRequest;
use domain::user::identity::PurgeCounts;
use domain::user::scope::Scope;
use domain::user::secret::SecretChange;

use super::egress_requests;
use super::repository::key;
use crate::fixtures::{
    AMPLE_CAPS, at, conversation, conversation_id, event, page, sandbox, sandbox_id, scope, secret,
    start, start_in, status_update, task_id, user,
};
use crate::suites::conversations::pending_messages::message;
use crate::{StorePorts, assert_is};

/// An idempotency key that both users use.
fn request(owner: &str) -> IdempotentRequest {
    IdempotentRequest {
        owner: user(owner),
        key: "k".to_owned(),
        fingerprint: "asked".to_owned(),
        since: at(0),
    }
}

fn response(owner: &str) -> IdempotentResponse {
    IdempotentResponse {
        request: request(owner),
        response: "answer".to_owned(),
        at: at(1),
    }
}

async fn append(ports: &StorePorts, sandbox: &str, n: u64, events: u64) -> AppendOutcome {
    let batch: Vec<_> = (0..events)
        .map(|e| event(&format!("e{e}"), "MessageEvent", at(1)))
        .collect();
    let (origin, id) = (sandbox_id(sandbox), conversation_id(n));
    let stored = ports
        .events
        .append(&origin, id, &batch, &ConversationReport::default(), at(1))
        .await;
    stored.unwrap()
}

/// Commits a start, leases it, and ends it if `end` is set. Returns the fence.
async fn run(ports: &StorePorts, start: &NewStartTask, end: Option<StartStatus>) -> i64 {
    let fence = ports.insert_and_claim_start(start).await.fence;
    if let Some(end) = end {
        let ended = ports
            .start_queue
            .advance(start.task.id, fence, &status_update(end), at(2))
            .await;
        ended.unwrap();
    }
    fence
}

/// Stores a request of the user's sandbox.
async fn ask(ports: &StorePorts, owner: &str, n: u64, sandbox: &str) {
    let asked = EgressRequest {
        owner: user(owner),
        ..egress_requests::request(n, sandbox)
    };
    ports.egress_requests.insert(&asked).await.unwrap();
}

/// Stores two keys, settings and two secrets.
async fn seed_configuration(ports: &StorePorts, owner: &str, n: u64) {
    for n in [n, n + 1] {
        ports.keys.insert(&key(n, owner, 0)).await.unwrap();
    }
    let (document, id) = (Sealed::from_text("sealed settings"), user(owner));
    let saved = ports.settings.save(&id, &document, None, at(1)).await;
    saved.unwrap();
    for (n, name) in [(n + 9, "A"), (n + 10, "B")] {
        let secret = secret(n, owner, name, at(1));
        ports.secrets.insert(&secret).await.unwrap();
    }
}

/// Stores a user with objects of every kind; ids begin at `n`. Returns the fence of their unfinished start, which has
/// number `n + 8`.
async fn seed_user(ports: &StorePorts, owner: &str, n: u64) -> i64 {
    seed_configuration(ports, owner, n).await;
    let name = |what: &str| format!("{owner}-{what}");
    for what in ["up", "paused", "deleted"] {
        ports.insert_sandbox(&name(what), owner).await;
    }
    for (what, desired) in [
        ("paused", DesiredState::Paused),
        ("deleted", DesiredState::Deleted),
    ] {
        let id = sandbox_id(&name(what));
        let set = ports
            .sandboxes
            .set_desired(&scope(owner), &id, desired, &AMPLE_CAPS, at(1))
            .await;
        set.unwrap();
    }
    let part = Conversation {
        parent: Some(conversation_id(n + 2)),
        ..conversation(n + 3, owner, &name("up"), at(1))
    };
    let deleted = conversation(n + 5, owner, &name("up"), at(1));
    for row in [
        &conversation(n + 2, owner, &name("up"), at(1)),
        &part,
        &conversation(n + 4, owner, &name("paused"), at(1)),
        &deleted,
    ] {
        ports.insert_conversation(row).await;
    }
    append(ports, &name("up"), n + 2, 5).await;
    append(ports, &name("up"), n + 3, 2).await;
    let deleted = ports
        .conversations
        .delete(&scope(owner), deleted.id, at(2))
        .await;
    assert!(deleted.unwrap());
    let mut keyed = start(n + 6, owner, &name("own"), at(1));
    keyed.response = Some(response(owner));
    run(ports, &keyed, Some(StartStatus::Ready)).await;
    let failed = start_in(n + 7, owner, &name("up"), at(1));
    run(ports, &failed, Some(StartStatus::Error)).await;
    let fence = run(ports, &start_in(n + 8, owner, &name("up"), at(1)), None).await;
    ask(ports, owner, n + 13, &name("up")).await;
    for (n, target) in [
        (n + 11, MessageTarget::Task(task_id(n + 8))),
        (n + 12, MessageTarget::Conversation(conversation_id(n + 4))),
    ] {
        let queued = ports.pending.enqueue(&message(n, owner, target)).await;
        assert_eq!(queued.unwrap(), EnqueueOutcome::Queued(1));
    }
    fence
}

/// The pending messages of these conversations.
async fn waiting(ports: &StorePorts, all: &[ConversationView]) -> Vec<PendingMessage> {
    let mut waiting = Vec::new();
    for view in all {
        let found = ports.pending.list_waiting(view.conversation.id).await;
        waiting.extend(found.unwrap());
    }
    waiting
}

/// The requests of the user's sandboxes.
async fn asked(ports: &StorePorts, owner: &str) -> Vec<EgressRequest> {
    let (owner, page) = (user(owner), page(100));
    let found = ports.egress_requests.search(&owner, None, &page);
    found.await.unwrap().items
}

/// Everything of a user that the ports return.
async fn visible_objects(ports: &StorePorts, owner: &str) -> Vec<String> {
    let all = ConversationFilter {
        include_sub_conversations: true,
        ..ConversationFilter::default()
    };
    let (id, scope) = (user(owner), scope(owner));
    let found = ports.conversations.search(&scope, &all, &page(100)).await;
    let found = found.unwrap().items;
    let mut objects = Vec::new();
    for view in &found {
        let (all, order) = (EventFilter::default(), EventOrder::Timestamp);
        let events = ports
            .events
            .search(&scope, view.conversation.id, &all, order, &page(100))
            .await;
        objects.push(format!("{:?}", events.unwrap().items));
    }
    let (all, order) = (StartTaskFilter::default(), StartTaskOrder::CreatedAt);
    let tasks = ports.tasks.search(&scope, &all, order, &page(100)).await;
    let sandboxes = ports.sandboxes.search(&scope, &page(100)).await.unwrap();
    objects.extend([
        format!("{found:?}"),
        format!("{:?}", tasks.unwrap().items),
        format!("{:?}", sandboxes.items),
        format!("{:?}", ports.keys.list(Some(&id)).await.unwrap()),
        format!("{:?}", ports.settings.load(&(&id).into()).await.unwrap()),
        format!("{:?}", ports.secrets.all(&(&id).into()).await.unwrap()),
        format!("{:?}", waiting(ports, &found).await),
        format!(
            "{:?}",
            ports.idempotency.look_up(&request(owner)).await.unwrap()
        ),
        format!("{:?}", asked(ports, owner).await),
    ]);
    objects
}

/// Repeats the purge, with this limit, until it is complete. Panics if it does not end.
async fn purge(ports: &StorePorts, owner: &UserId, limit: usize) -> (PurgeCounts, usize) {
    let mut sum = PurgeCounts::default();
    for calls in 1..200 {
        let purged = ports.users.purge(owner, at(9), limit).await.unwrap();
        sum += purged.expect("an existing user");
        if !sum.more {
            return (sum, calls);
        }
    }
    panic!("the purge does not end");
}

/// After the purge only the sandboxes to be removed are left, whatever the limit of a call.
pub async fn a_purge_leaves_nothing(ports: &StorePorts) {
    let nothing = visible_objects(ports, "stranger").await;
    for (round, limit) in [1, 3, 1000].into_iter().enumerate() {
        let (owner, n) = (format!("alice-{round}"), 100 * (round as u64 + 1));
        seed_user(ports, &owner, n).await;
        let (sum, calls) = purge(ports, &user(&owner), limit).await;
        let expected = PurgeCounts {
            api_keys: 2,
            settings: 1,
            secrets: 2,
            // `up`, `paused` and `own`; the fourth was marked already.
            sandboxes: 3,
            start_tasks: 3,
            conversations: 3,
            events: 7,
            // A stored response, the record of a deleted conversation, a request of a sandbox, and two messages.
            others: 5,
            more: false,
        };
        assert_eq!(sum, expected);
        // With limit 1: one call for each row, and one that finds no more.
        assert_eq!(calls, [19, 7, 1][round]);
        assert_eq!(visible_objects(ports, &owner).await, nothing);
        for what in ["up", "paused", "deleted", "own"] {
            let id = sandbox_id(&format!("{owner}-{what}"));
            let row = ports
                .sandbox_row(&id)
                .await
                .expect("a sandbox marked for removal");
            assert_eq!(row.desired, DesiredState::Deleted);
        }
        // The records of deleted conversations and the reserved id are gone, too: other users can use both ids.
        for id in [n + 5, n + 8] {
            let mut new = start(1000 + id, "bob", &format!("bob-{id}"), at(9));
            new.task.conversation_id = conversation_id(id);
            // No worker claims it.
            new.task.host = HostId::parse("elsewhere").unwrap();
            ports.insert_start(&new).await;
        }
    }
}

/// Other users' objects stay, also with the same ids: a sub-conversation of a deleted user's conversation, and a failed
/// start of it.
pub async fn others_are_unaffected(ports: &StorePorts) {
    seed_user(ports, "bob", 200).await;
    let shared = start_in(150, "bob", "bob-up", at(1));
    run(ports, &shared, Some(StartStatus::Error)).await;
    seed_user(ports, "alice", 100).await;
    let mut hers = start(151, "alice", "alice-other", at(1));
    hers.task.conversation_id = conversation_id(150);
    run(ports, &hers, Some(StartStatus::Ready)).await;
    let part = Conversation {
        parent: Some(conversation_id(102)),
        ..conversation(160, "bob", "bob-up", at(1))
    };
    ports.insert_conversation(&part).await;
    append(ports, "bob-up", 160, 3).await;
    let before = visible_objects(ports, "bob").await;
    purge(ports, &user("alice"), 4).await;
    assert_eq!(visible_objects(ports, "bob").await, before);
    assert_eq!(
        append(ports, "bob-up", 205, 1).await,
        AppendOutcome::Deleted
    );
    let users = ports.users.list(None, 9).await.unwrap();
    assert_eq!(users[1].id, user("bob"));
    assert_eq!(users[1].deleted_at, None);
    let same = IdempotencyCheck::Replay("answer".to_owned());
    assert_eq!(
        ports.idempotency.look_up(&request("bob")).await.unwrap(),
        same
    );
}

/// After the first call, with any limit, no key, settings, secret, worker or sandbox of the user is usable.
pub async fn the_first_call_revokes_all_access(ports: &StorePorts) {
    let fence = seed_user(ports, "alice", 100).await;
    let alice = user("alice");
    let purged = ports.users.purge(&alice, at(9), 1).await.unwrap();
    assert!(purged.unwrap().more);
    assert_eq!(
        ports.users.list_partially_deleted(9).await.unwrap(),
        std::slice::from_ref(&alice)
    );
    assert_eq!(ports.keys.list(Some(&alice)).await.unwrap(), []);
    assert_eq!(ports.settings.load(&(&alice).into()).await.unwrap(), None);
    assert_eq!(ports.secrets.all(&(&alice).into()).await.unwrap(), []);
    let found = ports.sandboxes.search(&scope("alice"), &page(9)).await;
    assert_eq!(found.unwrap().items, []);
    let id = task_id(108);
    let task = ports.tasks.find_many(&Scope::System, &[id]).await.unwrap();
    let task = task[0].clone().expect("the call deletes another row first");
    assert_eq!(
        (task.status, task.sealed_secrets),
        (StartStatus::Error, None)
    );
    let stale = [
        ports.start_queue.renew(id, fence, at(99)).await.err(),
        ports
            .start_queue
            .advance(id, fence, &status_update(StartStatus::Ready), at(9))
            .await
            .err(),
        ports
            .start_queue
            .fail(id, fence, &status_update(StartStatus::Error), at(9))
            .await
            .err(),
    ];
    for error in stale {
        assert_is!(error, Some(StoreError::Stale { .. }));
    }
    let begun = status_update(StartStatus::StartingConversation);
    let row = conversation(108, "alice", "alice-up", at(9));
    let begun = ports
        .start_queue
        .begin_conversation(id, fence, &row, &begun, at(9))
        .await;
    assert_is!(begun, Err(StoreError::Stale { .. }));
    assert_eq!(
        ports
            .start_queue
            .claim(&task.host, at(99), at(999), ClaimLimit::tasks(9))
            .await
            .unwrap(),
        []
    );
    purge(ports, &alice, 1000).await;
    assert_eq!(ports.users.list_partially_deleted(9).await.unwrap(), []);
}

/// A request that was authenticated before the deletion stores nothing after it.
pub async fn writes_of_a_deleted_user_are_refused(ports: &StorePorts) {
    seed_user(ports, "alice", 100).await;
    let alice = user("alice");
    ports.users.purge(&alice, at(9), 1).await.unwrap();
    let assert_refused = |error: Option<StoreError>| {
        assert_is!(
            error,
            Some(StoreError::NotFound {
                entity: Entity::DeletedUser
            })
        );
    };
    let row = sandbox("new", "alice", at(9));
    assert_refused(ports.sandboxes.insert(&row, &AMPLE_CAPS).await.err());
    let mut answer = response("alice");
    "other".clone_into(&mut answer.request.key);
    let once = ports.sandboxes.insert_once(&row, &AMPLE_CAPS, &answer);
    assert_refused(once.await.err());
    let new = start(120, "alice", "new", at(9));
    assert_refused(ports.tasks.insert(&new, &AMPLE_CAPS).await.err());
    let document = Sealed::from_text("sealed again");
    let owner = (&alice).into();
    let saved = ports.settings.save(&owner, &document, None, at(9));
    assert_refused(saved.await.err());
    let target = MessageTarget::Conversation(conversation_id(102));
    let late = message(131, "alice", target);
    assert_refused(ports.pending.enqueue(&late).await.err());
    let late = secret(119, "alice", "A", at(9));
    assert_refused(ports.secrets.insert(&late).await.err());
    let change = SecretChange::default();
    assert_refused(ports.secrets.put(&late, &change).await.err());
    let inside = start_in(121, "alice", "alice-up", at(9));
    let inside = ports.tasks.insert(&inside, &AMPLE_CAPS).await;
    assert_is!(
        inside,
        Err(StoreError::NotFound {
            entity: Entity::Sandbox
        })
    );
    for desired in [DesiredState::Running, DesiredState::Paused] {
        let id = sandbox_id("alice-paused");
        let set = ports
            .sandboxes
            .set_desired(&Scope::System, &id, desired, &AMPLE_CAPS, at(9))
            .await;
        assert_eq!(set.unwrap(), None);
    }
    let inserted = ports.keys.insert(&key(130, "alice", 10)).await;
    assert_is!(inserted, Err(StoreError::UserNameReserved));
    purge(ports, &alice, 1000).await;
    assert_eq!(
        visible_objects(ports, "alice").await,
        visible_objects(ports, "stranger").await
    );
}

/// Reports of a sandbox after the deletion are dropped, before and after its row is removed.
pub async fn late_reports_do_not_recreate_conversations(ports: &StorePorts) {
    seed_user(ports, "alice", 100).await;
    purge(ports, &user("alice"), 1000).await;
    for round in 0..2 {
        for n in [102, 105, 107, 108, 140] {
            assert_eq!(
                append(ports, "alice-up", n, 1).await,
                AppendOutcome::Unknown
            );
            let row = conversation(n, "alice", "alice-up", at(10));
            let adopted = ports.conversation_reports.adopt(&row).await.unwrap();
            assert_eq!(adopted, AppendOutcome::Unknown, "round {round}, {n}");
        }
        ports
            .host_sandboxes
            .remove(&sandbox_id("alice-up"))
            .await
            .unwrap();
    }
    assert_eq!(
        visible_objects(ports, "alice").await,
        visible_objects(ports, "stranger").await
    );
}

/// A call deletes not much more than its limit, also of one long conversation.
pub async fn a_call_deletes_a_bounded_part(ports: &StorePorts) {
    seed_user(ports, "alice", 100).await;
    append(ports, "alice-paused", 104, 500).await;
    let mut events = 0;
    for _ in 0..200 {
        let purged = ports.users.purge(&user("alice"), at(9), 50).await.unwrap();
        let purged = purged.unwrap();
        let rows = purged.start_tasks + purged.conversations + purged.events + purged.others;
        assert!(rows <= 50, "{purged:?}");
        events += purged.events;
        if !purged.more {
            assert_eq!(events, 507);
            return;
        }
    }
    panic!("the purge does not end");
}

/// The local user of open mode has no row and is deleted like any other.
pub async fn a_local_user_without_a_key_can_be_deleted(ports: &StorePorts) {
    ports.insert_sandbox("s", "local").await;
    ports
        .insert_conversation(&conversation(1, "local", "s", at(0)))
        .await;
    let (sum, _) = purge(ports, &user("local"), 10).await;
    assert_eq!((sum.sandboxes, sum.conversations), (1, 1));
    assert_eq!(
        visible_objects(ports, "local").await,
        visible_objects(ports, "stranger").await
    );
    let row = sandbox("new", "local", at(9));
    let inserted = ports.sandboxes.insert(&row, &AMPLE_CAPS).await;
    assert_is!(inserted, Err(StoreError::NotFound { .. }));
}
