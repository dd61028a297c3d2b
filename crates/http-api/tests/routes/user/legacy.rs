//! Routes for clients of earlier releases; see `docs/reference/wire/legacy.md`.

use actix_web::http::Method;
use actix_web::test::TestRequest;
use domain::git::{
    GitBranch, GitProvider, GitRepository, GitUser, SuggestedTask, SuggestedTaskType,
};
use http_api::Listener;
use serde_json::{Value, json};
use store_memory::FakeProvider;

use crate::fixture::{ADA, BOB, UNKNOWN, World};

const HEX: &str = "0123456789abcdef0123456789abcdef";

fn event(id: &str) -> Value {
    json!({"id": id, "timestamp": "2026-11-21T10:00:01.000000", "source": "user", "kind": "MessageEvent"})
}

#[actix_web::test]
async fn events_are_found_under_their_older_path() {
    let world = World::working().await;
    let id = world.conversation(ADA).await;
    let view = world.read(ADA, &id).await;
    let (key, sandbox) = (
        view["session_api_key"].as_str().unwrap(),
        view["sandbox_id"].as_str().unwrap(),
    );
    let report = format!("/api/v1/webhooks/{sandbox}/events/{id}");
    let batch = json!([event("e1"), event("e2")]);
    world
        .post(key, &report, &batch)
        .await
        .is(200, &json!({"success": true}));
    let nested = format!("/api/v1/conversation/{id}/events");
    for (path, query) in [
        ("/search", "limit=1&sort_order=TIMESTAMP_DESC"),
        ("/search", "limit=0"),
        ("/search", "page_id=zzz"),
        ("/count", "kind__eq=MessageEvent"),
        ("/count", "kind__eq=nope"),
        ("", "id=e2&id=x"),
    ] {
        let expected = world.get(ADA, &format!("{nested}{path}?{query}")).await;
        let older = format!("/api/v1/events{path}?conversation_id__eq={id}&{query}");
        world
            .get(ADA, &older)
            .await
            .is(expected.status, &expected.json());
        // Another user sees nothing.
        assert!(!world.get(BOB, &older).await.text.contains("\"e2\""));
    }
    let missing = json!({"type": "missing", "loc": ["query", "conversation_id__eq"], "msg": "Field required", "input": null});
    for path in ["/search", "/count", "?id=e1"] {
        let answer = world.get(ADA, &format!("/api/v1/events{path}")).await;
        answer.is(422, &json!({"detail": [missing]}));
        assert_eq!(
            world
                .get("aw_wrong", &format!("/api/v1/events{path}"))
                .await
                .status,
            401
        );
    }
}

#[actix_web::test]
async fn reports_name_their_own_sandbox() {
    let world = World::working().await;
    let (mine, others) = (world.conversation(ADA).await, world.conversation(BOB).await);
    let view = world.read(ADA, &mine).await;
    let (key, sandbox) = (
        view["session_api_key"].as_str().unwrap(),
        view["sandbox_id"].as_str().unwrap(),
    );
    let other = world.read(BOB, &others).await;
    let other = other["sandbox_id"].as_str().unwrap();
    let record = json!({"id": mine, "title": "x"});
    let done = json!({"success": true});
    world
        .post(
            key,
            &format!("/api/v1/webhooks/{sandbox}/conversations"),
            &record,
        )
        .await
        .is(200, &done);
    for named in [other, "nope"] {
        for (path, body) in [
            (format!("/api/v1/webhooks/{named}/conversations"), &record),
            (
                format!("/api/v1/webhooks/{named}/events/{mine}"),
                &json!([event("e9")]),
            ),
        ] {
            world.post(key, &path, body).await.refuses(404, "Not Found");
        }
    }
    let count = format!("/api/v1/conversation/{mine}/events/count");
    world.get(ADA, &count).await.is(200, &json!(0));
    // The callback listener also has them; a user's key is refused on both.
    let report = |key: &str| {
        TestRequest::post()
            .uri(&format!("/api/v1/webhooks/{sandbox}/events/{mine}"))
            .insert_header(("X-Session-API-Key", key))
            .set_json(json!([event("e1")]))
    };
    world
        .send_to(Listener::Callback, report(key))
        .await
        .is(200, &done);
    for door in [Listener::Callback, Listener::Public] {
        world
            .send_to(door, report(ADA))
            .await
            .refuses(401, "Invalid session API key");
    }
    world.get(ADA, &count).await.is(200, &json!(1));
}

