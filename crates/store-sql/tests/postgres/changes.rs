//! What one process commits, another on the same database hears.

use std::sync::Arc;
use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use domain::change::{ChangeFeed, StoreChange};
use domain::conversation::ConversationReport;
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

/// Fails when the change does not come; others are passed over.
async fn hears(changes: &mut BoxStream<'static, StoreChange>, wanted: &StoreChange) {
    let heard = async {
        while let Some(change) = changes.next().await {
            if change == *wanted {
                return;
            }
        }
        panic!("the feed ended");
    };
    let heard = tokio::time::timeout(Duration::from_secs(30), heard).await;
    heard.unwrap_or_else(|_| panic!("{wanted:?} is not heard"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_are_heard_by_other_processes() {
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
    hears(
        &mut changes,
        &StoreChange::StartTaskQueued(fixtures::host()),
    )
    .await;
    let (host, at) = (fixtures::host(), fixtures::at(1));
    let claimed = ports
        .tasks
        .claim(&host, at, fixtures::at(9), ClaimLimit::tasks(1))
        .await;
    let fence = claimed.expect("claimed")[0].fence;
    let step = fixtures::status_update(StartStatus::WaitingForSandbox);
    let advanced = ports.tasks.advance(start.task.id, fence, &step, at).await;
    advanced.expect("advanced");
    hears(&mut changes, &StoreChange::StartTask(start.task.id)).await;
    let (scope, id) = (fixtures::scope("alice"), fixtures::sandbox_id("s"));
    let paused = ports
        .sandboxes
        .set_desired(&scope, &id, DesiredState::Paused, &fixtures::AMPLE_CAPS, at)
        .await;
    paused.expect("paused");
    hears(&mut changes, &StoreChange::Sandbox { id, host }).await;
}

/// Said after the commit and not in it, by the process that stored them to others only.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_events_are_heard_of_by_other_processes() {
    let database = Cluster::shared().database();
    let (one, two) = (open(database.url()).await, open(database.url()).await);
    let (mut own, mut changes) = (one.changes(), two.changes());
    let ports = StorePorts::of(one);
    ports.sandbox("s", "alice").await;
    let row = fixtures::conversation(1, "alice", "s", fixtures::at(0));
    let id = ports.conversation(&row).await;
    let append = async || {
        let batch = [fixtures::event("1", "A", fixtures::at(1))];
        let origin = fixtures::sandbox_id("s");
        let nothing = ConversationReport::default();
        let stored = ports
            .events
            .append(&origin, id, &batch, &nothing, fixtures::at(1));
        stored.await.expect("stored")
    };
    assert_eq!(append().await, AppendOutcome::Stored { new: 1 });
    hears(&mut changes, &StoreChange::Events(vec![id])).await;
    assert_eq!(append().await, AppendOutcome::Stored { new: 0 });
    // Whatever else there was to hear of was heard before this.
    let start = fixtures::start(2, "alice", "s2", fixtures::at(0));
    let stored = ports.tasks.insert(&start, &fixtures::AMPLE_CAPS).await;
    stored.expect("stored");
    let waits = StoreChange::StartTaskQueued(fixtures::host());
    for changes in [&mut own, &mut changes] {
        while let Some(change) = changes.next().await {
            assert!(!matches!(change, StoreChange::Events(_)), "{change:?}");
            if change == waits {
                break;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_connection_is_a_gap_and_then_goes_on() {
    let database = Cluster::shared().database();
    let (one, two) = (open(database.url()).await, open(database.url()).await);
    let mut changes = two.changes();
    let ports = StorePorts::of(one);
    let started = async |number| {
        let start = fixtures::start(number, "alice", &format!("s{number}"), fixtures::at(0));
        let stored = ports.tasks.insert(&start, &fixtures::AMPLE_CAPS).await;
        stored.expect("stored");
    };
    // The gap that every feed begins with is over then.
    started(1).await;
    hears(
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
    hears(&mut changes, &StoreChange::Gap).await;
    started(2).await;
    hears(
        &mut changes,
        &StoreChange::StartTaskQueued(fixtures::host()),
    )
    .await;
}
