//! Kills the service at every commit, call of an engine, side effect of process sandboxes and change at an agent server of
//! a start, a pause, a deletion and an append of events. The service restarts, and the client repeats failed requests. Then
//! all acknowledged data must exist exactly once, and nothing else.
//!
//! A first run records the crash points that the service passes, and each of them is a case. Here the essential cases run and a
//! sample of the others, selected by `CRASH_POINTS_SEED`. `cargo xtask soak --crash-points` runs all of them.

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

/// Arrivals at one crash point that become cases, in addition to the last one.
const ARRIVALS_PER_POINT: usize = 2;

/// Work that belongs to no scenario: the periodic call of the engine, and the audit log, which is written some time after the
/// response. So the end of a scenario does not wait for them.
const BACKGROUND_WORK: [&str; 2] = ["pinging the engine", "commit of AuditLog::append"];

/// The number of cases.
#[derive(Debug, Clone, Copy)]
struct PlanExtent {
    /// Cases of a scenario.
    max_cases: usize,
    /// Arrivals at one crash point, in addition to the last one.
    arrivals_per_point: usize,
    seed: u64,
}

impl PlanExtent {
    /// At most this number of cases of each scenario, unless the environment requests all.
    fn at_most(max_cases: usize) -> Self {
        let seed = variable("CRASH_POINTS_SEED").map_or(1, |text| {
            text.parse().expect("CRASH_POINTS_SEED must be a number")
        });
        let is_long = variable("CRASH_POINTS_ALL").is_some();
        Self {
            max_cases: if is_long { usize::MAX } else { max_cases },
            arrivals_per_point: if is_long {
                usize::MAX
            } else {
                ARRIVALS_PER_POINT
            },
            seed,
        }
    }

    fn is_all(self) -> bool {
        self.max_cases == usize::MAX
    }

