//! Containers that somebody else kills, removes or starves, and images that are not there.

use acceptance::wait::wait_until;
use acceptance::world::RECONCILE_TIMEOUT;
use serde_json::json;

use crate::support::{
    EVENT_TIMEOUT, cause, configured, container, engine, finished, goes_on, world,
};

#[tokio::test]
async fn a_container_that_was_killed_by_hand_is_an_error_with_a_cause_and_can_be_resumed() {
    let world = world().await;
    let conversation = finished(&world.user).await;
    let sandbox = &conversation.sandbox_id;
    engine().docker(&["kill", &container(&world, sandbox)]);
    let failed = world
        .user
        .sandbox_becomes(sandbox, "ERROR", EVENT_TIMEOUT)
        .await;
    assert!(cause(&failed).contains("kill"), "{failed:?}");
    goes_on(&world, &conversation).await;
}

#[tokio::test]
async fn a_container_that_was_stopped_by_hand_is_not_called_paused() {
    let world = world().await;
    let conversation = finished(&world.user).await;
    let sandbox = &conversation.sandbox_id;
    engine().docker(&["stop", "--time", "5", &container(&world, sandbox)]);
    let failed = world
        .user
        .sandbox_becomes(sandbox, "ERROR", EVENT_TIMEOUT)
        .await;
    cause(&failed);
    goes_on(&world, &conversation).await;
}

#[tokio::test]
async fn a_container_that_was_removed_by_hand_is_missing_and_its_workspace_goes_on() {
    let world = world().await;
    let conversation = finished(&world.user).await;
    let sandbox = &conversation.sandbox_id;
    engine().docker(&["rm", "--force", &container(&world, sandbox)]);
    let gone = world
        .user
        .sandbox_becomes(sandbox, "MISSING", EVENT_TIMEOUT)
        .await;
    assert!(cause(&gone).contains("removed"), "{gone:?}");
    assert_eq!(
        world
            .user
            .conversation(&conversation.id)
            .await
            .sandbox_status,
        "MISSING"
    );
    goes_on(&world, &conversation).await;
}

#[tokio::test]
async fn a_container_that_was_removed_while_it_was_paused_comes_back_with_its_workspace() {
    let world = world().await;
    let conversation = finished(&world.user).await;
    let sandbox = &conversation.sandbox_id;
    world.user.pause(sandbox).await;
    engine().docker(&["rm", &container(&world, sandbox)]);
    goes_on(&world, &conversation).await;
}

#[tokio::test]
async fn a_sandbox_that_takes_more_memory_than_it_may_is_an_error_that_says_so() {
    let world = configured(|builder| builder.env("WORKSPACE_DOCKER__MEMORY", "96MiB")).await;
    let conversation = finished(&world.user).await;
    let sandbox = &conversation.sandbox_id;
    world.user.say(&conversation.id, "HOG").await;
    let failed = world
        .user
        .sandbox_becomes(sandbox, "ERROR", RECONCILE_TIMEOUT)
        .await;
    assert!(
        cause(&failed).to_lowercase().contains("memory"),
        "{failed:?}"
    );
    goes_on(&world, &conversation).await;
}

#[tokio::test]
async fn a_frozen_sandbox_keeps_its_programs_and_does_nothing() {
    let world = configured(|builder| builder.env("WORKSPACE_DOCKER__PAUSE", "freeze")).await;
    let conversation = world.user.converse("hello").await;
    world.user.executed(&conversation.id, "finished").await;
    let (sandbox, before) = (&conversation.sandbox_id, world.service.agent_servers());
    world.user.pause(sandbox).await;
    let instance = world.service.instance().expect("it has a name");
    let states = engine().containers_of(&instance);
    assert!(
        matches!(states.as_slice(), [it] if it.state == "paused"),
        "{states:?}"
    );
    world.user.resume(sandbox).await;
    assert_eq!(world.service.agent_servers(), before, "the same process");
    world.user.say(&conversation.id, "more").await;
    world.user.executed(&conversation.id, "finished").await;
}

#[tokio::test]
async fn an_image_that_cannot_be_had_is_the_cause_in_the_task_and_nothing_is_left() {
    const IMAGE: &str = "127.0.0.1:9/nowhere/agent-server:1";
    let world = configured(|builder| builder.env("WORKSPACE_DOCKER__IMAGE", IMAGE)).await;
    let task = world.user.start_with("hello").await;
    assert_eq!(
        task.status, "WORKING",
        "the request does not wait for a pull"
    );
    let ended = world.user.ended(&task).await;
    assert_eq!(ended.status, "ERROR", "{ended:?}");
    let detail = ended.detail.unwrap_or_default();
    assert!(detail.contains(IMAGE), "{detail}");
    world.assert_nothing_left().await;
}

#[tokio::test]
async fn one_agent_server_that_hangs_delays_no_list() {
    let world = world().await;
    let hanging = finished(&world.user).await;
    let other = finished(&world.user).await;
    engine().docker(&["pause", &container(&world, &hanging.sandbox_id)]);
    let lists = [
        "/api/v1/sandboxes/search?limit=100",
        "/api/v1/app-conversations/search?limit=100",
    ];
    for _ in 0..20 {
        for path in lists {
            let asked = std::time::Instant::now();
            let page = world.user.get(path).await.ok();
            assert_eq!(page["items"].as_array().map(Vec::len), Some(2), "{path}");
            assert!(
                asked.elapsed() < EVENT_TIMEOUT,
                "{path} took {:?}",
                asked.elapsed()
            );
        }
    }
    world.user.say(&other.id, "more").await;
    world.user.executed(&other.id, "finished").await;
    let traces = world.service.traces_of(&hanging.sandbox_id);
    world.user.delete_conversation(&hanging.id).await;
    wait_until("the end of the hanging sandbox", RECONCILE_TIMEOUT, || {
        !traces.iter().any(acceptance::service::Trace::is_there)
    })
    .await;
    world.service.assert_no_orphans(&[&world.user]).await;
}

#[tokio::test]
async fn a_service_that_was_killed_while_it_made_sandboxes_leaves_none_without_a_row() {
    let mut world =
        configured(|builder| builder.env("WORKSPACE_SANDBOX__MAX_RUNNING_PER_USER", "100")).await;
    for point in [0, 15, 40, 90, 180, 350] {
        let sandbox = world.user.start_sandbox().await;
        // Between any two of: row, volume, container, start, health.
        tokio::time::sleep(std::time::Duration::from_millis(point)).await;
        let path = format!("/api/v1/sandboxes/{0}?sandbox_id={0}", sandbox.id);
        if point % 2 == 0 {
            world.service.kill9();
            world.service.restart().await;
            let _ = world.user.delete(&path).await.ok();
        } else {
            let _ = world.user.delete(&path).await.ok();
            world.service.kill9();
            world.service.restart().await;
        }
    }
    world.assert_nothing_left().await;
    let conversation = world.user.start(&json!({})).await;
    world.user.ready(&conversation).await;
}
