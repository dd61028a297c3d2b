//! Change notifications between processes on the same database.

use std::sync::Arc;
use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use domain::conversation::ConversationReport;
use domain::coordination::change::{ChangeFeed, StoreChange};
use domain::event::AppendOutcome;
use domain::sandbox::DesiredState;
use domain::start_task::{ClaimLimit, StartStatus};
use futures::stream::{BoxStream, StreamExt};
use port_conformance::{StorePorts, fixtures};
use store_sql::{SqlStore, StoreConfig};
use tokio::runtime::Handle;

use crate::cluster::Cluster;

async fn open(url: String) -> Arc<SqlStore> {
    let store = SqlStore::open(StoreConfig::new(url), Handle::current()).await;
    store.expect("open")
}

/// Waits for this change and skips others. Fails if it does not arrive.
async fn expect_change(changes: &mut BoxStream<'static, StoreChange>, expected: &StoreChange) {
    let arrival = async {
        while let Some(change) = changes.next().await {
            if change == *expected {
                return;
            }
        }
        panic!("the feed ended");
    };
    let arrived = tokio::time::timeout(Duration::from_secs(30), arrival).await;
    arrived.unwrap_or_else(|_| panic!("{expected:?} did not arrive"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_processes_are_notified_of_commits() {
    let database = Cluster::shared().database();
    let (one, two) = (open(database.url()).await, open(database.url()).await);
    let mut changes = two.changes();
    let ports = StorePorts::of(one);
    let start = fixtures::start(1, "alice", "s", fixtures::at(0));
    ports
        .tasks
        .insert(&start, &fixtures::AMPLE_CAPS)
        .await
        .expect("stored");
    expect_change(
        &mut changes,
        &StoreChange::StartTaskQueued(fixtures::host()),
    )
    .await;
    let (host, at) = (fixtures::host(), fixtures::at(1));
    let claimed = ports
        .start_queue
        .claim(&host, at, fixtures::at(9), ClaimLimit::tasks(1))
        .await;
    let fence = claimed.expect("claimed")[0].fence;
    let step = fixtures::status_update(StartStatus::WaitingForSandbox);
    let advanced = ports
        .start_queue
        .advance(start.task.id, fence, &step, at)
        .await;
    advanced.expect("advanced");
    expect_change(&mut changes, &StoreChange::StartTask(start.task.id)).await;
    let (scope, id) = (fixtures::scope("alice"), fixtures::sandbox_id("s"));
    let paused = ports
        .sandboxes
        .set_desired(&scope, &id, DesiredState::Paused, &fixtures::AMPLE_CAPS, at)
        .await;
    paused.expect("paused");
    let change = StoreChange::Sandbox {
        id,
        host,
        is_wanted: false,
    };
    expect_change(&mut changes, &change).await;
}

/// The process that stored events notifies only others, after the commit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_processes_are_notified_of_new_events() {
    let database = Cluster::shared().database();
    let (one, two) = (open(database.url()).await, open(database.url()).await);
    let (mut own, mut changes) = (one.changes(), two.changes());
    let ports = StorePorts::of(one);
    ports.insert_sandbox("s", "alice").await;
    let row = fixtures::conversation(1, "alice", "s", fixtures::at(0));
    let id = ports.insert_conversation(&row).await;
    let append = async || {
        let batch = [fixtures::event("1", "A", fixtures::at(1))];
        let origin = fixtures::sandbox_id("s");
        let report = ConversationReport::default();
        let stored = ports
            .events
            .append(&origin, id, &batch, &report, fixtures::at(1));
        stored.await.expect("stored")
    };
    assert_eq!(append().await, AppendOutcome::Stored { new: 1 });
    expect_change(&mut changes, &StoreChange::Events(vec![id])).await;
    assert_eq!(append().await, AppendOutcome::Stored { new: 0 });
    // Earlier notifications arrive before this one.
    let start = fixtures::start(2, "alice", "s2", fixtures::at(0));
    let stored = ports.tasks.insert(&start, &fixtures::AMPLE_CAPS).await;
    stored.expect("stored");
    let queued = StoreChange::StartTaskQueued(fixtures::host());
    for changes in [&mut own, &mut changes] {
        while let Some(change) = changes.next().await {
            assert!(!matches!(change, StoreChange::Events(_)), "{change:?}");
            if change == queued {
                break;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_connection_is_reported_as_a_gap() {
    let database = Cluster::shared().database();
    let (one, two) = (open(database.url()).await, open(database.url()).await);
    let mut changes = two.changes();
    let ports = StorePorts::of(one);
    let started = async |number| {
        let start = fixtures::start(number, "alice", &format!("s{number}"), fixtures::at(0));
        let stored = ports.tasks.insert(&start, &fixtures::AMPLE_CAPS).await;
        stored.expect("stored");
    };
    // Every feed begins with a gap, which is consumed here.
    started(1).await;
    expect_change(
        &mut changes,
        &StoreChange::StartTaskQueued(fixtures::host()),
    )
    .await;
    let mut conn = diesel::PgConnection::establish(&database.url()).expect("connect");
    conn.batch_execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
         WHERE datname = current_database() AND query LIKE 'LISTEN%'",
    )
    .expect("ended");
    expect_change(&mut changes, &StoreChange::Gap).await;
    started(2).await;
    expect_change(
        &mut changes,
        &StoreChange::StartTaskQueued(fixtures::host()),
    )
    .await;
}