#[actix_web::test]
async fn conversations_have_the_legacy_shape() {
    let world = World::working().await;
    let empty = json!({"results": [], "next_page_id": null});
    world.get(ADA, "/api/conversations").await.is(200, &empty);
    let about = json!({"title": "One", "selected_repository": "o/r", "trigger": "gui"});
    let task = world.start(ADA, &about).await;
    let id = task["app_conversation_id"].as_str().unwrap();
    let view = world.read(ADA, id).await;
    let one = world
        .get(ADA, &format!("/api/conversations/{id}"))
        .await
        .ok();
    let expected = json!({
        "conversation_id": id, "title": "One", "last_updated_at": view["updated_at"], "status": "RUNNING",
        "runtime_status": "STATUS$READY", "selected_repository": "o/r", "selected_branch": null,
        "git_provider": "github", "trigger": "gui", "num_connections": 0, "url": view["conversation_url"],
        "session_api_key": view["session_api_key"], "created_at": view["created_at"], "pr_number": [],
        "conversation_version": "V1", "sub_conversation_ids": [], "public": null,
    });
    assert_eq!(one.to_string(), expected.to_string());
    assert!(one["url"].is_string() && one["session_api_key"].is_string());
    let config = world
        .get(ADA, &format!("/api/conversations/{id}/config"))
        .await;
    config.is(
        200,
        &json!({"runtime_id": view["sandbox_id"], "session_id": id}),
    );
    let second = world.conversation(ADA).await;
    let titles = |page: &Value| -> Vec<String> {
        let all = page["results"].as_array().unwrap().iter();
        all.map(|one| one["conversation_id"].as_str().unwrap().to_owned())
            .collect()
    };
    for (query, expected) in [
        ("", vec![second.as_str(), id]),
        ("?limit=1000000", vec![&second, id]),
        ("?limit=0", vec![]),
        ("?limit=-5", vec![]),
        ("?selected_repository=o/r", vec![id]),
        ("?selected_repository=o/other", vec![]),
        (
            "?conversation_trigger=gui&include_sub_conversations=true",
            vec![id],
        ),
        ("?conversation_trigger=slack", vec![]),
    ] {
        let page = world
            .get(ADA, &format!("/api/conversations{query}"))
            .await
            .ok();
        assert_eq!(titles(&page), expected, "{query}");
    }
    let first = world.get(ADA, "/api/conversations?limit=1").await.ok();
    assert_eq!(titles(&first), [second.as_str()]);
    let next = first["next_page_id"].as_str().unwrap();
    let last = world
        .get(ADA, &format!("/api/conversations?limit=1&page_id={next}"))
        .await
        .ok();
    assert_eq!(
        (titles(&last), &last["next_page_id"]),
        (vec![id.to_owned()], &Value::Null)
    );
    for query in [
        "page_id=abc",
        "page_id=MQ==",
        "conversation_trigger=nope",
        "limit=x",
    ] {
        let refused = world.get(ADA, &format!("/api/conversations?{query}")).await;
        assert_eq!(refused.status, 422, "{query}: {}", refused.text);
    }
    // Bob has none.
    world.get(BOB, "/api/conversations").await.is(200, &empty);
    world
        .get(BOB, &format!("/api/conversations/{id}"))
        .await
        .is(200, &Value::Null);
    world
        .delete(BOB, &format!("/api/conversations/{id}"))
        .await
        .is(200, &json!(false));
}

