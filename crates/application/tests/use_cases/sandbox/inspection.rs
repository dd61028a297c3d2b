//! Inspection of a conversation's sandbox, and switches of its agent's model.

use std::time::Duration;

use application::settings::SaveProfile;
use domain::agent::workspace::{ProjectSkill, SandboxWorkspace};
use domain::error::{Classify, ErrorClass};
use domain::id::{ConversationId, OwnerId};
use domain::start_task::{StartStatus, StartTask};
use domain::user::scope::Scope;
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use store_memory::FakeBehavior;

use crate::fixture::{Fixture, alice, alice_scope, start_input};

/// Saves a profile of the user.
async fn keep(fixture: &Fixture, name: &str, llm: Value) {
    let Value::Object(llm) = llm else {
        panic!("a model is an object")
    };
    let profile = SaveProfile {
        llm: Some(llm),
        ..SaveProfile::default()
    };
    let saved = fixture
        .app
        .settings
        .save_profile(&alice(), name, &profile)
        .await;
    saved.expect("the profile is saved");
}

/// The workspace of the task's sandbox.
async fn root(fixture: &Fixture, task: &StartTask) -> String {
    let sandbox = fixture.sandbox(&task.sandbox_id).await.expect("its row");
    sandbox.workspace.expect("known while it runs")
}

async fn write(fixture: &Fixture, path: &str, text: &str) {
    let at = domain::agent::AgentEndpoint {
        sandbox: "any".parse().expect("an id"),
        url: "http://127.0.0.1:1".parse().expect("a URL"),
        key: "k".to_owned().into(),
    };
    let text = text.to_owned().into();
    let written = fixture.workspace.write(&at, path, &text).await;
    written.expect("the fake takes everything");
}

async fn model(fixture: &Fixture, id: ConversationId) -> Option<String> {
    let view = fixture.view(id).await.expect("it is there");
    view.conversation.llm_model
}

#[tokio::test(start_paused = true)]
async fn only_small_text_files_are_shown_and_the_plan_is_the_default() {
    let fixture = Fixture::new().await;
    let task = fixture.start_and_wait(start_input(|_| {})).await;
    let (id, root) = (task.conversation_id, root(&fixture, &task).await);
    write(&fixture, &format!("{root}/.agents_tmp/PLAN.md"), "# plan").await;
    write(&fixture, &format!("{root}/a/b.txt"), "b").await;
    write(&fixture, &format!("{root}/big"), &"x".repeat((1 << 20) + 1)).await;
    let inside = &fixture.app.inspector;
    for (path, expected) in [
        (None, "# plan"),
        (Some("/workspace/project/a/b.txt"), "b"),
        (Some("a/b.txt"), "b"),
        (Some("/workspace/nowhere"), ""),
        (Some("big"), ""),
    ] {
        let text = inside
            .file(&alice_scope(), id, path)
            .await
            .expect("an answer");
        assert_eq!(text, expected, "{path:?}");
    }
    for outside in [
        "/etc/passwd",
        "../../../master.key",
        "/workspace/../../x",
        "/",
    ] {
        let refused = inside.file(&alice_scope(), id, Some(outside)).await;
        let class = refused.expect_err(outside).class();
        assert_eq!(class, ErrorClass::NotFound, "{outside}");
    }
    let stranger = Scope::Owner(OwnerId::parse("bob").expect("an id"));
    let text = inside.file(&stranger, id, None).await;
    assert_eq!(text.expect("an answer"), "", "other users cannot read it");
}

