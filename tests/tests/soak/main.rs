//! Eight users start, pause, resume and delete containers in an order that a number chooses, while the service is killed
//! again and again: nothing that was acknowledged is lost, and in the end nothing is left.
//!
//! A short form runs with the other suites. `cargo xtask soak --sandboxes 200 --kills 20 --seed 42` is the long one; the
//! number decides what is done and when the service dies, not how the machine schedules it, so a failure may need a few runs
//! to come again.

mod end;
mod sandbox_life;
mod seeded_random;
mod soak_client;
mod user_loop;

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use acceptance::processes::resident;
use acceptance::{Sandboxing, Service, Stub, print_line};
use futures::future::{join, join_all};

use crate::sandbox_life::SandboxLife;
use crate::seeded_random::{SeededRandom, SoakOptions};
use crate::soak_client::SoakClient;
use crate::user_loop::{SoakUser, UserLoop};

const USERS: usize = 8;
/// Each has at most [`lane::MAX_CONCURRENT`] sandboxes at once.
const MAX_USER_LOOPS: usize = 16;
/// After its moment has come, a kill waits for up to so many milliseconds.
const KILL_DELAY: usize = 400;

/// How far the storm is.
#[derive(Default)]
struct SoakProgress {
    /// Sandboxes begun, and lives ended or kept: twice the number of sandboxes in the end.
    events: Cell<usize>,
    is_over: Cell<bool>,
    wrong: RefCell<Vec<String>>,
}

#[tokio::test]
async fn what_was_acknowledged_is_true_and_nothing_is_left_after_a_storm_with_kills() {
    let options = SoakOptions::from_environment();
    let began = Instant::now();
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

    let kept = storm(&mut service, options, &users, &client, &progress).await;
    let wrong = progress.wrong.borrow().join("\n\n");
    assert!(wrong.is_empty(), "seed {}: {wrong}", options.seed);
    let lost = end::compare(&service, &users, &client, kept).await;
    assert!(lost.is_ok(), "seed {}: {}", options.seed, lost.unwrap_err());
    let memory = resident(service.pid()).unwrap_or_default() >> 20;
    let left = end::nothing_is_left(&mut service, &users, &client).await;
    assert!(left.is_ok(), "seed {}: {}", options.seed, left.unwrap_err());
    print_line(&format!(
        "soak with seed {}: {} kills, {USERS} users, {} sandboxes, {client}, {} s, {memory} MiB resident; left: no \
         container, volume, network, row or capacity; nothing acknowledged was lost",
        options.seed,
        options.kills,
        options.sandboxes,
        began.elapsed().as_secs(),
    ));
}

/// All lanes at once, and the kills. Returns the sandboxes that nobody deleted.
async fn storm(
    service: &mut Service,
    options: SoakOptions,
    users: &[SoakUser],
    client: &SoakClient,
    progress: &SoakProgress,
) -> Vec<SandboxLife> {
    let count = MAX_USER_LOOPS.min(options.sandboxes.div_ceil(3)).max(1);
    let lanes = (0..count).map(|number| {
        let share = options.sandboxes / count + usize::from(number < options.sandboxes % count);
        let lane = UserLoop::new(
            client,
            &users[number % users.len()],
            SeededRandom::new(options.seed, number),
            share,
        );
        run(lane, progress)
    });
    let lanes = async {
        let kept = join_all(lanes).await;
        progress.is_over.set(true);
        kept.into_iter().flatten().collect()
    };
    let (kept, ()) = join(lanes, kills(service, options, progress)).await;
    kept
}

async fn run(mut lane: UserLoop<'_>, progress: &SoakProgress) -> Vec<SandboxLife> {
    while !progress.is_over.get() {
        match lane.step().await {
            Ok(Some(events)) => progress.events.set(progress.events.get() + events),
            Ok(None) => break,
            Err(wrong) => {
                print_line(&wrong);
                progress.wrong.borrow_mut().push(wrong);
                progress.is_over.set(true);
            }
        }
    }
    lane.into_lives()
}

/// Kills the service at moments that are spread over the whole storm, some of them while it is still looking around.
async fn kills(service: &mut Service, options: SoakOptions, progress: &SoakProgress) {
    let mut dice = SeededRandom::new(options.seed, usize::MAX);
    let all = 2 * options.sandboxes;
    let mut moments: Vec<usize> = (0..options.kills).map(|_| 1 + dice.roll(all - 2)).collect();
    moments.sort_unstable();
    for (number, moment) in moments.into_iter().enumerate() {
        while progress.events.get() < moment && !progress.is_over.get() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // A storm with something wrong ends early.
        if !progress.wrong.borrow().is_empty() {
            return;
        }
        let delay = u64::try_from(dice.roll(KILL_DELAY)).unwrap_or(0);
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
