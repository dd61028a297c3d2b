//! Replicas that are stopped and started again one after the other, as an operator upgrades them: nobody notices.

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
/// Between two looks of the balancer at a replica. One failure takes it out, one success brings it back.
const CHECK: Duration = Duration::from_millis(50);
/// Much longer than that takes, also on a busy machine.
const DRAIN_DELAY: &str = "6s";
/// Until everything that was begun has ended.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(90);

/// What a load balancer does: asks both replicas whether they are ready, and sends requests to one that is. Where nobody
/// listens it tries the other one; what was sent is never sent again.
#[derive(Default)]
struct LoadBalancer {
    is_in: [AtomicBool; 2],
}

impl LoadBalancer {
    /// Looks at both while this goes on.
    async fn during<T>(&self, urls: [String; 2], work: impl Future<Output = T>) -> T {
        let [one, two] = urls;
        tokio::select! {
            done = work => done,
            () = self.look(0, one) => unreachable!("it looks for ever"),
            () = self.look(1, two) => unreachable!("it looks for ever"),
        }
    }

    async fn look(&self, which: usize, url: String) {
        let probe = Client::new(url, "none");
        loop {
            let ready = probe.try_call(Method::GET, "/ready", None).await;
            let ready = ready.is_ok_and(|answer| answer.status == 200);
            self.is_in[which].store(ready, Ordering::SeqCst);
            sleep(CHECK).await;
        }
    }

    fn has(&self, which: usize) -> bool {
        self.is_in[which].load(Ordering::SeqCst)
    }

    /// The answer, or what the user would have seen go wrong.
    async fn send(
        &self,
        user: &ReplicaUser,
        turn: usize,
        ask: &ReplicaRequest,
    ) -> Result<Value, String> {
        let first = if self.has(turn % 2) { turn } else { turn + 1 };
        for which in [first, first + 1] {
            let body = ask.body.as_ref();
            let sent = user
                .on(which)
                .try_repeatable(ask.method.clone(), &ask.path, body, ask.key.as_deref())
                .await;
            match sent {
                Ok(reply) if reply.status == 200 => return Ok(reply.body),
                Ok(reply) => return Err(format!("{ask:?}: {} {}", reply.status, reply.text)),
                // Nothing was sent.
                Err(error) if error.is_connect() => {}
                Err(error) => return Err(format!("{ask:?}: {error:?}")),
            }
        }
        Err(format!("{ask:?}: no replica listens"))
    }
}

/// Reads until it is over, and starts a conversation now and then, one at least; the tasks.
async fn lives(
    user: &ReplicaUser,
    number: usize,
    balancer: &LoadBalancer,
    is_over: &AtomicBool,
) -> Vec<String> {
    let mut tasks = Vec::new();
    for turn in 0.. {
        // The last ones' turn to begin may come late where everything is slow.
        if is_over.load(Ordering::SeqCst) && !tasks.is_empty() {
            break;
        }
        let read = ReplicaRequest::get(format!("{CONVERSATIONS}/search"));
        let read = balancer.send(user, number + turn, &read).await;
        read.unwrap_or_else(|seen| panic!("{seen}"));
        // At different times, so that some are under way at every moment.
        if turn % 100 == number * 12 && tasks.len() < 2 {
            let start = ReplicaRequest::start(&format!("{number}-{turn}"), "hello");
            let task = balancer.send(user, number + turn, &start).await;
            let task = task.unwrap_or_else(|seen| panic!("{seen}"));
            tasks.push(task["id"].as_str().expect("an id").to_owned());
        }
        sleep(Duration::from_millis(40)).await;
    }
    tasks
}

/// Stops and starts each replica twice, each time as soon as the balancer uses both.
async fn upgrades(pair: &mut ReplicaPair, balancer: &LoadBalancer) {
    for round in 0..4 {
        wait_until("both replicas being used", SETTLE_TIMEOUT, || {
            balancer.has(0) && balancer.has(1)
        })
        .await;
        let replica = &mut pair.replicas[round % 2];
        replica.stop().await;
        replica.restart().await;
    }
}

/// Each request is answered with success, the first time that it is sent, and each start becomes a conversation.
#[tokio::test]
async fn nobody_notices_that_replicas_are_upgraded() {
    let drain = [("WORKSPACE_HTTP__DRAIN_DELAY", DRAIN_DELAY)];
    let mut pair = ReplicaPair::configured(&Sandboxing::Process, "", &drain).await;
    let mut users = Vec::new();
    for number in 0..USERS {
        users.push(pair.user(&format!("user{number}")).await);
    }
    let balancer = LoadBalancer::default();
    let urls = [pair.replicas[0].url(), pair.replicas[1].url()];
    let is_over = AtomicBool::new(false);
    let everybody = users.iter().enumerate();
    let everybody = everybody.map(|(number, user)| lives(user, number, &balancer, &is_over));
    let upgrades = async {
        upgrades(&mut pair, &balancer).await;
        is_over.store(true, Ordering::SeqCst);
    };
    let all = futures::future::join(join_all(everybody), upgrades);
    let (tasks, ()) = balancer.during(urls, all).await;
    for (user, tasks) in users.iter().zip(&tasks) {
        for id in tasks {
            let task = wait_for("the end of a start", SETTLE_TIMEOUT, || async {
                let task = user.on(1).task(id).await;
                matches!(task.status.as_str(), "READY" | "ERROR").then_some(task)
            })
            .await;
            assert_eq!(task.status, "READY", "{task:?}");
        }
    }
}

/// A replica that is stopped gives its starts away at once: it need not come back, and no lease has to run out.
#[tokio::test]
async fn a_replica_that_is_stopped_hands_its_starts_over() {
    let mut pair = ReplicaPair::start(&Sandboxing::docker(), "create-hang").await;
    let user = pair.user("ada").await;
    pair.kill(1);
    let id = user
        .acknowledged(0, &ReplicaRequest::start("hand-over", "hello"))
        .await;
    // It is under way until its agent server answers, and that it does only to whoever asks again.
    wait_for("a start that hangs", SETTLE_TIMEOUT, || async {
        let task = user.on(0).task(&id).await;
        (task.status == "STARTING_CONVERSATION").then_some(())
    })
    .await;
    pair.replicas[1].restart().await;
    pair.stub.set("");
    pair.replicas[0].stop().await;
    let log = pair.replicas[0].log();
    assert!(log.contains("start handed over"), "it is kept");
    // Whoever goes on waits for a while whether the other one's request has made the conversation.
    let task = wait_for("the end of a start handed over", SETTLE_TIMEOUT, || async {
        let task = user.on(1).task(&id).await;
        matches!(task.status.as_str(), "READY" | "ERROR").then_some(task)
    })
    .await;
    assert_eq!(task.status, "READY", "{task:?}");
}