#[tokio::test(start_paused = true)]
async fn git_requests_stay_in_the_workspace_of_the_sandbox() {
    let fixture = Fixture::new().await;
    let task = fixture.start_and_wait(start_input(|_| {})).await;
    let (id, root) = (task.conversation_id, root(&fixture, &task).await);
    let changes = json!([{"status": "ADDED", "path": "a.txt"}]);
    let diff = json!({"modified": "new", "original": null});
    fixture.workspace.set_git(changes.clone(), diff.clone());
    let inside = &fixture.app.inspector;
    let mine = alice_scope();
    let found = inside.git_changes(&mine, id, "/workspace/project", None);
    assert_eq!(found.await.expect("an answer"), changes);
    let found = inside.git_diff(&mine, id, "a.txt", Some("HEAD"));
    assert_eq!(found.await.expect("an answer"), diff);
    assert_eq!(
        fixture.workspace.git_requests(),
        [
            (root.clone(), None),
            (format!("{root}/a.txt"), Some("HEAD".to_owned()))
        ]
    );
    let stranger = Scope::Owner(OwnerId::parse("bob").expect("an id"));
    let refused = inside.git_changes(&stranger, id, "/", None).await;
    assert_eq!(refused.expect_err("not his").class(), ErrorClass::NotFound);
    fixture.workspace.stop_responding();
    let outside = inside.git_changes(&mine, id, "/", None).await;
    assert_eq!(outside.expect_err("outside").class(), ErrorClass::NotFound);
    let failed = inside.git_changes(&mine, id, ".", None).await;
    assert_eq!(failed.expect_err("mute").class(), ErrorClass::Upstream);
}

#[tokio::test(start_paused = true)]
async fn skills_that_cannot_be_read_are_none_and_hooks_are_a_failure() {
    let fixture = Fixture::new().await;
    let skill = ProjectSkill {
        name: "style".to_owned(),
        kind: "repo".to_owned(),
        content: "Be brief.".to_owned(),
        triggers: Vec::new(),
    };
    let hooks = json!({"stop": [{"hooks": [{"command": "echo"}]}]});
    fixture
        .workspace
        .set_project(Some(hooks), vec![skill.clone()]);
    let task = fixture.start_and_wait(start_input(|_| {})).await;
    let (id, inside) = (task.conversation_id, &fixture.app.inspector);
    assert_eq!(
        inside.skills(&alice_scope(), id).await.expect("read"),
        [skill]
    );
    let hooks = inside.hooks(&alice_scope(), id).await.expect("read");
    assert_eq!((hooks.len(), hooks[0].event), (1, "stop"));
    fixture.workspace.stop_responding();
    assert_eq!(inside.skills(&alice_scope(), id).await.expect("none"), []);
    let failed = inside.hooks(&alice_scope(), id).await.expect_err("mute");
    assert_eq!(failed.class(), ErrorClass::Upstream);
}

#[tokio::test(start_paused = true)]
async fn paused_and_deleted_sandboxes_are_not_inspected() {
    let fixture = Fixture::new().await;
    keep(
        &fixture,
        "fast",
        json!({"model": "openai/fast", "api_key": "sk-2"}),
    )
    .await;
    let task = fixture.start_and_wait(start_input(|_| {})).await;
    let (id, inside) = (task.conversation_id, &fixture.app.inspector);
    let mine = alice_scope();
    let pause = fixture.app.sandboxes.pause(&mine, &task.sandbox_id);
    pause.await.expect("paused");
    assert_eq!(inside.file(&mine, id, None).await.expect("empty"), "");
    assert_eq!(inside.skills(&mine, id).await.expect("empty"), []);
    assert_eq!(inside.hooks(&mine, id).await.expect("empty"), []);
    let refused = [
        inside.git_diff(&mine, id, "a", None).await.map(|_| ()),
        inside.switch_profile(&mine, &alice(), id, "fast").await,
        inside.switch_acp_model(&mine, id, "m2").await,
    ];
    for refused in refused {
        let refused = refused.expect_err("it sleeps");
        assert_eq!(refused.class(), ErrorClass::Conflict);
        assert!(refused.public().starts_with("Sandbox is paused;"));
    }
    let delete = fixture.app.sandboxes.delete(&mine, &task.sandbox_id);
    delete.await.expect("deleted");
    let refused = inside.hooks(&mine, id).await.expect_err("it is gone");
    assert_eq!(refused.class(), ErrorClass::NotFound);
    assert_eq!(fixture.agents.switches(), []);
}