    /// Selects the cases: the essential ones, and others up to the limit.
    fn choose(self, arrivals: Vec<PlannedCrash>, essential: &[&str]) -> Vec<PlannedCrash> {
        let mut last: BTreeMap<String, usize> = BTreeMap::new();
        for point in &arrivals {
            last.insert(point.place.clone(), point.number);
        }
        let points = arrivals.into_iter().filter(|point| {
            point.number <= self.arrivals_per_point || last.get(&point.place) == Some(&point.number)
        });
        let (mut chosen, others): (Vec<PlannedCrash>, Vec<PlannedCrash>) =
            points.partition(|point| essential.iter().any(|operation| point.is_at(operation)));
        let remaining = self.max_cases.saturating_sub(chosen.len());
        chosen.extend(sample(others, remaining, self.seed));
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

/// Runs one case. Returns the number of kills, and the arrivals.
async fn run_case(
    bench: &mut CrashBench,
    scenario: Scenario,
    points: &[PlannedCrash],
) -> (usize, Vec<PlannedCrash>) {
    let before = scenario.prepare(bench).await;
    bench.arm(points);
    let expected = scenario.act(bench, before).await;
    let result = bench.disarm().await;
    check::assert_state(bench, &expected).await;
    check::clear(bench, expected).await;
    result
}

/// The arrivals of a scenario. Background work varies, so only arrivals of two runs count.
async fn repeatable_arrivals(bench: &mut CrashBench, scenario: Scenario) -> Vec<PlannedCrash> {
    let (_, mut arrivals) = run_case(bench, scenario, &[]).await;
    let again: BTreeSet<PlannedCrash> =
        run_case(bench, scenario, &[]).await.1.into_iter().collect();
    assert!(
        !arrivals.is_empty(),
        "the service has no crash points: test a debug build"
    );
    let is_background = |place: &str| BACKGROUND_WORK.iter().any(|work| place.ends_with(work));
    arrivals.retain(|point| again.contains(point) && !is_background(&point.place));
    arrivals
}

/// Kills the service at the points of a scenario, one after the other.
async fn kill_at_each(bench: &mut CrashBench, scenario: Scenario, extent: PlanExtent) {
    let started_at = Instant::now();
    let arrivals = repeatable_arrivals(bench, scenario).await;
    let mut essential = scenario.essential(bench.service.sandboxing()).to_vec();
    if bench.postgres.is_some() {
        // What happens to processes does not depend on the database.
        essential.retain(|operation| operation.starts_with("commit "));
    }
    let points = extent.choose(arrivals.clone(), &essential);
    // How events are batched depends on the machine, so a point may not be reached again: another place stands in for its own.
    let others = arrivals.into_iter().filter(|it| !points.contains(it));
    let mut others = sample(others.collect(), points.len() + 2, extent.seed).into_iter();
    let (mut killed, mut missed) = (Vec::new(), Vec::new());
    for point in &points {
        let mut next = Some(point.clone());
        while let Some(point) = next {
            // Background work may prevent an arrival once.
            let alone = std::slice::from_ref(&point);
            let is_killed = run_case(bench, scenario, alone).await.0 > 0
                || run_case(bench, scenario, alone).await.0 > 0;
            let is_covered = killed
                .iter()
                .any(|it: &PlannedCrash| it.place == point.place);
            next = if is_killed || is_covered {
                None
            } else {
                others.next()
            };
            if is_killed { &mut killed } else { &mut missed }.push(point);
        }
    }
    let places: BTreeSet<&str> = killed.iter().map(|point| point.place.as_str()).collect();
    for operation in &essential {
        for place in [format!("before {operation}"), format!("after {operation}")] {
            assert!(
                places.contains(&*place),
                "{scenario:?}: no kill at `{place}`, only at {places:#?}"
            );
        }
    }
    let planned: BTreeSet<&str> = points.iter().map(|point| &*point.place).collect();
    assert!(
        places.len() * 5 >= planned.len() * 4,
        "{scenario:?}: too many crash points were not reached: {missed:#?}"
    );
    print_line(&format!(
        "{scenario:?}: killed at {} of {} arrivals, {} crash points, {} s",
        killed.len(),
        points.len(),
        places.len(),
        started_at.elapsed().as_secs()
    ));
}

/// Kills the service at some points, and again during its recovery.
async fn kill_twice(bench: &mut CrashBench, scenario: Scenario, extent: PlanExtent) {
    let arrivals = repeatable_arrivals(bench, scenario).await;
    let mut second_kills = 0;
    for (n, point) in extent.choose(arrivals, &[]).into_iter().enumerate() {
        let second = PlannedCrash {
            place: "anywhere".to_owned(),
            // Early and late in the recovery and the rest of the scenario.
            number: 1 + (n * 7 + 3) % 20,
        };
        let (kills, _) = run_case(bench, scenario, &[point, second]).await;
        second_kills += usize::from(kills > 1);
    }
    assert!(
        second_kills > 0,
        "{scenario:?}: the service was never killed a second time"
    );
    print_line(&format!("{scenario:?}: {second_kills} second kills"));
}

async fn with_processes(scenario: Scenario) {
    let mut bench = CrashBench::start(&Sandboxing::Process, None).await;
    kill_at_each(&mut bench, scenario, PlanExtent::at_most(10)).await;
}

#[tokio::test]
async fn a_start_completes_once_after_any_crash() {
    with_processes(Scenario::Start).await;
}

#[tokio::test]
async fn a_sandbox_pauses_and_resumes_after_any_crash() {
    with_processes(Scenario::PauseAndResume).await;
}

#[tokio::test]
async fn the_last_conversation_is_deleted_with_its_sandbox_after_any_crash() {
    with_processes(Scenario::DeleteConversation).await;
}

#[tokio::test]
async fn one_of_two_conversations_is_deleted_after_any_crash() {
    with_processes(Scenario::DeleteOneOfTwo).await;
}

#[tokio::test]
async fn a_sandbox_is_deleted_after_any_crash() {
    with_processes(Scenario::DeleteSandbox).await;
}

#[tokio::test]
async fn reported_events_are_stored_once_after_any_crash() {
    with_processes(Scenario::Append).await;
}

#[tokio::test]
async fn all_scenarios_recover_on_postgres() {
    let mut bench = CrashBench::start(&Sandboxing::Process, Some(Postgres::start())).await;
    for scenario in Scenario::ALL {
        kill_at_each(&mut bench, scenario, PlanExtent::at_most(2)).await;
    }
}

#[tokio::test]
async fn all_scenarios_recover_from_a_second_crash() {
    let mut bench = CrashBench::start(&Sandboxing::Process, None).await;
    for scenario in Scenario::ALL {
        kill_twice(&mut bench, scenario, PlanExtent::at_most(1)).await;
    }
}

#[tokio::test]
async fn all_scenarios_recover_with_containers() {
    let mut bench = CrashBench::start(&Sandboxing::docker(), None).await;
    let extent = PlanExtent::at_most(1);
    for scenario in Scenario::ALL {
        if extent.is_all() || scenario.calls_the_engine() {
            kill_at_each(&mut bench, scenario, extent).await;
        }
    }
    check::assert_network_removed(&mut bench).await;
}
