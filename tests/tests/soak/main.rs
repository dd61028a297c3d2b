//! Eight users start, pause, resume and delete sandboxes in a pseudorandom order while services are killed repeatedly. No
//! acknowledged change is lost, and in the end no resource remains. Sandboxes are containers of one service, or pods of a
//! simulated cluster with three services on one Postgres.
//!
//! A short form runs with the other suites; `cargo xtask soak --sandboxes 500 --kills 20 --seed 42` is a long one. The seed
//! determines requests and kills, not the scheduling of the machine, so a failure may need several runs to appear again.

mod end;
mod place;
mod sandbox_life;
mod seeded_random;
mod soak_client;
mod user_loop;

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use acceptance::processes::resident_bytes;
use acceptance::{Builder, Cluster, Postgres, Sandboxing, Service, Stub, print_line};
use futures::future::{join, join_all};

use crate::place::Place;
use crate::sandbox_life::SandboxLife;
use crate::seeded_random::{SeededRandom, SoakOptions};
use crate::soak_client::SoakClient;
use crate::user_loop::{SoakUser, UserLoop};

const USERS: usize = 8;
/// Each has at most [`user_loop::MAX_CONCURRENT`] sandboxes at once.
const MAX_USER_LOOPS: usize = 16;
const REPLICAS: usize = 3;
/// Maximum additional delay of a kill.
const MAX_KILL_DELAY_MILLIS: usize = 400;

/// The progress of all users.
#[derive(Default)]
struct SoakProgress {
    /// Started sandboxes plus finished ones: twice the number of sandboxes in the end.
    events: Cell<usize>,
    is_over: Cell<bool>,
    failures: RefCell<Vec<String>>,
}

fn without_caps(builder: Builder) -> Builder {
    builder
        .env("WORKSPACE_SANDBOX__MAX_RUNNING_PER_USER", "10000")
        .env("WORKSPACE_SANDBOX__MAX_RUNNING", "10000")
}

#[tokio::test]
async fn a_killed_service_loses_no_acknowledged_change_and_leaves_no_container() {
    let stub = Stub::new();
    let builder = Service::builder().sandboxing(&Sandboxing::docker());
    let service = without_caps(builder.stub(&stub)).start().await;
    let place = Place::engine_of(&service);
    soak(vec![service], &place).await;
}

#[tokio::test]
async fn killed_replicas_lose_no_acknowledged_change_and_leave_no_object_of_a_cluster() {
    let (cluster, postgres) = (Cluster::start(true).await, Postgres::start());
    let stub = Stub::new();
    let mut services = Vec::new();
    for _ in 0..REPLICAS {
        let builder = cluster
            .with_stub(Service::builder(), &stub)
            .env("WORKSPACE_SANDBOX__HOST", "cluster")
            .postgres(&postgres);
        services.push(without_caps(builder).start().await);
    }
    let place = Place::Cluster { cluster, postgres };
    soak(services, &place).await;
}

async fn soak(mut services: Vec<Service>, place: &Place) {
    let options = SoakOptions::from_environment();
    let started_at = Instant::now();
    let users: Vec<SoakUser> = (0..USERS)
        .map(|number| SoakUser::new(services[0].user(&format!("soak-{number}"))))
        .collect();
    let client = SoakClient::new(&services);
    let progress = SoakProgress::default();

    let kept = run_users(&mut services, options, &users, &client, &progress).await;
    let failures = progress.failures.borrow().join("\n\n");
    assert!(failures.is_empty(), "seed {}: {failures}", options.seed);
    if let Err(lost) = end::compare(&services, place, &users, &client, kept).await {
        panic!("seed {}: {lost}", options.seed);
    }
    let memory = services
        .iter()
        .map(|it| resident_bytes(it.pid()).unwrap_or_default());
    let memory = memory.max().unwrap_or_default() >> 20;
    if let Err(left) = end::assert_nothing_left(&mut services, place, &users, &client).await {
        panic!("seed {}: {left}", options.seed);
    }
    print_line(&format!(
        "soak with seed {}: {} services, {} kills, {USERS} users, {} sandboxes, {client}, {} s, at most {memory} MiB \
         resident; left: no object, row or capacity; nothing acknowledged was lost",
        options.seed,
        services.len(),
        options.kills,
        options.sandboxes,
        started_at.elapsed().as_secs(),
    ));
}

/// Runs all users and the kills concurrently. Returns the sandboxes that were not deleted.
async fn run_users(
    services: &mut [Service],
    options: SoakOptions,
    users: &[SoakUser],
    client: &SoakClient,
    progress: &SoakProgress,
) -> Vec<SandboxLife> {
    let count = MAX_USER_LOOPS.min(options.sandboxes.div_ceil(3)).max(1);
    let loops = (0..count).map(|number| {
        let share = options.sandboxes / count + usize::from(number < options.sandboxes % count);
        let user_loop = UserLoop::new(
            client,
            &users[number % users.len()],
            SeededRandom::new(options.seed, number),
            share,
        );
        run(user_loop, progress)
    });
    let loops = async {
        let kept = join_all(loops).await;
        progress.is_over.set(true);
        kept.into_iter().flatten().collect()
    };
    let (kept, ()) = join(loops, kill_services(services, options, progress)).await;
    kept
}

async fn run(mut user_loop: UserLoop<'_>, progress: &SoakProgress) -> Vec<SandboxLife> {
    while !progress.is_over.get() {
        match user_loop.step().await {
            Ok(Some(events)) => progress.events.set(progress.events.get() + events),
            Ok(None) => break,
            Err(failure) => {
                print_line(&failure);
                progress.failures.borrow_mut().push(failure);
                progress.is_over.set(true);
            }
        }
    }
    user_loop.into_lives()
}

/// Kills one of the services at pseudorandom moments, some of them during its start.
async fn kill_services(services: &mut [Service], options: SoakOptions, progress: &SoakProgress) {
    let mut dice = SeededRandom::new(options.seed, usize::MAX);
    let all = 2 * options.sandboxes;
    let mut moments: Vec<usize> = (0..options.kills).map(|_| 1 + dice.roll(all - 2)).collect();
    moments.sort_unstable();
    for (number, moment) in moments.into_iter().enumerate() {
        while progress.events.get() < moment && !progress.is_over.get() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // A failure ends the test early.
        if !progress.failures.borrow().is_empty() {
            return;
        }
        let delay = u64::try_from(dice.roll(MAX_KILL_DELAY_MILLIS)).unwrap_or(0);
        tokio::time::sleep(Duration::from_millis(delay)).await;
        let killed = dice.roll(services.len());
        services[killed].restart().await;
        print_line(&format!(
            "kill {} of {} at {} of {all}",
            number + 1,
            options.kills,
            progress.events.get()
        ));
    }
}
