//! What the engine is told. Everybody who may use its socket reads names, labels and commands, and what containers print.
//! The two keys of the agent server are in the container's environment, as that is how it takes them; nothing else is.

use serde_json::json;

use crate::support::{configured, container, engine};

const LLM_KEY: &str = "sk-canary-llm-2d7b11e0";
const CUSTOM: &str = "canary-custom-secret-51fe";
const TEMPLATE: &str = "canary-template-secret-9a04";

#[tokio::test]
async fn the_engine_learns_no_secret_but_what_the_agent_server_needs_to_start() {
    let world = configured(|builder| {
        builder.env("WORKSPACE_LOG__LEVEL", "trace").env(
            "WORKSPACE_DOCKER__SECRET_ENV",
            &format!("PLANTED={TEMPLATE}"),
        )
    })
    .await;
    let user = &world.user;
    user.use_model("openai/m", "http://127.0.0.1:9/v1", LLM_KEY)
        .await;
    let message = json!({"content": [{"type": "text", "text": "hello"}], "run": true});
    let request = json!({"initial_message": message, "secrets": {"MY_SECRET": CUSTOM}});
    let task = user.start(&request).await;
    let conversation = user.ready(&task).await;
    user.executed(&conversation.id, "finished").await;
    let created = world.stub.creates().join("\n");
    assert!(
        created.contains(LLM_KEY) && created.contains(CUSTOM),
        "nothing is proved"
    );

    let session_key = conversation.session_api_key.expect("it is RUNNING");
    let container = container(&world, &conversation.sandbox_id);
    let inspect = |format: &str| engine().docker(&["inspect", "--format", format, &container]);
    let environment = inspect("{{json .Config.Env}}");
    assert!(
        environment.contains(&session_key) && environment.contains(TEMPLATE),
        "nothing is proved"
    );
    for secret in [LLM_KEY, CUSTOM, user.key()] {
        assert!(
            !environment.contains(secret),
            "{secret} is in the environment of the container"
        );
    }
    let told = [
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
    for secret in [LLM_KEY, CUSTOM, TEMPLATE, session_key.as_str(), user.key()] {
        for text in told.iter().chain([&specs]) {
            let place = text.find(secret).map(|at| &text[at.saturating_sub(80)..at]);
            assert_eq!(place, None, "{secret} is told");
        }
    }
}
