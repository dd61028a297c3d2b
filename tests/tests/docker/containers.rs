//! Containers that are killed, removed or run out of memory, and missing images.

use acceptance::wait::{wait_until, within};
use acceptance::world::RECONCILE_TIMEOUT;
use serde_json::json;

use crate::support::{
    EVENT_TIMEOUT, assert_resumes, configured, container, engine, start_finished_conversation,
    status_detail, world,
};

#[tokio::test]
async fn killed_container_is_reported_as_error_and_can_be_resumed() {
    let world = world().await;
    let conversation = start_finished_conversation(&world.user).await;
    let sandbox = &conversation.sandbox_id;
    engine().docker(&["kill", &container(&world, sandbox)]);
    let failed = world
        .user
        .wait_for_sandbox_status(sandbox, "ERROR", EVENT_TIMEOUT)
        .await;
    assert!(status_detail(&failed).contains("kill"), "{failed:?}");
    assert_resumes(&world, &conversation).await;
}

#[tokio::test]
async fn stopped_container_is_not_reported_as_paused() {
    let world = world().await;
    let conversation = start_finished_conversation(&world.user).await;
    let sandbox = &conversation.sandbox_id;
    engine().docker(&["stop", "--time", "5", &container(&world, sandbox)]);
    let failed = world
        .user
        .wait_for_sandbox_status(sandbox, "ERROR", EVENT_TIMEOUT)
        .await;
    status_detail(&failed);
    assert_resumes(&world, &conversation).await;
}

#[tokio::test]
async fn removed_container_is_reported_as_missing_and_resumes_with_its_workspace() {
    let world = world().await;
    let conversation = start_finished_conversation(&world.user).await;
    let sandbox = &conversation.sandbox_id;
    engine().docker(&["rm", "--force", &container(&world, sandbox)]);
    let gone = world
        .user
        .wait_for_sandbox_status(sandbox, "MISSING", EVENT_TIMEOUT)
        .await;
    assert!(status_detail(&gone).contains("removed"), "{gone:?}");
    assert_eq!(
        world
            .user
            .conversation(&conversation.id)
            .await
            .sandbox_status,
        "MISSING"
    );
    assert_resumes(&world, &conversation).await;
}

#[tokio::test]
async fn container_removed_while_paused_resumes_with_its_workspace() {
    let world = world().await;
    let conversation = start_finished_conversation(&world.user).await;
    let sandbox = &conversation.sandbox_id;
    world.user.pause(sandbox).await;
    engine().docker(&["rm", &container(&world, sandbox)]);
    assert_resumes(&world, &conversation).await;
}

#[tokio::test]
async fn sandbox_over_its_memory_limit_is_reported_as_error_with_the_cause() {
    let world = configured(|builder| builder.env("WORKSPACE_DOCKER__MEMORY", "96MiB")).await;
    let conversation = start_finished_conversation(&world.user).await;
    let sandbox = &conversation.sandbox_id;
    world.user.send_message(&conversation.id, "HOG").await;
    let failed = world
        .user
        .wait_for_sandbox_status(sandbox, "ERROR", RECONCILE_TIMEOUT)
        .await;
    assert!(
        status_detail(&failed).to_lowercase().contains("memory"),
        "{failed:?}"
    );
    assert_resumes(&world, &conversation).await;
}

#[tokio::test]
async fn frozen_sandbox_keeps_its_processes() {
    let world = configured(|builder| builder.env("WORKSPACE_DOCKER__PAUSE", "freeze")).await;
    let conversation = world.user.converse("hello").await;
    world
        .user
        .wait_for_execution_status(&conversation.id, "finished")
        .await;
    let (sandbox, before) = (&conversation.sandbox_id, world.service.agent_servers());
    world.user.pause(sandbox).await;
    let instance = world
        .service
        .instance()
        .expect("the service has no instance name");
    let states = engine().containers_of(&instance);
    assert!(
        matches!(states.as_slice(), [it] if it.state == "paused"),
        "{states:?}"
    );
    world.user.resume(sandbox).await;
    assert_eq!(
        world.service.agent_servers(),
        before,
        "the agent server must be the same process"
    );
    world.user.send_message(&conversation.id, "more").await;
    world
        .user
        .wait_for_execution_status(&conversation.id, "finished")
        .await;
}

#[tokio::test]
async fn unavailable_image_fails_the_start_and_leaves_nothing_behind() {
    const IMAGE: &str = "127.0.0.1:9/nowhere/agent-server:1";
    let world = configured(|builder| builder.env("WORKSPACE_DOCKER__IMAGE", IMAGE)).await;
    let task = world.user.start_with("hello").await;
    assert_eq!(
        task.status, "WORKING",
        "the request must not wait for the pull"
    );
    let ended = world.user.wait_for_end(&task).await;
    assert_eq!(ended.status, "ERROR", "{ended:?}");
    let detail = ended.detail.unwrap_or_default();
    assert!(detail.contains(IMAGE), "{detail}");
    world.assert_nothing_left().await;
}

#[tokio::test]
async fn hanging_agent_server_does_not_block_lists() {
    let world = world().await;
    let hanging = start_finished_conversation(&world.user).await;
    let other = start_finished_conversation(&world.user).await;
    engine().docker(&["pause", &container(&world, &hanging.sandbox_id)]);
    let lists = [
        "/api/v1/sandboxes/search?limit=100",
        "/api/v1/app-conversations/search?limit=100",
    ];
    let read_lists = async {
        for _ in 0..20 {
            for path in lists {
                let page = world.user.get(path).await.ok();
                assert_eq!(page["items"].as_array().map(Vec::len), Some(2), "{path}");
            }
        }
    };
    within(
        "lists beside a hanging agent server",
        RECONCILE_TIMEOUT,
        read_lists,
    )
    .await;
    world.user.send_message(&other.id, "more").await;
    world
        .user
        .wait_for_execution_status(&other.id, "finished")
        .await;
    let traces = world.service.traces_of(&hanging.sandbox_id);
    world.user.delete_conversation(&hanging.id).await;
    wait_until("the end of the hanging sandbox", RECONCILE_TIMEOUT, || {
        !traces.iter().any(acceptance::service::Trace::exists)
    })
    .await;
    world.service.assert_no_orphans(&[&world.user]).await;
}

#[tokio::test]
async fn service_killed_during_sandbox_creation_leaves_no_orphans() {
    let mut world =
        configured(|builder| builder.env("WORKSPACE_SANDBOX__MAX_RUNNING_PER_USER", "100")).await;
    for point in [0, 15, 40, 90, 180, 350] {
        let sandbox = world.user.start_sandbox().await;
        // No event marks the steps (row, volume, container, start, health), so kills are spread over them.
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
    world.user.wait_until_ready(&conversation).await;
}
