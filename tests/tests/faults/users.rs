//! Isolation of users from each other.

use acceptance::Client;
use acceptance::client::{Conversation, Task, text};
use acceptance::proxy::relay::client_builder_for;
use acceptance::wait::{wait_for, within};
use serde_json::json;

use crate::support::{RECONCILE_TIMEOUT, World, configure_model};

/// Alice and Bob, each with a finished conversation.
struct TwoUsers {
    world: World,
    alice: Client,
    bob: Client,
    task: Task,
    alices: Conversation,
    bobs: Conversation,
}

async fn two_users() -> TwoUsers {
    let world = World::with_faults("").await;
    let alice = world.service.user("alice");
    let bob = world.service.user("bob");
    configure_model(&alice).await;
    configure_model(&bob).await;
    let task = alice.start_with("hello").await;
    let alices = alice.wait_until_ready(&task).await;
    let alices = alice
        .wait_for_execution_status(&alices.id, "finished")
        .await;
    let bobs = bob.converse("hello").await;
    let bobs = bob.wait_for_execution_status(&bobs.id, "finished").await;
    TwoUsers {
        world,
        alice,
        bob,
        task,
        alices,
        bobs,
    }
}

#[tokio::test]
async fn user_reads_nothing_of_another_user() {
    let TwoUsers {
        world,
        alice,
        bob,
        task,
        alices,
        bobs,
    } = two_users().await;
    let (id, sandbox) = (&alices.id, &alices.sandbox_id);
    let ids = |list: Vec<Conversation>| -> Vec<String> { list.into_iter().map(|c| c.id).collect() };
    assert_eq!(ids(alice.conversations().await), [id.as_str()]);
    assert_eq!(ids(bob.conversations().await), [bobs.id.as_str()]);
    assert_eq!(ids(world.user.conversations().await), [""; 0]);
    assert_eq!(bob.sandboxes().await.len(), 1);
    assert!(bob.find_conversation(id).await.is_none());
    assert!(bob.sandbox(sandbox).await.is_none());
    assert_eq!(bob.count_events(id).await, 0);
    assert!(bob.events(id).await.is_empty());
    let tasks = format!("/api/v1/app-conversations/start-tasks?ids={}", task.id);
    assert_eq!(bob.get(&tasks).await.ok(), json!([null]));
    let tasks = format!("/api/v1/app-conversations/start-tasks/count?conversation_id__eq={id}");
    assert_eq!(
        (bob.get(&tasks).await.ok(), alice.get(&tasks).await.ok()),
        (json!(0), json!(1))
    );

    world.service.assert_no_orphans(&[&alice, &bob]).await;
}

#[tokio::test]
async fn user_changes_nothing_of_another_user() {
    let TwoUsers {
        world: _world,
        alice,
        bob,
        alices,
        ..
    } = two_users().await;
    let (id, sandbox) = (&alices.id, &alices.sandbox_id);
    let conversation = format!("/api/v1/app-conversations/{id}");
    let message = json!({"content": text("hello")});
    assert_eq!(
        bob.patch(&conversation, &json!({"title": "mine"}))
            .await
            .status,
        404
    );
    assert_eq!(
        bob.post(&format!("{conversation}/send-message"), &message)
            .await
            .status,
        404
    );
    assert_eq!(bob.delete(&conversation).await.status, 404);
    for verb in ["pause", "resume"] {
        let path = format!("/api/v1/sandboxes/{sandbox}/{verb}");
        assert_eq!(bob.post(&path, &json!({})).await.status, 404, "{verb}");
    }
    let path = format!("/api/v1/sandboxes/{sandbox}?sandbox_id={sandbox}");
    assert_eq!(bob.delete(&path).await.status, 404);
    for request in [
        json!({"sandbox_id": sandbox}),
        json!({"parent_conversation_id": id}),
    ] {
        let reply = bob.post("/api/v1/app-conversations", &request).await;
        assert!(matches!(reply.status, 400 | 404), "{request}: {reply:?}");
    }
    // The id of Alice's conversation is taken; Bob does not get the conversation.
    let request = json!({"conversation_id": id, "initial_message": {"content": text("hello")}});
    let reply = bob.post("/api/v1/app-conversations", &request).await;
    if reply.status == 200 {
        let task = bob
            .task(reply.body["id"].as_str().unwrap_or_default())
            .await;
        assert_eq!(bob.wait_for_end(&task).await.status, "ERROR");
    } else {
        assert_eq!(reply.status, 409, "{reply:?}");
    }
    assert_untouched(&alice, &alices).await;
}

