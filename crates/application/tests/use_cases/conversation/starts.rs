//! Starts of conversations.

use std::time::Duration;

use application::settings::LegacySettings;
use domain::agent::LaunchSecret;
use domain::error::{Classify, ErrorClass};
use domain::id::{ConversationId, OwnerId, SandboxId};
use domain::sandbox::{SandboxCaps, SandboxStatus};
use domain::start_task::{StartStatus, StartTaskFilter};
use secrecy::ExposeSecret;
use serde_json::json;
use store_memory::FakeBehavior;
use uuid::Uuid;

use crate::fixture::{Fixture, alice, start_input, wait_for};

#[tokio::test(start_paused = true)]
async fn a_start_creates_the_requested_conversation() {
    let fixture = Fixture::new().await;
    let mut asked = start_input(|r| {
        r.title = Some("Mine".to_owned());
        r.public = Some(true);
        r.system_message_suffix = Some("Be brief.".to_owned());
        r.llm_model = Some("openai/other".to_owned());
    });
    asked.secrets = Some([("TOKEN".to_owned(), "t0".to_owned().into())].into());
    let task = fixture.start_and_wait(asked).await;
    assert_eq!(
        (task.status, task.detail.as_deref()),
        (StartStatus::Ready, None)
    );
    assert!(
        task.sealed_secrets.is_none(),
        "secrets do not outlive the start"
    );
    let view = fixture
        .view(task.conversation_id)
        .await
        .expect("it is there");
    assert_eq!(view.conversation.title.as_deref(), Some("Mine"));
    assert_eq!(view.conversation.public, Some(true));
    assert_eq!(
        view.sandbox.expect("a sandbox").status,
        SandboxStatus::Running
    );
    let launches = fixture.agents.launches();
    let [launch] = launches.as_slice() else {
        panic!("one launch, not {}", launches.len())
    };
    assert_eq!(launch.llm.model, "openai/other");
    assert_eq!(launch.system_message_suffix.as_deref(), Some("Be brief."));
    let LaunchSecret::Value(token) = &launch.secrets["TOKEN"] else {
        panic!("secrets of a request are its own")
    };
    assert_eq!(token.expose_secret(), "t0");
    assert!(!launch.auto_title, "a person chose the title");
    for status in ["WORKING", "WAITING_FOR_SANDBOX", "STARTING_CONVERSATION"] {
        assert!(task.timings.contains_key(status), "{status} is timed");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_shows_every_status_once_and_ends() {
    let fixture = Fixture::new().await;
    let (first, mut updates) = fixture
        .app
        .starts
        .start_streaming(&alice(), start_input(|_| {}))
        .await
        .expect("accepted");
    let mut seen = vec![first.status];
    while let Some(task) = updates.recv().await {
        seen.push(task.status);
    }
    let all: Vec<_> = StartStatus::ALL
        .iter()
        .map(|(_, s)| *s)
        .filter(|s| *s != StartStatus::Error)
        .collect();
    assert_eq!(seen, all);
}

#[tokio::test(start_paused = true)]
async fn without_settings_the_task_names_the_missing_one_and_nothing_is_left() {
    let fixture = Fixture::without_settings(|_| {});
    let task = fixture.start_and_wait(start_input(|_| {})).await;
    assert_eq!(task.status, StartStatus::Error);
    assert!(task.detail.expect("a cause").contains("llm_"));
    assert_eq!(fixture.backend.starts(), 0, "it cost no sandbox");
    wait_for(|| async {
        fixture
            .sandbox(&task.sandbox_id)
            .await
            .is_none()
            .then_some(())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn unknown_references_are_refused_before_any_work() {
    let fixture = Fixture::new().await;
    let unknown = ConversationId::new(Uuid::from_u128(7));
    let asks = [
        start_input(|r| r.sandbox_id = SandboxId::parse("nope").ok()),
        start_input(|r| r.parent_conversation_id = Some(unknown)),
    ];
    for ask in asks {
        let error = fixture
            .app
            .starts
            .start(&alice(), ask)
            .await
            .expect_err("refused");
        assert_eq!(error.class(), ErrorClass::NotFound, "{error}");
    }
    let both = start_input(|r| r.suggested_task = Some(json!({})));
    let error = fixture
        .app
        .starts
        .start(&alice(), both)
        .await
        .expect_err("refused");
    assert_eq!(error.class(), ErrorClass::Invalid);
    let tasks = fixture
        .app
        .starts
        .count(&crate::fixture::alice_scope(), &StartTaskFilter::default())
        .await;
    assert_eq!((tasks.expect("readable"), fixture.backend.starts()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_client_chosen_id_creates_one_conversation() {
    let fixture = Fixture::new().await;
    let id = ConversationId::new(Uuid::from_u128(42));
    let ask = || start_input(|r| r.conversation_id = Some(id));
    let first = fixture.start(ask()).await;
    let again = fixture.start(ask()).await;
    assert_eq!(again.id, first.id, "while it is under way");
    fixture.wait_until_ended(&first).await;
    let later = fixture.start(ask()).await;
    assert_eq!((later.id, later.status), (first.id, StartStatus::Ready));
    assert_eq!(
        (
            fixture.agents.launches().len(),
            fixture.backend.count_started_sandboxes()
        ),
        (1, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn a_sub_conversation_runs_in_its_parents_sandbox() {
    let fixture = Fixture::new().await;
    let parent = fixture
        .start_and_wait(start_input(|r| r.llm_model = Some("openai/p".to_owned())))
        .await;
    let part = fixture
        .start_and_wait(start_input(|r| {
            r.parent_conversation_id = Some(parent.conversation_id);
        }))
        .await;
    assert_eq!(part.sandbox_id, parent.sandbox_id);
    assert_eq!(fixture.agents.launches()[1].llm.model, "openai/p");
    let view = fixture
        .view(parent.conversation_id)
        .await
        .expect("it is there");
    assert_eq!(view.children, [part.conversation_id]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_sandbox_start_is_retried() {
    let fixture = Fixture::new().await;
    fixture.backend.fail_starts(1);
    let task = fixture.start_and_wait(start_input(|_| {})).await;
    assert_eq!(task.status, StartStatus::Ready, "{task:?}");
}

#[tokio::test(start_paused = true)]
async fn a_failed_start_has_a_cause_and_releases_its_resources() {
    let fixture = Fixture::with_policy(|p| {
        p.caps.set(SandboxCaps {
            per_user: 1,
            overall: 1,
        });
    })
    .await;
    // A sandbox that dies while starting is tried twice.
    fixture.backend.fail_starts(2);
    let task = fixture.start_and_wait(start_input(|_| {})).await;
    assert_eq!(task.status, StartStatus::Error);
    assert!(task.detail.expect("a cause").contains("fails this start"));
    assert!(fixture.view(task.conversation_id).await.is_none());
    wait_for(|| async {
        fixture
            .sandbox(&task.sandbox_id)
            .await
            .is_none()
            .then_some(())
    })
    .await;
    assert_eq!(
        fixture.start_and_wait(start_input(|_| {})).await.status,
        StartStatus::Ready,
        "the cap is free again"
    );
}

#[tokio::test(start_paused = true)]
async fn a_silent_agent_server_fails_the_start_at_the_deadline() {
    let fixture = Fixture::with_policy(|p| p.sandbox_start_timeout = Duration::from_secs(3)).await;
    fixture.agents.set_behavior(FakeBehavior::Unreachable);
    let task = fixture.start_and_wait(start_input(|_| {})).await;
    assert!(
        task.detail
            .expect("a cause")
            .contains("did not answer within 3s")
    );
}

#[tokio::test(start_paused = true)]
async fn a_refusing_agent_server_fails_the_start_and_its_conversation_is_not_listed() {
    let fixture = Fixture::new().await;
    let first = fixture.start_and_wait(start_input(|_| {})).await;
    fixture.agents.set_behavior(FakeBehavior::Rejecting(500));
    // Health checks are refused too, so only the launch meets the refusal.
    let sandbox = fixture.sandbox(&first.sandbox_id).await.expect("it runs");
    let task = fixture
        .start(start_input(|r| r.sandbox_id = Some(sandbox.id.clone())))
        .await;
    let task = fixture.wait_until_ended(&task).await;
    assert_eq!(task.status, StartStatus::Error);
    assert!(fixture.view(task.conversation_id).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn over_the_cap_is_refused_with_the_cap_named() {
    let fixture = Fixture::with_policy(|p| {
        p.caps.set(SandboxCaps {
            per_user: 2,
            overall: 9,
        });
    })
    .await;
    let owner = alice();
    let starts = (0..10).map(|_| fixture.app.starts.start(&owner, start_input(|_| {})));
    let outcomes = futures::future::join_all(starts).await;
    let refused: Vec<_> = outcomes.into_iter().filter_map(Result::err).collect();
    assert_eq!(refused.len(), 8);
    assert!(
        refused
            .iter()
            .all(|e| e.class() == ErrorClass::RateLimited && e.public().contains('2'))
    );
    assert!(refused.iter().all(|e| e.retry_after().is_some()));
}

#[tokio::test(start_paused = true)]
async fn the_next_process_finishes_a_start_interrupted_at_any_step() {
    // The agent servers are slow, so that stops at growing times hit every step.
    for cut in [0, 1, 20, 50, 120, 250, 500, 1_000] {
        let fixture = Fixture::new().await;
        fixture
            .agents
            .set_behavior(FakeBehavior::Slow(Duration::from_millis(100)));
        let task = fixture.start(start_input(|_| {})).await;
        tokio::time::sleep(Duration::from_millis(cut)).await;
        let fixture = fixture.kill_and_restart().await;
        let ended = fixture.wait_until_ended(&task).await;
        assert_eq!(
            (ended.status, ended.detail),
            (StartStatus::Ready, None),
            "cut after {cut} ms"
        );
        assert_eq!(
            (
                fixture.agents.launches().len(),
                fixture.backend.count_started_sandboxes()
            ),
            (1, 1),
            "cut after {cut} ms"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_unknown_agent_profile_costs_a_note() {
    let fixture = Fixture::new().await;
    let profile = "an-agent-profile".to_owned();
    let task = fixture
        .start_and_wait(start_input(|r| r.agent_profile_id = Some(profile)))
        .await;
    assert_eq!(task.status, StartStatus::Ready);
    let detail = task.detail.expect("the notes");
    assert!(task.notes[0].contains("agent_profile_id") && detail.contains(&task.notes[0]));
}

#[tokio::test(start_paused = true)]
async fn a_start_stream_ends_when_its_conversation_is_deleted() {
    let fixture = Fixture::new().await;
    fixture
        .agents
        .set_behavior(FakeBehavior::Slow(Duration::from_secs(1)));
    let owner = alice();
    let (first, mut updates) = fixture
        .app
        .starts
        .start_streaming(&owner, start_input(|_| {}))
        .await
        .expect("accepted");
    wait_for(|| async { fixture.view(first.conversation_id).await }).await;
    fixture
        .app
        .conversations
        .delete(&crate::fixture::alice_scope(), first.conversation_id)
        .await
        .expect("deleted");
    let mut last = first.status;
    let ends = async {
        while let Some(task) = updates.recv().await {
            last = task.status;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), ends)
        .await
        .expect("it ends");
    assert_eq!(last, StartStatus::Error);
}

#[tokio::test(start_paused = true)]
async fn the_conversation_of_a_failed_launch_is_deleted() {
    let fixture = Fixture::new().await;
    let first = fixture.start_and_wait(start_input(|_| {})).await;
    fixture.agents.lose_responses(true);
    let task = fixture
        .start_and_wait(start_input(|r| {
            r.sandbox_id = Some(first.sandbox_id.clone());
        }))
        .await;
    assert_eq!(task.status, StartStatus::Error);
    assert!(
        !fixture.agents.has_conversation(task.conversation_id),
        "it would go on in the shared sandbox"
    );
    assert!(fixture.view(task.conversation_id).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn slow_starts_of_a_user_delay_no_other_user() {
    let fixture = Fixture::with_policy(|p| p.max_parallel_starts = 4).await;
    let bob = OwnerId::parse("bob").expect("a name");
    let settings = LegacySettings {
        llm_model: Some("openai/m".to_owned()),
        llm_api_key: Some("sk-1".to_owned().into()),
        ..LegacySettings::default()
    };
    let stored = fixture.app.settings.store_legacy(&bob, &settings).await;
    stored.expect("settings are stored");
    let clone = " clone --quiet";
    fixture.workspace.set_command_result(
        "echo state=absent",
        Some(0),
        "private=/p\nstate=absent\n",
    );
    fixture.workspace.hang_commands(clone);
    for _ in 0..5 {
        let slow = start_input(|r| r.selected_repository = Some("acme/tools".to_owned()));
        fixture.start(slow).await;
    }
    wait_for(|| async { (fixture.workspace.count(clone) == 3).then_some(()) }).await;
    for _ in 0..2 {
        let task = fixture.app.starts.start(&bob, start_input(|_| {})).await;
        let task = fixture.wait_until_ended(&task.expect("accepted")).await;
        assert_eq!(task.status, StartStatus::Ready, "{:?}", task.detail);
    }
    assert_eq!(fixture.workspace.count(clone), 3);
}
