//! A conversation in a pod of a simulated cluster, whose pods are processes.

use acceptance::wait::wait_until;
use acceptance::{Cluster, Sandboxing, Service, Version, machine_address};

use crate::support::RECONCILE_TIMEOUT;

pub(crate) async fn a_conversation_runs_in_a_pod() {
    let cluster = Cluster::start(true).await;
    let llm = Sandboxing::Process.model().await;
    let builder = cluster.with_agent_server(Service::builder(), Version::V1_58_0);
    let models = machine_address().to_string();
    let builder = builder.env("WORKSPACE_BROKER__ALLOW_PRIVATE_HOSTS", &models);
    let service = builder.start().await;
    let user = service.admin();
    user.use_model("openai/scripted", &llm.base_url(), "sk-scripted")
        .await;
    let conversation = user.converse("RUN: echo one > first.txt").await;
    let (id, sandbox) = (&conversation.id, &conversation.sandbox_id);
    user.wait_for_execution_status(id, "finished").await;
    let file = cluster.workspace_file("first.txt");
    assert_eq!(file.as_deref(), Some("one\n"));
    user.pause(sandbox).await;
    user.wait_for_sandbox_status(sandbox, "PAUSED", RECONCILE_TIMEOUT)
        .await;
    assert!(cluster.fake.objects("pods").is_empty());
    user.resume(sandbox).await;
    user.send_message(id, "RUN: cat first.txt first.txt > second.txt")
        .await;
    user.wait_for_execution_status(id, "finished").await;
    let file = cluster.workspace_file("second.txt");
    assert_eq!(file.as_deref(), Some("one\none\n"));
    let deleted = user.delete(&format!("/api/v1/sandboxes/{sandbox}")).await;
    assert_eq!(deleted.status, 200, "{}", deleted.text);
    wait_until("the removal of all objects", RECONCILE_TIMEOUT, || {
        cluster.is_empty()
    })
    .await;
}
