//! Start tasks: the first response, the stream, reading tasks.

use actix_web::test::TestRequest;
use serde_json::{Value, json};

use crate::fixture::{ADA, BOB, NOW, UNKNOWN, World};

const START: &str = "/api/v1/app-conversations";
const TASKS: &str = "/api/v1/app-conversations/start-tasks";

fn empty_request() -> Value {
    json!({
        "sandbox_id": null, "conversation_id": null, "initial_message": null, "system_message_suffix": null,
        "processors": null, "llm_model": null, "agent_profile_id": null, "selected_repository": null,
        "selected_branch": null, "git_provider": null, "suggested_task": null, "title": null, "trigger": null,
        "pr_number": [], "parent_conversation_id": null, "agent_type": "default", "public": null, "plugins": null,
        "secrets": null,
    })
}

/// Timings are measured; the test determines everything else.
fn without_timings(mut task: Value) -> (Value, Vec<String>) {
    let timings = task["timings"].take();
    (task, timings.as_object().unwrap().keys().cloned().collect())
}

#[actix_web::test]
async fn a_start_returns_immediately_with_its_request() {
    let world = World::idle().await;
    let body = json!({
        "conversation_id": "11111111111141118111111111111111",
        "initial_message": {"content": [
            {"text": "hi ✓", "type": "text", "enable_truncation": true},
            {"image_urls": ["data:image/png;base64,AA=="], "cache_prompt": true},
        ]},
        "system_message_suffix": "sfx",
        "processors": [{"kind": "SetTitleCallbackProcessor"}],
        "llm_model": "m", "agent_profile_id": "p", "selected_repository": "a/b", "selected_branch": "main",
        "git_provider": "gitlab", "title": "My title", "trigger": "gui", "pr_number": [7], "agent_type": "plan",
        "public": true,
        "plugins": [{"source": "github:a/b", "repo_path": "plugins/x", "parameters": {"k": 1}}],
        "secrets": {"MY_TOKEN": "hunter2"},
        "unknown_member": 1,
    });
    let answer = world.post(ADA, START, &body).await;
    let task = answer.json();
    assert!(!answer.text.contains("hunter2"));
    answer.is(200, &json!({
        "id": task["id"], "created_by_user_id": "ada", "status": "WORKING", "detail": null,
        "app_conversation_id": null, "sandbox_id": null, "agent_server_url": null,
        "request": {
            "sandbox_id": null,
            "conversation_id": "11111111-1111-4111-8111-111111111111",
            "initial_message": {
                "role": "user",
                "content": [
                    {"cache_prompt": false, "type": "text", "text": "hi ✓"},
                    {"cache_prompt": true, "type": "image", "image_urls": ["data:image/png;base64,AA=="]},
                ],
                "run": false,
            },
            "system_message_suffix": "sfx",
            "processors": [{"kind": "SetTitleCallbackProcessor"}],
            "llm_model": "m", "agent_profile_id": "p", "selected_repository": "a/b", "selected_branch": "main",
            "git_provider": "gitlab", "suggested_task": null, "title": "My title", "trigger": "gui",
            "pr_number": [7], "parent_conversation_id": null, "agent_type": "plan", "public": true,
            "plugins": [{"source": "github:a/b", "ref": null, "repo_path": "plugins/x", "parameters": {"k": 1}}],
            "secrets": {"MY_TOKEN": "**********"},
        },
        "created_at": NOW, "updated_at": NOW, "notes": task["notes"], "timings": {},
    }));
    let id = task["id"].as_str().unwrap();
    assert!(
        id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit()),
        "{id}"
    );
}

