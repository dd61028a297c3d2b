//! Hosts of sandboxes: one that is lost, and one that is drained.

use acceptance::Sandboxing;
use acceptance::wait::wait_for;
use serde_json::{Value, json};

use crate::TAKEOVER_TIMEOUT;
use crate::replica_pair::ReplicaPair;

/// A killed service does not restart: another host finishes its start, and its running sandbox comes back with it.
#[tokio::test]
async fn a_lost_host_strands_nobody() {
    let mut pair = ReplicaPair::start(&Sandboxing::UnconfinedProcess, "").await;
    let user = pair.user("ada").await;
    let running = user.client(0).converse("hello").await;
    // The next sandbox never gets ready.
    pair.stub.set_faults("silent");
    let stranded = user.client(0).start_with("hello").await;
    wait_for("a sandbox that starts", TAKEOVER_TIMEOUT, || async {
        let started = pair.replicas[0].agent_servers().len() == 2;
        started.then_some(())
    })
    .await;
    let lost = pair.replicas[0].instance().expect("a host");
    pair.kill(0);
    pair.stub.set_faults("");

    let other = user.client(1);
    let task = wait_for("the end of the start", TAKEOVER_TIMEOUT, || async {
        let task = other.task(&stranded.id).await;
        matches!(task.status.as_str(), "READY" | "ERROR").then_some(task)
    })
    .await;
    assert_eq!(task.status, "READY", "{task:?}");
    let sandbox = task.sandbox_id.expect("a sandbox");
    assert!(pair.replicas[1].sandbox_directories().contains(&sandbox));
    let missing = other
        .wait_for_sandbox_status(&running.sandbox_id, "MISSING", TAKEOVER_TIMEOUT)
        .await;
    let detail = missing.status_detail.unwrap_or_default();
    assert!(detail.contains(&lost), "{detail}");
    let resume = format!("/api/v1/sandboxes/{}/resume", running.sandbox_id);
    let refused = other.post(&resume, &json!({})).await;
    assert_eq!(refused.status, 503, "{}", refused.text);
    assert!(refused.text.contains(&lost), "{}", refused.text);

    let removal = other.delete(&format!("/api/v1/admin/hosts/{lost}")).await;
    assert_eq!(removal.status, 403, "only administrators: {}", removal.text);
    pair.replicas[0].restart().await;
    other
        .wait_for_sandbox_status(&running.sandbox_id, "RUNNING", TAKEOVER_TIMEOUT)
        .await;
    other.send_message(&running.id, "again").await;
    pair.assert_consistent(&[&user]).await;
}

/// New conversations and sandboxes go to the other host. Without one they are refused.
#[tokio::test]
async fn a_drained_host_takes_no_new_starts() {
    let pair = ReplicaPair::start(&Sandboxing::UnconfinedProcess, "").await;
    let user = pair.user("ada").await;
    let hosts = [0, 1].map(|which| pair.replicas[which].instance().expect("a host"));
    let admin = pair.admin();
    let path = format!("/api/v1/admin/hosts/{}", hosts[0]);
    let drained = admin.patch(&path, &json!({"draining": true})).await.ok();
    assert_eq!(drained["status"], "draining", "{drained}");

    let conversation = user.client(0).converse("hello").await;
    let sandbox = user.client(0).start_sandbox().await;
    user.client(0)
        .wait_for_sandbox_status(&sandbox.id, "RUNNING", TAKEOVER_TIMEOUT)
        .await;
    let mut expected = vec![conversation.sandbox_id, sandbox.id];
    expected.sort();
    let mut found = pair.replicas[1].sandbox_directories();
    found.sort();
    assert_eq!(found, expected);

    let drain = pair.replicas[1].run(&["hosts", "drain", &hosts[1]]);
    assert!(drain.status.success(), "{drain:?}");
    let refused = wait_for("a refusal", TAKEOVER_TIMEOUT, || async {
        let reply = user.client(1).post("/api/v1/sandboxes", &json!({})).await;
        (reply.status == 503).then_some(reply)
    })
    .await;
    assert!(refused.text.contains("drained"), "{}", refused.text);
    let table = pair.replicas[1].run(&["hosts", "list"]);
    let table = String::from_utf8_lossy(&table.stdout).into_owned();
    assert_eq!(table.matches("  draining  ").count(), 2, "{table}");
    let undrain = pair.replicas[1].run(&["hosts", "undrain", &hosts[0]]);
    assert!(undrain.status.success(), "{undrain:?}");
    let listed = admin.get("/api/v1/admin/hosts").await.ok();
    let mut states: Vec<(&Value, &Value)> = listed["items"]
        .as_array()
        .expect("hosts")
        .iter()
        .map(|host| (&host["id"], &host["status"]))
        .collect();
    states.sort_by_key(|(id, _)| id.to_string());
    let (first, second) = (json!(hosts[0]), json!(hosts[1]));
    let (available, draining) = (json!("available"), json!("draining"));
    let mut states_then = [(&first, &available), (&second, &draining)];
    states_then.sort_by_key(|(id, _)| id.to_string());
    assert_eq!(states, states_then);
}
