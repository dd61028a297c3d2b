//! Conversations: their shape, list, batch, change, delete, messages.

use serde_json::{Value, json};
use store_memory::FakeBehavior;

use crate::fixture::{ADA, BOB, NOW, UNKNOWN, World};

const BASE: &str = "/api/v1/app-conversations";

fn metrics() -> Value {
    json!({
        "model_name": "default", "accumulated_cost": 0.0, "max_budget_per_task": null,
        "accumulated_token_usage": {
            "model": "", "prompt_tokens": 0, "completion_tokens": 0, "cache_read_tokens": 0, "cache_write_tokens": 0,
            "reasoning_tokens": 0, "context_window": 0, "per_turn_token": 0, "response_id": "",
        },
    })
}

#[actix_web::test]
async fn a_conversation_has_the_known_shape() {
    let world = World::working().await;
    let task = world
        .start(
            ADA,
            &json!({"title": "T", "trigger": "gui", "pr_number": [7], "public": true}),
        )
        .await;
    let (id, sandbox) = (
        task["app_conversation_id"].as_str().unwrap(),
        &task["sandbox_id"],
    );
    let list = world.get(ADA, BASE).await;
    let shown = &list.json()["items"][0];
    assert!(
        shown["session_api_key"]
            .as_str()
            .is_some_and(|key| key.starts_with("secret")),
        "{shown}"
    );
    let expected = json!({
        "id": id, "created_by_user_id": "ada", "sandbox_id": sandbox, "selected_repository": null,
        "selected_branch": null, "git_provider": null, "title": "T", "trigger": "gui", "pr_number": [7],
        "llm_model": "openai/gpt-5", "agent_kind": "openhands", "metrics": metrics(),
        "parent_conversation_id": null, "sub_conversation_ids": [], "public": true, "tags": {},
        "created_at": NOW, "updated_at": NOW, "sandbox_status": "RUNNING", "execution_status": "idle",
        "conversation_url": format!("http://127.0.0.1:9001/api/conversations/{id}"),
        "session_api_key": shown["session_api_key"], "acp_server": null, "launched_agent_profile": null,
        "workspace": {"working_dir": format!("/sandboxes/{}/workspace", sandbox.as_str().unwrap())},
    });
    list.is(
        200,
        &json!({"items": [expected.clone()], "next_page_id": null}),
    );
    world
        .get(ADA, &format!("{BASE}/search"))
        .await
        .is(200, &list.json());
    let dashed = uuid::Uuid::parse_str(id).unwrap().hyphenated().to_string();
    world
        .get(
            ADA,
            &format!("{BASE}?ids={id}&ids={UNKNOWN}&ids={dashed}&limit=1000"),
        )
        .await
        .is(200, &json!([expected, null, expected]));
}

#[actix_web::test]
async fn addresses_and_keys_are_shown_only_while_the_sandbox_runs() {
    let world = World::working().await;
    let id = world.conversation(ADA).await;
    let sandbox = world.read(ADA, &id).await["sandbox_id"]
        .as_str()
        .unwrap()
        .to_owned();
    world
        .post(
            ADA,
            &format!("/api/v1/sandboxes/{sandbox}/pause"),
            &json!({}),
        )
        .await
        .is(200, &json!({"success": true}));
    let paused = world.read(ADA, &id).await;
    assert_eq!(
        (&paused["sandbox_status"], &paused["execution_status"]),
        (&json!("PAUSED"), &json!("idle"))
    );
    assert!(
        paused["conversation_url"].is_null() && paused["session_api_key"].is_null(),
        "{paused}"
    );
    world
        .delete(ADA, &format!("/api/v1/sandboxes/{sandbox}"))
        .await
        .is(200, &json!({"success": true}));
    let gone = world.read(ADA, &id).await;
    assert_eq!(
        (&gone["sandbox_status"], &gone["execution_status"]),
        (&json!("MISSING"), &Value::Null)
    );
    assert!(
        gone["conversation_url"].is_null() && gone["session_api_key"].is_null(),
        "{gone}"
    );
}

