//! Starts that cannot succeed, or only at the second try: a cause that a person can act on, and capacity released.

use acceptance::Sandboxing;
use acceptance::{Service, Stub};
use serde_json::json;

use crate::support::{World, configure_model};

/// Starts, expects an ERROR, and that nothing is left; returns the cause.
async fn cause(world: &World) -> String {
    let task = world.user.start_with("hello").await;
    let ended = world.user.ended(&task).await;
    assert_eq!(ended.status, "ERROR", "{ended:?}");
    world.assert_nothing_left().await;
    let detail = ended.detail.unwrap_or_default();
    assert!(!detail.is_empty(), "an ERROR without a cause");
    detail
}

#[tokio::test]
async fn without_a_model_the_cause_names_the_setting_and_no_sandbox_is_started() {
    let stub = Stub::new();
    let service = Service::builder().stub(&stub).start().await;
    let user = service.admin();
    let world = World {
        stub,
        service,
        user,
    };
    let cause = cause(&world).await;
    assert!(
        cause.contains("llm_model") && cause.contains("llm_api_key"),
        "{cause}"
    );
    assert_eq!(world.stub.starts(), 0);
    // Once it is set, it works.
    configure_model(&world.user).await;
    world.user.converse("hello").await;
}

pub(crate) async fn an_agent_server_that_never_answers_is_given_up_at_the_deadline(
    sandboxing: Sandboxing,
) {
    let world = World::on(&sandboxing, "silent", |builder| {
        builder.env("WORKSPACE_START__SANDBOX_DEADLINE", "2s")
    })
    .await;
    let cause = cause(&world).await;
    assert!(cause.contains("did not answer within 2s"), "{cause}");
}

pub(crate) async fn an_agent_server_that_dies_at_its_first_start_is_started_again(
    sandboxing: Sandboxing,
) {
    let world = World::on(&sandboxing, "exit-at-start-1", |builder| builder).await;
    let conversation = world.user.converse("hello").await;
    world.user.executed(&conversation.id, "finished").await;
    assert_eq!(world.stub.starts(), 2);
    world.service.assert_no_orphans(&[&world.user]).await;
}

pub(crate) async fn an_agent_server_that_always_dies_fails_the_start_with_its_last_words(
    sandboxing: Sandboxing,
) {
    let world = World::on(&sandboxing, "exit-at-start", |builder| {
        builder.env("WORKSPACE_SANDBOX__MAX_RUNNING_PER_USER", "1")
    })
    .await;
    let cause = cause(&world).await;
    assert!(
        cause.contains("the stub was told to end at its start"),
        "{cause}"
    );
    assert_eq!(world.stub.starts(), 2);
    // Its place is free again.
    world.stub.set("");
    let conversation = world.user.converse("hello").await;
    world.user.executed(&conversation.id, "finished").await;
}

#[tokio::test]
async fn an_agent_server_that_is_not_there_is_named() {
    let world = World::configured("", |builder| {
        builder.env(
            "WORKSPACE_SANDBOX__AGENT_SERVER_COMMAND",
            "/nowhere/agent-server",
        )
    })
    .await;
    let cause = cause(&world).await;
    assert!(
        cause.contains("WORKSPACE_SANDBOX__AGENT_SERVER_COMMAND"),
        "{cause}"
    );
}

#[tokio::test]
async fn an_agent_server_that_fails_to_make_the_conversation_fails_the_start() {
    for (fault, expected) in [
        ("create-500", "told to fail"),
        ("create-garbage", "agent server"),
        ("create-huge", "agent server"),
    ] {
        let world = World::with(fault).await;
        let cause = cause(&world).await;
        assert!(cause.to_lowercase().contains(expected), "{fault}: {cause}");
        assert_eq!(world.user.conversations().await.len(), 0, "{fault}");
        assert_eq!(world.user.get("/ready").await.status, 200, "{fault}");
    }
}

#[tokio::test]
async fn unknown_ids_are_refused_before_any_work() {
    let world = World::with("").await;
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
async fn a_service_whose_port_is_taken_ends_and_names_it() {
    let first = Service::start().await;
    let other = tempfile::tempdir().expect("a temporary directory can be made");
    let address = first.address().to_string();
    let second = Service::builder().env("WORKSPACE_HTTP__BIND", &address);
    let said = second.fails_to_start(other.path()).await;
    assert!(
        said.contains(&address) && said.contains("WORKSPACE_HTTP__BIND"),
        "{said}"
    );
    // And one in the same directory names the other.
    let twin = Service::builder().env("WORKSPACE_HTTP__BIND", "127.0.0.1:0");
    let said = twin.fails_to_start(&first.data()).await;
    assert!(said.contains(&first.pid().to_string()), "{said}");
    assert_eq!(first.admin().get("/ready").await.status, 200);
}