#[tokio::test]
async fn sandbox_cannot_report_about_a_foreign_conversation() {
    let TwoUsers {
        world: _world,
        alice,
        bob,
        alices,
        bobs,
        ..
    } = two_users().await;
    let id = &alices.id;
    let bobs_sandbox = bob.with_key(
        bobs.session_api_key
            .as_deref()
            .expect("the conversation has no session key"),
    );
    let forged =
        json!([{"id": "forged", "kind": "MessageEvent", "timestamp": "2026-01-01T00:00:00"}]);
    let path = format!("/api/v1/webhooks/events/{id}");
    // The same response as for an unknown conversation, so it does not reveal that this one exists.
    assert_eq!(bobs_sandbox.post(&path, &forged).await.status, 200);
    let info = json!({"id": id, "execution_status": "error", "title": "forged", "agent": {"kind": "Agent"}});
    let reply = bobs_sandbox
        .post("/api/v1/webhooks/conversations", &info)
        .await;
    assert_eq!(reply.status, 200, "{reply:?}");
    assert_untouched(&alice, &alices).await;
}

async fn assert_untouched(alice: &Client, alices: &Conversation) {
    let now = alice.conversation(&alices.id).await;
    assert_eq!(now.execution_status.as_deref(), Some("finished"));
    assert_eq!(now.title, alices.title);
    assert_eq!(now.sandbox_status, "RUNNING");
    let events = alice.events(&alices.id).await;
    assert!(events.iter().all(|event| event["id"] != "forged"));
}

#[tokio::test]
async fn invalid_and_revoked_keys_are_refused() {
    let world = World::with_faults("").await;
    let wrong_key = world.user.with_key("aw_nothing");
    for path in [
        "/api/v1/app-conversations/search",
        "/api/v1/sandboxes/search",
        "/api/v1/settings",
        "/api/settings",
        "/api/v1/users/me",
    ] {
        assert_eq!(wrong_key.get(path).await.status, 401, "{path}");
    }
    let carol = world.service.user("carol");
    assert_eq!(carol.get("/api/v1/sandboxes/search").await.status, 200);
    configure_model(&carol).await;
    let conversation = carol.converse("hello").await;
    let (http, base_url) = client_builder_for(&world.service.url());
    let path = format!("/api/v1/conversation/{}/events/stream", conversation.id);
    let followed = http
        .build()
        .expect("cannot build an HTTP client")
        .get(format!("{base_url}{path}"));
    let followed = followed.header("X-Session-API-Key", carol.key()).send();
    let followed = followed.await.expect("the event stream does not begin");
    let listed = world.service.run(&["keys", "list", "--user", "carol"]);
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let id = listed
        .split_whitespace()
        .find(|word| word.len() >= 32 && word.chars().all(|c| c.is_ascii_hexdigit() || c == '-'));
    let id = id.unwrap_or_else(|| panic!("no key id in: {listed}"));
    assert!(!listed.contains(carol.key()), "a list shows a key");
    assert!(world.service.run(&["keys", "revoke", id]).status.success());
    // The command is another process, and the service caches a key's access for a moment.
    wait_for("the end of carol's access", RECONCILE_TIMEOUT, || async {
        (carol.get("/api/v1/sandboxes/search").await.status == 401).then_some(())
    })
    .await;
    let stream_end = within(
        "the end of the event stream",
        RECONCILE_TIMEOUT,
        followed.text(),
    )
    .await;
    let stream_end = stream_end.expect("the event stream was cut off");
    let end = "event: end\ndata: {\"reason\":\"unauthorized\"}\n\n";
    assert!(stream_end.ends_with(end), "{stream_end}");
}
