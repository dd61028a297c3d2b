//! The workspace of sandboxes (files, git, skills, hooks), and switching the agent's model.

use domain::agent::AgentEndpoint;
use domain::agent::workspace::{ProjectSkill, SandboxWorkspace};
use serde_json::{Value, json};
use store_memory::FakeBehavior;

use crate::fixture::{ADA, BOB, UNKNOWN, World};

const READS: [&str; 5] = [
    "file",
    "git/changes?path=/workspace/project",
    "git/diff?path=a.txt&ref=HEAD",
    "skills",
    "hooks",
];

fn of(id: &str, what: &str) -> String {
    format!("/api/v1/app-conversations/{id}/{what}")
}

fn dashed(id: &str) -> String {
    let id = uuid::Uuid::parse_str(id).unwrap();
    id.hyphenated().to_string()
}

async fn write(world: &World, path: &str, text: &str) {
    let at = AgentEndpoint {
        sandbox: "any".parse().expect("an id"),
        url: "http://127.0.0.1:1".parse().unwrap(),
        key: "k".to_owned().into(),
    };
    let text = text.to_owned().into();
    world.workspace.write(&at, path, &text).await.unwrap();
}

async fn sandbox(world: &World, id: &str) -> String {
    let shown = world.read(ADA, id).await;
    shown["sandbox_id"].as_str().unwrap().to_owned()
}

/// Saves a profile.
async fn keep(world: &World, name: &str, llm: Value) {
    let path = format!("/api/v1/settings/profiles/{name}");
    let saved = world.post(ADA, &path, &json!({"llm": llm})).await;
    assert_eq!(saved.status, 201, "{}", saved.text);
}

#[actix_web::test]
async fn workspace_responses_have_the_known_shapes() {
    let world = World::working().await;
    let skill = ProjectSkill {
        name: "deploy".to_owned(),
        kind: "knowledge".to_owned(),
        content: "How.".to_owned(),
        triggers: vec!["ship".to_owned()],
    };
    let hooks =
        json!({"stop": [{"hooks": [{"command": "echo hi", "timeout": 5}]}], "session_end": []});
    world.workspace.set_project(Some(hooks), vec![skill]);
    let changes = json!([{"status": "MODIFIED", "path": "a.txt"}]);
    let diff = json!({"modified": "new", "original": "old"});
    world.workspace.set_git(changes.clone(), diff.clone());
    let id = world.conversation(ADA).await;
    let root = format!("/sandboxes/{}/workspace", sandbox(&world, &id).await);
    write(&world, &format!("{root}/.agents_tmp/PLAN.md"), "# plan ✓").await;
    write(&world, &format!("{root}/x"), "x").await;
    let skills = json!({"skills": [{"name": "deploy", "type": "knowledge", "content": "How.", "triggers": ["ship"]}]});
    let hook = json!({"type": "command", "command": "echo hi", "timeout": 5, "async": false});
    let hooks =
        json!({"hooks": [{"event_type": "stop", "matchers": [{"matcher": "*", "hooks": [hook]}]}]});
    let expected = [json!("# plan ✓"), changes, diff, skills, hooks];
    for (what, expected) in READS.iter().zip(expected) {
        world.get(ADA, &of(&id, what)).await.is(200, &expected);
    }
    let file = world
        .get(ADA, &of(&id, "file?file_path=/workspace/project/x"))
        .await;
    file.is(200, &json!("x"));
    assert_eq!(file.content_type, "application/json");
    let outside = json!({"detail": "The path leads out of the workspace of this sandbox"});
    for path in ["/etc/passwd", "../../../master.key", "%2e%2e/%2e%2e"] {
        for what in [
            "file?file_path=",
            "files?path=",
            "git/changes?path=",
            "git/diff?path=",
        ] {
            let refused = world.get(ADA, &of(&id, &format!("{what}{path}"))).await;
            refused.is(404, &outside);
        }
    }
    let missing = of(&id, "file?file_path=missing.txt");
    world.get(ADA, &missing).await.is(200, &json!(""));
    // Not for other users.
    let expected_error = format!("Conversation {} not found", dashed(&id));
    world
        .get(BOB, &of(&id, "skills"))
        .await
        .is(404, &json!({"error": expected_error}));
}

