//! Choice of sandbox and directory by a start, and the launch request of its agent.

use std::time::Duration;

use application::settings::McpConfigUpdate;
use domain::agent::{AgentKind, LaunchSecret};
use domain::encryption::cipher::Sealed;
use domain::git::GitProvider;
use domain::id::{HostId, SandboxId, SecretId};
use domain::sandbox::{DesiredState, HostSandboxRepository, MAX_SHARED_CONVERSATIONS};
use domain::secret_rule::SecretRules;
use domain::start_task::{AgentType, StartStatus, StartTask, StartTaskQueue};
use domain::user::secret::{CustomSecret, SecretRepository, SecretValue};
use futures::future::join_all;
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::fixture::{Fixture, alice, alice_scope, clock, start_input};

async fn settings(fixture: &Fixture, change: Value) {
    let change = change.as_object().expect("an object").clone();
    let stored = fixture
        .app
        .settings
        .update_v1(&alice(), &change, McpConfigUpdate::Replace)
        .await;
    stored.expect("settings are stored");
}

async fn grouped(strategy: &str) -> Fixture {
    let fixture = Fixture::new().await;
    settings(&fixture, json!({"sandbox_grouping_strategy": strategy})).await;
    fixture
}

async fn start_ready_conversation(fixture: &Fixture) -> StartTask {
    let task = fixture.start_and_wait(start_input(|_| {})).await;
    assert_eq!(task.status, StartStatus::Ready, "{:?}", task.detail);
    task
}

fn directory(fixture: &Fixture, task: &StartTask) -> String {
    let launches = fixture.agents.launches();
    let launch = launches
        .iter()
        .find(|it| it.conversation_id == task.conversation_id);
    launch.expect("it was launched").working_dir.clone()
}

#[tokio::test(start_paused = true)]
async fn without_grouping_each_has_a_sandbox_and_the_whole_workspace() {
    let fixture = Fixture::new().await;
    let (one, two) = (
        start_ready_conversation(&fixture).await,
        start_ready_conversation(&fixture).await,
    );
    assert_ne!(one.sandbox_id, two.sandbox_id);
    assert!(directory(&fixture, &one).ends_with("/workspace"));
    let named = start_input(|r| r.sandbox_id = Some(one.sandbox_id.clone()));
    let three = fixture.start_and_wait(named).await;
    assert_eq!(directory(&fixture, &three), directory(&fixture, &one));
}

