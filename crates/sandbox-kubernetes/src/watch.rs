//! Follows pods and `Sandbox` resources: wakes operations that wait, and reports what no request caused.
//!
//! Knows: the two streams are not ordered against each other, so an event is only a reason to look. Events may be lost; the
//! service compares all sandboxes from time to time.

use std::sync::Arc;
use std::time::Duration;

use domain::error::chain;
use domain::sandbox::{BackendFact, BackendReachability, BackendState};
use futures::StreamExt as _;
use futures::future::ready;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::DynamicObject;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::backend::KubernetesInner;
use crate::errors::ClusterError;
use crate::names::{POD_UID, text};
use crate::state::{PodPhase, PodState, leaves, phase};

/// Errors of this time make the cluster unreachable. Single ones are usual.
const ERROR_TOLERANCE: Duration = Duration::from_secs(5);
/// Before another attempt after an error that the library does not recover from.
const RESTART_DELAY: Duration = Duration::from_secs(1);
/// Sandboxes that are looked at concurrently.
const MAX_LOOKS: usize = 16;

/// What a change may mean.
enum ObjectChange {
    /// Nothing but a step of a start.
    Step(String),
    /// A pod runs, perhaps in place of another one.
    Runs(Box<ObjectMeta>),
    /// It may be an end.
    End(Box<ObjectMeta>),
}

fn of_pod(event: Event<Pod>) -> Option<ObjectChange> {
    match event {
        Event::Apply(pod) | Event::InitApply(pod) if phase(&pod) == PodPhase::Runs => {
            Some(ObjectChange::Runs(Box::new(pod.metadata)))
        }
        Event::Apply(pod) | Event::InitApply(pod) if phase(&pod) == PodPhase::Ended => {
            Some(ObjectChange::End(Box::new(pod.metadata)))
        }
        Event::Apply(pod) | Event::InitApply(pod) => Some(ObjectChange::Step(pod.metadata.name?)),
        Event::Delete(pod) => Some(ObjectChange::End(Box::new(pod.metadata))),
        Event::Init | Event::InitDone => None,
    }
}

fn of_sandbox(event: Event<DynamicObject>) -> Option<ObjectChange> {
    match event {
        Event::Apply(it) | Event::InitApply(it) if leaves(&it.metadata) => {
            Some(ObjectChange::End(Box::new(it.metadata)))
        }
        Event::Apply(it) | Event::InitApply(it) => Some(ObjectChange::Step(it.metadata.name?)),
        Event::Delete(it) => Some(ObjectChange::End(Box::new(it.metadata))),
        Event::Init | Event::InitDone => None,
    }
}

impl KubernetesInner {
    pub(crate) async fn follow_pods(self: Arc<Self>) {
        let health = Health::new(&self.reachability);
        let change = |event| {
            self.addresses.note(&event, &self.cluster.names);
            of_pod(event)
        };
        self.follow(&self.cluster.pods, change, Some(health)).await;
    }

    pub(crate) async fn follow_sandboxes(self: Arc<Self>) {
        loop {
            match self.cluster.sandboxes().await {
                Ok(Some(sandboxes)) => return self.follow(&sandboxes, of_sandbox, None).await,
                // A service finds a group that is installed later at its next start.
                Ok(None) => return,
                Err(_) => sleep(RESTART_DELAY).await,
            }
        }
    }

    async fn follow<K>(
        self: &Arc<Self>,
        api: &Api<K>,
        change: impl Fn(Event<K>) -> Option<ObjectChange>,
        mut health: Option<Health<'_>>,
    ) where
        K: kube::Resource + Clone + serde::de::DeserializeOwned + std::fmt::Debug + Send + 'static,
    {
        loop {
            let config = watcher::Config::default().labels(&self.cluster.names.selector());
            let events = watcher::watcher(api.clone(), config).default_backoff();
            let changes = events.map(|event| {
                let is_lost = health.as_mut().is_some_and(|it| it.note(&event));
                match event {
                    Ok(event) => Ok(change(event)),
                    Err(error) => {
                        tracing::debug!(error = %chain(&error), "cannot follow the cluster's objects yet");
                        Err(is_lost || is_too_old(&error))
                    }
                }
            });
            // The library repeats a watch of a version that is gone for ever. A watch that it has resumed after an outage tells
            // nothing before the next change, which a service that waits for its cluster does not make: a new one lists at once.
            let until_restart = changes.take_while(|it| ready(!matches!(it, Err(true))));
            until_restart
                .filter_map(|it| ready(it.ok().flatten()))
                .for_each_concurrent(MAX_LOOKS, |change| self.note(change))
                .await;
            sleep(RESTART_DELAY).await;
        }
    }

