//! A start with a warm sandbox.

use std::time::{Duration, Instant};

use acceptance::wait::wait_until;
use acceptance::{ScriptedLlm, print_line};

use crate::support::Setup;

/// Time for the boot of a real agent server: some seconds, more on a busy machine.
const BOOT: Duration = Duration::from_secs(120);

pub(crate) async fn a_start_takes_no_boot(setup: Setup) {
    let llm: ScriptedLlm = setup.sandboxing.model().await;
    let service = setup
        .service()
        .env("WORKSPACE_SANDBOX__WARM", "1")
        .start()
        .await;
    let user = service.admin();
    user.use_model("openai/scripted", &llm.base_url(), "sk-scripted")
        .await;
    wait_until("a warm sandbox", BOOT, || {
        service.log().contains("a warm sandbox is ready")
    })
    .await;
    let asked = Instant::now();
    let task = user.start_with("hello").await;
    let conversation = user.wait_until_ready(&task).await;
    let took = asked.elapsed().as_millis();
    user.wait_for_execution_status(&conversation.id, "finished")
        .await;
    let timings = user.task(&task.id).await.timings;
    print_line(&format!("POST to READY {took} ms, by steps {timings:?}"));
    assert!(timings["WARM_SANDBOX"].is_u64(), "{timings:?}");
}
