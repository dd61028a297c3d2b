//! Eight users start, pause, resume and delete containers in a pseudorandom order while the service is killed repeatedly. No
//! acknowledged change is lost, and in the end no resource remains.
//!
//! A short form runs with the other suites; `cargo xtask soak --sandboxes 200 --kills 20 --seed 42` is the long one. The seed
//! determines requests and kills, not the scheduling of the machine, so a failure may need several runs to appear again.

mod end;
mod sandbox_life;
mod seeded_random;
mod soak_client;
mod user_loop;

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use acceptance::processes::resident_bytes;
use acceptance::{Sandboxing, Service, Stub, print_line};
use futures::future::{join, join_all};

use crate::sandbox_life::SandboxLife;
use crate::seeded_random::{SeededRandom, SoakOptions};
use crate::soak_client::SoakClient;
use crate::user_loop::{SoakUser, UserLoop};

const USERS: usize = 8;
/// Each has at most [`user_loop::MAX_CONCURRENT`] sandboxes at once.
const MAX_USER_LOOPS: usize = 16;
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

#[tokio::test]
async fn killed_services_lose_no_acknowledged_change_and_leave_no_resource() {
    let options = SoakOptions::from_environment();
    let started_at = Instant::now();
    let stub = Stub::new();
    let builder = Service::builder()
        .sandboxing(&Sandboxing::docker())
        .stub(&stub)
        .env("WORKSPACE_SANDBOX__MAX_RUNNING_PER_USER", "10000")
        .env("WORKSPACE_SANDBOX__MAX_RUNNING", "10000");
    let mut service = builder.start().await;
    let users: Vec<SoakUser> = (0..USERS)
        .map(|number| SoakUser::new(service.user(&format!("soak-{number}"))))
        .collect();
    let client = SoakClient::new(&service.url());
    let progress = SoakProgress::default();

    let kept = run_users(&mut service, options, &users, &client, &progress).await;
    let failures = progress.failures.borrow().join("\n\n");
    assert!(failures.is_empty(), "seed {}: {failures}", options.seed);
    let lost = end::compare(&service, &users, &client, kept).await;
    assert!(lost.is_ok(), "seed {}: {}", options.seed, lost.unwrap_err());
    let memory = resident_bytes(service.pid()).unwrap_or_default() >> 20;
    let left = end::assert_nothing_left(&mut service, &users, &client).await;
    assert!(left.is_ok(), "seed {}: {}", options.seed, left.unwrap_err());
    print_line(&format!(
        "soak with seed {}: {} kills, {USERS} users, {} sandboxes, {client}, {} s, {memory} MiB resident; left: no \
         container, volume, network, row or capacity; nothing acknowledged was lost",
        options.seed,
        options.kills,
        options.sandboxes,
        started_at.elapsed().as_secs(),
    ));
}

/// Runs all users and the kills concurrently. Returns the sandboxes that were not deleted.
async fn run_users(
    service: &mut Service,
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
    let (kept, ()) = join(loops, kill_service(service, options, progress)).await;
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

/// Kills the service at pseudorandom moments, some of them during its start.
async fn kill_service(service: &mut Service, options: SoakOptions, progress: &SoakProgress) {
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
        service.restart().await;
        print_line(&format!(
            "kill {} of {} at {} of {all}",
            number + 1,
            options.kills,
            progress.events.get()
        ));
    }
}