    async fn note(&self, change: ObjectChange) {
        let (meta, is_end) = match change {
            ObjectChange::Step(name) => return self.changes.report(&name, false),
            ObjectChange::Runs(meta) => (meta, false),
            ObjectChange::End(meta) => (meta, true),
        };
        let name = meta.name.as_deref().unwrap_or_default();
        self.changes.report(name, true);
        if is_end {
            self.look_for_end(&meta).await;
        } else {
            self.note_replacement(&meta).await;
        }
    }

    /// Records and reports a pod that replaced another one.
    async fn note_replacement(&self, meta: &ObjectMeta) {
        let (Some(id), Some(name), Some(uid)) =
            (self.cluster.names.sandbox(meta), &meta.name, &meta.uid)
        else {
            return;
        };
        let Some(former) = self.running_pods.get(name) else {
            // The first one, which a start waits for. All replicas see it: requests of each of them would be many.
            return self.running_pods.insert(name.clone(), uid.clone());
        };
        if former == *uid {
            return;
        }
        // A start that runs now knows its pod afterwards.
        let Ok(_lock) = self.lock(&id).await else {
            return;
        };
        if self.running_pods.get(name).as_ref() == Some(uid) {
            return;
        }
        let Ok(found) = self.look_at(&id).await else {
            return;
        };
        let recorded = found
            .claim
            .as_ref()
            .and_then(|it| text(&it.metadata, POD_UID));
        // Without a record, another service starts it.
        if let (Some(recorded), Some(pod), Some(PodState::Running(endpoints))) =
            (recorded, &found.pod, found.state())
            && recorded != uid
        {
            if let Err(error) = self.remember(name, &found, pod).await {
                tracing::warn!(sandbox.id = %id, error = %chain(&error), "cannot record the pod that replaced another one");
            }
            let state = BackendState::Running(endpoints);
            self.tasks.report(BackendFact { id, state });
        }
        self.running_pods.insert(name.clone(), uid.clone());
    }

    /// Reports what happened to a sandbox, unless an operation of this service did it.
    async fn look_for_end(&self, meta: &ObjectMeta) {
        let Some(id) = self.cluster.names.sandbox(meta) else {
            return;
        };
        // An operation that runs now sees the end by itself.
        let Ok(_lock) = self.lock(&id).await else {
            return;
        };
        let Ok(found) = self.look_at(&id).await else {
            return;
        };
        let state = match found.state() {
            Some(state @ (PodState::Exited(_) | PodState::Remains)) => {
                let detail = self.describe(&found).await;
                state.into_backend(detail)
            }
            None if !self.removed.contains_key(&id) => BackendState::Absent,
            // Requested, or by the controller in the middle of something.
            _ => return,
        };
        self.tasks.report(BackendFact { id, state });
    }
}

fn is_too_old(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::WatchStartFailed(kube::Error::Api(status)) if status.code == 410)
}

/// Whether the API server answers, from a watch of it.
struct Health<'a> {
    reachability: &'a watch::Sender<Option<BackendReachability>>,
    /// The first error since the last event.
    failing: Option<Instant>,
}

impl<'a> Health<'a> {
    fn new(reachability: &'a watch::Sender<Option<BackendReachability>>) -> Self {
        Self {
            reachability,
            failing: None,
        }
    }

    /// Whether the cluster is lost.
    fn note<K>(&mut self, event: &watcher::Result<Event<K>>) -> bool {
        let error = match event {
            // Before the first request.
            Ok(Event::Init) => return false,
            Ok(_) => {
                self.failing = None;
                self.set(BackendReachability::Reachable);
                return false;
            }
            Err(error) => error,
        };
        let since = *self.failing.get_or_insert_with(Instant::now);
        let is_known = self.reachability.borrow().is_some();
        if is_known && since.elapsed() < ERROR_TOLERANCE {
            return false;
        }
        let detail = match error {
            watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error) => {
                describe(error)
            }
            _ => "the API server of the cluster does not answer".to_owned(),
        };
        self.set(BackendReachability::Unreachable { detail });
        true
    }

    fn set(&self, now: BackendReachability) {
        self.reachability.send_if_modified(|current| {
            let is_new = current.as_ref() != Some(&now);
            *current = Some(now);
            is_new
        });
    }
}

/// Of a request that only the error is left of.
fn describe(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => {
            let status = kube::Error::Api(status.clone());
            ClusterError::new("listing the pods", status).detail()
        }
        _ => "the API server of the cluster does not answer".to_owned(),
    }
}
