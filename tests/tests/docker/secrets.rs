//! Secrets that the engine sees. Every user of its socket reads names, labels, commands and output of containers.
//! The container's environment holds the two keys of the agent server, which takes them from there, and no other secret.

use serde_json::json;

use crate::support::{configured, container, engine};

const LLM_KEY: &str = "sk-canary-llm-2d7b11e0";
const CUSTOM_SECRET: &str = "canary-custom-secret-51fe";
const TEMPLATE_SECRET: &str = "canary-template-secret-9a04";

#[tokio::test]
async fn engine_sees_only_the_secrets_that_the_agent_server_needs_to_start() {
    let world = configured(|builder| {
        builder.env("WORKSPACE_LOG__LEVEL", "trace").env(
            "WORKSPACE_DOCKER__SECRET_ENV",
            &format!("PLANTED={TEMPLATE_SECRET}"),
        )
    })
    .await;
    let user = &world.user;
    user.use_model("openai/m", "http://127.0.0.1:9/v1", LLM_KEY)
        .await;
    let message = json!({"content": [{"type": "text", "text": "hello"}], "run": true});
    let request = json!({"initial_message": message, "secrets": {"MY_SECRET": CUSTOM_SECRET}});
    let task = user.start(&request).await;
    let conversation = user.wait_until_ready(&task).await;
    user.wait_for_execution_status(&conversation.id, "finished")
        .await;
    let created = world.stub.creates().join("\n");
    assert!(
        created.contains(LLM_KEY) && created.contains(CUSTOM_SECRET),
        "the secrets did not reach the agent server, so the test proves nothing"
    );

    let session_key = conversation.session_api_key.expect("no session key");
    let container = container(&world, &conversation.sandbox_id);
    let inspect = |format: &str| engine().docker(&["inspect", "--format", format, &container]);
    let environment = inspect("{{json .Config.Env}}");
    assert!(
        environment.contains(&session_key) && environment.contains(TEMPLATE_SECRET),
        "the environment was not read, so the test proves nothing"
    );
    for secret in [LLM_KEY, CUSTOM_SECRET, user.key()] {
        assert!(
            !environment.contains(secret),
            "{secret} is in the environment of the container"
        );
    }
    let visible = [
        inspect(
            "{{.Name}} {{json .Config.Labels}} {{json .Path}} {{json .Args}} {{json .HostConfig}} {{json .Mounts}}",
        ),
        inspect(
            "{{json .Config.Cmd}} {{json .Config.Entrypoint}} {{json .State}} {{json .NetworkSettings}}",
        ),
        engine().log_of(&container, 1000),
        engine().docker(&["volume", "ls", "--format", "{{.Name}} {{.Labels}}"]),
        world.service.log(),
    ];
    let specs = user.get("/api/v1/sandbox-specs/search").await.text;
    for secret in [
        LLM_KEY,
        CUSTOM_SECRET,
        TEMPLATE_SECRET,
        session_key.as_str(),
        user.key(),
    ] {
        for text in visible.iter().chain([&specs]) {
            let context = text.find(secret).map(|at| &text[at.saturating_sub(80)..at]);
            assert_eq!(context, None, "the engine or the log shows {secret}");
        }
    }
}
