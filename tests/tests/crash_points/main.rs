//! The service is killed at every commit, every call of an engine, every side effect of process sandboxes and every change
//! at an agent server, of a start, a pause, a delete and an event append; it is started again, what was cut off is asked
//! again, and then everything that was acknowledged is there once, and nothing else.
//!
//! A first run notes where the service comes by, and each of these points is then a case. With processes and `SQLite` all of
//! them run here; with containers, and with Postgres, a sample that `CRASH_POINTS_SEED` decides. All of all:
//! `cargo xtask soak --crash-points`.

mod bench;
mod check;
mod plan;
mod rows;
mod scenario;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use acceptance::{Postgres, Sandboxing, print_line};

use crate::bench::CrashBench;
use crate::plan::{PlannedCrash, sample};
use crate::scenario::Scenario;

/// How many of the arrivals at one place are points here, and the last one: what is done ten times in a row is no other the
/// seventh time.
const TIMES: usize = 2;

/// A question that changes nothing and belongs to no scenario.
const BY_THE_CLOCK: &str = "asking whether the engine is there";

/// How much is done.
#[derive(Debug, Clone, Copy)]
struct PlanExtent {
    /// Points of a scenario.
    most: usize,
    /// Arrivals at one place, beside the last one.
    times: usize,
    seed: u64,
}

impl PlanExtent {
    /// All points of each scenario.
    fn all() -> Self {
        Self::at_most(usize::MAX)
    }

    /// So many points of each scenario, unless the environment says all.
    fn at_most(most: usize) -> Self {
        let seed = variable("CRASH_POINTS_SEED").map_or(1, |text| {
            text.parse().expect("CRASH_POINTS_SEED is a number")
        });
        let is_long = variable("CRASH_POINTS_ALL").is_some();
        Self {
            most: if is_long { usize::MAX } else { most },
            times: if is_long { usize::MAX } else { TIMES },
            seed,
        }
    }

    fn is_all(self) -> bool {
        self.most == usize::MAX
    }

    /// Which of these are points: the essential ones, and others until there are enough.
    fn choose(self, arrivals: Vec<PlannedCrash>, essential: &[&str]) -> Vec<PlannedCrash> {
        let mut last: BTreeMap<String, usize> = BTreeMap::new();
        for point in &arrivals {
            last.insert(point.place.clone(), point.number);
        }
        let points = arrivals.into_iter().filter(|point| {
            point.number <= self.times || last.get(&point.place) == Some(&point.number)
        });
        let (mut chosen, others): (Vec<PlannedCrash>, Vec<PlannedCrash>) =
            points.partition(|point| essential.iter().any(|deed| point.is_at(deed)));
        let room = self.most.saturating_sub(chosen.len());
        chosen.extend(sample(others, room, self.seed));
        chosen
    }
}

fn variable(name: &str) -> Option<String> {
    #[expect(
        clippy::disallowed_methods,
        reason = "set by `cargo xtask soak`, which starts this suite"
    )]
    std::env::var(name).ok()
}

/// One case: how often the service died in it, and where it came by.
async fn case(
    bench: &mut CrashBench,
    scenario: Scenario,
    points: &[PlannedCrash],
) -> (usize, Vec<PlannedCrash>) {
    let before = scenario.prepare(bench).await;
    bench.arm(points);
    let expected = scenario.act(bench, before).await;
    let seen = bench.disarm().await;
    check::holds(bench, &expected).await;
    check::clear(bench, expected).await;
    seen
}

/// Where the service comes by. What happens in the background does not come by every time: what came by twice will do so
/// again.
async fn arrivals(bench: &mut CrashBench, scenario: Scenario) -> Vec<PlannedCrash> {
    let (_, mut arrivals) = case(bench, scenario, &[]).await;
    let again: BTreeSet<PlannedCrash> = case(bench, scenario, &[]).await.1.into_iter().collect();
    assert!(
        !arrivals.is_empty(),
        "the service has no crash points: only debug builds have"
    );
    arrivals.retain(|point| again.contains(point) && !point.place.ends_with(BY_THE_CLOCK));
    arrivals
}

