//! Which sandbox and which directory a start gets, and what its conversation is told about its agent.

use std::time::Duration;

use domain::agent::LaunchSecret;
use domain::cipher::Sealed;
use domain::conversation::GitProvider;
use domain::id::{HostId, SandboxId, SecretId};
use domain::sandbox::{DesiredState, MAX_SHARED_CONVERSATIONS, SandboxRepository};
use domain::secret::{CustomSecret, SecretRepository, SecretValue};
use domain::start_task::{AgentType, StartStatus, StartTask, StartTaskRepository};
use futures::future::join_all;
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::world::{World, alice, clock, input, mine};

async fn settings(world: &World, change: Value) {
    let change = change.as_object().expect("an object").clone();
    let stored = world.app.settings.store_v1(&alice(), &change).await;
    stored.expect("settings are stored");
}

async fn grouped(strategy: &str) -> World {
    let world = World::new().await;
    settings(&world, json!({"sandbox_grouping_strategy": strategy})).await;
    world
}

async fn started(world: &World) -> StartTask {
    let task = world.started(input(|_| {})).await;
    assert_eq!(task.status, StartStatus::Ready, "{:?}", task.detail);
    task
}

fn directory(world: &World, task: &StartTask) -> String {
    let launches = world.agents.launches();
    let launch = launches
        .iter()
        .find(|it| it.conversation_id == task.conversation_id);
    launch.expect("it was launched").working_dir.clone()
}

#[tokio::test(start_paused = true)]
async fn without_grouping_each_has_a_sandbox_and_the_whole_workspace() {
    let world = World::new().await;
    let (one, two) = (started(&world).await, started(&world).await);
    assert_ne!(one.sandbox_id, two.sandbox_id);
    assert!(directory(&world, &one).ends_with("/workspace"));
    let named = input(|r| r.sandbox_id = Some(one.sandbox_id.clone()));
    let three = world.started(named).await;
    assert_eq!(directory(&world, &three), directory(&world, &one));
}

