//! A Kubernetes cluster in this process, for tests of the backend: an API server, the controller of `Sandbox` resources, and a
//! node on which pods run in name only.
//!
//! Knows: how API servers number, validate, list, watch and delete objects, and what the controller of
//! kubernetes-sigs/agent-sandbox 0.5.4 and newer does. Must never know: the backend.
//!
//! It serves HTTP on loopback without credentials. Everything is lost when it is dropped.

mod call;
mod controllers;
mod errors;
mod kind;
mod logs;
mod node;
mod server;
mod store;
mod streams;
mod validation;

use std::collections::BTreeMap;
use std::mem;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use url::Url;

pub use controllers::PodBehavior;
pub use server::Fault;

use kind::Kind;
use server::FaultPlan;
use store::Store;

/// The cluster. It ends when it is dropped.
#[derive(Debug)]
pub struct FakeCluster {
    shared: Arc<Shared>,
    url: Url,
    tasks: Mutex<JoinSet<()>>,
    controllers: Mutex<AbortHandle>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    state: Mutex<ClusterState>,
    /// The last revision, for those that wait for a change.
    revision: watch::Sender<u64>,
}

#[derive(Debug, Default)]
pub(crate) struct ClusterState {
    pub(crate) store: Store,
    pub(crate) logs: logs::PodLogs,
    pub(crate) behavior: PodBehavior,
    pub(crate) faults: FaultPlan,
    /// Whether `Sandbox` resources are served.
    pub(crate) has_sandboxes: bool,
    /// The port of the API server, which no other cluster of this machine has.
    port: u16,
    /// Addresses of pods that were given.
    addresses: u32,
    /// Whether pods are processes.
    pub(crate) has_node: bool,
    /// Why no pod may be created: the text of a quota.
    pub(crate) quota: Option<String>,
    /// Answered requests, by their verb and what they are about.
    pub(crate) requests: BTreeMap<String, u64>,
    /// The way of an answer to its client.
    pub(crate) delay: Duration,
}

impl ClusterState {
    /// An address for a pod: one of this machine's own. The first 255 are those of this cluster alone.
    pub(crate) fn next_address(&mut self) -> String {
        self.addresses += 1;
        let [high, low] = self.port.to_be_bytes();
        let address = u32::from(Ipv4Addr::new(127, high, low, 0)) + self.addresses;
        Ipv4Addr::from(address).to_string()
    }
}

impl FakeCluster {
    /// A cluster with or without the controller of `Sandbox` resources.
    ///
    /// # Panics
    /// If loopback has no free port.
    pub async fn start(has_sandboxes: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.expect("a free port");
        let address = listener.local_addr().expect("a bound socket");
        let state = ClusterState {
            has_sandboxes,
            port: address.port(),
            ..ClusterState::default()
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            revision: watch::Sender::new(0),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(server::serve(listener, Arc::clone(&shared)));
        let controllers = tasks.spawn(controllers::run(Arc::clone(&shared)));
        Self {
            shared,
            url: format!("http://{address}/").parse().expect("a valid URL"),
            tasks: Mutex::new(tasks),
            controllers: Mutex::new(controllers),
        }
    }

    /// Runs pods as processes of this machine from now on, with claims as directories in `claims`. Where they mount them must
    /// be a directory.
    pub fn run_processes(&self, claims: PathBuf) {
        self.change(|state| state.has_node = true);
        let node = node::run(Arc::clone(&self.shared), claims);
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.spawn(node);
    }

    /// The address of the API server.
    pub fn url(&self) -> Url {
        self.url.clone()
    }

    /// What pods do from now on.
    pub fn set_behavior(&self, behavior: PodBehavior) {
        self.change(|state| {
            state.behavior = behavior;
            state.store.control_all();
        });
    }

    /// Refuses pods with this text of a quota, or no longer.
    pub fn set_quota(&self, text: Option<&str>) {
        self.change(|state| {
            state.quota = text.map(str::to_owned);
            state.store.control_all();
        });
    }

    /// Lets answers take this time to their clients.
    pub fn set_delay(&self, delay: Duration) {
        self.change(|state| state.delay = delay);
    }

    /// Requests since the start, by verb and object, such as `GET pods`; also `LIST` and `WATCH`.
    pub fn requests(&self) -> BTreeMap<String, u64> {
        self.state().requests.clone()
    }

    /// Fails the request after this number of requests that change something.
    pub fn fail_change(&self, after: usize, fault: Fault) {
        self.change(|state| state.faults = FaultPlan::new(after, fault));
    }

    /// Waits until this number of requests that change something was counted by [`changes`](Self::changes).
    pub async fn wait_for_changes(&self, number: usize) {
        let mut changed = self.shared.subscribe();
        while self.changes() < number && changed.changed().await.is_ok() {}
    }

    /// Lets requests that change something wait after this number of them, until [`release`](Self::release).
    pub fn hold_changes(&self, after: usize) {
        self.change(|state| state.faults = FaultPlan::holding(after));
    }

    /// Waits until a request waits.
    pub async fn wait_until_held(&self) {
        let mut changed = self.shared.subscribe();
        while self.state().faults.held == 0 && changed.changed().await.is_ok() {}
    }

    /// Refuses the requests that wait, and answers further ones.
    pub fn release(&self) {
        self.change(|state| state.faults = FaultPlan::default());
    }

    /// Ends the controllers wherever they are, and starts them again.
    pub fn restart_controllers(&self) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        let next = tasks.spawn(controllers::run(Arc::clone(&self.shared)));
        let running = self.controllers.lock();
        mem::replace(&mut *running.unwrap_or_else(PoisonError::into_inner), next).abort();
    }

