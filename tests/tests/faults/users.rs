//! Two users see nothing of each other.

use acceptance::Client;
use acceptance::client::{Conversation, Task, text};
use acceptance::proxy::relay::way_to;
use serde_json::json;

use crate::support::{World, configure_model};

/// Alice and Bob, each with a finished conversation.
struct TwoUsers {
    world: World,
    alice: Client,
    bob: Client,
    task: Task,
    hers: Conversation,
    his: Conversation,
}

async fn two() -> TwoUsers {
    let world = World::with("").await;
    let alice = world.service.user("alice");
    let bob = world.service.user("bob");
    configure_model(&alice).await;
    configure_model(&bob).await;
    let task = alice.start_with("hello").await;
    let hers = alice.ready(&task).await;
    let hers = alice.executed(&hers.id, "finished").await;
    let his = bob.converse("hello").await;
    let his = bob.executed(&his.id, "finished").await;
    TwoUsers {
        world,
        alice,
        bob,
        task,
        hers,
        his,
    }
}

#[tokio::test]
async fn a_user_sees_nothing_that_is_anothers() {
    let TwoUsers {
        world,
        alice,
        bob,
        task,
        hers,
        his,
    } = two().await;
    let (id, sandbox) = (&hers.id, &hers.sandbox_id);
    let ids = |list: Vec<Conversation>| -> Vec<String> { list.into_iter().map(|c| c.id).collect() };
    assert_eq!(ids(alice.conversations().await), [id.as_str()]);
    assert_eq!(ids(bob.conversations().await), [his.id.as_str()]);
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
async fn a_user_touches_nothing_that_is_anothers() {
    let TwoUsers {
        world: _world,
        alice,
        bob,
        hers,
        ..
    } = two().await;
    let (id, sandbox) = (&hers.id, &hers.sandbox_id);
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
    // Her conversation's id is taken, and he does not get it.
    let request = json!({"conversation_id": id, "initial_message": {"content": text("hello")}});
    let reply = bob.post("/api/v1/app-conversations", &request).await;
    if reply.status == 200 {
        let task = bob
            .task(reply.body["id"].as_str().unwrap_or_default())
            .await;
        assert_eq!(bob.ended(&task).await.status, "ERROR");
    } else {
        assert_eq!(reply.status, 409, "{reply:?}");
    }
    assert_untouched(&alice, &hers).await;
}

#[tokio::test]
async fn a_sandbox_reports_nothing_about_the_conversation_of_another() {
    let TwoUsers {
        world: _world,
        alice,
        bob,
        hers,
        his,
        ..
    } = two().await;
    let id = &hers.id;
    let sandbox_of_his = bob.with_key(his.session_api_key.as_deref().expect("it is RUNNING"));
    let forged =
        json!([{"id": "forged", "kind": "MessageEvent", "timestamp": "2026-01-01T00:00:00"}]);
    let path = format!("/api/v1/webhooks/events/{id}");
    // The answer is the one for a conversation that exists nowhere: it tells nothing about hers.
    assert_eq!(sandbox_of_his.post(&path, &forged).await.status, 200);
    let info = json!({"id": id, "execution_status": "error", "title": "forged", "agent": {"kind": "Agent"}});
    let reply = sandbox_of_his
        .post("/api/v1/webhooks/conversations", &info)
        .await;
    assert_eq!(reply.status, 200, "{reply:?}");
    assert_untouched(&alice, &hers).await;
}

async fn assert_untouched(alice: &Client, hers: &Conversation) {
    let now = alice.conversation(&hers.id).await;
    assert_eq!(now.execution_status.as_deref(), Some("finished"));
    assert_eq!(now.title, hers.title);
    assert_eq!(now.sandbox_status, "RUNNING");
    let events = alice.events(&hers.id).await;
    assert!(events.iter().all(|event| event["id"] != "forged"));
}

#[tokio::test]
async fn a_key_that_is_none_or_was_revoked_opens_nothing() {
    let world = World::with("").await;
    let nobody = world.user.with_key("aw_nothing");
    for path in [
        "/api/v1/app-conversations/search",
        "/api/v1/sandboxes/search",
        "/api/v1/settings",
        "/api/settings",
        "/api/v1/users/me",
    ] {
        assert_eq!(nobody.get(path).await.status, 401, "{path}");
    }
    let carol = world.service.user("carol");
    assert_eq!(carol.get("/api/v1/sandboxes/search").await.status, 200);
    configure_model(&carol).await;
    let conversation = carol.converse("hello").await;
    let (http, way) = way_to(&world.service.url());
    let path = format!("/api/v1/conversation/{}/events/stream", conversation.id);
    let followed = http.build().expect("a client").get(format!("{way}{path}"));
    let followed = followed.header("X-Session-API-Key", carol.key()).send();
    let followed = followed.await.expect("the stream begins");
    let listed = world.service.run(&["keys", "list", "--user", "carol"]);
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let id = listed
        .split_whitespace()
        .find(|word| word.len() >= 32 && word.chars().all(|c| c.is_ascii_hexdigit() || c == '-'));
    let id = id.unwrap_or_else(|| panic!("no key id in: {listed}"));
    assert!(!listed.contains(carol.key()), "a list shows a key");
    assert!(world.service.run(&["keys", "revoke", id]).status.success());
    // Another process revoked it: the service may have looked it up less than a second ago.
    tokio::time::sleep(std::time::Duration::from_millis(1_001)).await;
    assert_eq!(carol.get("/api/v1/sandboxes/search").await.status, 401);
    let rest = tokio::time::timeout(std::time::Duration::from_secs(60), followed.text()).await;
    let rest = rest.expect("what it opened ends").expect("all of it");
    let end = "event: end\ndata: {\"reason\":\"unauthorized\"}\n\n";
    assert!(rest.ends_with(end), "{rest}");
}