#[actix_web::test]
async fn conversations_are_renamed_and_deleted_on_legacy_paths() {
    let world = World::working().await;
    let id = world.conversation(ADA).await;
    let path = format!("/api/conversations/{id}");
    world
        .patch(ADA, &path, &json!({"title": "New"}))
        .await
        .is(200, &json!(true));
    assert_eq!(world.read(ADA, &id).await["title"], "New");
    for (body, kind) in [
        (json!({}), "missing"),
        (json!({"title": ""}), "string_too_short"),
        (json!({"title": "x".repeat(201)}), "string_too_long"),
        (json!({"title": null}), "string_type"),
    ] {
        let refused = world.patch(ADA, &path, &body).await;
        assert_eq!(refused.status, 422);
        assert_eq!(
            refused.json()["detail"][0]["type"],
            kind,
            "{}",
            refused.text
        );
    }
    let unknown = json!({"status": "error", "message": "Conversation not found", "msg_id": "CONVERSATION$NOT_FOUND"});
    let title = json!({"title": "Mine"});
    world.patch(BOB, &path, &title).await.is(404, &unknown);
    for id in [
        HEX,
        UNKNOWN,
        "anything",
        "task-0123456789abcdef0123456789abcdef",
    ] {
        let path = format!("/api/conversations/{id}");
        world.get(ADA, &path).await.is(200, &Value::Null);
        world.patch(ADA, &path, &title).await.is(404, &unknown);
        world.delete(ADA, &path).await.is(200, &json!(false));
        let config = world.get(ADA, &format!("{path}/config")).await;
        config.refuses(404, &format!("Conversation {id} not found"));
    }
    let long = "x".repeat(101);
    for (id, why) in [
        (
            "..%5C..",
            "Conversation ID contains invalid path characters",
        ),
        ("a%0Ab", "Conversation ID contains invalid path characters"),
        (long.as_str(), "Conversation ID is too long"),
    ] {
        let path = format!("/api/conversations/{id}");
        world.get(ADA, &path).await.refuses(400, why);
        world.delete(ADA, &path).await.refuses(400, why);
        world.patch(ADA, &path, &title).await.refuses(400, why);
    }
    world.delete(ADA, &path).await.is(200, &json!(true));
    world.get(ADA, &path).await.is(200, &Value::Null);
    world.delete(ADA, &path).await.is(200, &json!(false));
}

/// Agent servers have these paths, too, for holders of their key.
#[actix_web::test]
async fn sandbox_keys_are_not_user_keys_on_shared_paths() {
    let world = World::working().await;
    // Bound, without a listener.
    let nobody = tokio::net::TcpSocket::new_v4().unwrap();
    nobody.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let place = nobody.local_addr().unwrap();
    world.backend.set_port(place.port());
    let id = world.conversation(ADA).await;
    let view = world.read(ADA, &id).await;
    let key = view["session_api_key"].as_str().unwrap();
    for (method, path) in [
        (Method::GET, "/api/conversations".to_owned()),
        (Method::GET, format!("/api/conversations/{id}")),
        (Method::DELETE, format!("/api/conversations/{id}")),
    ] {
        let request = TestRequest::default().method(method).uri(&path);
        let answer = world
            .send(request.insert_header(("X-Session-API-Key", key)))
            .await;
        // Forwarded to the agent server, which is not running.
        assert_eq!(answer.status, 502, "{}", answer.text);
        assert!(answer.text.contains("cannot be reached"), "{}", answer.text);
        world
            .get("aw_wrong", &path)
            .await
            .refuses(401, "Unauthorized");
    }
    assert_eq!(world.read(ADA, &id).await["id"], json!(id));
}

async fn connected() -> World {
    let world = World::idle().await;
    let token = json!({"token": "t"});
    let body = json!({"provider_tokens": {"github": token, "gitlab": token}});
    world
        .post(ADA, "/api/v1/secrets/git-providers", &body)
        .await
        .ok();
    world
}

fn repository(provider: GitProvider, number: usize) -> GitRepository {
    GitRepository {
        id: number.to_string(),
        full_name: format!("o/{provider}{number}"),
        git_provider: provider,
        is_public: true,
        stargazers_count: None,
        pushed_at: None,
        owner_type: None,
        main_branch: None,
    }
}

fn has(provider: GitProvider) -> FakeProvider {
    FakeProvider {
        user: Some(GitUser {
            id: "7".into(),
            login: "ada".into(),
            avatar_url: String::new(),
            company: None,
            name: None,
            email: None,
        }),
        repositories: (0..5).map(|n| repository(provider, n)).collect(),
        branches: (0..3)
            .map(|n| GitBranch {
                name: format!("b{n}"),
                commit_sha: "abc".into(),
                protected: false,
                last_push_date: None,
            })
            .collect(),
        installations: (provider == GitProvider::Github).then(|| vec!["1".into()]),
        tasks: vec![SuggestedTask {
            git_provider: provider,
            task_type: SuggestedTaskType::OpenIssue,
            repo: "o/r".into(),
            issue_number: 1,
            title: "t".into(),
        }],
        ..FakeProvider::default()
    }
}

