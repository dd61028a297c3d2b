//! Deletion of a user.

use std::process::Output;

use acceptance::wait::{wait_for, wait_until};
use acceptance::{Client, Sandboxing, Service};
use serde_json::{Value, json};

use crate::support::{RECONCILE_TIMEOUT, World, configure_model};

fn output_of(output: &Output) -> String {
    let both = [output.stdout.as_slice(), &output.stderr].concat();
    String::from_utf8_lossy(&both).into_owned()
}

/// Deletes a user with the command line; returns its output.
fn delete_user(service: &Service, user: &str) -> String {
    let output = service.run(&["users", "delete", user, "--yes"]);
    assert!(output.status.success(), "{}", output_of(&output));
    output_of(&output)
}

/// Gives Alice a finished run, a running one, and a paused sandbox. Returns the session key of the running sandbox and the ids of
/// all sandboxes.
async fn seed_busy_user(alice: &Client) -> (String, Vec<String>) {
    configure_model(alice).await;
    let done = alice.converse("hello").await;
    alice.wait_for_execution_status(&done.id, "finished").await;
    let running = alice.converse("HOLD STEPS=5").await;
    let paused = alice.start_sandbox().await;
    alice
        .wait_for_sandbox_status(&paused.id, "RUNNING", RECONCILE_TIMEOUT)
        .await;
    alice.pause(&paused.id).await;
    (
        running
            .session_api_key
            .expect("the conversation has no session key"),
        vec![done.sandbox_id, running.sandbox_id, paused.id],
    )
}

/// Waits until processes, directories and rows of these sandboxes are removed.
async fn assert_removed(service: &Service, sandboxes: &[String]) {
    let is_removed_sandbox = |id: &String| sandboxes.contains(id);
    wait_until("the end of the sandboxes", RECONCILE_TIMEOUT, || {
        let processes = service.processes();
        !processes
            .iter()
            .any(|process| is_removed_sandbox(&process.sandbox))
            && !service.sandbox_directories().iter().any(is_removed_sandbox)
    })
    .await;
    wait_until("the end of their rows", RECONCILE_TIMEOUT, || {
        let log = service.log();
        let removed = |id| {
            let mut lines = log.lines().filter(|line| line.contains("sandbox removed"));
            lines.any(|line| line.contains(id))
        };
        sandboxes.iter().all(|id| removed(id.as_str()))
    })
    .await;
}

pub(crate) async fn user_is_deleted_with_all_data_while_the_service_runs(sandboxing: Sandboxing) {
    let world = World::with_sandboxing(&sandboxing, "", |builder| builder).await;
    let service = &world.service;
    let (alice, bob) = (service.user("alice"), service.user("bob"));
    configure_model(&bob).await;
    let bobs_conversation = bob.converse("hello").await;
    bob.wait_for_execution_status(&bobs_conversation.id, "finished")
        .await;
    let (alices_session_key, alices_sandboxes) = seed_busy_user(&alice).await;

    let unconfirmed = service.run(&["users", "delete", "alice"]);
    assert!(!unconfirmed.status.success() && output_of(&unconfirmed).contains("--yes"));
    assert_eq!(
        alice.conversations().await.len(),
        2,
        "without --yes nothing is deleted"
    );

    let output = delete_user(service, "alice");
    for part in ["deleted alice: 1 API key", "2 conversations", "3 sandboxes"] {
        assert!(output.contains(part), "{part} is missing in: {output}");
    }
    // The command is another process, and the service caches a key's access for a moment.
    wait_for("the end of alice's access", RECONCILE_TIMEOUT, || async {
        (alice.get("/api/v1/users/me").await.status == 401).then_some(())
    })
    .await;
    for path in [
        "/api/v1/sandboxes/search",
        "/api/v1/users/me",
        "/api/settings",
    ] {
        assert_eq!(alice.get(path).await.status, 401, "{path}");
    }
    let start = json!({"initial_message": {"content": [{"type": "text", "text": "again"}]}});
    let reply = alice.post("/api/v1/app-conversations", &start).await;
    assert_eq!(reply.status, 401, "{reply:?}");
    // Her run continues until its sandbox ends; its reports are refused.
    world.stub.continue_runs();
    let report: Value =
        json!([{"id": "late", "kind": "MessageEvent", "timestamp": "2026-01-01T00:00:00"}]);
    let sandbox = alice.with_key(&alices_session_key);
    let path = "/api/v1/webhooks/events/00000000000000000000000000000001";
    assert_eq!(sandbox.post(path, &report).await.status, 401);

    bob.send_message(&bobs_conversation.id, "go on").await;
    assert_removed(service, &alices_sandboxes).await;
    bob.wait_for_execution_status(&bobs_conversation.id, "finished")
        .await;
    assert_eq!(bob.conversations().await.len(), 1);
    service.assert_no_orphans(&[&bob]).await;
    // Nothing has come back, and the name stays reserved.
    assert!(delete_user(service, "alice").contains("nothing was left"));
    let listed = output_of(&service.run(&["users", "list"]));
    let line = listed.lines().find(|line| line.starts_with("alice "));
    assert!(
        line.is_some_and(|line| line.contains("deleted")),
        "{listed}"
    );
    let again = service.run(&["keys", "create", "--user", "alice"]);
    assert!(!again.status.success());
    assert!(output_of(&again).contains("deleted"), "{again:?}");
    let unknown = service.run(&["users", "delete", "unknown-user", "--yes"]);
    assert!(!unknown.status.success() && output_of(&unknown).contains("unknown-user"));
}

pub(crate) async fn user_is_deleted_while_the_service_is_down(sandboxing: Sandboxing) {
    let mut world = World::with_sandboxing(&sandboxing, "", |builder| builder).await;
    let alice = world.service.user("alice");
    let (_, alices_sandboxes) = seed_busy_user(&alice).await;
    world.service.kill9();
    assert!(delete_user(&world.service, "alice").contains("3 sandboxes"));
    world.service.restart().await;
    assert_eq!(alice.get("/api/v1/sandboxes/search").await.status, 401);
    assert_removed(&world.service, &alices_sandboxes).await;
    world.service.assert_no_orphans(&[&world.user]).await;
}
