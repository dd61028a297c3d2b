//! Several services on one cluster, of which any may be killed at any moment: nothing is lost, double or left.

use std::sync::Arc;

use domain::sandbox::{SandboxLaunch, SandboxLifecycle as _};
use fake_kubernetes::FakeCluster;
use sandbox_kubernetes::KubernetesSandboxes;
use tokio::runtime::Runtime;
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use crate::support::{is_empty, launch, open, open_at};

const SERVICES: usize = 3;

/// A generator with a seed (xorshift), so that a failure can be repeated.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit as u64).unwrap()
    }
}

#[derive(Clone, Copy)]
enum Operation {
    Start,
    Stop,
    Remove,
}

/// A sandbox, with the lease under which one service at a time acts on it.
type Leased = (SandboxLaunch, Arc<Mutex<()>>);

async fn run(backend: Arc<KubernetesSandboxes>, sandbox: Leased, operation: Operation) {
    let (launch, lease) = sandbox;
    let _lease = lease.lock().await;
    // It may not exist, and the service may be killed.
    let _ = match operation {
        Operation::Start => backend.start(&launch).await.map(drop),
        Operation::Stop => backend.stop(&launch.id).await,
        Operation::Remove => backend.remove(&launch.id).await,
    };
}

/// Lets services work on the same sandboxes, and kills each of them in the middle of its operations.
async fn soak(has_sandboxes: bool, sandboxes: usize, kills: usize, seed: u64) {
    let cluster = FakeCluster::start(has_sandboxes).await;
    let launches: Vec<Leased> = (0..sandboxes).map(|_| (launch(), Arc::default())).collect();
    let mut random = Random(seed);
    for _ in 0..kills.div_ceil(SERVICES) {
        let mut services = Vec::new();
        for _ in 0..SERVICES {
            let work = work(&mut random, &launches);
            let (url, runtime) = (cluster.url(), Runtime::new().unwrap());
            let ended = runtime.spawn(async move {
                let backend = Arc::new(open_at(url, "host").await);
                let mut running = JoinSet::new();
                for (sandbox, operation) in work {
                    running.spawn(run(Arc::clone(&backend), sandbox, operation));
                }
                while running.join_next().await.is_some() {}
            });
            services.push((runtime, ended));
        }
        for (runtime, ended) in services {
            let lives = cluster.changes() + random.below(sandboxes);
            tokio::select! {
                () = cluster.wait_for_changes(lives) => {}
                ended = ended => ended.unwrap(),
            }
            runtime.shutdown_background();
        }
    }
    // The next service finds what is left, also of requests that were on their way.
    let last = open(&cluster, "host").await;
    while !is_empty(&cluster) {
        for fact in last.list().await.unwrap() {
            let is_known = launches.iter().any(|(launch, _)| launch.id == fact.id);
            assert!(is_known, "{fact:?}");
            last.remove(&fact.id).await.unwrap();
        }
        tokio::task::yield_now().await;
    }
}

fn work(random: &mut Random, launches: &[Leased]) -> Vec<(Leased, Operation)> {
    let operations = [
        Operation::Start,
        Operation::Start,
        Operation::Stop,
        Operation::Remove,
    ];
    (0..launches.len())
        .map(|_| {
            let launch = &launches[random.below(launches.len())];
            (launch.clone(), operations[random.below(operations.len())])
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_services_leave_nothing() {
    for (has_sandboxes, seed) in [(true, 0x5eed), (false, 0x5eee)] {
        soak(has_sandboxes, 20, 9, seed).await;
    }
}

/// `cargo nextest run -p sandbox-kubernetes --run-ignored only`, a part of `cargo xtask nightly`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a part of `cargo xtask nightly`"]
async fn killed_services_leave_nothing_of_many_sandboxes() {
    for (has_sandboxes, seed) in [(true, 0xbeed), (false, 0xbeee)] {
        soak(has_sandboxes, 500, 21, seed).await;
    }
}