#[actix_web::test]
async fn legacy_git_routes_without_a_token_answer_a_plain_text() {
    let world = World::idle().await;
    for (path, text) in [
        (
            "/api/user/info",
            "Git provider token required. (such as GitHub).",
        ),
        (
            "/api/user/repositories",
            "Git provider token required. (such as GitHub).",
        ),
        (
            "/api/user/repository/branches?repository=o/r",
            "Git provider token required. (such as GitHub).",
        ),
        (
            "/api/user/installations?provider=github",
            "Git provider token required. (such as GitHub).",
        ),
        ("/api/user/suggested-tasks", "No providers set."),
    ] {
        world.get(ADA, path).await.is(401, &json!(text));
        world
            .get("aw_wrong", path)
            .await
            .refuses(401, "Unauthorized");
    }
    for path in [
        "/api/user/repositories?page=x",
        "/api/user/repositories?selected_provider=svn",
        "/api/user/repository/branches",
    ] {
        assert_eq!(world.get(ADA, path).await.status, 422, "{path}");
    }
}

#[actix_web::test]
async fn older_git_routes_have_numbered_pages() {
    let world = connected().await;
    for provider in [GitProvider::Github, GitProvider::Gitlab] {
        world.git.set(provider, has(provider));
    }
    assert_eq!(world.get(ADA, "/api/user/info").await.ok()["login"], "ada");
    let base = "/api/user/repositories?selected_provider=github&sort=pushed&per_page=2";
    for (page, names, link) in [
        (
            1,
            vec!["o/github0", "o/github1"],
            json!("</api/user/repositories?page=2>; rel=\"next\""),
        ),
        (3, vec!["o/github4"], Value::Null),
        (4, vec![], Value::Null),
        (1_000_000, vec![], Value::Null),
    ] {
        let found = world.get(ADA, &format!("{base}&page={page}")).await.ok();
        let found = found.as_array().unwrap();
        let named: Vec<_> = found
            .iter()
            .map(|one| one["full_name"].as_str().unwrap())
            .collect();
        assert_eq!(named, names, "page {page}");
        assert!(
            found.iter().all(|one| one["link_header"] == link),
            "page {page}"
        );
    }
    // Without a provider: all providers.
    let all = world.get(ADA, "/api/user/repositories").await.ok();
    assert_eq!(all.as_array().unwrap().len(), 10);
    let branches =
        "/api/user/repository/branches?repository=o/r&selected_provider=github&page=1&per_page=2";
    let found = world.get(ADA, branches).await.ok();
    let branch = |name: &str| json!({"name": name, "commit_sha": "abc", "protected": false, "last_push_date": null});
    let expected = json!({"branches": [branch("b0"), branch("b1")], "has_next_page": true, "current_page": 1,
        "per_page": 2, "total_count": null});
    assert_eq!(found.to_string(), expected.to_string());
    let tasks = world.get(ADA, "/api/user/suggested-tasks").await.ok();
    assert_eq!(tasks.as_array().unwrap().len(), 2);
    world
        .get(ADA, "/api/user/installations?provider=github")
        .await
        .is(200, &json!(["1"]));
    let none = world
        .get(ADA, "/api/user/installations?provider=gitlab")
        .await;
    none.refuses(400, "Provider gitlab doesn't support installations");
}

#[actix_web::test]
async fn the_web_front_end_of_the_1_20_line_finds_what_it_asks_before_it_connects() {
    let world = World::working().await;
    let expected = [
        (
            "/api/keys/current",
            json!({"user_id": "ada", "org_id": null}),
        ),
        (
            "/api/agent-profiles",
            json!({"profiles": [], "active_agent_profile_id": null}),
        ),
    ];
    for (path, expected) in expected {
        world.get(ADA, path).await.is(200, &expected);
        // The front end recognizes a wrong key by this response.
        assert_eq!(world.get("aw_wrong", path).await.status, 401, "{path}");
    }
}