#[actix_web::test]
async fn searches_filter_page_and_agree_with_the_count() {
    let world = World::working().await;
    for title in ["Alpha", "beta 100%", "ALPHABET"] {
        world.start(ADA, &json!({"title": title})).await;
        world.clock.advance(std::time::Duration::from_secs(60));
    }
    let titles = |answer: Value| -> Vec<String> {
        let items = answer["items"].as_array().unwrap().clone();
        items
            .iter()
            .map(|item| item["title"].as_str().unwrap().to_owned())
            .collect()
    };
    for (query, wanted) in [
        ("", vec!["ALPHABET", "beta 100%", "Alpha"]),
        ("title__contains=alpha", vec!["ALPHABET", "Alpha"]),
        ("title__contains=0%25", vec!["beta 100%"]),
        (
            "created_at__gte=2026-01-01T00:01:00Z",
            vec!["ALPHABET", "beta 100%"],
        ),
        ("created_at__lt=2026-01-01T00:01:00Z", vec!["Alpha"]),
        ("sandbox_id__eq=no/such%20id", vec![]),
        ("limit=2&foo=bar", vec!["ALPHABET", "beta 100%"]),
    ] {
        let page = world.get(ADA, &format!("{BASE}/search?{query}")).await.ok();
        assert_eq!(titles(page), wanted, "{query}");
        let count = world.get(ADA, &format!("{BASE}/count?{query}")).await.ok();
        if !query.starts_with("limit") {
            assert_eq!(count, json!(wanted.len()), "{query}");
        }
    }
    let first = world.get(ADA, &format!("{BASE}?limit=2")).await.ok();
    let token = first["next_page_id"].as_str().unwrap();
    let token: String = url::form_urlencoded::byte_serialize(token.as_bytes()).collect();
    let second = world
        .get(ADA, &format!("{BASE}?limit=2&page_id={token}"))
        .await
        .ok();
    assert_eq!(
        (titles(second.clone()), &second["next_page_id"]),
        (vec!["Alpha".to_owned()], &Value::Null)
    );
}

#[actix_web::test]
async fn sub_conversations_are_listed_and_counted_on_request() {
    let world = World::working().await;
    let parent = world.conversation(ADA).await;
    let task = world
        .start(ADA, &json!({"parent_conversation_id": parent}))
        .await;
    assert_eq!(task["request"]["parent_conversation_id"], parent.as_str());
    let whole = world.get(ADA, BASE).await.ok();
    assert_eq!(whole["items"].as_array().unwrap().len(), 1);
    assert_eq!(
        whole["items"][0]["sub_conversation_ids"],
        json!([task["app_conversation_id"]])
    );
    world
        .get(ADA, &format!("{BASE}/count"))
        .await
        .is(200, &json!(1));
    world
        .get(ADA, &format!("{BASE}/count?include_sub_conversations=yes"))
        .await
        .is(200, &json!(2));
}

#[actix_web::test]
async fn a_change_keeps_absent_members_and_clears_null() {
    let world = World::working().await;
    let id = world.conversation(ADA).await;
    let path = format!("{BASE}/{id}");
    let body = json!({"title": "Ünï ✓", "public": true, "selected_repository": "a/b", "git_provider": "github", "llm_model": 5});
    let changed = world.patch(ADA, &path, &body).await.ok();
    assert_eq!(changed, world.read(ADA, &id).await);
    for (name, value) in [
        ("title", json!("Ünï ✓")),
        ("public", json!(true)),
        ("selected_repository", json!("a/b")),
        ("git_provider", json!("github")),
    ] {
        assert_eq!(changed[name], value);
    }
    let cleared = world.patch(ADA, &path, &json!({"title": null})).await.ok();
    assert_eq!(
        (&cleared["title"], &cleared["public"]),
        (&Value::Null, &json!(true))
    );
    assert_eq!(world.patch(ADA, &path, &json!({})).await.ok(), cleared);
    assert_eq!(
        world
            .patch(ADA, &path, &json!({"selected_branch": "a..b"}))
            .await
            .status,
        400
    );
    world
        .patch(BOB, &path, &json!({"title": "mine"}))
        .await
        .refuses(404, "unknown_app_conversation");
    assert_eq!(world.read(ADA, &id).await, cleared);
}

