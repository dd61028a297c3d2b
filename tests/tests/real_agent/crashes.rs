//! `kill -9` of the service and of agent servers, at every point that matters.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use acceptance::print_line;
use acceptance::wait::wait_until;
use rustix::process::Signal;

use crate::support::{NOTICE_TIMEOUT, RECONCILE_TIMEOUT, Setup, World, actions, user_messages};

/// The statuses of a start, in order.
pub(crate) const STATUSES_OF_A_START: [&str; 8] = [
    "WORKING",
    "WAITING_FOR_SANDBOX",
    "PREPARING_REPOSITORY",
    "RUNNING_SETUP_SCRIPT",
    "SETTING_UP_GIT_HOOKS",
    "SETTING_UP_SKILLS",
    "STARTING_CONVERSATION",
    "READY",
];

pub(crate) async fn killed_right_after_the_answer_a_start_is_finished_once(setup: Setup) {
    killed_during_a_start(setup, "WORKING").await;
}

pub(crate) async fn killed_while_waiting_for_the_sandbox_a_start_is_finished_once(setup: Setup) {
    killed_during_a_start(setup, "WAITING_FOR_SANDBOX").await;
}

/// During the call that creates the conversation at the agent server, or just after its response.
pub(crate) async fn killed_while_starting_the_conversation_a_start_is_finished_once(setup: Setup) {
    killed_during_a_start(setup, "STARTING_CONVERSATION").await;
}

async fn killed_during_a_start(setup: Setup, status: &str) {
    let mut world = World::start(setup).await;
    world.repeat_model_calls().await;
    let task = world.user.start_with("RUN: echo once >> once.txt").await;
    let wanted = STATUSES_OF_A_START
        .iter()
        .position(|known| *known == status);
    let limit = Instant::now() + Duration::from_secs(120);
    // Polls without a pause, because a status may last some milliseconds only.
    loop {
        let now = world.user.task(&task.id).await;
        assert_ne!(now.status, "ERROR", "{now:?}");
        if STATUSES_OF_A_START
            .iter()
            .position(|known| *known == now.status)
            >= wanted
        {
            print_line(&format!("killing the service in {}", now.status));
            break;
        }
        assert!(Instant::now() < limit, "{status} did not come: {now:?}");
    }
    if status == "WAITING_FOR_SANDBOX" {
        // The process exists, and its agent server is still loading.
        wait_until("the sandbox's process", RECONCILE_TIMEOUT, || {
            !world.service.agent_servers().is_empty()
        })
        .await;
    }
    world.service.kill9();
    world.service.restart().await;

    let ready = world.user.wait_until_ready(&task).await;
    assert_eq!(
        Some(&ready.sandbox_id),
        task.sandbox_id.as_ref().or(Some(&ready.sandbox_id))
    );
    world
        .user
        .wait_for_execution_status(&ready.id, "finished")
        .await;
    let events = world.assert_complete(&ready.id).await;
    assert_eq!(
        user_messages(&events).len(),
        1,
        "the message was said again"
    );
    assert_eq!(world.file(&ready, "once.txt").as_deref(), Some("once"));
    assert_eq!(actions(&events, "finish"), 1);
    assert_eq!(world.assert_exactly_one().await.id, ready.id);
}

pub(crate) async fn killed_in_the_middle_of_a_run_nothing_is_lost(setup: Setup) {
    const STEPS: usize = 20;
    let mut world = World::with_model(setup, "openai/steps-20+slow-300").await;
    world.repeat_model_calls().await;
    let conversation = world.user.converse("RUN: echo step >> steps.txt").await;
    let id = conversation.id.as_str();

    world
        .llm
        .wait_for_calls(6, RECONCILE_TIMEOUT)
        .await
        .expect("the run is under way");
    world.service.kill9();
    world.service.restart().await;

    world.user.wait_for_execution_status(id, "finished").await;
    let events = world.assert_complete(id).await;
    assert_eq!(user_messages(&events).len(), 1);
    assert_eq!(actions(&events, "terminal"), STEPS);
    assert_eq!(actions(&events, "finish"), 1);
    let written = world.file(&conversation, "steps.txt").unwrap_or_default();
    assert_eq!(written.lines().count(), STEPS, "{written}");
    let mut answers: BTreeMap<String, usize> = BTreeMap::new();
    for record in world.llm.records() {
        *answers.entry(record.answer).or_default() += 1;
    }
    assert_eq!(answers.get("finish"), Some(&1), "{answers:?}");
    assert_eq!(world.assert_exactly_one().await.id, id);
}

pub(crate) async fn a_killed_agent_server_is_noticed_and_can_be_resumed(setup: Setup) {
    let world = World::with_model(setup, "openai/steps-20+slow-300").await;
    let user = &world.user;
    let conversation = user.converse("RUN: echo step >> steps.txt").await;
    let (id, sandbox) = (&conversation.id, &conversation.sandbox_id);
    world
        .llm
        .wait_for_calls(4, RECONCILE_TIMEOUT)
        .await
        .expect("the run is under way");

    let servers = world.service.agent_servers();
    assert_eq!(servers.len(), 1, "{servers:#?}");
    servers[0].signal(Signal::KILL);
    let failed = user
        .wait_for_sandbox_status(sandbox, "ERROR", NOTICE_TIMEOUT)
        .await;
    let cause = failed.status_detail.expect("an ERROR has a cause");
    assert!(
        cause.to_lowercase().contains("kill") || cause.contains('9'),
        "{cause}"
    );
    assert_eq!(user.conversation(id).await.sandbox_status, "ERROR");
    wait_until(
        "the end of what the agent server had started",
        RECONCILE_TIMEOUT,
        || world.service.processes().is_empty(),
    )
    .await;

    user.use_model("openai/scripted", &world.llm.base_url(), "sk-scripted")
        .await;
    user.resume(sandbox).await;
    user.wait_for_execution_status(id, "error").await;
    user.send_message(id, "Go on.\nRUN: echo two > second.txt")
        .await;
    user.wait_for_execution_status(id, "finished").await;
    let events = world.assert_complete(id).await;
    assert_eq!(user_messages(&events).len(), 2);
    world.assert_exactly_one().await;
}
