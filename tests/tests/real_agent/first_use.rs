//! The first use on a new machine: the service installs the agent server itself.

use std::time::Duration;

use acceptance::agent_server::variable_of;
use acceptance::wait::wait_for;
use acceptance::{Sandboxing, Service};

use crate::support::RECONCILE_TIMEOUT;

/// Time for downloading and compiling some hundred packages on a busy machine. `.config/nextest.toml` allows more.
const INSTALLED: Duration = Duration::from_secs(1_000);

#[tokio::test]
#[ignore = "a part of `cargo xtask nightly`: in a fresh clone, CI installs both releases with the service"]
async fn the_first_conversation_installs_the_agent_server() {
    let sandboxing = Sandboxing::Process;
    let llm = sandboxing.model().await;
    let mut builder = Service::builder()
        .sandboxing(&sandboxing)
        .env("WORKSPACE_SANDBOX__AGENT_SERVER_COMMAND", "");
    if let Some(home) = variable_of("HOME") {
        // `cargo xtask prepare` has downloaded the same packages.
        builder = builder
            .env("PIP_CACHE_DIR", &format!("{home}/.cache/pip"))
            .env("UV_CACHE_DIR", &format!("{home}/.cache/uv"));
    }
    let service = builder.start().await;
    let user = service.admin();
    user.use_model("openai/scripted", &llm.base_url(), "sk-scripted")
        .await;
    let task = user.start_with("RUN: echo one > first.txt").await;
    let ended = wait_for("the end of the first start", INSTALLED, || async {
        let now = user.task(&task.id).await;
        matches!(now.status.as_str(), "READY" | "ERROR").then_some(now)
    })
    .await;
    assert_eq!(ended.status, "READY", "{ended:?}");
    let conversation = user.wait_until_ready(&task).await;
    user.wait_for_execution_status(&conversation.id, "finished")
        .await;
    let file = service.workspace_file(&conversation.sandbox_id, "first.txt");
    assert_eq!(file.as_deref().map(str::trim), Some("one"));
    let as_many = "as many events as are counted";
    wait_for(as_many, RECONCILE_TIMEOUT, || async {
        let events = user.events(&conversation.id).await;
        (user.count_events(&conversation.id).await == events.len()).then_some(())
    })
    .await;
    service.assert_no_orphans(&[&user]).await;
}