/// Kills the service at the points of a scenario, one after the other.
async fn kill_at_each(bench: &mut CrashBench, scenario: Scenario, extent: PlanExtent) {
    let began = Instant::now();
    let arrivals = arrivals(bench, scenario).await;
    let essential = scenario.essential(bench.service.sandboxing());
    let points = extent.choose(arrivals, essential);
    let (mut killed, mut missed) = (Vec::new(), Vec::new());
    for point in &points {
        // It may go another way once.
        let alone = std::slice::from_ref(point);
        let is_killed =
            case(bench, scenario, alone).await.0 > 0 || case(bench, scenario, alone).await.0 > 0;
        if is_killed { &mut killed } else { &mut missed }.push(point);
    }
    let places: BTreeSet<&str> = killed.iter().map(|point| point.place.as_str()).collect();
    for deed in essential {
        for place in [format!("before {deed}"), format!("after {deed}")] {
            assert!(
                places.contains(&*place),
                "{scenario:?}: no kill {place}, but {places:#?}"
            );
        }
    }
    assert!(
        missed.len() * 5 <= points.len(),
        "{scenario:?}: not reached: {missed:#?}"
    );
    print_line(&format!(
        "{scenario:?}: killed at {} of {} points, {} places, {} s",
        killed.len(),
        points.len(),
        places.len(),
        began.elapsed().as_secs()
    ));
}

/// Kills it at some points, and once more while it makes good what the first death has left.
async fn kill_twice(bench: &mut CrashBench, scenario: Scenario, extent: PlanExtent) {
    let arrivals = arrivals(bench, scenario).await;
    let mut seconds = 0;
    for (n, point) in extent.choose(arrivals, &[]).into_iter().enumerate() {
        let second = PlannedCrash {
            place: "anywhere".to_owned(),
            // Early and late in what a start of the service and the rest of the scenario do.
            number: 1 + (n * 7 + 3) % 20,
        };
        let (deaths, _) = case(bench, scenario, &[point, second]).await;
        seconds += usize::from(deaths > 1);
    }
    assert!(seconds > 0, "{scenario:?}: it never died a second time");
    print_line(&format!("{scenario:?}: died {seconds} times a second time"));
}

async fn with_processes(scenario: Scenario) {
    let mut bench = CrashBench::start(&Sandboxing::Process, None).await;
    kill_at_each(&mut bench, scenario, PlanExtent::all()).await;
}

#[tokio::test]
async fn a_start_is_finished_once_wherever_the_service_dies() {
    with_processes(Scenario::Start).await;
}

#[tokio::test]
async fn a_sandbox_pauses_and_resumes_wherever_the_service_dies() {
    with_processes(Scenario::PauseAndResume).await;
}

#[tokio::test]
async fn a_conversation_goes_with_its_sandbox_wherever_the_service_dies() {
    with_processes(Scenario::DeleteConversation).await;
}

#[tokio::test]
async fn one_of_two_conversations_goes_and_the_other_stays_wherever_the_service_dies() {
    with_processes(Scenario::DeleteOneOfTwo).await;
}

#[tokio::test]
async fn a_sandbox_is_deleted_wherever_the_service_dies() {
    with_processes(Scenario::DeleteSandbox).await;
}

#[tokio::test]
async fn reported_events_are_kept_once_wherever_the_service_dies() {
    with_processes(Scenario::Append).await;
}

#[tokio::test]
async fn on_postgres_nothing_is_lost_or_left_wherever_the_service_dies() {
    let mut bench = CrashBench::start(&Sandboxing::Process, Some(Postgres::start())).await;
    for scenario in Scenario::ALL {
        kill_at_each(&mut bench, scenario, PlanExtent::at_most(6)).await;
    }
}

#[tokio::test]
async fn nothing_is_lost_or_left_when_the_service_dies_again_while_it_recovers() {
    let mut bench = CrashBench::start(&Sandboxing::Process, None).await;
    for scenario in Scenario::ALL {
        kill_twice(&mut bench, scenario, PlanExtent::at_most(5)).await;
    }
}

#[tokio::test]
async fn nothing_is_lost_or_left_in_containers_wherever_the_service_dies() {
    let mut bench = CrashBench::start(&Sandboxing::docker(), None).await;
    let extent = PlanExtent::at_most(6);
    for scenario in Scenario::ALL {
        if extent.is_all() || scenario.calls_the_engine() {
            kill_at_each(&mut bench, scenario, extent).await;
        }
    }
    check::no_network(&mut bench).await;
}
