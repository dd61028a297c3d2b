//! Hostile users beside normal ones, while the service is killed repeatedly.
//!
//! The short form runs in CI and checks states only: every request of a normal user gets a correct response. It ignores
//! times. `cargo xtask attack --minutes N` measures times, prints a table, and fails when a bound is broken.

mod attacks;
mod fixture;
mod kills;
mod normal;
mod options;
mod report;
mod samples;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use acceptance::hostile::Random;
use acceptance::print_line;
use acceptance::processes::{of_sandboxes_in, raise_file_limit};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, sleep, sleep_until};

use crate::attacks::{Attack, AttackContext};
use crate::fixture::Fixture;
use crate::normal::NormalUsersContext;
use crate::options::{Options, Scale};
use crate::report::{Memory, Row, table};
use crate::samples::{Recorder, Samples, Tally, disk_usage};

/// Real attackers are on other machines. Here they only get processor time that the service and the normal users leave.
const ATTACKER_NICENESS: i32 = 19;
/// The effects of an attack are over when the p99 of the normal users is below this, or after so many intervals.
const CALM_P99_MS: f64 = 1_000.0;
const MAX_CALM_INTERVALS: usize = 10;
/// Interval of the search for restarted agent servers of attackers.
const PRIORITY_INTERVAL: Duration = Duration::from_secs(1);
/// Interval of measurements of the service's memory.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);

/// The runtime of the attackers, with threads of low priority.
fn attackers_runtime() -> Runtime {
    let lower = || {
        // After a failure, the attackers only get more processor time.
        let _ = rustix::process::setpriority_process(None, ATTACKER_NICENESS);
    };
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .on_thread_start(lower)
        .enable_all()
        .build();
    runtime.expect("a runtime can be built")
}

/// Keeps the agent servers of the attackers, also restarted ones, at the attackers' priority.
async fn lower_attacker_priority(sandboxes: Vec<String>, data: PathBuf) {
    loop {
        for process in of_sandboxes_in(&data) {
            if sandboxes.contains(&process.sandbox) {
                process.lower_priority(ATTACKER_NICENESS);
            }
        }
        sleep(PRIORITY_INTERVAL).await;
    }
}

struct Run {
    fixture: Fixture,
    scale: Scale,
    /// Attacks of a single phase; empty: all phases.
    chosen: Vec<Attack>,
    random: Random,
    runtime: Option<Runtime>,
    context: Arc<AttackContext>,
    shared: Arc<NormalUsersContext>,
    rows: Vec<Row>,
}

impl Run {
    fn new(fixture: Fixture, scale: Scale, options: &Options) -> Self {
        let mark = |user: &fixture::UserFixture| user.mark.clone();
        let marks = |users: &[fixture::UserFixture]| users.iter().map(mark).collect::<Vec<_>>();
        let context = AttackContext {
            scale,
            clock: Arc::clone(&fixture.clock),
            tally: Tally::default(),
            marks: marks(&fixture.normal),
        };
        let shared = NormalUsersContext {
            recorder: Recorder::default(),
            clock: Arc::clone(&fixture.clock),
            marks: [marks(&fixture.normal), marks(&fixture.attackers)].concat(),
            is_over: AtomicBool::new(false),
        };
        Self {
            fixture,
            scale,
            chosen: options.only.clone(),
            random: Random::new(options.seed, 0),
            runtime: Some(attackers_runtime()),
            context: Arc::new(context),
            shared: Arc::new(shared),
            rows: Vec::new(),
        }
    }

    /// Measures the normal users alone, and then during attacks, while the service is killed `kills` times.
    async fn phase(&mut self, title: String, attacks: &[Attack], kills: u32) {
        self.calm_down().await;
        sleep(self.scale.alone).await;
        let alone = self.shared.recorder.take();
        let (disk, _) = (
            disk_usage(&self.fixture.service.data_dir()),
            self.fixture.memory.take_peak(),
        );
        let _ = self.context.tally.take();
        let (began, until) = (Instant::now(), Instant::now() + self.scale.attack);
        let runtime = self.runtime.as_ref().expect("it runs until the end");
        let attackers = attacks.iter().map(|attack| {
            let attacker = self.fixture.attackers[attack.attacker()].clone();
            let context = Arc::clone(&self.context);
            runtime.spawn(attacks::run(*attack, attacker, context, until))
        });
        let attackers: Vec<_> = attackers.collect();
        let mut recoveries = Vec::new();
        for number in 1..=kills {
            sleep_until(began + self.scale.attack * number / (kills + 1)).await;
            recoveries.push(self.fixture.kill().await);
        }
        for attacker in attackers {
            attacker.await.expect("an attack goes on until its end");
        }
        let mut beside = self.shared.recorder.take();
        beside.add_errors(&alone);
        let peak_bytes = self.fixture.memory.take_peak();
        let quota = self.fixture.check_attacker_quotas().await;
        let grown = disk_usage(&self.fixture.service.data_dir()).saturating_sub(disk);
        let row = Row {
            title,
            is_mixed: attacks.len() > 1,
            alone,
            beside,
            peak_bytes,
            after_bytes: self.fixture.memory.now(),
            disk_bytes: grown,
            quota,
            statuses: self.context.tally.take(),
            recoveries,
        };
        print_line(&format!(
            "{}: {} responses, {:?}; 99th percentiles in ms: alone {}; during the attack {}",
            row.title,
            row.beside.count(),
            row.broken_bounds(),
            row.alone.slowest(),
            row.beside.slowest()
        ));
        self.rows.push(row);
    }