#[tokio::test(start_paused = true)]
async fn with_grouping_a_sandbox_is_shared_and_directories_are_not() {
    for strategy in [
        "ADD_TO_ANY",
        "GROUP_BY_NEWEST",
        "LEAST_RECENTLY_USED",
        "FEWEST_CONVERSATIONS",
    ] {
        let fixture = grouped(strategy).await;
        let (one, two) = (
            start_ready_conversation(&fixture).await,
            start_ready_conversation(&fixture).await,
        );
        assert_eq!(one.sandbox_id, two.sandbox_id, "{strategy}");
        assert!(one.owns_sandbox && !two.owns_sandbox);
        for task in [&one, &two] {
            let own = format!("/workspace/{}", task.conversation_id);
            assert!(directory(&fixture, task).ends_with(&own), "{strategy}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_strategy_chooses_the_sandbox() {
    for (strategy, expected) in [
        ("ADD_TO_ANY", 0),
        ("GROUP_BY_NEWEST", 2),
        ("LEAST_RECENTLY_USED", 1),
        ("FEWEST_CONVERSATIONS", 0),
    ] {
        let fixture = Fixture::new().await;
        let mut sandboxes = Vec::new();
        for _ in 0..3 {
            sandboxes.push(start_ready_conversation(&fixture).await.sandbox_id);
        }
        // 2, 3 and 2 conversations in the end; the sandbox with three was left alone first.
        for at in [1, 1, 0, 2] {
            let named = sandboxes[at].clone();
            fixture
                .start_and_wait(start_input(|r| r.sandbox_id = Some(named)))
                .await;
        }
        settings(&fixture, json!({"sandbox_grouping_strategy": strategy})).await;
        let chosen = start_ready_conversation(&fixture).await.sandbox_id;
        assert_eq!(chosen, sandboxes[expected], "{strategy}");
    }
}

#[tokio::test(start_paused = true)]
async fn starts_at_once_never_overfill_a_sandbox() {
    let fixture = grouped("ADD_TO_ANY").await;
    let first = start_ready_conversation(&fixture).await;
    let starts = (0..MAX_SHARED_CONVERSATIONS + 4).map(|_| fixture.start(start_input(|_| {})));
    let tasks = join_all(starts).await;
    let shared = tasks.iter().filter(|it| it.sandbox_id == first.sandbox_id);
    assert_eq!(shared.count() + 1, MAX_SHARED_CONVERSATIONS as usize);
    for task in &tasks {
        let ended = fixture.wait_until_ended(task).await;
        assert_eq!(ended.status, StartStatus::Ready, "{:?}", ended.detail);
    }
}

#[tokio::test(start_paused = true)]
async fn paused_sandboxes_are_not_shared() {
    let fixture = grouped("ADD_TO_ANY").await;
    let first = start_ready_conversation(&fixture).await;
    let paused = fixture
        .app
        .sandboxes
        .pause(&alice_scope(), &first.sandbox_id)
        .await;
    paused.expect("paused");
    let second = start_ready_conversation(&fixture).await;
    assert_ne!(second.sandbox_id, first.sandbox_id);
    let row = fixture
        .sandbox(&first.sandbox_id)
        .await
        .expect("it is there");
    assert_eq!(row.desired, DesiredState::Paused);
}

/// A sub-conversation works in its parent's sandbox and directory, even if the setting changed and the parent's start
/// task was deleted.
#[tokio::test(start_paused = true)]
async fn a_sub_conversation_works_in_its_parents_directory() {
    let fixture = grouped("ADD_TO_ANY").await;
    let parent = start_ready_conversation(&fixture).await;
    settings(
        &fixture,
        json!({"sandbox_grouping_strategy": "NO_GROUPING"}),
    )
    .await;
    let tasks: &dyn StartTaskQueue = fixture.store.as_ref();
    let later = clock().now().plus(Duration::from_secs(60));
    assert_eq!(tasks.prune(later, 9).await.expect("pruned"), 1);
    let child = start_input(|r| r.parent_conversation_id = Some(parent.conversation_id));
    let child = fixture.start_and_wait(child).await;
    assert_eq!(child.sandbox_id, parent.sandbox_id);
    assert_eq!(directory(&fixture, &child), directory(&fixture, &parent));
    let grandchild = start_input(|r| r.parent_conversation_id = Some(child.conversation_id));
    let grandchild = fixture.start_and_wait(grandchild).await;
    assert_eq!(
        directory(&fixture, &grandchild),
        directory(&fixture, &parent)
    );
}

#[tokio::test(start_paused = true)]
async fn a_sub_conversation_of_a_deleted_parent_leaves_nothing() {
    let fixture = Fixture::new().await;
    let parent = start_ready_conversation(&fixture).await;
    // It cannot continue before the backend allows it.
    let part = fixture.start(start_input(|r| {
        r.parent_conversation_id = Some(parent.conversation_id);
    }));
    let part = part.await;
    let deleted = fixture
        .app
        .conversations
        .delete(&alice_scope(), parent.conversation_id)
        .await;
    assert!(deleted.is_ok());
    let ended = fixture.wait_until_ended(&part).await;
    assert_eq!(ended.status, StartStatus::Error);
    let why = ended.detail.expect("a cause");
    assert!(why.contains("deleted"), "{why}");
    let gone = async || {
        fixture
            .sandbox(&parent.sandbox_id)
            .await
            .is_none()
            .then_some(())
    };
    crate::fixture::wait_for(gone).await;
}

/// A start that is refused for another reason does not resume a paused sandbox.
#[tokio::test(start_paused = true)]
async fn a_refused_start_resumes_nothing() {
    let fixture = Fixture::with_policy(|p| p.caps.change(|caps| caps.per_user = 1)).await;
    let first = start_ready_conversation(&fixture).await;
    fixture
        .app
        .sandboxes
        .pause(&alice_scope(), &first.sandbox_id)
        .await
        .expect("paused");
    let _second = start_ready_conversation(&fixture).await;
    let named = start_input(|r| r.sandbox_id = Some(first.sandbox_id.clone()));
    let refused = fixture.app.starts.start(&alice(), named).await;
    assert!(refused.is_err(), "the cap is reached");
    let row = fixture
        .sandbox(&first.sandbox_id)
        .await
        .expect("it is there");
    assert_eq!(row.desired, DesiredState::Paused);
}

#[tokio::test(start_paused = true)]
async fn conversations_show_their_acp_agent() {
    let fixture = Fixture::new().await;
    let acp = json!({"agent_kind": "acp", "acp_server": "codex", "acp_model": "m1"});
    settings(&fixture, json!({"agent_settings_diff": acp})).await;
    let secret = application::secrets::NewSecret {
        name: "OPENAI_API_KEY".to_owned(),
        value: "v0".to_owned().into(),
        description: None,
        hosts: None,
        exposed: None,
    };
    fixture
        .app
        .secrets
        .create(&alice(), &secret)
        .await
        .expect("stored");
    let task = start_ready_conversation(&fixture).await;
    let launch = fixture.agents.launches().pop().expect("a launch");
    assert_eq!(launch.acp.expect("a program").server, "codex");
    assert!(launch.llm.api_key.is_none());
    let LaunchSecret::Value(value) = &launch.secrets["OPENAI_API_KEY"] else {
        panic!("a program reads its environment once, so it gets values")
    };
    assert_eq!(value.expose_secret(), "v0");
    let view = fixture
        .view(task.conversation_id)
        .await
        .expect("it is there");
    let it = view.conversation;
    assert_eq!(it.agent_kind, AgentKind::Acp);
    assert_eq!(it.llm_model.as_deref(), Some("m1"));
    assert_eq!(it.tags["acpserver"], "codex");
}

#[tokio::test(start_paused = true)]
async fn the_coding_agent_looks_up_secrets() {
    let fixture = Fixture::new().await;
    let secret = application::secrets::NewSecret {
        name: "MINE".to_owned(),
        value: "v0".to_owned().into(),
        description: Some("for me".to_owned()),
        hosts: None,
        exposed: None,
    };
    fixture
        .app
        .secrets
        .create(&alice(), &secret)
        .await
        .expect("stored");
    let mut asked = start_input(|_| {});
    asked.secrets = Some([("ONCE".to_owned(), "v1".to_owned().into())].into());
    let task = fixture.start_and_wait(asked).await;
    let launch = fixture.agents.launches().pop().expect("a launch");
    let LaunchSecret::LookUp { url, .. } = &launch.secrets["MINE"] else {
        panic!("a change must reach the live sandbox")
    };
    assert!(url.path().contains(task.sandbox_id.as_str()), "{url}");
    assert!(matches!(&launch.secrets["ONCE"], LaunchSecret::Value(_)));
}

#[tokio::test(start_paused = true)]
async fn a_planning_agent_gets_its_bounds_and_its_document() {
    let fixture = Fixture::new().await;
    let plan = start_input(|r| {
        r.agent_type = AgentType::Plan;
        r.git_provider = Some(GitProvider::Gitlab);
        r.system_message_suffix = Some("Be brief.".to_owned());
    });
    fixture.start_and_wait(plan).await;
    let launch = fixture.agents.launches().pop().expect("a launch");
    let suffix = launch.system_message_suffix.expect("a suffix");
    assert!(
        suffix.contains("PLAN.md") && suffix.ends_with("Be brief."),
        "{suffix}"
    );
    let path = launch.plan_path.expect("a path");
    assert_eq!(
        path,
        format!("{}/agents-tmp-config/PLAN.md", launch.working_dir)
    );
}

#[tokio::test(start_paused = true)]
async fn an_unknown_named_sandbox_is_not_found_with_grouping_too() {
    let fixture = grouped("ADD_TO_ANY").await;
    let nowhere = start_input(|r| r.sandbox_id = SandboxId::parse("nope").ok());
    assert!(fixture.app.starts.start(&alice(), nowhere).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn sandboxes_of_unserved_hosts_are_not_shared() {
    let fixture = grouped("ADD_TO_ANY").await;
    let first = start_ready_conversation(&fixture).await;
    // The process of the other host may be dead: its rows stay as they were.
    let other = fixture.replica(|p| p.host = HostId::parse("host-2").expect("an id"));
    let there = other.start_and_wait(start_input(|_| {})).await;
    assert_eq!(there.status, StartStatus::Ready, "{:?}", there.detail);
    assert_ne!(there.sandbox_id, first.sandbox_id);
    let here = start_ready_conversation(&fixture).await;
    assert_eq!(here.sandbox_id, first.sandbox_id);
    let annotated_rows = fixture
        .store
        .annotate(
            &first.host,
            Some("away; what is shown is the last known state"),
        )
        .await;
    assert!(annotated_rows.expect("the rows are annotated") > 0);
    assert_ne!(
        start_ready_conversation(&fixture).await.sandbox_id,
        first.sandbox_id
    );
}

#[tokio::test(start_paused = true)]
async fn an_agent_starts_without_unreadable_secrets() {
    for agent in ["openhands", "acp"] {
        let fixture = Fixture::new().await;
        let acp = json!({"agent_kind": agent, "acp_server": "codex", "acp_model": "m1"});
        if agent == "acp" {
            settings(&fixture, json!({"agent_settings_diff": acp})).await;
        }
        let now = clock().now();
        let damaged = CustomSecret {
            owner: alice(),
            name: "DAMAGED".to_owned(),
            description: String::new(),
            hosts: SecretRules::default(),
            value: SecretValue {
                id: SecretId::new(Uuid::from_u128(1)),
                sealed: Sealed::from_text("no seal of ours ".repeat(20)),
            },
            created_at: now,
            updated_at: now,
        };
        let stored = SecretRepository::insert(&*fixture.store, &damaged).await;
        stored.expect("stored");
        let task = fixture.start_and_wait(start_input(|_| {})).await;
        assert_eq!(task.status, StartStatus::Ready, "{:?}", task.detail);
        if agent == "acp" {
            let note = task.detail.expect("a note");
            assert!(note.contains("DAMAGED cannot be opened"), "{note}");
        }
    }
}
