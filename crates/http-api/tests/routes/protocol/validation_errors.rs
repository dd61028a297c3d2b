//! Validation errors, with the texts that clients know. Numbers in comments are those of the recordings
//! (`docs/reference/compatibility-recordings.md`).

use serde_json::{Value, json};

use crate::fixture::{ADA, UNKNOWN, World};

fn items(list: &Value) -> Value {
    json!({"detail": list})
}

#[actix_web::test]
async fn start_requests_list_all_errors() {
    let world = World::idle().await;
    let cases = [
        // 049
        (
            json!({"agent_type": null, "pr_number": null}),
            json!([
                {"type": "list_type", "loc": ["body", "pr_number"], "msg": "Input should be a valid list", "input": null},
                {"type": "enum", "loc": ["body", "agent_type"], "msg": "Input should be 'default' or 'plan'", "input": null,
                    "ctx": {"expected": "'default' or 'plan'"}},
            ]),
        ),
        // 050
        (
            json!({"initial_message": {"role": "robot", "content": [{"type": "video", "x": 1}]}}),
            json!([
                {"type": "literal_error", "loc": ["body", "initial_message", "role"],
                    "msg": "Input should be 'user', 'system', 'assistant' or 'tool'", "input": "robot",
                    "ctx": {"expected": "'user', 'system', 'assistant' or 'tool'"}},
                {"type": "literal_error", "loc": ["body", "initial_message", "content", 0, "TextContent", "type"],
                    "msg": "Input should be 'text'", "input": "video", "ctx": {"expected": "'text'"}},
                {"type": "missing", "loc": ["body", "initial_message", "content", 0, "TextContent", "text"],
                    "msg": "Field required", "input": {"type": "video", "x": 1}},
                {"type": "extra_forbidden", "loc": ["body", "initial_message", "content", 0, "TextContent", "x"],
                    "msg": "Extra inputs are not permitted", "input": 1},
                {"type": "literal_error", "loc": ["body", "initial_message", "content", 0, "ImageContent", "type"],
                    "msg": "Input should be 'image'", "input": "video", "ctx": {"expected": "'image'"}},
                {"type": "missing", "loc": ["body", "initial_message", "content", 0, "ImageContent", "image_urls"],
                    "msg": "Field required", "input": {"type": "video", "x": 1}},
            ]),
        ),
        // 055
        (
            json!({"plugins": [{"source": "github:a/b", "repo_path": "../x"}]}),
            json!([
                {"type": "value_error", "loc": ["body", "plugins", 0, "repo_path"],
                    "msg": "Value error, repo_path cannot contain '..' (parent directory traversal)", "input": "../x",
                    "ctx": {"error": {}}},
            ]),
        ),
        (
            json!({"egress_allow": ["git", "a b"]}),
            json!([
                {"type": "value_error", "loc": ["body", "egress_allow"],
                    "msg": "Value error, \"a b\" is neither a host, such as example.org or *.example.org, nor a host with a port",
                    "ctx": {"error": {}}},
            ]),
        ),
        // 056, but a secret is not quoted
        (
            json!({"secrets": {"A": 5}}),
            json!([
                {"type": "string_type", "loc": ["body", "secrets", "A"], "msg": "Input should be a valid string"},
            ]),
        ),
    ];
    for (body, expected) in cases {
        for path in [
            "/api/v1/app-conversations",
            "/api/v1/app-conversations/stream-start",
        ] {
            world
                .post(ADA, path, &body)
                .await
                .is(422, &items(&expected));
        }
    }
}

#[actix_web::test]
async fn processors_and_suggested_tasks_are_checked() {
    let world = World::idle().await;
    let path = "/api/v1/app-conversations";
    let bad = world
        .post(ADA, path, &json!({"processors": [{"kind": "Nope"}]}))
        .await
        .json();
    let item = &bad["detail"][0];
    assert_eq!(
        (&item["type"], &item["loc"]),
        (&json!("value_error"), &json!(["body", "processors", 0]))
    );
    assert_eq!(item["input"], json!({}));
    // 058
    let sent = json!({"git_provider": "github", "task_type": "NOPE"});
    let expected =
        "'MERGE_CONFLICTS', 'FAILING_CHECKS', 'UNRESOLVED_COMMENTS', 'OPEN_ISSUE' or 'OPEN_PR'";
    let missing = |name: &str| json!({"type": "missing", "loc": ["body", "suggested_task", name], "msg": "Field required", "input": sent});
    world.post(ADA, path, &json!({"suggested_task": sent})).await.is(422, &items(&json!([
        {"type": "enum", "loc": ["body", "suggested_task", "task_type"], "msg": format!("Input should be {expected}"),
            "input": "NOPE", "ctx": {"expected": expected}},
        missing("repo"), missing("issue_number"), missing("title"),
    ])));
}

