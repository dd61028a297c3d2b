//! Starts that fail, or succeed at the second attempt: the cause names a remedy, and the capacity is released.

use acceptance::Sandboxing;
use acceptance::{Service, Stub};
use serde_json::json;

use crate::support::{World, configure_model};

/// Starts a conversation that must fail and leave nothing behind; returns the cause.
async fn failure_cause(world: &World) -> String {
    let task = world.user.start_with("hello").await;
    let ended = world.user.wait_for_end(&task).await;
    assert_eq!(ended.status, "ERROR", "{ended:?}");
    world.assert_nothing_left().await;
    let detail = ended.detail.unwrap_or_default();
    assert!(!detail.is_empty(), "the failed start has no cause");
    detail
}

#[tokio::test]
async fn start_without_a_model_names_the_setting_and_starts_no_sandbox() {
    let stub = Stub::new();
    let service = Service::builder().stub(&stub).start().await;
    let user = service.admin();
    let world = World {
        stub,
        service,
        user,
    };
    let cause = failure_cause(&world).await;
    assert!(
        cause.contains("llm_model") && cause.contains("llm_api_key"),
        "{cause}"
    );
    assert_eq!(world.stub.starts(), 0);
    // With a model, starts work.
    configure_model(&world.user).await;
    world.user.converse("hello").await;
}

pub(crate) async fn silent_agent_server_fails_the_start_at_the_deadline(sandboxing: Sandboxing) {
    let world = World::with_sandboxing(&sandboxing, "silent", |builder| {
        builder.env("WORKSPACE_START__SANDBOX_DEADLINE", "2s")
    })
    .await;
    let cause = failure_cause(&world).await;
    assert!(cause.contains("did not answer within 2s"), "{cause}");
}

pub(crate) async fn agent_server_that_dies_at_its_first_start_is_started_again(
    sandboxing: Sandboxing,
) {
    let world = World::with_sandboxing(&sandboxing, "exit-at-start-1", |builder| builder).await;
    let conversation = world.user.converse("hello").await;
    world
        .user
        .wait_for_execution_status(&conversation.id, "finished")
        .await;
    assert_eq!(world.stub.starts(), 2);
    world.service.assert_no_orphans(&[&world.user]).await;
}

pub(crate) async fn agent_server_that_always_dies_fails_the_start_with_its_last_output(
    sandboxing: Sandboxing,
) {
    let world = World::with_sandboxing(&sandboxing, "exit-at-start", |builder| {
        builder.env("WORKSPACE_SANDBOX__MAX_RUNNING_PER_USER", "1")
    })
    .await;
    let cause = failure_cause(&world).await;
    assert!(
        cause.contains("the stub was told to end at its start"),
        "{cause}"
    );
    assert_eq!(world.stub.starts(), 2);
    // The failed start has released its capacity.
    world.stub.set_faults("");
    let conversation = world.user.converse("hello").await;
    world
        .user
        .wait_for_execution_status(&conversation.id, "finished")
        .await;
}

#[tokio::test]
async fn missing_agent_server_command_is_named() {
    let world = World::configured("", |builder| {
        builder.env(
            "WORKSPACE_SANDBOX__AGENT_SERVER_COMMAND",
            "/nowhere/agent-server",
        )
    })
    .await;
    let cause = failure_cause(&world).await;
    assert!(
        cause.contains("WORKSPACE_SANDBOX__AGENT_SERVER_COMMAND"),
        "{cause}"
    );
}

#[tokio::test]
async fn failed_creation_of_the_conversation_fails_the_start() {
    for (fault, expected) in [
        ("create-500", "told to fail"),
        ("create-garbage", "agent server"),
        ("create-huge", "agent server"),
    ] {
        let world = World::with_faults(fault).await;
        let cause = failure_cause(&world).await;
        assert!(cause.to_lowercase().contains(expected), "{fault}: {cause}");
        assert_eq!(world.user.conversations().await.len(), 0, "{fault}");
        assert_eq!(world.user.get("/ready").await.status, 200, "{fault}");
    }
}

#[tokio::test]
async fn unknown_ids_are_refused_before_any_work() {
    let world = World::with_faults("").await;
    let unknown = "0123456789abcdef0123456789abcdef";
    for request in [
        json!({"sandbox_id": "nowhere"}),
        json!({"parent_conversation_id": unknown}),
    ] {
        let path = "/api/v1/app-conversations";
        let reply = world.user.post(path, &request).await;
        assert!(matches!(reply.status, 400 | 404), "{request}: {reply:?}");
    }
    let spec = "/api/v1/sandboxes?sandbox_spec_id=nothing";
    let reply = world.user.post(spec, &json!({})).await;
    assert!(matches!(reply.status, 400 | 404), "{reply:?}");
    assert_eq!(world.stub.starts(), 0);
    assert!(world.user.sandboxes().await.is_empty());
}

#[tokio::test]
async fn service_with_a_taken_port_or_directory_exits_and_names_it() {
    let first = Service::start().await;
    let other = tempfile::tempdir().expect("cannot create a temporary directory");
    let address = first.address().to_string();
    let second = Service::builder().env("WORKSPACE_HTTP__BIND", &address);
    let output = second.start_expecting_failure(other.path()).await;
    assert!(
        output.contains(&address) && output.contains("WORKSPACE_HTTP__BIND"),
        "{output}"
    );
    // A service in the same directory names the process that uses it.
    let third = Service::builder().env("WORKSPACE_HTTP__BIND", "127.0.0.1:0");
    let output = third.start_expecting_failure(&first.data_dir()).await;
    assert!(output.contains(&first.pid().to_string()), "{output}");
    assert_eq!(first.admin().get("/ready").await.status, 200);
}
