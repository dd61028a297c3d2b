//! What the service meets when it pauses, starts and removes a sandbox full of traps, and what outlives that sandbox.

use std::time::Duration;

use acceptance::processes::with_argument;
use acceptance::wait::{wait_for, wait_until};
use rustix::process::{Pid, Signal, kill_process};

use crate::attempts::Verdict;
use crate::sandbox::python;
use crate::world::{EscapeWorld, Walls};

const TIMEOUT: Duration = Duration::from_secs(60);
/// The time of a sleep, by which the suite recognises it.
const SURVIVOR: &str = "98765432";

/// Sets the traps, lets the service go through them, and removes the sandbox.
pub(crate) async fn spring(world: &EscapeWorld) -> Vec<Verdict> {
    if !world.chosen(false).is_empty() && world.chosen(false).len() < 10 {
        return Vec::new();
    }
    let (attacker, user) = (&world.attacker, &world.user);
    attacker
        .run(&format!(
            "{} escape/runner.py --traps escape/aims.json",
            python().command
        ))
        .await;
    user.pause(&attacker.id).await;
    user.wait_for_sandbox_status(&attacker.id, "PAUSED", TIMEOUT)
        .await;
    attacker.resume(user).await;
    world.assert_unharmed().await;
    let mut verdicts = Vec::new();
    if world.walls == Walls::Confined {
        kill_everything(world).await;
    }
    // Without the marker in its environment, in a session of its own, and not a descendant.
    let survivor = format!("env -i setsid sleep {SURVIVOR} < /dev/null > /dev/null 2>&1 &");
    attacker.run(&survivor).await;
    wait_until("the process that shall survive", TIMEOUT, || {
        !survivors().is_empty()
    })
    .await;
    let removed = user
        .delete(&format!("/api/v1/sandboxes/{}", attacker.id))
        .await;
    let _ = removed.ok();
    wait_until("the removal of the sandbox", TIMEOUT, || {
        !attacker.root.exists()
    })
    .await;
    let left = survivors();
    verdicts.push(Verdict {
        name: "outlive-removal".to_owned(),
        class: "traps for the service".to_owned(),
        seconds: 0.0,
        is_right: left.is_empty() == (world.walls == Walls::Confined),
        result: if left.is_empty() {
            "refused".to_owned()
        } else {
            "succeeded".to_owned()
        },
    });
    for pid in left {
        let pid = Pid::from_raw(pid).expect("a process has an id");
        // It may have ended by itself.
        let _ = kill_process(pid, Signal::KILL);
    }
    verdicts
}

/// The processes that were to survive.
fn survivors() -> Vec<i32> {
    with_argument(SURVIVOR)
}

/// Only with walls: otherwise it ends every program of the machine.
async fn kill_everything(world: &EscapeWorld) {
    let (bomber, user) = (&world.bomber, &world.user);
    // The command itself may be among the killed.
    let _ = bomber.try_run("kill -9 -1").await;
    wait_for("the end of the sandbox, or its answer", TIMEOUT, || async {
        let sandbox = user.sandbox(&bomber.id).await?;
        let has_cause = sandbox.status != "RUNNING" && sandbox.status_detail.is_some();
        (has_cause || bomber.try_run("true").await.is_ok()).then_some(())
    })
    .await;
    world.assert_unharmed().await;
}