    /// Closes all connections and accepts no more.
    pub async fn stop(&self) {
        let mut tasks = {
            let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
            mem::take(&mut *tasks)
        };
        // A task that is only aborted may still answer.
        tasks.shutdown().await;
    }

    /// Requests that changed something, or tried to, since the last call of [`fail_change`](Self::fail_change).
    pub fn changes(&self) -> usize {
        self.state().faults.seen()
    }

    /// Forgets the history of objects: watches of earlier versions are too old.
    pub fn compact(&self) {
        self.change(|state| state.store.compact());
    }

    /// Ends the process of a sandbox's pod, found by the annotation `agent-workspace/sandbox`.
    ///
    /// # Panics
    /// Without such a pod.
    pub fn end_process(&self, sandbox: &str, exit_code: i32) {
        self.change(|state| controllers::end_process(state, sandbox, exit_code));
    }

    /// Writes a line to the log of a sandbox's pod.
    ///
    /// # Panics
    /// Without such a pod.
    pub fn write_log_line(&self, sandbox: &str, line: &str) {
        self.change(|state| {
            let pod = controllers::pod_of(&state.store, sandbox).expect("the sandbox has a pod");
            state.logs.write(&pod, line);
        });
    }

    /// Deletes a sandbox's pod as a drain of its node does.
    ///
    /// # Panics
    /// Without such a pod.
    pub fn drain(&self, sandbox: &str) {
        self.change(|state| {
            let pod = controllers::pod_of(&state.store, sandbox).expect("the sandbox has a pod");
            controllers::delete_pod(&mut state.store, &pod);
        });
    }

    /// All objects of a plural name, such as `pods`.
    ///
    /// # Panics
    /// For an unknown name.
    pub fn objects(&self, plural: &str) -> Vec<Value> {
        let kind = Kind::of_plural(plural).expect("a kind that the cluster knows");
        let state = self.state();
        state.store.of_kind(kind).cloned().collect()
    }

    fn state(&self) -> MutexGuard<'_, ClusterState> {
        self.shared.state()
    }

    fn change(&self, change: impl FnOnce(&mut ClusterState)) {
        self.shared.change(change);
    }
}

impl Shared {
    pub(crate) fn state(&self) -> MutexGuard<'_, ClusterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, and wakes those that wait for a change.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut ClusterState) -> T) -> T {
        let result = change(&mut self.state());
        self.revision.send_modify(|revision| *revision += 1);
        result
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }
}