#[actix_web::test]
async fn workspace_errors_have_the_texts_of_their_route() {
    let world = World::working().await;
    let no = |what: &str| json!({"error": what.replace("{}", UNKNOWN)});
    let unreachable = format!("Conversation {UNKNOWN} is not reachable");
    let expected = [
        (200, json!("")),
        (404, json!({"detail": unreachable})),
        (404, json!({"detail": unreachable})),
        (404, no("Conversation {} not found")),
        (404, no("Conversation {} not found")),
    ];
    for (what, (status, expected)) in READS.iter().zip(expected) {
        world
            .get(ADA, &of(UNKNOWN, what))
            .await
            .is(status, &expected);
    }
    let bad = world.get(ADA, &of("nope", "file")).await;
    assert_eq!(bad.status, 422);
    assert_eq!(bad.json()["detail"][0]["type"], "uuid_parsing");
    let error = json!({"type": "missing", "loc": ["query", "path"], "msg": "Field required", "input": null});
    for what in ["git/changes", "git/diff?ref=HEAD"] {
        let refused = world.get(ADA, &of(UNKNOWN, what)).await;
        refused.is(422, &json!({"detail": [error]}));
    }
    let id = world.conversation(ADA).await;
    world.workspace.stop_responding();
    let nonsense = "Agent server returned unexpected response.";
    for (what, status, expected) in [
        ("git/changes?path=a", 502, json!({"detail": nonsense})),
        ("git/diff?path=a", 502, json!({"detail": nonsense})),
        ("skills", 200, json!({"skills": []})),
        ("hooks", 502, json!({"error": nonsense})),
    ] {
        world.get(ADA, &of(&id, what)).await.is(status, &expected);
    }
}

#[actix_web::test]
async fn paused_and_deleted_sandboxes_are_distinguished() {
    let world = World::working().await;
    keep(
        &world,
        "fast",
        json!({"model": "openai/fast", "api_key": "sk-2"}),
    )
    .await;
    let id = world.conversation(ADA).await;
    let sandbox = sandbox(&world, &id).await;
    let pause = format!("/api/v1/sandboxes/{sandbox}/pause");
    world.post(ADA, &pause, &json!({})).await.ok();
    let paused =
        |before: &str| json!({"detail": format!("Sandbox is paused; resume it before {before}.")});
    let git = || (409, paused("reading git state"));
    let expected = [
        (200, json!("")),
        git(),
        git(),
        (200, json!({"skills": []})),
        (200, json!({"hooks": []})),
    ];
    for (what, (status, expected)) in READS.iter().zip(expected) {
        world.get(ADA, &of(&id, what)).await.is(status, &expected);
    }
    let (profile, model) = (json!({"profile_name": "fast"}), json!({"model": "x"}));
    let switched = world.post(ADA, &of(&id, "switch_profile"), &profile).await;
    switched.is(409, &paused("switching profiles"));
    let switched = world.post(ADA, &of(&id, "switch_acp_model"), &model).await;
    switched.is(409, &paused("switching models"));

    world
        .delete(ADA, &format!("/api/v1/sandboxes/{sandbox}"))
        .await
        .ok();
    let no = |what: &str| json!({"detail": format!("Conversation {} {what}", dashed(&id))});
    let expected_error = format!("Sandbox not found for conversation {}", dashed(&id));
    let expected = [
        (200, json!("")),
        (404, no("is not reachable")),
        (404, no("is not reachable")),
        (404, json!({"error": expected_error})),
        (404, json!({"error": expected_error})),
    ];
    for (what, (status, expected)) in READS.iter().zip(expected) {
        world.get(ADA, &of(&id, what)).await.is(status, &expected);
    }
    let switched = world.post(ADA, &of(&id, "switch_acp_model"), &model).await;
    switched.is(404, &no("is not reachable"));
}

