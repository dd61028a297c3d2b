//! Background work: the loops that run beside requests.

use std::sync::Arc;
use std::time::Duration;

use domain::coordination::change::{ChangeFeed, StoreChange};
use domain::id::HostId;
use futures::StreamExt;

use crate::App;
use crate::conversations::stream_registry::StreamRegistry;
use crate::pending::PendingDelivery;
use crate::runtime::hosts::HostWatch;
use crate::runtime::housekeeping::Housekeeping;
use crate::runtime::tasks::BackgroundTasks;
use crate::runtime::ticker;
use crate::sandboxes::{SandboxReconciler, log_failure};
use crate::start::{StartService, StartWorker};
use crate::sync::ConversationSyncer;
use crate::warm::WarmSandboxPool;

/// Interval of polls for start tasks of other processes, without a notification.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The loops of this process. [`spawn`] starts them.
pub(crate) struct BackgroundLoops {
    pub(crate) reconciler: SandboxReconciler,
    pub(crate) warm: WarmSandboxPool,
    pub(crate) syncer: ConversationSyncer,
    pub(crate) starts: StartWorker,
    pub(crate) changes: ChangeFollower,
    pub(crate) deliveries: Arc<PendingDelivery>,
    pub(crate) hosts: HostWatch,
    pub(crate) housekeeping: Housekeeping,
}

/// Starts the loops: start worker, sandbox reconciler (facts and relist), warm pool, syncer, delivery of pending
/// messages, signs of life of this host, housekeeping. Call once, after the store is open. The loops continue work that an earlier process left
/// unfinished.
pub fn spawn(app: &App) {
    let (loops, tasks) = (&app.loops, &app.tasks);
    loops.reconciler.spawn_loops();
    tasks.spawn(loops.warm.clone().run());
    tasks.spawn(loops.changes.clone().run());
    tasks.spawn(loops.syncer.clone().run());
    tasks.spawn(Arc::clone(&loops.deliveries).run());
    loops.starts.spawn();
    tasks.spawn(app.audit.clone().run());
    tasks.spawn(loops.hosts.clone().run());
    tasks.spawn(loops.housekeeping.clone().run());
}

/// Prepares the backend (downloads on first use) for the first start.
pub fn prepare(app: &App) {
    app.loops.reconciler.prepare_default_spec();
}

/// Follows the changes that other processes commit.
#[derive(Clone)]
pub(crate) struct ChangeFollower {
    pub(crate) changes: Arc<dyn ChangeFeed>,
    pub(crate) host: HostId,
    pub(crate) is_host_shared: bool,
    pub(crate) starts: StartService,
    pub(crate) reconciler: SandboxReconciler,
    pub(crate) syncer: ConversationSyncer,
    pub(crate) streams: StreamRegistry,
    pub(crate) tasks: BackgroundTasks,
}

impl ChangeFollower {
    async fn run(self) {
        let mut changes = self.changes.changes();
        let mut tick = ticker(POLL_INTERVAL);
        loop {
            tokio::select! {
                Some(change) = changes.next() => self.apply(change).await,
                // Notifications may be lost.
                _ = tick.tick() => self.starts.poll_other_processes().await,
            }
        }
    }

    async fn apply(&self, change: StoreChange) {
        match change {
            // A process of a shared host acts on what it accepts itself, without this hint, and finds what another one left when it
            // looks the next time. All of them at once would only compete for it.
            StoreChange::StartTaskQueued(host) if host == self.host && !self.is_host_shared => {
                self.starts.wake();
            }
            StoreChange::StartTask(id) if self.starts.is_followed_remotely(id) => {
                self.starts.poll_other_processes().await;
            }
            StoreChange::Sandbox {
                id,
                host,
                is_wanted,
            } if host == self.host && !(is_wanted && self.is_host_shared) => {
                // Another process stored a message for the sandbox, or started it.
                self.syncer.wake_delivery();
                let reconciler = self.reconciler.clone();
                self.tasks
                    .spawn(async move { log_failure(&id, reconciler.follow(&id).await) });
            }
            StoreChange::Events(ids) => ids.iter().for_each(|id| self.streams.wake(*id)),
            StoreChange::Gap => {
                self.streams.wake_all();
                self.starts.wake();
                self.syncer.wake_delivery();
                self.reconciler.request_relist();
            }
            _ => {}
        }
    }
}