#[tokio::test(start_paused = true)]
async fn with_grouping_a_sandbox_is_shared_and_directories_are_not() {
    for strategy in [
        "ADD_TO_ANY",
        "GROUP_BY_NEWEST",
        "LEAST_RECENTLY_USED",
        "FEWEST_CONVERSATIONS",
    ] {
        let world = grouped(strategy).await;
        let (one, two) = (started(&world).await, started(&world).await);
        assert_eq!(one.sandbox_id, two.sandbox_id, "{strategy}");
        assert!(one.owns_sandbox && !two.owns_sandbox);
        for task in [&one, &two] {
            let own = format!("/workspace/{}", task.conversation_id);
            assert!(directory(&world, task).ends_with(&own), "{strategy}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_strategy_decides_which() {
    for (strategy, expected) in [
        ("ADD_TO_ANY", 0),
        ("GROUP_BY_NEWEST", 2),
        ("LEAST_RECENTLY_USED", 1),
        ("FEWEST_CONVERSATIONS", 0),
    ] {
        let world = World::new().await;
        let mut sandboxes = Vec::new();
        for _ in 0..3 {
            sandboxes.push(started(&world).await.sandbox_id);
        }
        // 2, 3 and 2 conversations in the end; the one with three was left alone first.
        for at in [1, 1, 0, 2] {
            let named = sandboxes[at].clone();
            world.started(input(|r| r.sandbox_id = Some(named))).await;
        }
        settings(&world, json!({"sandbox_grouping_strategy": strategy})).await;
        let chosen = started(&world).await.sandbox_id;
        assert_eq!(chosen, sandboxes[expected], "{strategy}");
    }
}

#[tokio::test(start_paused = true)]
async fn starts_at_once_never_overfill_a_sandbox() {
    let world = grouped("ADD_TO_ANY").await;
    let first = started(&world).await;
    let starts = (0..MAX_SHARED_CONVERSATIONS + 4).map(|_| world.start(input(|_| {})));
    let tasks = join_all(starts).await;
    let shared = tasks.iter().filter(|it| it.sandbox_id == first.sandbox_id);
    assert_eq!(shared.count() + 1, MAX_SHARED_CONVERSATIONS as usize);
    for task in &tasks {
        let ended = world.ended(task).await;
        assert_eq!(ended.status, StartStatus::Ready, "{:?}", ended.detail);
    }
}

#[tokio::test(start_paused = true)]
async fn what_sleeps_is_not_shared() {
    let world = grouped("ADD_TO_ANY").await;
    let first = started(&world).await;
    let paused = world.app.sandboxes.pause(&mine(), &first.sandbox_id).await;
    paused.expect("paused");
    let second = started(&world).await;
    assert_ne!(second.sandbox_id, first.sandbox_id);
    let row = world.sandbox(&first.sandbox_id).await.expect("it is there");
    assert_eq!(row.desired, DesiredState::Paused);
}

/// A part works where its parent does: same sandbox, same directory, also when the setting has changed meanwhile and the
/// start of the parent is forgotten.
#[tokio::test(start_paused = true)]
async fn a_part_works_in_the_directory_of_its_parent() {
    let world = grouped("ADD_TO_ANY").await;
    let parent = started(&world).await;
    settings(&world, json!({"sandbox_grouping_strategy": "NO_GROUPING"})).await;
    let tasks: &dyn StartTaskRepository = world.store.as_ref();
    let later = clock().now().plus(Duration::from_secs(60));
    assert_eq!(tasks.prune(later, 9).await.expect("pruned"), 1);
    let child = input(|r| r.parent_conversation_id = Some(parent.conversation_id));
    let child = world.started(child).await;
    assert_eq!(child.sandbox_id, parent.sandbox_id);
    assert_eq!(directory(&world, &child), directory(&world, &parent));
    let grandchild = input(|r| r.parent_conversation_id = Some(child.conversation_id));
    let grandchild = world.started(grandchild).await;
    assert_eq!(directory(&world, &grandchild), directory(&world, &parent));
}

#[tokio::test(start_paused = true)]
async fn a_part_whose_parent_is_deleted_meanwhile_leaves_nothing() {
    let world = World::new().await;
    let parent = started(&world).await;
    // It cannot go on before the backend lets it.
    let part = world.start(input(|r| {
        r.parent_conversation_id = Some(parent.conversation_id);
    }));
    let part = part.await;
    let deleted = world
        .app
        .conversations
        .delete(&mine(), parent.conversation_id)
        .await;
    assert!(deleted.is_ok());
    let ended = world.ended(&part).await;
    assert_eq!(ended.status, StartStatus::Error);
    let why = ended.detail.expect("a cause");
    assert!(why.contains("deleted"), "{why}");
    let gone = async || {
        world
            .sandbox(&parent.sandbox_id)
            .await
            .is_none()
            .then_some(())
    };
    crate::world::until(gone).await;
}

/// A start that is refused for another reason leaves a sleeping sandbox asleep.
#[tokio::test(start_paused = true)]
async fn a_refused_start_resumes_nothing() {
    let world = World::with(|p| p.caps.change(|caps| caps.per_user = 1)).await;
    let first = started(&world).await;
    world
        .app
        .sandboxes
        .pause(&mine(), &first.sandbox_id)
        .await
        .expect("paused");
    let _second = started(&world).await;
    let named = input(|r| r.sandbox_id = Some(first.sandbox_id.clone()));
    let refused = world.app.starts.start(&alice(), named).await;
    assert!(refused.is_err(), "the cap is reached");
    let row = world.sandbox(&first.sandbox_id).await.expect("it is there");
    assert_eq!(row.desired, DesiredState::Paused);
}

#[tokio::test(start_paused = true)]
async fn an_acp_agent_is_what_the_conversation_says() {
    let world = World::new().await;
    let acp = json!({"agent_kind": "acp", "acp_server": "codex", "acp_model": "m1"});
    settings(&world, json!({"agent_settings_diff": acp})).await;
    let secret = application::secrets::NewSecret {
        name: "OPENAI_API_KEY".to_owned(),
        value: "v0".to_owned().into(),
        description: None,
    };
    world
        .app
        .secrets
        .create(&alice(), &secret)
        .await
        .expect("stored");
    let task = started(&world).await;
    let launch = world.agents.launches().pop().expect("a launch");
    assert_eq!(launch.acp.expect("a program").server, "codex");
    assert!(launch.llm.api_key.is_none());
    let LaunchSecret::Value(value) = &launch.secrets["OPENAI_API_KEY"] else {
        panic!("a program reads its environment once, so it gets values")
    };
    assert_eq!(value.expose_secret(), "v0");
    let view = world.view(task.conversation_id).await.expect("it is there");
    let it = view.conversation;
    assert_eq!(it.agent_kind, "acp");
    assert_eq!(it.llm_model.as_deref(), Some("m1"));
    assert_eq!(it.tags["acpserver"], "codex");
}

#[tokio::test(start_paused = true)]
async fn the_coding_agent_looks_secrets_up() {
    let world = World::new().await;
    let secret = application::secrets::NewSecret {
        name: "MINE".to_owned(),
        value: "v0".to_owned().into(),
        description: Some("for me".to_owned()),
    };
    world
        .app
        .secrets
        .create(&alice(), &secret)
        .await
        .expect("stored");
    let mut asked = input(|_| {});
    asked.secrets = Some([("ONCE".to_owned(), "v1".to_owned().into())].into());
    let task = world.started(asked).await;
    let launch = world.agents.launches().pop().expect("a launch");
    let LaunchSecret::LookUp { url, .. } = &launch.secrets["MINE"] else {
        panic!("a change must reach the live sandbox")
    };
    assert!(url.path().contains(task.sandbox_id.as_str()), "{url}");
    assert!(matches!(&launch.secrets["ONCE"], LaunchSecret::Value(_)));
}

#[tokio::test(start_paused = true)]
async fn a_planning_agent_is_told_its_bounds_and_its_document() {
    let world = World::new().await;
    let plan = input(|r| {
        r.agent_type = AgentType::Plan;
        r.git_provider = Some(GitProvider::Gitlab);
        r.system_message_suffix = Some("Be brief.".to_owned());
    });
    world.started(plan).await;
    let launch = world.agents.launches().pop().expect("a launch");
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
    let world = grouped("ADD_TO_ANY").await;
    let nowhere = input(|r| r.sandbox_id = SandboxId::parse("nope").ok());
    assert!(world.app.starts.start(&alice(), nowhere).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_that_perhaps_nobody_serves_is_not_shared() {
    let world = grouped("ADD_TO_ANY").await;
    let first = started(&world).await;
    // The process of the other host may be dead: its rows stay as they were.
    let other = world.replica(|p| p.host = HostId::parse("host-2").expect("an id"));
    let there = other.started(input(|_| {})).await;
    assert_eq!(there.status, StartStatus::Ready, "{:?}", there.detail);
    assert_ne!(there.sandbox_id, first.sandbox_id);
    let here = started(&world).await;
    assert_eq!(here.sandbox_id, first.sandbox_id);
    let told = world
        .store
        .annotate(
            &first.host,
            Some("away; what is shown is the last known state"),
        )
        .await;
    assert!(told.expect("told") > 0);
    assert_ne!(started(&world).await.sandbox_id, first.sandbox_id);
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_cannot_be_opened_keeps_no_agent_from_starting() {
    for agent in ["openhands", "acp"] {
        let world = World::new().await;
        let acp = json!({"agent_kind": agent, "acp_server": "codex", "acp_model": "m1"});
        if agent == "acp" {
            settings(&world, json!({"agent_settings_diff": acp})).await;
        }
        let now = clock().now();
        let damaged = CustomSecret {
            owner: alice(),
            name: "DAMAGED".to_owned(),
            description: String::new(),
            value: SecretValue {
                id: SecretId::new(Uuid::from_u128(1)),
                sealed: Sealed::from_text("no seal of ours ".repeat(20)),
            },
            created_at: now,
            updated_at: now,
        };
        let stored = SecretRepository::insert(&*world.store, &damaged).await;
        stored.expect("stored");
        let task = world.started(input(|_| {})).await;
        assert_eq!(task.status, StartStatus::Ready, "{:?}", task.detail);
        if agent == "acp" {
            let note = task.detail.expect("a note");
            assert!(note.contains("DAMAGED cannot be opened"), "{note}");
        }
    }
}
