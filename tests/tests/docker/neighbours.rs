//! Others on the same engine.

use acceptance::engine::{INSTANCE, SANDBOX, stub_image};
use acceptance::wait::wait_until;
use acceptance::world::RECONCILE_TIMEOUT;

use crate::support::{container, engine, finished, goes_on, world};

#[tokio::test]
async fn two_services_on_one_engine_leave_each_other_alone() {
    let (mut ours, theirs) = (world().await, world().await);
    let (mine, yours) = (finished(&ours.user).await, finished(&theirs.user).await);
    let kept = container(&theirs, &yours.sandbox_id);
    // What a start-up removes is what it has no row for.
    ours.service.kill9();
    ours.service.restart().await;
    ours.user
        .sandbox_becomes(&mine.sandbox_id, "RUNNING", RECONCILE_TIMEOUT)
        .await;
    ours.user.delete_conversation(&mine.id).await;
    ours.assert_nothing_left().await;
    assert_eq!(container(&theirs, &yours.sandbox_id), kept);
    goes_on(&theirs, &yours).await;
}

/// Removed whatever becomes of the test.
struct ForeignContainer(String);

impl ForeignContainer {
    /// A container as a sandbox of this installation would be.
    fn with(sandbox: &str, instance: &str) -> Self {
        let name = format!("--name=agent-workspace-{sandbox}");
        let labels = [
            format!("{INSTANCE}={instance}"),
            format!("{SANDBOX}={sandbox}"),
        ];
        let [instance, sandbox] = labels.map(|label| format!("--label={label}"));
        let image = stub_image();
        let words = [
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
        Self(engine().docker(&words))
    }
}

impl Drop for ForeignContainer {
    fn drop(&mut self) {
        let _ = engine().try_docker(&["rm", "--force", &self.0]);
    }
}

#[tokio::test]
async fn what_only_looks_like_a_sandbox_stays_and_what_has_no_row_goes() {
    let mut world = world().await;
    finished(&world.user).await;
    let instance = world.service.instance().expect("it has a name");
    let stranger =
        ForeignContainer::with(&format!("stranger-{}", std::process::id()), "somebody-else");
    let orphan = ForeignContainer::with(&format!("orphan-{}", std::process::id()), &instance);
    world.service.kill9();
    world.service.restart().await;
    let is_there =
        |it: &ForeignContainer| engine().try_docker(&["inspect", &it.0]).status.success();
    wait_until(
        "the end of the container without a row",
        RECONCILE_TIMEOUT,
        || !is_there(&orphan),
    )
    .await;
    assert!(is_there(&stranger));
    world.service.assert_no_orphans(&[&world.user]).await;
}