#[actix_web::test]
async fn switching_models_has_the_known_texts() {
    let world = World::working().await;
    let wanted = |name: &str| json!({"profile_name": name});
    let path = of(UNKNOWN, "switch_profile");
    let idle = World::idle().await;
    idle.post(ADA, &path, &wanted("x"))
        .await
        .refuses(404, "Settings not found");
    keep(
        &world,
        "fast",
        json!({"model": "openai/fast", "api_key": "sk-2"}),
    )
    .await;
    world
        .post(ADA, &path, &wanted("x"))
        .await
        .refuses(404, "Profile 'x' not found");
    let unreachable = format!("Conversation {UNKNOWN} is not reachable");
    world
        .post(ADA, &path, &wanted("fast"))
        .await
        .refuses(404, &unreachable);
    for (what, body) in [
        ("switch_profile", json!({"profile_name": ""})),
        ("switch_acp_model", json!({"model": ""})),
    ] {
        let refused = world.post(ADA, &of(UNKNOWN, what), &body).await;
        assert_eq!(refused.status, 422, "{}", refused.text);
        let error = &refused.json()["detail"][0];
        assert_eq!(error["type"], "string_too_short", "{error}");
    }

    let id = world.conversation(ADA).await;
    let done = json!({"success": true});
    let (path, body) = (of(&id, "switch_profile"), wanted("fast"));
    world.post(ADA, &path, &body).await.is(200, &done);
    assert_eq!(world.read(ADA, &id).await["llm_model"], "openai/fast");
    let path = of(&id, "switch_acp_model");
    let model = json!({"model": "m1"});
    world.post(ADA, &path, &model).await.is(200, &done);
    assert_eq!(world.read(ADA, &id).await["llm_model"], "m1");
    for (behavior, status, expected_error) in [
        (FakeBehavior::Rejecting(400), 400, "Agent server error: 400"),
        (FakeBehavior::Rejecting(504), 504, "Agent server error: 504"),
        (FakeBehavior::Rejecting(500), 502, "Agent server error: 500"),
        (
            FakeBehavior::Unreachable,
            502,
            "Failed to reach agent server.",
        ),
    ] {
        world.agents.set_behavior(behavior);
        world
            .post(ADA, &path, &model)
            .await
            .refuses(status, expected_error);
    }
    let path = of(&id, "switch_profile");
    world.agents.set_behavior(FakeBehavior::Rejecting(400));
    let refused = world.post(ADA, &path, &wanted("fast")).await;
    refused.refuses(502, "Agent server error: 400");
}

#[actix_web::test]
async fn the_files_of_a_workspace_are_listed_for_its_owner_while_it_runs() {
    let world = World::working().await;
    let id = world.conversation(ADA).await;
    let root = format!("/sandboxes/{}/workspace", sandbox(&world, &id).await);
    for name in ["b.txt", "dir/a.txt"] {
        write(&world, &format!("{root}/{name}"), "x").await;
    }
    for (query, expected) in [
        ("files", json!(["b.txt", "dir/a.txt"])),
        ("files?path=/workspace/project/dir", json!(["a.txt"])),
        ("files?path=/workspace/project/none", json!([])),
    ] {
        world.get(ADA, &of(&id, query)).await.is(200, &expected);
    }
    let unknown = format!("Conversation {} is not reachable", dashed(&id));
    let theirs = world.get(BOB, &of(&id, "files")).await;
    theirs.is(404, &json!({"detail": unknown}));
    world.workspace.stop_responding();
    let failed = json!({"detail": "Agent server returned unexpected response."});
    world.get(ADA, &of(&id, "files")).await.is(502, &failed);
}
