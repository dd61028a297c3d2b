//! The real binary with sandboxes as pods of a simulated cluster, whose pods are processes with a stub. The story with a real
//! agent server is in the suite `real_agent`.

mod egress;
mod replicas;

use acceptance::wait::{wait_for, wait_until};
use acceptance::world::{RECONCILE_TIMEOUT, configure_model};
use acceptance::{Builder, Client, Cluster, Service, Stub};
use serde_json::json;

/// Fields are dropped in order: the service ends before its cluster.
struct World {
    service: Service,
    user: Client,
    cluster: Cluster,
    stub: Stub,
}

impl World {
    async fn new(has_sandboxes: bool) -> Self {
        Self::with(has_sandboxes, |builder| builder).await
    }

    async fn with(has_sandboxes: bool, change: impl FnOnce(Builder) -> Builder) -> Self {
        let cluster = Cluster::start(has_sandboxes).await;
        let stub = Stub::new();
        let builder = cluster.with_stub(Service::builder(), &stub);
        let service = change(builder).start().await;
        let user = service.admin();
        configure_model(&user).await;
        Self {
            service,
            user,
            cluster,
            stub,
        }
    }

    /// Deletes a sandbox, and waits until nothing of it is left.
    async fn assert_removed(&self, sandbox: &str) {
        let deleted = self
            .user
            .delete(&format!("/api/v1/sandboxes/{sandbox}"))
            .await;
        assert_eq!(deleted.status, 200, "{}", deleted.text);
        wait_until("the removal of all objects", RECONCILE_TIMEOUT, || {
            self.cluster.is_empty()
        })
        .await;
    }
}

/// A conversation, a pause, a killed service, a resumed sandbox, a deletion.
async fn a_conversation_keeps_its_workspace(has_sandboxes: bool) {
    let mut world = World::new(has_sandboxes).await;
    let conversation = world.user.converse("hello").await;
    let (id, sandbox) = (&conversation.id, &conversation.sandbox_id);
    world.user.wait_for_execution_status(id, "finished").await;
    let written = world.cluster.workspace_file("stub.txt");
    assert_eq!(written.as_deref(), Some("written by the stub"));
    world.user.pause(sandbox).await;
    world
        .user
        .wait_for_sandbox_status(sandbox, "PAUSED", RECONCILE_TIMEOUT)
        .await;
    assert!(world.cluster.fake.objects("pods").is_empty());
    world.service.kill9();
    world.service.restart().await;
    world.user.resume(sandbox).await;
    world.user.send_message(id, "go on").await;
    world.user.wait_for_execution_status(id, "finished").await;
    assert_eq!(world.cluster.workspace_file("stub.txt"), written);
    world.assert_removed(sandbox).await;
}

#[tokio::test]
async fn a_conversation_keeps_its_workspace_in_a_sandbox_resource() {
    a_conversation_keeps_its_workspace(true).await;
}

#[tokio::test]
async fn a_conversation_keeps_its_workspace_in_a_plain_pod() {
    a_conversation_keeps_its_workspace(false).await;
}

/// The controller makes another pod, at another address, which the service finds.
#[tokio::test]
async fn a_conversation_goes_on_after_its_node_was_drained() {
    let world = World::new(true).await;
    let conversation = world.user.converse("hello").await;
    let (id, sandbox) = (&conversation.id, &conversation.sandbox_id);
    world.user.wait_for_execution_status(id, "finished").await;
    let known = || {
        let claims = world.cluster.fake.objects("persistentvolumeclaims");
        claims[0]["metadata"]["annotations"]["agent-workspace/pod-ip"].clone()
    };
    let before = known();
    assert!(before.is_string());
    world.cluster.fake.drain(sandbox);
    wait_until("the service to find the new pod", RECONCILE_TIMEOUT, || {
        known() != before
    })
    .await;
    let message =
        json!({"role": "user", "content": [{"type": "text", "text": "go on"}], "run": true});
    let path = format!("/api/v1/app-conversations/{id}/send-message");
    wait_for("the new address", RECONCILE_TIMEOUT, || async {
        let sent = world.user.post(&path, &message).await;
        (sent.status == 200).then_some(())
    })
    .await;
    world.user.wait_for_execution_status(id, "finished").await;
    world.assert_removed(sandbox).await;
}

/// A killed service leaves a start, which the next one finishes once.
#[tokio::test]
async fn a_killed_service_finishes_its_start_once() {
    for has_sandboxes in [true, false] {
        let mut world = World::new(has_sandboxes).await;
        let task = world.user.start_with("hello").await;
        wait_until("the first object", RECONCILE_TIMEOUT, || {
            !world.cluster.is_empty()
        })
        .await;
        world.service.kill9();
        world.service.restart().await;
        let conversation = world.user.wait_until_ready(&task).await;
        world
            .user
            .wait_for_execution_status(&conversation.id, "finished")
            .await;
        assert_eq!(world.cluster.fake.objects("pods").len(), 1);
        assert_eq!(world.stub.creates().len(), 1);
        world.assert_removed(&conversation.sandbox_id).await;
    }
}

/// What an administrator runs first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_describes_the_cluster() {
    let world = World::new(true).await;
    let output = world.service.run(&["doctor"]).stdout;
    let output = String::from_utf8_lossy(&output);
    for text in [
        "v1.33.0-fake",
        "Sandbox resources",
        "all that are needed",
        "standard",
        "pods: the service reaches them",
        "service account: sandboxes have no token",
        // Pods of the simulated cluster are processes of one machine, which share its network.
        "neighbors: sandboxes reach other sandboxes",
        "privileges: sandboxes run as root",
    ] {
        assert!(output.contains(text), "{text}: {output}");
    }
    assert!(world.cluster.is_empty(), "a pod of the check is left");
}

/// Both names of its pods are fixed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_doctor_leaves_the_pods_of_the_first_one_alone() {
    let world = World::new(true).await;
    let outputs = std::thread::scope(|scope| {
        let run = || scope.spawn(|| world.service.run(&["doctor"]).stdout);
        [run(), run()].map(|it| it.join().expect("an output"))
    });
    let outputs = outputs.map(|it| String::from_utf8_lossy(&it).into_owned());
    let count = |text| outputs.iter().filter(|it| it.contains(text)).count();
    let complete = count("neighbors: sandboxes reach other sandboxes");
    let refused = count("walls: not checked: another check runs at the same time");
    assert!(complete >= 1 && complete + refused == 2, "{outputs:?}");
    assert!(world.cluster.is_empty(), "a pod of a check is left");
}
