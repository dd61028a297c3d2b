//! Background work: the loops that run beside requests.

use std::sync::Arc;
use std::time::Duration;

use domain::coordination::change::StoreChange;
use domain::error::chain;
use domain::sandbox::{BackendReachability, PrepareProgress};
use futures::StreamExt;

use crate::pending::PendingDelivery;
use crate::runtime::housekeeping::Housekeeping;
use crate::runtime::ticker;
use crate::sandboxes::log_failure;
use crate::start::StartService;
use crate::{App, Inner};

/// Interval of polls for start tasks of other processes, without a notification.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

const QUEUE_COUNT_INTERVAL: Duration = Duration::from_secs(5);

/// Starts the loops: start worker, sandbox reconciler (facts and relist), warm pool, syncer, delivery of pending
/// messages, housekeeping. Call once, after the store is open. The loops continue work that an earlier process left
/// unfinished.
pub fn spawn(app: &App) {
    let (inner, tasks) = (&app.inner, &app.inner.tasks);
    let shared = || Arc::clone(inner);
    tasks.spawn(watch_facts(shared()));
    tasks.spawn(follow_contact(shared()));
    tasks.spawn(relist_periodically(shared()));
    tasks.spawn(retire_periodically(shared()));
    tasks.spawn(count_queue_periodically(shared()));
    tasks.spawn(inner.warm.clone().run());
    tasks.spawn(follow_changes(shared(), app.starts.clone()));
    tasks.spawn(inner.syncer.clone().run());
    tasks.spawn(PendingDelivery::new(shared()).run());
    let work = app.starts.clone().run_worker();
    tasks.spawn(inner.starting.track_future(work));
    tasks.spawn(app.audit.clone().run());
    tasks.spawn(Housekeeping::new(inner.ports.clone(), inner.policy.clone()).run());
}

/// Prepares the backend (downloads on first use) for the first start. A failure is not fatal: the start that needs the
/// backend reports it.
pub fn prepare(app: &App) {
    let inner = Arc::clone(&app.inner);
    app.inner.tasks.spawn(async move {
        let spec = match inner.ports.specs.list().await {
            Ok(specs) => specs.first().cloned(),
            Err(error) => return tracing::warn!(error = %chain(&error), "cannot list sandbox specs; the backend is not prepared"),
        };
        if let Some(spec) = spec
            && let Err(error) = inner.ports.backend.prepare(&spec.id, &PrepareProgress::silent()).await
        {
            tracing::warn!(error = %chain(&error), "the sandbox backend is not ready; starts will fail until it is");
        }
    });
}

/// Handles facts of the backend: one at a time per sandbox, many sandboxes at once.
async fn watch_facts(inner: Arc<Inner>) {
    let facts = inner.ports.backend.watch();
    facts
        .for_each_concurrent(32, |fact| {
            let reconciler = inner.reconciler.clone();
            async move {
                if let Err(error) = reconciler.note_fact(&fact).await {
                    tracing::warn!(sandbox.id = %fact.id, error = %chain(&error), "cannot record a fact of the backend; the next relist will");
                }
            }
        })
        .await;
}

async fn follow_changes(inner: Arc<Inner>, starts: StartService) {
    let mut changes = inner.ports.changes.changes();
    let mut tick = ticker(POLL_INTERVAL);
    loop {
        tokio::select! {
            Some(change) = changes.next() => apply_change(&inner, &starts, change).await,
            // Notifications may be lost.
            _ = tick.tick() => starts.poll_other_processes().await,
        }
    }
}

async fn apply_change(inner: &Arc<Inner>, starts: &StartService, change: StoreChange) {
    match change {
        StoreChange::StartTaskQueued(host) if host == inner.policy.host => starts.wake(),
        StoreChange::StartTask(id) if inner.updates.list_remote().contains(&id) => {
            starts.poll_other_processes().await;
        }
        StoreChange::Sandbox { id, host } if host == inner.policy.host => {
            // Another process stored a message for the sandbox, or started it.
            inner.syncer.notify_news();
            let reconciler = inner.reconciler.clone();
            inner
                .tasks
                .spawn(async move { log_failure(&id, reconciler.follow(&id).await) });
        }
        StoreChange::Events(ids) => ids.iter().for_each(|id| inner.streams.wake(*id)),
        StoreChange::Gap => {
            inner.streams.wake_all();
            starts.wake();
            inner.syncer.notify_news();
            inner.look_again.notify_one();
        }
        _ => {}
    }
}

/// Follows whether the backend is reachable. After a reconnect everything is compared at once.
async fn follow_contact(inner: Arc<Inner>) {
    let mut contact = inner.ports.backend.watch_reachability();
    while let Some(now) = contact.next().await {
        match &now {
            BackendReachability::Reachable => tracing::info!("the sandbox backend is reachable"),
            BackendReachability::Unreachable { detail } => {
                tracing::warn!(detail, "the sandbox backend is unreachable");
            }
        }
        if let Err(error) = inner.reconciler.note_contact(&now).await {
            tracing::warn!(error = %chain(&error), "cannot annotate sandbox rows; the next relist will");
        }
        if now == BackendReachability::Reachable {
            inner.look_again.notify_one();
        }
    }
}

async fn retire_periodically(inner: Arc<Inner>) {
    let mut tick = ticker(inner.policy.retire_interval);
    // Not at once: first the relist records what happened while the service was down.
    tick.tick().await;
    loop {
        tick.tick().await;
        if let Err(error) = inner.reconciler.retire().await {
            tracing::warn!(error = %chain(&error), "cannot list idle and expired sandboxes; trying again");
        }
    }
}

async fn count_queue_periodically(inner: Arc<Inner>) {
    let mut tick = ticker(QUEUE_COUNT_INTERVAL);
    let (tasks, host) = (&inner.ports.start_tasks, &inner.policy.host);
    loop {
        tick.tick().await;
        match tasks.count_unfinished(host, inner.ports.clock.now()).await {
            Ok(now) => inner.metrics.set_queue(now),
            Err(error) => tracing::debug!(error = %chain(&error), "cannot count unfinished starts"),
        }
    }
}

async fn relist_periodically(inner: Arc<Inner>) {
    let mut tick = ticker(inner.policy.relist_interval);
    // A restart of this process is a gap: sync every running sandbox.
    inner.syncer.request_all().await;
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            () = inner.look_again.notified() => {}
        }
        if let Err(error) = inner.reconciler.annotate_rows().await {
            tracing::debug!(error = %chain(&error), "cannot annotate sandbox rows yet; trying again");
        }
        if inner.reconciler.is_out_of_contact() {
            continue;
        }
        if let Err(error) = inner.reconciler.relist().await {
            tracing::warn!(error = %chain(&error), "cannot compare sandboxes with their rows; trying again");
        }
    }
}
