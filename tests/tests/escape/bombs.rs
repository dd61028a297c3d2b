//! Bombs in one sandbox, while the service and a neighbour are asked all the time.

use std::time::{Duration, Instant};

use acceptance::print_line;
use acceptance::wait::wait_for;

use crate::attempts::Verdict;
use crate::world::{EscapeWorld, LIST, Walls};

/// Between two requests.
const REQUEST_INTERVAL: Duration = Duration::from_millis(50);
/// Bounds of what others wait. They are wide, because the suite runs beside others on small machines; the table has the figures.
const MAX_P95: Duration = Duration::from_secs(1);
const MAX_WAIT: Duration = Duration::from_secs(5);
/// Until a sandbox that was ended for its bomb is known to have ended, and runs again.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(60);

/// Waiting times of the service's answers, and of the neighbour's.
#[derive(Debug, Default)]
struct Waits {
    service: Vec<Duration>,
    neighbour: Vec<Duration>,
}

/// Explodes every bomb.
pub(crate) async fn explode(world: &EscapeWorld) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for name in world.chosen(true) {
        let mut waits = Waits::default();
        let names = [name.clone()];
        let results = tokio::select! {
            results = world.bomber.make_attempts(&names) => results,
            () = measure(world, &mut waits) => unreachable!("it measures until the bomb is over"),
        };
        let ending = recover(world).await;
        let mut verdict = match results.into_iter().next() {
            Some(result) => result.verdict(world),
            None => ended(world, name, ending.as_deref()),
        };
        verdict.result = format!("{} {}", verdict.result, waits.check(world, &verdict.name));
        verdicts.push(verdict);
    }
    verdicts
}

/// The verdict on a bomb that ended its whole sandbox: with walls that is right if the service names the cause.
fn ended(world: &EscapeWorld, name: String, cause: Option<&str>) -> Verdict {
    Verdict {
        name,
        class: "bombs".to_owned(),
        seconds: 0.0,
        is_right: world.walls == Walls::Confined && cause.is_some(),
        result: format!("the sandbox ended: {}", cause.unwrap_or_default()),
    }
}

async fn measure(world: &EscapeWorld, waits: &mut Waits) {
    loop {
        let began = Instant::now();
        let _ = world.user.get(LIST).await.ok();
        waits.service.push(began.elapsed());
        let began = Instant::now();
        world.neighbour.run("true").await;
        waits.neighbour.push(began.elapsed());
        tokio::time::sleep(REQUEST_INTERVAL).await;
    }
}

/// Starts the bomber again if it has ended; returns the cause.
async fn recover(world: &EscapeWorld) -> Option<String> {
    let bomber = &world.bomber;
    if bomber.try_run("true").await.is_ok() {
        return None;
    }
    let cause = wait_for(
        "the end of the sandbox with the bomb",
        RECOVERY_TIMEOUT,
        || async {
            let sandbox = world.user.sandbox(&bomber.id).await?;
            (sandbox.status != "RUNNING").then_some(sandbox.status_detail)
        },
    );
    let cause = cause.await;
    bomber.resume(&world.user).await;
    cause
}

impl Waits {
    /// Asserts the bounds with walls, and returns the figures.
    fn check(mut self, world: &EscapeWorld, name: &str) -> String {
        let mut text = Vec::new();
        for (who, waits) in [
            ("service", &mut self.service),
            ("neighbour", &mut self.neighbour),
        ] {
            waits.sort();
            let Some(max) = waits.last() else {
                continue;
            };
            let p95 = waits[(waits.len() - 1) * 95 / 100];
            let figures = format!(
                "{who} p95 {} ms, max {} ms",
                p95.as_millis(),
                max.as_millis()
            );
            if world.walls == Walls::Confined {
                assert!(p95 <= MAX_P95 && *max <= MAX_WAIT, "{name}: {figures}");
            }
            text.push(figures);
        }
        if text.is_empty() {
            print_line(&format!("{name} was over before anything was measured"));
        }
        format!("({})", text.join("; "))
    }
}
