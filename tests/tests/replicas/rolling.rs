//! Rolling restarts of replicas, as during an upgrade, behind a load balancer.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use acceptance::wait::{wait_for, wait_until};
use acceptance::{Client, Sandboxing};
use futures::future::join_all;
use reqwest::Method;
use serde_json::Value;
use tokio::time::sleep;

use crate::replica_pair::{ReplicaPair, ReplicaRequest, ReplicaUser};

const CONVERSATIONS: &str = "/api/v1/app-conversations";
const USERS: usize = 8;
/// Interval of the load balancer's health checks. One failure removes a replica, one success adds it.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// Much longer than some health checks, also on a busy machine.
const DRAIN_DELAY: &str = "6s";
/// Deadline of all started work.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(90);

/// A load balancer that checks `/ready` of both replicas and sends requests to a ready one. If a replica does not listen,
/// it tries the other one. It never repeats a sent request.
#[derive(Default)]
struct LoadBalancer {
    is_ready: [AtomicBool; 2],
}

impl LoadBalancer {
    /// Checks both replicas while `work` runs.
    async fn during<T>(&self, urls: [String; 2], work: impl Future<Output = T>) -> T {
        let [one, two] = urls;
        tokio::select! {
            result = work => result,
            () = self.check(0, one) => unreachable!("the checks never end"),
            () = self.check(1, two) => unreachable!("the checks never end"),
        }
    }

    async fn check(&self, which: usize, url: String) {
        let probe = Client::new(url, "none");
        loop {
            let ready = probe.try_call(Method::GET, "/ready", None).await;
            let ready = ready.is_ok_and(|answer| answer.status == 200);
            self.is_ready[which].store(ready, Ordering::SeqCst);
            sleep(CHECK_INTERVAL).await;
        }
    }

    fn uses(&self, which: usize) -> bool {
        self.is_ready[which].load(Ordering::SeqCst)
    }

    /// The response, or the failure that a user would see.
    async fn send(
        &self,
        user: &ReplicaUser,
        turn: usize,
        request: &ReplicaRequest,
    ) -> Result<Value, String> {
        let first = if self.uses(turn % 2) { turn } else { turn + 1 };
        for which in [first, first + 1] {
            let body = request.body.as_ref();
            let sent = user
                .client(which)
                .try_repeatable(
                    request.method.clone(),
                    &request.path,
                    body,
                    request.key.as_deref(),
                )
                .await;
            match sent {
                Ok(reply) if reply.status == 200 => return Ok(reply.body),
                Ok(reply) => return Err(format!("{request:?}: {} {}", reply.status, reply.text)),
                // The connection failed, so no request was sent.
                Err(error) if error.is_connect() => {}
                Err(error) => return Err(format!("{request:?}: {error:?}")),
            }
        }
        Err(format!("{request:?}: no replica listens"))
    }
}

/// Reads until the test is over, and starts one or two conversations. Returns their start tasks.
async fn send_requests(
    user: &ReplicaUser,
    number: usize,
    balancer: &LoadBalancer,
    is_over: &AtomicBool,
) -> Vec<String> {
    let mut tasks = Vec::new();
    for turn in 0.. {
        // On a slow machine the first start may come late.
        if is_over.load(Ordering::SeqCst) && !tasks.is_empty() {
            break;
        }
        let read = ReplicaRequest::get(format!("{CONVERSATIONS}/search"));
        let read = balancer.send(user, number + turn, &read).await;
        read.unwrap_or_else(|failure| panic!("{failure}"));
        // At different times, so that some starts are in progress at any time.
        if turn % 100 == number * 12 && tasks.len() < 2 {
            let start = ReplicaRequest::start(&format!("{number}-{turn}"), "hello");
            let task = balancer.send(user, number + turn, &start).await;
            let task = task.unwrap_or_else(|failure| panic!("{failure}"));
            tasks.push(task["id"].as_str().expect("an id").to_owned());
        }
        sleep(Duration::from_millis(40)).await;
    }
    tasks
}

/// Restarts each replica twice, when the balancer uses both.
async fn restart_replicas(pair: &mut ReplicaPair, balancer: &LoadBalancer) {
    for round in 0..4 {
        wait_until("both replicas being used", SETTLE_TIMEOUT, || {
            balancer.uses(0) && balancer.uses(1)
        })
        .await;
        let replica = &mut pair.replicas[round % 2];
        replica.stop().await;
        replica.restart().await;
    }
}

/// Each request succeeds at the first attempt, and each start becomes a conversation.
#[tokio::test]
async fn a_rolling_restart_fails_no_request() {
    let drain = [("WORKSPACE_HTTP__DRAIN_DELAY", DRAIN_DELAY)];
    let mut pair = ReplicaPair::configured(&Sandboxing::UnconfinedProcess, "", &drain).await;
    let mut users = Vec::new();
    for number in 0..USERS {
        users.push(pair.user(&format!("user{number}")).await);
    }
    let balancer = LoadBalancer::default();
    let urls = [pair.replicas[0].url(), pair.replicas[1].url()];
    let is_over = AtomicBool::new(false);
    let loops = users.iter().enumerate();
    let loops = loops.map(|(number, user)| send_requests(user, number, &balancer, &is_over));
    let restarts = async {
        restart_replicas(&mut pair, &balancer).await;
        is_over.store(true, Ordering::SeqCst);
    };
    let all = futures::future::join(join_all(loops), restarts);
    let (tasks, ()) = balancer.during(urls, all).await;
    for (user, tasks) in users.iter().zip(&tasks) {
        for id in tasks {
            let task = wait_for("a finished start", SETTLE_TIMEOUT, || async {
                let task = user.client(1).task(id).await;
                matches!(task.status.as_str(), "READY" | "ERROR").then_some(task)
            })
            .await;
            assert_eq!(task.status, "READY", "{task:?}");
        }
    }
}

/// A stopping replica releases its start tasks at once, so another one continues before the lease expires.
#[tokio::test]
async fn a_stopping_replica_hands_over_its_starts() {
    let mut pair = ReplicaPair::start(&Sandboxing::docker(), "create-hang").await;
    let user = pair.user("ada").await;
    pair.kill(1);
    let id = user
        .send_until_acknowledged(0, &ReplicaRequest::start("hand-over", "hello"))
        .await;
    // The agent server does not answer the first request, so the start stays in progress.
    wait_for("a hanging start", SETTLE_TIMEOUT, || async {
        let task = user.client(0).task(&id).await;
        (task.status == "STARTING_CONVERSATION").then_some(())
    })
    .await;
    pair.replicas[1].restart().await;
    pair.stub.set_faults("");
    pair.replicas[0].stop().await;
    let log = pair.replicas[0].log();
    assert!(
        log.contains("start handed over"),
        "the start was not handed over"
    );
    // The other replica first waits for the result of the former request.
    let task = wait_for(
        "a finished start after the handover",
        SETTLE_TIMEOUT,
        || async {
            let task = user.client(1).task(&id).await;
            matches!(task.status.as_str(), "READY" | "ERROR").then_some(task)
        },
    )
    .await;
    assert_eq!(task.status, "READY", "{task:?}");
}
