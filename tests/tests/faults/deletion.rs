//! The end of a user.

use std::process::Output;

use acceptance::wait::wait_until;
use acceptance::{Client, Sandboxing, Service};
use serde_json::{Value, json};

use crate::support::{RECONCILE_TIMEOUT, World, configure_model};

fn said(output: &Output) -> String {
    let both = [output.stdout.as_slice(), &output.stderr].concat();
    String::from_utf8_lossy(&both).into_owned()
}

/// Deletes a user as an operator does; what was said.
fn delete(service: &Service, user: &str) -> String {
    let output = service.run(&["users", "delete", user, "--yes"]);
    assert!(output.status.success(), "{}", said(&output));
    said(&output)
}

/// Alice with a finished run, one that goes on, and a paused sandbox; what her sandboxes are called.
async fn busy(alice: &Client) -> (String, Vec<String>) {
    configure_model(alice).await;
    let done = alice.converse("hello").await;
    alice.executed(&done.id, "finished").await;
    let running = alice.converse("HOLD STEPS=5").await;
    let paused = alice.start_sandbox().await;
    alice
        .sandbox_becomes(&paused.id, "RUNNING", RECONCILE_TIMEOUT)
        .await;
    alice.pause(&paused.id).await;
    (
        running.session_api_key.expect("it is RUNNING"),
        vec![done.sandbox_id, running.sandbox_id, paused.id],
    )
}

/// Neither a process nor a directory of these sandboxes is left, nor their rows.
async fn assert_removed(service: &Service, sandboxes: &[String]) {
    let theirs = |id: &String| sandboxes.contains(id);
    wait_until("the end of the sandboxes", RECONCILE_TIMEOUT, || {
        let processes = service.processes();
        !processes.iter().any(|process| theirs(&process.sandbox))
            && !service.sandbox_directories().iter().any(theirs)
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

pub(crate) async fn a_user_is_deleted_with_everything_while_the_service_runs(
    sandboxing: Sandboxing,
) {
    let world = World::on(&sandboxing, "", |builder| builder).await;
    let service = &world.service;
    let (alice, bob) = (service.user("alice"), service.user("bob"));
    configure_model(&bob).await;
    let his = bob.converse("hello").await;
    bob.executed(&his.id, "finished").await;
    let (key_of_hers, hers) = busy(&alice).await;

    let asked = service.run(&["users", "delete", "alice"]);
    assert!(!asked.status.success() && said(&asked).contains("--yes"));
    assert_eq!(alice.conversations().await.len(), 2, "nobody confirmed it");

    let told = delete(service, "alice");
    for part in ["deleted alice: 1 API key", "2 conversations", "3 sandboxes"] {
        assert!(told.contains(part), "{part} is missing in: {told}");
    }
    // The command is another process: her key may have been looked up less than a second ago.
    tokio::time::sleep(std::time::Duration::from_millis(1_001)).await;
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
    // Her run goes on until its sandbox ends, and reports for nothing.
    world.stub.go();
    let report: Value =
        json!([{"id": "late", "kind": "MessageEvent", "timestamp": "2026-01-01T00:00:00"}]);
    let sandbox = alice.with_key(&key_of_hers);
    let path = "/api/v1/webhooks/events/00000000000000000000000000000001";
    assert_eq!(sandbox.post(path, &report).await.status, 401);

    bob.say(&his.id, "go on").await;
    assert_removed(service, &hers).await;
    bob.executed(&his.id, "finished").await;
    assert_eq!(bob.conversations().await.len(), 1);
    service.assert_no_orphans(&[&bob]).await;
    // Nothing has come back, and the name is not free at once.
    assert!(delete(service, "alice").contains("nothing was left"));
    let listed = said(&service.run(&["users", "list"]));
    let line = listed.lines().find(|line| line.starts_with("alice "));
    assert!(
        line.is_some_and(|line| line.contains("deleted")),
        "{listed}"
    );
    let again = service.run(&["keys", "create", "--user", "alice"]);
    assert!(
        !again.status.success() && said(&again).contains("deleted"),
        "{}",
        said(&again)
    );
    let nobody = service.run(&["users", "delete", "nobody", "--yes"]);
    assert!(!nobody.status.success() && said(&nobody).contains("nobody"));
}

pub(crate) async fn a_user_is_deleted_while_the_service_is_down(sandboxing: Sandboxing) {
    let mut world = World::on(&sandboxing, "", |builder| builder).await;
    let alice = world.service.user("alice");
    let (_, hers) = busy(&alice).await;
    world.service.kill9();
    assert!(delete(&world.service, "alice").contains("3 sandboxes"));
    world.service.restart().await;
    assert_eq!(alice.get("/api/v1/sandboxes/search").await.status, 401);
    assert_removed(&world.service, &hers).await;
    world.service.assert_no_orphans(&[&world.user]).await;
}