#[actix_web::test]
async fn changes_and_messages_are_checked() {
    let world = World::idle().await;
    let path = format!("/api/v1/app-conversations/{UNKNOWN}");
    // 065
    let providers = "'github', 'gitlab', 'bitbucket', 'bitbucket_data_center', 'forgejo', 'azure_devops' or 'enterprise_sso'";
    let body = json!({"title": 5, "public": "perhaps", "git_provider": "x", "selected_branch": []});
    world.patch(ADA, &path, &body).await.is(422, &items(&json!([
        {"type": "string_type", "loc": ["body", "title"], "msg": "Input should be a valid string", "input": 5},
        {"type": "bool_parsing", "loc": ["body", "public"],
            "msg": "Input should be a valid boolean, unable to interpret input", "input": "perhaps"},
        {"type": "string_type", "loc": ["body", "selected_branch"], "msg": "Input should be a valid string", "input": []},
        {"type": "enum", "loc": ["body", "git_provider"], "msg": format!("Input should be {providers}"), "input": "x",
            "ctx": {"expected": providers}},
    ])));
    let say = format!("{path}/send-message");
    // 070
    world.post(ADA, &say, &json!({"content": []})).await.is(
        422,
        &items(&json!([
            {"type": "too_short", "loc": ["body", "content"],
                "msg": "List should have at least 1 item after validation, not 0", "input": [],
                "ctx": {"field_type": "List", "min_length": 1, "actual_length": 0}},
        ])),
    );
    // 071
    let body = json!({"role": "assistant", "content": [{"type": "text", "text": "x"}]});
    world.post(ADA, &say, &body).await.is(422, &items(&json!([
        {"type": "literal_error", "loc": ["body", "role"], "msg": "Input should be 'user'", "input": "assistant",
            "ctx": {"expected": "'user'"}},
    ])));
    // 073
    let body = json!({"content": [{"type": "text", "text": "x"}]});
    world
        .post(ADA, &say, &body)
        .await
        .refuses(404, &format!("Conversation {UNKNOWN} not found"));
}

#[actix_web::test]
async fn batch_reads_are_bounded_and_their_ids_validated() {
    let world = World::idle().await;
    let many = |name: &str, n: usize| {
        let ids: Vec<_> = (0..n).map(|i| format!("{name}={i:032x}")).collect();
        ids.join("&")
    };
    let base = "/api/v1/app-conversations";
    // 034, 036, 037, 038
    let bad = world
        .get(
            ADA,
            &format!("{base}?ids=not-a-uuid&ids={UNKNOWN}&ids=alsobad"),
        )
        .await;
    bad.refuses(
        400,
        "Invalid UUID format for ids: ['not-a-uuid', 'alsobad']",
    );
    world
        .get(ADA, &format!("{base}?ids="))
        .await
        .refuses(400, "Invalid UUID format for ids: ['']");
    let most = world.get(ADA, &format!("{base}?{}", many("ids", 99))).await;
    most.is(200, &json!(vec![Value::Null; 99]));
    let over = world
        .get(ADA, &format!("{base}?{}", many("ids", 100)))
        .await;
    over.refuses(400, "Too many ids requested. Maximum is 99.");
    // 067
    world
        .delete(ADA, &format!("{base}/not-a-uuid"))
        .await
        .refuses(400, "Invalid conversation ID format");
    // 100, 106, 120, 128
    for (path, name, what) in [
        (
            format!("/api/v1/conversation/{UNKNOWN}/events"),
            "id",
            "events",
        ),
        ("/api/v1/sandboxes".into(), "id", "sandboxes"),
        ("/api/v1/sandbox-specs".into(), "id", "sandbox specs"),
        (format!("{base}/start-tasks"), "ids", "start tasks"),
    ] {
        let over = world.get(ADA, &format!("{path}?{}", many(name, 101))).await;
        over.refuses(
            400,
            &format!("Cannot request more than 100 {what} at once, got 101"),
        );
        let none = world.get(ADA, &path).await;
        let item = json!({"type": "missing", "loc": ["query", name], "msg": "Field required", "input": null});
        none.is(422, &items(&json!([item])));
    }
}

#[actix_web::test]
async fn foreign_page_tokens_and_impossible_parameters_are_422() {
    let world = World::idle().await;
    let events = format!("/api/v1/conversation/{UNKNOWN}/events/search");
    let searches = [
        "/api/v1/app-conversations",
        "/api/v1/app-conversations/search",
        "/api/v1/app-conversations/start-tasks/search",
        "/api/v1/sandboxes/search",
        "/api/v1/sandbox-specs/search",
        events.as_str(),
    ];
    for path in searches {
        for (query, place) in [
            ("page_id=garbage", "page_id"),
            ("limit=101", "limit"),
            ("limit=0", "limit"),
            ("limit=x", "limit"),
        ] {
            let answer = world.get(ADA, &format!("{path}?{query}")).await;
            let at = &answer.json()["detail"][0]["loc"];
            assert_eq!(
                (answer.status, at),
                (422, &json!(["query", place])),
                "{path}?{query}: {}",
                answer.text
            );
        }
        assert_eq!(world.get("aw_nobody", path).await.status, 401, "{path}");
    }
    for (path, at) in [
        (
            format!("{events}?kind__eq=Nope"),
            json!(["query", "kind__eq"]),
        ),
        (
            format!("{events}?sort_order=X"),
            json!(["query", "sort_order"]),
        ),
        (
            "/api/v1/conversation/zz/events/search".into(),
            json!(["path", "conversation_id"]),
        ),
        (
            "/api/v1/app-conversations/count?updated_at__lt=zzz".into(),
            json!(["query", "updated_at__lt"]),
        ),
        (
            "/api/v1/app-conversations/start-tasks/search?conversation_id__eq=x".into(),
            json!(["query", "conversation_id__eq"]),
        ),
        (
            "/api/v1/app-conversations/start-tasks?ids=x".into(),
            json!(["query", "ids", 0]),
        ),
    ] {
        let answer = world.get(ADA, &path).await;
        assert_eq!(
            (answer.status, &answer.json()["detail"][0]["loc"]),
            (422, &at),
            "{path}: {}",
            answer.text
        );
    }
}