    /// Takes the samples since the last attack. Late errors count as errors of that attack.
    fn take_late(&mut self) -> Samples {
        let late = self.shared.recorder.take();
        if let Some(row) = self.rows.last_mut() {
            row.beside.add_errors(&late);
        }
        late
    }

    /// Waits until the requests of the last attack are answered.
    async fn calm_down(&mut self) {
        for _ in 0..MAX_CALM_INTERVALS {
            sleep(self.scale.alone / 2).await;
            let late = self.take_late();
            if late.count() > 0 && late.error_count == 0 && late.percentile(99) < CALM_P99_MS {
                break;
            }
        }
    }

    async fn all_phases(&mut self) {
        let chosen = std::mem::take(&mut self.chosen);
        if !chosen.is_empty() {
            let titles: Vec<_> = chosen.iter().map(|it| it.title(self.scale)).collect();
            return self.phase(titles.join(", "), &chosen, 1).await;
        }
        for attack in Attack::ALL {
            // One attack in three has a kill.
            let kills = u32::from(self.random.below(3) == 0);
            self.phase(attack.title(self.scale), &[attack], kills).await;
        }
        self.phase("all together".to_owned(), &Attack::ALL, 2).await;
    }

    /// Measures the memory until it is back, or until the time is over.
    async fn settle(&self, before_bytes: u64) -> Memory {
        let began = Instant::now();
        loop {
            let end_bytes = self.fixture.memory.now();
            let memory = Memory {
                before_bytes,
                end_bytes,
            };
            if memory.is_back() || began.elapsed() >= self.scale.settle {
                return memory;
            }
            sleep(SAMPLE_INTERVAL).await;
        }
    }
}

/// Statuses that an attacker may get: successes, refusals, and those of an overloaded service.
fn is_documented(status: u16) -> bool {
    matches!(status, 0 | 101 | 200..=299 | 400..=499 | 503 | 507)
}

fn undocumented(rows: &[Row]) -> BTreeMap<u16, u64> {
    let all = rows.iter().flat_map(|row| &row.statuses);
    let odd = all.filter(|(status, _)| !is_documented(**status));
    odd.map(|(status, count)| (*status, *count)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn normal_users_are_served_right_beside_hostile_ones() {
    raise_file_limit();
    let options = Options::from_environment();
    let scale = options.scale();
    // The short form runs on busy machines, in debug builds, where a long wait for the store is not an error.
    let wait = options.minutes.is_none().then_some("60s");
    let fixture = Fixture::start(scale, wait).await;
    let mut run = Run::new(fixture, scale, &options);
    let normal = normal::spawn(&run.fixture.normal, &run.shared, options.seed);
    // After serving normal users, the service has its program and its caches in memory.
    sleep(scale.alone).await;
    let before = run.fixture.memory.now();
    run.fixture.prepare_attacks(scale).await;
    let sandboxes = run.fixture.attackers.iter().map(|it| it.sandbox.clone());
    let lowered = lower_attacker_priority(sandboxes.collect(), run.fixture.service.data_dir());
    let memory = Arc::clone(&run.fixture.memory);
    let memory = tokio::select! {
        () = run.all_phases() => run.settle(before).await,
        () = memory.sample() => unreachable!("it samples until it is dropped"),
        () = lowered => unreachable!("it goes on until it is dropped"),
    };
    run.shared.is_over.store(true, Ordering::Relaxed);
    let ended = tokio::task::block_in_place(|| normal.join());
    assert!(ended.is_ok(), "the normal users go on until they are told");
    let _ = run.take_late();
    if let Some(runtime) = run.runtime.take() {
        runtime.shutdown_background();
    }
    let table = table(&run.rows, memory);
    print_line(&table);
    let alive = run.fixture.normal[0].client().get("/ready").await;
    assert_eq!(alive.status, 200, "{alive:?}");
    assert_eq!(run.context.tally.leaks(), [""; 0]);
    let odd = undocumented(&run.rows);
    assert!(odd.is_empty(), "attackers were answered {odd:?}:\n{table}");
    let errors: usize = run.rows.iter().map(|row| row.beside.error_count).sum();
    assert_eq!(errors, 0, "normal users met errors:\n{table}");
    if options.minutes.is_some() {
        let broken: Vec<_> = run.rows.iter().flat_map(Row::broken_bounds).collect();
        assert!(
            broken.is_empty() && memory.is_back(),
            "bounds are broken:\n{table}"
        );
    }
}