#[actix_web::test]
async fn foreign_conversations_cannot_be_read_or_deleted() {
    let world = World::working().await;
    let id = world.conversation(ADA).await;
    world
        .get(BOB, BASE)
        .await
        .is(200, &json!({"items": [], "next_page_id": null}));
    world
        .get(BOB, &format!("{BASE}/count"))
        .await
        .is(200, &json!(0));
    world
        .get(BOB, &format!("{BASE}?ids={id}"))
        .await
        .is(200, &json!([null]));
    world
        .delete(BOB, &format!("{BASE}/{id}"))
        .await
        .refuses(404, "Conversation not found");
    let message = json!({"content": [{"type": "text", "text": "x"}]});
    let dashed = uuid::Uuid::parse_str(&id).unwrap();
    let said = world
        .post(BOB, &format!("{BASE}/{id}/send-message"), &message)
        .await;
    said.refuses(404, &format!("Conversation {dashed} not found"));
    assert!(world.agents.messages().is_empty());
    world
        .delete(ADA, &format!("{BASE}/{id}"))
        .await
        .is(200, &json!({"success": true}));
    world
        .delete(ADA, &format!("{BASE}/{id}"))
        .await
        .refuses(404, "Conversation not found");
    world
        .get(ADA, &format!("{BASE}?ids={id}"))
        .await
        .is(200, &json!([null]));
}

#[actix_web::test]
async fn messages_reach_the_agent_or_fail_by_sandbox_status() {
    let world = World::working().await;
    let id = world.conversation(ADA).await;
    let path = format!("{BASE}/{id}/send-message");
    let body = json!({"content": [{"type": "text", "text": "hello"}]});
    let delivered = json!({"success": true, "sandbox_status": "RUNNING", "message": null});
    world.post(ADA, &path, &body).await.is(200, &delivered);
    let (to, said) = world.agents.messages().pop().unwrap();
    assert_eq!(
        (to.to_string(), said.role.as_str(), said.run),
        (id.clone(), "user", true)
    );
    assert_eq!(
        said.content,
        [json!({"cache_prompt": false, "type": "text", "text": "hello"})]
    );
    assert_eq!(world.read(ADA, &id).await["execution_status"], "running");

    world.agents.set_behavior(FakeBehavior::Rejecting(404));
    world
        .post(ADA, &path, &body)
        .await
        .refuses(502, "Agent server error: 404");
    world.agents.set_behavior(FakeBehavior::Unreachable);
    world
        .post(ADA, &path, &body)
        .await
        .refuses(502, "Failed to reach agent server.");
    world.agents.set_behavior(FakeBehavior::Responsive);

    let sandbox = world.read(ADA, &id).await["sandbox_id"]
        .as_str()
        .unwrap()
        .to_owned();
    world
        .post(
            ADA,
            &format!("/api/v1/sandboxes/{sandbox}/pause"),
            &json!({}),
        )
        .await
        .ok();
    let paused = format!(
        "Sandbox is PAUSED. Use POST /api/v1/sandboxes/{sandbox}/resume to resume it first."
    );
    world.post(ADA, &path, &body).await.refuses(409, &paused);
    world
        .delete(ADA, &format!("/api/v1/sandboxes/{sandbox}"))
        .await
        .ok();
    let dashed = uuid::Uuid::parse_str(&id).unwrap();
    world
        .post(ADA, &path, &body)
        .await
        .refuses(404, &format!("Sandbox not found for conversation {dashed}"));
}
