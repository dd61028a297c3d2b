//! Two services that share a cluster and Postgres, as the manifests run them.

use acceptance::wait::{wait_for, wait_until};
use acceptance::world::{RECONCILE_TIMEOUT, configure_model};
use acceptance::{Cluster, Postgres, Service, Stub};

const STARTS: usize = 4;

/// What one service accepts, another one finishes; each acts on the sandboxes of the other; nothing is left.
#[tokio::test]
async fn a_replica_finishes_the_starts_of_a_killed_one() {
    let (cluster, postgres, stub) = (Cluster::start(true).await, Postgres::start(), Stub::new());
    let replica = async || {
        let builder = cluster
            .with_stub(Service::builder(), &stub)
            .env("WORKSPACE_SANDBOX__HOST", "cluster")
            .postgres(&postgres);
        builder.start().await
    };
    let (mut one, other) = (replica().await, replica().await);
    configure_model(&one.admin()).await;
    let mut tasks = Vec::new();
    for _ in 0..STARTS {
        tasks.push(one.admin().start_with("hello").await);
    }
    one.kill9();
    let at_other = other.admin();
    let mut sandboxes = Vec::new();
    for task in &tasks {
        let ended = wait_for("the end of a start", RECONCILE_TIMEOUT, || async {
            let task = at_other.task(&task.id).await;
            matches!(task.status.as_str(), "READY" | "ERROR").then_some(task)
        })
        .await;
        assert_eq!(ended.status, "READY", "{ended:?}");
        sandboxes.push(ended.sandbox_id.expect("a start has a sandbox"));
    }
    assert_eq!(stub.creates().len(), STARTS);
    sandboxes.sort();
    sandboxes.dedup();
    assert_eq!(cluster.fake.objects("pods").len(), sandboxes.len());
    at_other.pause(&sandboxes[0]).await;
    at_other
        .wait_for_sandbox_status(&sandboxes[0], "PAUSED", RECONCILE_TIMEOUT)
        .await;
    one.restart().await;
    one.admin().resume(&sandboxes[0]).await;
    for sandbox in &sandboxes {
        let deleted = one
            .admin()
            .delete(&format!("/api/v1/sandboxes/{sandbox}"))
            .await;
        assert_eq!(deleted.status, 200, "{}", deleted.text);
    }
    wait_until("the removal of all objects", RECONCILE_TIMEOUT, || {
        cluster.is_empty()
    })
    .await;
}