#[actix_web::test]
async fn a_list_of_hosts_that_nothing_enforces_is_refused() {
    let world = World::idle().await;
    let body = json!({"egress_allow": ["git"]});
    let answer = world.post(ADA, START, &body).await;
    assert_eq!(answer.status, 409);
    let detail = answer.json()["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains("egress.policy is open"), "{detail}");
    // Nor is one in the settings.
    let stored = world.post(ADA, "/api/v1/settings", &body).await;
    assert_eq!(stored.status, 200);
    assert_eq!(world.post(ADA, START, &json!({})).await.status, 409);
    let wrong = json!({"egress_allow": ["a b"]});
    let refused = world.post(ADA, "/api/v1/settings", &wrong).await;
    assert_eq!(refused.status, 400, "{}", refused.text);
}

#[actix_web::test]
async fn a_stream_is_one_array_of_every_state_to_the_end() {
    let world = World::working().await;
    let answer = world
        .post(ADA, "/api/v1/app-conversations/stream-start", &json!({}))
        .await;
    assert_eq!(
        (answer.status, answer.content_type.as_str()),
        (200, "application/json")
    );
    assert!(
        answer.text.starts_with("[\n{") && answer.text.ends_with("}]"),
        "{}",
        answer.text
    );
    let states = answer.json();
    let states = states.as_array().unwrap();
    assert_eq!(answer.text.matches("},\n{").count(), states.len() - 1);
    let seen: Vec<_> = states
        .iter()
        .map(|task| {
            let known = |name: &str| !task[name].is_null();
            (
                task["status"].as_str().unwrap(),
                known("sandbox_id"),
                known("agent_server_url"),
                known("app_conversation_id"),
            )
        })
        .collect();
    assert_eq!(
        seen,
        [
            ("WORKING", false, false, false),
            ("WAITING_FOR_SANDBOX", true, false, false),
            ("PREPARING_REPOSITORY", true, false, false),
            ("RUNNING_SETUP_SCRIPT", true, false, false),
            ("SETTING_UP_GIT_HOOKS", true, false, false),
            ("SETTING_UP_SKILLS", true, false, false),
            ("STARTING_CONVERSATION", true, true, false),
            ("READY", true, true, true),
        ]
    );
    let id = states[0]["id"].as_str().unwrap();
    let read = world.get(ADA, &format!("{TASKS}?ids={id}")).await.ok();
    let (task, timed) = without_timings(read[0].clone());
    let expected = json!({
        "id": id, "created_by_user_id": "ada", "status": "READY", "detail": null,
        "app_conversation_id": task["app_conversation_id"], "sandbox_id": task["sandbox_id"],
        "agent_server_url": "http://127.0.0.1:9001",
        "request": empty_request(), "created_at": NOW, "updated_at": NOW, "notes": [], "timings": null,
    });
    assert_eq!(task.to_string(), expected.to_string());
    assert!(
        timed.contains(&"STARTING_CONVERSATION".to_owned()),
        "{timed:?}"
    );
}

#[actix_web::test]
async fn a_failed_stream_ends_with_the_error_and_its_progress() {
    let world = World::working().await;
    world.backend.fail_starts(9);
    let states = world
        .post(ADA, "/api/v1/app-conversations/stream-start", &json!({}))
        .await
        .ok();
    let last = states.as_array().unwrap().last().unwrap();
    assert_eq!(last["status"], "ERROR");
    assert!(
        last["detail"]
            .as_str()
            .is_some_and(|detail| !detail.is_empty()),
        "{last}"
    );
    assert!(
        last["sandbox_id"].is_string() && last["agent_server_url"].is_null(),
        "{last}"
    );
    assert!(last["app_conversation_id"].is_null(), "{last}");
}

#[actix_web::test]
async fn a_start_goes_on_when_its_client_leaves() {
    let world = World::working().await;
    let stream = "/api/v1/app-conversations/stream-start";
    let body = json!({"conversation_id": "11111111-1111-4111-8111-111111111111"});
    // Headers only: the response is dropped unread, like by a broken connection.
    assert_eq!(world.post_and_leave(ADA, stream, &body).await, 200);
    let states = world.post(ADA, stream, &body).await.ok();
    let states = states.as_array().unwrap();
    assert_eq!(states.last().unwrap()["status"], "READY", "{states:#?}");
    world
        .get(ADA, &format!("{TASKS}/count"))
        .await
        .is(200, &json!(1));
}

#[actix_web::test]
async fn repeating_a_conversation_id_returns_the_same_task() {
    let world = World::working().await;
    let body = json!({"conversation_id": "11111111-1111-4111-8111-111111111111"});
    let first = world.start(ADA, &body).await;
    let again = world.post(ADA, START, &body).await.ok();
    assert_eq!(
        (&again["id"], &again["status"]),
        (&first["id"], &json!("READY"))
    );
    assert_eq!(
        first["app_conversation_id"],
        "11111111111141118111111111111111"
    );
    world
        .post(BOB, START, &body)
        .await
        .refuses(409, "conversation_id is already in use");
    assert_eq!(world.backend.count_started_sandboxes(), 1);
}

#[actix_web::test]
async fn tasks_are_found_and_counted_for_their_owner_only() {
    let world = World::working().await;
    let task = world.start(ADA, &json!({"title": "T"})).await;
    let (id, conversation) = (
        task["id"].as_str().unwrap(),
        task["app_conversation_id"].as_str().unwrap(),
    );
    let found = world
        .get(
            ADA,
            &format!("{TASKS}/search?conversation_id__eq={conversation}&sort_order=UPDATED_AT"),
        )
        .await
        .ok();
    assert_eq!(
        (&found["items"][0]["id"], &found["next_page_id"]),
        (&json!(id), &Value::Null)
    );
    assert_eq!(found["items"][0]["request"]["title"], "T");
    world
        .get(ADA, &format!("{TASKS}/count?conversation_id__eq={UNKNOWN}"))
        .await
        .is(200, &json!(0));
    world
        .get(ADA, &format!("{TASKS}/count"))
        .await
        .is(200, &json!(1));
    world
        .get(BOB, &format!("{TASKS}/count"))
        .await
        .is(200, &json!(0));
    world
        .get(BOB, &format!("{TASKS}/search"))
        .await
        .is(200, &json!({"items": [], "next_page_id": null}));
    world
        .get(BOB, &format!("{TASKS}?ids={id}&ids={UNKNOWN}"))
        .await
        .is(200, &json!([null, null]));
    let mine = world
        .get(ADA, &format!("{TASKS}?ids={UNKNOWN}&ids={id}"))
        .await
        .ok();
    assert!(mine[0].is_null() && mine[1]["id"] == id, "{mine}");
}

#[actix_web::test]
async fn invalid_starts_are_refused_immediately() {
    let world = World::working().await;
    let at = &world;
    let start = |body| async move { at.post(ADA, START, &body).await };
    start(json!({"sandbox_id": "nope"}))
        .await
        .refuses(404, "Sandbox not found: nope");
    start(json!({"parent_conversation_id": UNKNOWN}))
        .await
        .refuses(404, "Parent conversation not found");
    start(json!({"secrets": {"LLM_KEY": "v"}}))
        .await
        .refuses(400, "A secret name is reserved");
    let mine = world.conversation(ADA).await;
    world
        .post(BOB, START, &json!({"parent_conversation_id": mine}))
        .await
        .refuses(404, "Parent conversation not found");
    let sandbox = world.read(ADA, &mine).await["sandbox_id"].clone();
    let answer = world
        .post(BOB, START, &json!({"sandbox_id": sandbox}))
        .await;
    assert_eq!(answer.status, 404, "{}", answer.text);
}

#[actix_web::test]
async fn a_cap_is_429_and_says_when_to_try_again() {
    let world = World::idle().await;
    for _ in 0..3 {
        world.post(ADA, START, &json!({})).await.ok();
    }
    assert_eq!(world.post(ADA, START, &json!({})).await.status, 429);
    assert_eq!(world.post(BOB, START, &json!({})).await.status, 200);
}

#[actix_web::test]
async fn revoking_the_key_aborts_a_followed_start() {
    let world = World::idle().await;
    let made = world.post(ADA, "/api/v1/keys", &json!({})).await.json();
    let request = TestRequest::post()
        .uri(&format!("{START}/stream-start"))
        .insert_header(("X-Session-API-Key", made["key"].as_str().unwrap()))
        .set_json(json!({"llm_model": "m"}));
    let mut states = world.open_as(request).await;
    assert_eq!(states.status, 200);
    let first = states.next().await.unwrap();
    assert!(first.starts_with("[\n{"), "{first}");
    let key = format!("/api/v1/keys/{}", made["record"]["id"].as_str().unwrap());
    world.delete(ADA, &key).await;
    assert!(states.breaks_off().await);
}
