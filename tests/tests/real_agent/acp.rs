//! ACP agents: programs of their own.

use acceptance::scripted_acp;
use serde_json::{Value, json};

use crate::support::{Setup, World, wait_for_events};

async fn use_program(world: &World, command: &Value) {
    let acp = json!({"agent_kind": "acp", "acp_server": "custom", "acp_command": command, "acp_model": "m1"});
    let body = json!({"agent_settings_diff": acp});
    let _ = world.user.post("/api/v1/settings", &body).await.ok();
}

pub(crate) async fn a_program_is_the_agent(setup: Setup) {
    let world = World::start(setup).await;
    let user = &world.user;
    use_program(&world, &json!(scripted_acp::command())).await;
    let secret = json!({"name": "GREETING", "value": "hello-from-a-secret"});
    assert_eq!(user.post("/api/v1/secrets", &secret).await.status, 201);

    let conversation = user.converse("Please write.").await;
    let id = &conversation.id;
    user.wait_for_execution_status(id, "finished").await;
    // The program gets the requested model and the user's secret by value, but no settings of the user's language model.
    assert_eq!(
        world.file(&conversation, "acp.txt").as_deref(),
        Some("m1|hello-from-a-secret|clean")
    );
    let shown = user
        .get(&format!("/api/v1/app-conversations?ids={id}"))
        .await
        .ok();
    let shown = &shown[0];
    assert_eq!(shown["agent_kind"], "acp");
    assert_eq!(shown["acp_server"], "custom");
    assert_eq!(shown["llm_model"], "m1");
    assert_eq!(world.llm.calls(), 0, "a program brings its own model");

    user.send_message(id, "Something else.").await;
    user.wait_for_execution_status(id, "finished").await;
    let events = world.assert_complete(id).await;
    assert!(json!(events).to_string().contains("I was asked something."));
}

pub(crate) async fn a_program_that_ends_is_a_cause_a_person_understands(setup: Setup) {
    let world = World::start(setup).await;
    let user = &world.user;
    use_program(
        &world,
        &json!(["sh", "-c", "echo no such license >&2; exit 3"]),
    )
    .await;
    let conversation = user.converse("Please write.").await;
    user.wait_for_execution_status(&conversation.id, "error")
        .await;
    let says_why = |events: &[Value]| {
        let mut errors = events
            .iter()
            .filter(|event| event["kind"] == "ConversationErrorEvent");
        errors.any(|event| event.to_string().contains("ACP"))
    };
    wait_for_events(
        user,
        &conversation.id,
        "the cause, with ACP in it",
        says_why,
    )
    .await;

    // With a working program, the next conversation in the same sandbox works.
    use_program(&world, &json!(scripted_acp::command())).await;
    let message = json!({"content": [{"type": "text", "text": "Please write."}], "run": true});
    let request = json!({"sandbox_id": conversation.sandbox_id, "initial_message": message});
    let second = user.wait_until_ready(&user.start(&request).await).await;
    user.wait_for_execution_status(&second.id, "finished").await;
}
