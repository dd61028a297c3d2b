//! Other containers and services on the same engine.

use acceptance::engine::{INSTANCE_LABEL, SANDBOX_LABEL, stub_image};
use acceptance::wait::wait_until;
use acceptance::world::RECONCILE_TIMEOUT;

use crate::support::{assert_resumes, container, engine, start_finished_conversation, world};

#[tokio::test]
async fn two_services_on_one_engine_do_not_interfere() {
    let (mut ours, theirs) = (world().await, world().await);
    let (our_conversation, their_conversation) = (
        start_finished_conversation(&ours.user).await,
        start_finished_conversation(&theirs.user).await,
    );
    let kept = container(&theirs, &their_conversation.sandbox_id);
    // At its start a service removes containers that it has no row for.
    ours.service.kill9();
    ours.service.restart().await;
    ours.user
        .wait_for_sandbox_status(&our_conversation.sandbox_id, "RUNNING", RECONCILE_TIMEOUT)
        .await;
    ours.user.delete_conversation(&our_conversation.id).await;
    ours.assert_nothing_left().await;
    assert_eq!(container(&theirs, &their_conversation.sandbox_id), kept);
    assert_resumes(&theirs, &their_conversation).await;
}

/// A container that looks like a sandbox. Dropping it removes it.
struct ForeignContainer(String);

impl ForeignContainer {
    /// Starts a container with the name and labels of a sandbox of this installation.
    fn start(sandbox: &str, instance: &str) -> Self {
        let name = format!("--name=agent-workspace-{sandbox}");
        let labels = [
            format!("{INSTANCE_LABEL}={instance}"),
            format!("{SANDBOX_LABEL}={sandbox}"),
        ];
        let [instance, sandbox] = labels.map(|label| format!("--label={label}"));
        let image = stub_image();
        let arguments = [
            "run",
            "--detach",
            "--init",
            "--entrypoint=sleep",
            &name,
            &instance,
            &sandbox,
            &image,
            "600",
        ];
        Self(engine().docker(&arguments))
    }
}

impl Drop for ForeignContainer {
    fn drop(&mut self) {
        let _ = engine().try_docker(&["rm", "--force", &self.0]);
    }
}

#[tokio::test]
async fn containers_of_others_stay_and_own_containers_without_a_row_are_removed() {
    let mut world = world().await;
    start_finished_conversation(&world.user).await;
    let instance = world
        .service
        .instance()
        .expect("the service has no instance name");
    let stranger = ForeignContainer::start(
        &format!("stranger-{}", std::process::id()),
        "another-installation",
    );
    let orphan = ForeignContainer::start(&format!("orphan-{}", std::process::id()), &instance);
    world.service.kill9();
    world.service.restart().await;
    let is_there =
        |it: &ForeignContainer| engine().try_docker(&["inspect", &it.0]).status.success();
    wait_until(
        "the removal of the container without a row",
        RECONCILE_TIMEOUT,
        || !is_there(&orphan),
    )
    .await;
    assert!(
        is_there(&stranger),
        "the container of another installation was removed"
    );
    world.service.assert_no_orphans(&[&world.user]).await;
}
