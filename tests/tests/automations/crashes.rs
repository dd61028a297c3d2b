//! Kills of Postgres, the service and the automations service at seeded moments, while runs come and go.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use acceptance::hostile::Random;
use acceptance::wait::wait_for;
use acceptance::{Client, Postgres, Service, print_line};
use reqwest::Method;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::{API, TIMEOUT, automation, kill_automations, rarely, upload, wait_until_available};

const SEED: u64 = 11;
const MAX_UNFINISHED: usize = 5;
/// Milliseconds between two kills.
const PAUSES: (u64, usize) = (3_000, 9_000);

/// How often each run has started, by the sandboxes in which its script left a file.
struct Executions {
    seen: Arc<Mutex<BTreeMap<String, BTreeSet<PathBuf>>>>,
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Executions {
    /// A script takes two seconds, so none is missed.
    fn watch(data: &Path) -> Self {
        let seen = Arc::<Mutex<BTreeMap<String, BTreeSet<PathBuf>>>>::default();
        let is_over = Arc::<AtomicBool>::default();
        let (into, until, sandboxes) = (seen.clone(), is_over.clone(), data.join("sandboxes"));
        let thread = thread::spawn(move || {
            while !until.load(Ordering::SeqCst) {
                for (run, sandbox) in runs_in(&sandboxes) {
                    let mut seen = into.lock().expect("no panic");
                    seen.entry(run).or_default().insert(sandbox);
                }
                #[expect(clippy::disallowed_methods, reason = "it has this thread to itself")]
                thread::sleep(Duration::from_millis(100));
            }
        });
        Self {
            seen,
            is_over,
            thread,
        }
    }

    fn end(self) -> BTreeMap<String, BTreeSet<PathBuf>> {
        self.is_over.store(true, Ordering::SeqCst);
        self.thread.join().expect("no panic");
        let seen = self.seen.lock().expect("no panic");
        seen.clone()
    }
}

/// Pairs of a run and the sandbox in which its script has started.
fn runs_in(sandboxes: &Path) -> Vec<(String, PathBuf)> {
    let entries = |dir: &Path| {
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect::<Vec<_>>()
    };
    let mut found = Vec::new();
    for sandbox in entries(sandboxes) {
        for file in entries(&sandbox.join("workspace")) {
            let name = file.file_name().and_then(|name| name.to_str());
            if let Some(run) = name.and_then(|name| name.strip_prefix("ran-")) {
                found.push((run.to_owned(), sandbox.clone()));
            }
        }
    }
    found
}

/// The response to a request, which is sent again while something does not run.
async fn insist(user: &Client, method: &Method, path: &str) -> Value {
    wait_for("a response", TIMEOUT, || async {
        let answer = user.try_call(method.clone(), path, None).await.ok()?;
        (answer.status < 500).then(|| answer.ok())
    })
    .await
}

async fn all_runs(user: &Client, automation: &str) -> Vec<Value> {
    let mut all = Vec::new();
    loop {
        let path = format!("{API}/{automation}/runs?limit=100&offset={}", all.len());
        let page = insist(user, &Method::GET, &path).await;
        let runs = page["runs"].as_array().cloned().unwrap_or_default();
        let is_last = runs.len() < 100;
        all.extend(runs);
        if is_last {
            return all;
        }
    }
}

fn unfinished(runs: &[Value]) -> usize {
    let is_unfinished =
        |run: &&Value| matches!(run["status"].as_str(), Some("PENDING" | "RUNNING"));
    runs.iter().filter(is_unfinished).count()
}

/// Starts this number of runs, and kills a process this number of times meanwhile. Each run ends, and runs once at most.
pub(crate) async fn end_each_run_once(
    (mut service, postgres): (Service, Postgres),
    runs: usize,
    kills: usize,
) {
    let mut user = service.admin();
    wait_until_available(&user).await;
    let archive = upload(&service, &user).await;
    let automation = automation(&user, &archive, &rarely()).await;
    let executions = Executions::watch(&service.data_dir());
    let mut random = Random::new(SEED, 0);
    let mut pause = || Duration::from_millis(PAUSES.0 + random.below(PAUSES.1) as u64);
    let (mut started, mut killed, mut next_kill) = (0, 0, Instant::now() + pause());
    while started < runs || killed < kills {
        if killed < kills && Instant::now() >= next_kill {
            match killed % 3 {
                0 => {
                    postgres.stop("immediate");
                    postgres.resume();
                }
                1 => {
                    service.kill9();
                    service.restart().await;
                    user = service.admin();
                }
                _ => kill_automations(&service),
            }
            killed += 1;
            // Until then all answer again.
            all_runs(&user, &automation).await;
            next_kill = Instant::now() + pause();
        }
        if started < runs && unfinished(&all_runs(&user, &automation).await) < MAX_UNFINISHED {
            insist(
                &user,
                &Method::POST,
                &format!("{API}/{automation}/dispatch"),
            )
            .await;
            started += 1;
        }
        sleep(Duration::from_millis(200)).await;
    }
    let all = wait_for("the end of all runs", TIMEOUT, || async {
        let all = all_runs(&user, &automation).await;
        (unfinished(&all) == 0).then_some(all)
    })
    .await;
    wait_for("the end of all sandboxes", TIMEOUT, || async {
        user.sandboxes().await.is_empty().then_some(())
    })
    .await;
    assert!(all.len() >= runs, "{} of {runs} runs", all.len());
    let interrupted = assert_ended_once(&all, &executions.end());
    print_line(&format!(
        "{} runs, {kills} kills: {interrupted} failed because a request was cut off",
        all.len()
    ));
}

/// The number of runs that the kill of a request has ended. All others have completed.
fn assert_ended_once(all: &[Value], executions: &BTreeMap<String, BTreeSet<PathBuf>>) -> usize {
    let mut interrupted = 0;
    for run in all {
        let id = run["id"].as_str().unwrap_or_default();
        let places = executions.get(id).map_or(0, BTreeSet::len);
        let detail = &run["status_detail"];
        let text = detail["detail"].as_str().unwrap_or_default();
        if detail["kind"] == "transport" || text.starts_with("Server disconnected") {
            // The service was killed within a request of the automations service, which does not repeat it.
            assert_eq!(run["status"], "FAILED", "{run}");
            assert!(places <= 1, "{id} ran in {places} sandboxes");
            interrupted += 1;
        } else {
            assert_eq!(run["status"], "COMPLETED", "{run}");
            assert_eq!(places, 1, "{id} ran in {places} sandboxes");
        }
    }
    interrupted
}
