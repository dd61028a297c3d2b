//! Replicas of the service on one simulated cluster and one Postgres.

use std::time::{Duration, Instant};

use acceptance::wait::wait_until;
use acceptance::{Client, Cluster, Postgres, Service};
use anyhow::ensure;
use benchmarks::SortedTimes;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::sleep_until;

/// Any 32 bytes.
const MASTER_KEY: &str = "QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE=";
/// Until all warm sandboxes have booted.
const WARM_TIMEOUT: Duration = Duration::from_secs(300);
const STREAM: &str = "/api/v1/app-conversations/stream-start";

/// Fields are dropped in order: services end before what they use.
pub(crate) struct Fleet {
    pub(crate) replicas: Vec<Service>,
    /// The keys of the users.
    keys: Vec<String>,
    pub(crate) cluster: Cluster,
    pub(crate) postgres: Postgres,
}

/// Starts of conversations, each timed from the moment when it was due to READY.
pub(crate) struct Starts {
    pub(crate) times: SortedTimes,
    /// The first failure, and their number.
    pub(crate) failure: Option<(String, usize)>,
    /// From the first one to the end of the last one.
    pub(crate) took: Duration,
}

impl Fleet {
    /// Starts replicas that keep this number of sandboxes warm, and waits until they do.
    pub(crate) async fn start(replicas: usize, users: usize, warm: u32) -> anyhow::Result<Self> {
        let (cluster, postgres) = (Cluster::without_processes(true).await, Postgres::start());
        let mut fleet = Self {
            replicas: Vec::new(),
            keys: Vec::new(),
            cluster,
            postgres,
        };
        for _ in 0..replicas {
            let builder = fleet
                .cluster
                .connect(Service::builder())
                .env("WORKSPACE_LOG__LEVEL", "info")
                .env("WORKSPACE_SANDBOX__HOST", "cluster")
                .env("WORKSPACE_SANDBOX__WARM", &warm.to_string())
                .env("WORKSPACE_SANDBOX__MAX_RUNNING", "100000")
                .env("WORKSPACE_SANDBOX__MAX_RUNNING_PER_USER", "100000")
                .env("WORKSPACE_STORAGE__URL", &fleet.postgres.url())
                .env("WORKSPACE_SECRETS__MASTER_KEY", MASTER_KEY);
            fleet.replicas.push(builder.start().await);
        }
        for number in 0..users {
            let user = fleet.replicas[0].user(&format!("user-{number}"));
            user.use_model("openai/m", "http://127.0.0.1:9/v1", "sk-bench")
                .await;
            fleet.keys.push(user.key().to_owned());
        }
        let warm = usize::try_from(warm)?;
        wait_until("the warm sandboxes", WARM_TIMEOUT, || fleet.pods() >= warm).await;
        Ok(fleet)
    }

    /// The number of pods that run.
    pub(crate) fn pods(&self) -> usize {
        let pods = self.cluster.fake.objects("pods");
        let run = pods
            .iter()
            .filter(|pod| pod["status"]["phase"] == "Running");
        run.count()
    }

    /// A user at a replica; each number is another pair.
    fn client(&self, number: usize) -> Client {
        let replica = &self.replicas[number % self.replicas.len()];
        let key = &self.keys[number % self.keys.len()];
        Client::new(replica.url(), key).with_long_timeout()
    }

    /// Starts conversations one after the other.
    pub(crate) async fn start_in_turn(
        &self,
        count: usize,
        pause: Duration,
    ) -> anyhow::Result<Starts> {
        let began = Instant::now();
        let mut ended = Vec::new();
        for number in 0..count {
            ended.push(start(self.client(number), Instant::now()).await);
            tokio::time::sleep(pause).await;
        }
        Ok(Starts::new(ended, began))
    }

    /// Starts conversations at this rate, whether earlier ones have ended or not.
    pub(crate) async fn start_at_rate(
        &self,
        rate: f64,
        duration: Duration,
    ) -> anyhow::Result<Starts> {
        let began = Instant::now();
        let mut running = JoinSet::new();
        let mut number = 0_u32;
        loop {
            let after = Duration::from_secs_f64(f64::from(number) / rate);
            if after >= duration {
                break;
            }
            let due = began + after;
            sleep_until(due.into()).await;
            running.spawn(start(self.client(usize::try_from(number)?), due));
            number += 1;
        }
        let mut all = Vec::new();
        while let Some(ended) = running.join_next().await {
            all.push(ended?);
        }
        Ok(Starts::new(all, began))
    }

    /// Starts conversations over this number of connections until this number of pods run.
    pub(crate) async fn start_until(
        &self,
        pods: usize,
        connections: usize,
    ) -> anyhow::Result<Starts> {
        let began = Instant::now();
        let missing = pods.saturating_sub(self.pods());
        let (mut running, mut all) = (JoinSet::new(), Vec::new());
        for number in 0..missing {
            if running.len() == connections
                && let Some(ended) = running.join_next().await
            {
                all.push(ended?);
            }
            running.spawn(start(self.client(number), Instant::now()));
        }
        while let Some(ended) = running.join_next().await {
            all.push(ended?);
        }
        Ok(Starts::new(all, began))
    }
}

impl Starts {
    fn new(ended: Vec<anyhow::Result<Duration>>, began: Instant) -> Self {
        let took = began.elapsed();
        let (times, failures): (Vec<_>, Vec<_>) = ended.into_iter().partition(Result::is_ok);
        let first = failures.iter().find_map(|it| it.as_ref().err());
        Self {
            failure: first.map(|error| (error.to_string(), failures.len())),
            times: SortedTimes::new(times.into_iter().flatten().collect()),
            took,
        }
    }

    pub(crate) fn count(&self) -> f64 {
        f64::from(u32::try_from(self.times.count()).unwrap_or(u32::MAX))
    }

    pub(crate) fn summary(&self) -> String {
        let at = |percent| self.times.percentile(percent);
        format!(
            "p50 {:.0} ms, p95 {:.0} ms, p99 {:.0} ms",
            at(50),
            at(95),
            at(99)
        )
    }
}

/// Starts a conversation in a sandbox of its own. Returns the time from `due` until it was ready.
async fn start(client: Client, due: Instant) -> anyhow::Result<Duration> {
    let reply = client.post(STREAM, &json!({})).await;
    let last = reply.body.as_array().and_then(|states| states.last());
    ensure!(
        last.is_some_and(|state| state["status"] == "READY"),
        "a start failed with {}: {}",
        reply.status,
        reply.text
    );
    Ok(due.elapsed())
}
