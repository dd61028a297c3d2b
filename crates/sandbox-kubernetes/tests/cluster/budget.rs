//! How many requests the API server gets.

use domain::sandbox::SandboxLifecycle as _;
use fake_kubernetes::FakeCluster;

use crate::support::{Fresh, launch};

/// Of a start, from nothing to a pod that runs, beside the watches.
const MAX_REQUESTS: u64 = 8;

fn requests(cluster: &FakeCluster) -> u64 {
    let all = cluster.requests().into_iter();
    let asked = all.filter(|(what, _)| !what.starts_with("WATCH"));
    asked.map(|(_, count)| count).sum()
}

#[tokio::test]
async fn a_start_takes_few_requests() {
    for has_sandboxes in [true, false] {
        let fresh = Fresh::new(has_sandboxes).await;
        // The first one also learns what the cluster serves.
        fresh.start(&launch()).await.unwrap();
        let before = requests(&fresh.cluster);
        fresh.start(&launch()).await.unwrap();
        let used = requests(&fresh.cluster) - before;
        assert!(
            (1..=MAX_REQUESTS).contains(&used),
            "{used}: {:?}",
            fresh.cluster.requests()
        );
    }
}