#[tokio::test(start_paused = true)]
async fn a_switched_conversation_shows_its_new_model() {
    let fixture = Fixture::new().await;
    keep(
        &fixture,
        "fast",
        json!({"model": "openai/fast", "api_key": "sk-2"}),
    )
    .await;
    keep(&fixture, "elsewhere", json!({"model": "anthropic/claude"})).await;
    let task = fixture.start_and_wait(start_input(|_| {})).await;
    let (id, inside) = (task.conversation_id, &fixture.app.inspector);
    let switched = inside
        .switch_profile(&alice_scope(), &alice(), id, "fast")
        .await;
    switched.expect("switched");
    assert_eq!(fixture.agents.switches(), [(id, "openai/fast".to_owned())]);
    assert_eq!(model(&fixture, id).await.as_deref(), Some("openai/fast"));
    for (name, class, expected_text) in [
        ("none", ErrorClass::NotFound, "Profile 'none' not found"),
        ("elsewhere", ErrorClass::Invalid, "llm_api_key"),
    ] {
        let refused = inside
            .switch_profile(&alice_scope(), &alice(), id, name)
            .await;
        let refused = refused.expect_err(name);
        assert_eq!(refused.class(), class, "{name}");
        assert!(
            refused.public().contains(expected_text),
            "{}",
            refused.public()
        );
    }
    let switched = inside.switch_acp_model(&alice_scope(), id, "m2").await;
    switched.expect("switched");
    assert_eq!(model(&fixture, id).await.as_deref(), Some("m2"));
    for (status, class) in [
        (400, ErrorClass::Invalid),
        (504, ErrorClass::TimedOut),
        (500, ErrorClass::Upstream),
    ] {
        fixture.agents.set_behavior(FakeBehavior::Rejecting(status));
        let refused = inside.switch_acp_model(&alice_scope(), id, "m3").await;
        assert_eq!(refused.expect_err("refused").class(), class, "{status}");
    }
    assert_eq!(model(&fixture, id).await.as_deref(), Some("m2"), "kept");
}

#[tokio::test(start_paused = true)]
async fn a_start_seeds_usable_profiles() {
    let fixture = Fixture::new().await;
    keep(
        &fixture,
        "fast",
        json!({"model": "openai/fast", "api_key": "sk-2"}),
    )
    .await;
    keep(&fixture, "same", json!({"model": "openai/other"})).await;
    keep(&fixture, "keyless", json!({"model": "anthropic/claude"})).await;
    let task = fixture.start_and_wait(start_input(|_| {})).await;
    assert_eq!(task.status, StartStatus::Ready);
    assert_eq!(task.notes, Vec::<String>::new());
    let profiles = fixture.agents.profiles();
    let keys: Vec<(&str, &str)> = profiles
        .iter()
        .map(|it| {
            let key = it.llm.api_key.as_ref().map_or("", |k| k.expose_secret());
            (it.name.as_str(), key)
        })
        .collect();
    assert_eq!(keys, [("fast", "sk-2"), ("same", "sk-1")]);
}

#[tokio::test(start_paused = true)]
async fn failed_seeding_only_adds_a_note_and_a_bounded_delay() {
    let fixture = Fixture::new().await;
    keep(
        &fixture,
        "fast",
        json!({"model": "openai/fast", "api_key": "sk-2"}),
    )
    .await;
    fixture.agents.refuse_profiles(Duration::ZERO);
    let task = fixture.start_and_wait(start_input(|_| {})).await;
    assert_eq!(task.status, StartStatus::Ready);
    assert!(task.notes[0].contains("profiles"), "{:?}", task.notes);
    fixture.agents.refuse_profiles(Duration::from_secs(3600));
    let task = fixture.start_and_wait(start_input(|_| {})).await;
    assert_eq!(task.status, StartStatus::Ready);
    assert!(task.notes[0].contains("no end within"), "{:?}", task.notes);
}
