//! Starts sandboxes. A start looks, makes one step, and looks again.

use std::time::Duration;

use domain::id::SandboxId;
use domain::sandbox::{SandboxEndpoints, SandboxError, SandboxLaunch};
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{DynamicObject, ListParams};
use sandbox_provider::authority_of;
use serde_json::json;
use tokio::time::Instant;

use crate::backend::KubernetesInner;
use crate::causes::{Obstacle, progress};
use crate::cluster::{Answer, Found};
use crate::config::{KubernetesSpec, PodEngine};
use crate::errors::{ClusterError, ErrorKind};
use crate::manifest::{DESIRED_RUNNING, DESIRED_STOPPED, RUNNING, SUSPENDED, SandboxManifest};
use crate::names;
use crate::proxy;
use crate::state::{
    PodPhase, PodState, address, advice, describe_end, has_run, leaves, mode, phase,
};

/// Time between two looks that no change caused: the first, and the longest.
const FIRST_LOOK: Duration = Duration::from_secs(1);
const LAST_LOOK: Duration = Duration::from_secs(5);
/// A start that waits longer reads the events of its pod.
const EVENTS_AFTER: Duration = Duration::from_secs(2);

/// What a start does next.
#[derive(Debug, PartialEq, Eq)]
enum StartStep {
    /// The pod runs here.
    Done(SandboxEndpoints),
    /// Nothing of it exists, or only its claim.
    Create,
    /// Its `Sandbox` is suspended.
    Resume,
    /// Its pod ended and stays until it is deleted.
    DeletePod,
    /// Something is on its way.
    Wait,
}

fn start_step(found: &Found, state: Option<&PodState>) -> StartStep {
    let leaves_now = |it: &DynamicObject| leaves(&it.metadata);
    if found.sandbox.as_ref().is_some_and(leaves_now)
        || found.claim.as_ref().is_some_and(|it| leaves(&it.metadata))
    {
        return StartStep::Wait;
    }
    if let Some(PodState::Running(endpoints)) = state {
        return StartStep::Done(endpoints.clone());
    }
    let pod = found.pod.as_ref().map(phase);
    match &found.sandbox {
        _ if found.claim.is_none() => StartStep::Create,
        Some(sandbox) if mode(sandbox) == SUSPENDED => StartStep::Resume,
        // A stop that did not end may have left the pod of an intent to stop.
        None if pod.is_none() || has_stop(found) => StartStep::Create,
        _ if pod == Some(PodPhase::Ended) => StartStep::DeletePod,
        _ => StartStep::Wait,
    }
}

/// Whether the claim says that its plain pod shall end.
fn has_stop(found: &Found) -> bool {
    let claim = found.claim.as_ref();
    claim.and_then(|it| names::text(&it.metadata, names::DESIRED)) == Some(DESIRED_STOPPED)
}

impl KubernetesInner {
    /// The caller holds the lock of this sandbox.
    pub(crate) async fn start(
        &self,
        launch: &SandboxLaunch,
    ) -> Result<SandboxEndpoints, SandboxError> {
        let name = self.cluster.names.of(&launch.id);
        let mut changes = self.changes.subscribe();
        let begin = Instant::now();
        // A pod that ended in this start is not replaced a second time.
        let (mut made, mut replaced) = (false, None);
        let mut found = self.check_owner(&launch.id, self.cluster.look_for_claim(&name).await?)?;
        loop {
            let state = found.state();
            match start_step(&found, state.as_ref()) {
                StartStep::Done(endpoints) => {
                    if let Some(pod) = &found.pod {
                        self.remember(&name, &found, pod).await?;
                    }
                    return Ok(endpoints);
                }
                StartStep::Create => {
                    found = Box::pin(self.create(launch, &found)).await?;
                    made = true;
                }
                StartStep::Resume => {
                    found = Box::pin(self.resume(launch, &found)).await?;
                    made = true;
                }
                StartStep::DeletePod => {
                    let uid = found.pod.as_ref().and_then(|it| it.metadata.uid.clone());
                    if made || (replaced.is_some() && replaced != uid) {
                        return Err(SandboxError::start_failed(self.describe(&found).await));
                    }
                    let delete = self.cluster.delete(
                        "deleting the ended pod",
                        &self.cluster.pods,
                        &name,
                        uid.as_deref(),
                    );
                    delete.await?;
                    replaced = uid;
                }
                StartStep::Wait => {}
            }
            self.check_progress(launch, &found, begin).await?;
            let limit = begin.elapsed().clamp(FIRST_LOOK, LAST_LOOK);
            found = if changes.next_outcome(&name, limit).await {
                // Nothing else of a sandbox that this service starts changes unnoticed for long.
                let pod = self.cluster.pod(&name).await?;
                self.check_owner(&launch.id, Found { pod, ..found })?
            } else {
                self.look_at(&launch.id).await?
            };
        }
    }

    /// Tells what the pod waits for, and gives up if it cannot come up.
    async fn check_progress(
        &self,
        launch: &SandboxLaunch,
        found: &Found,
        begin: Instant,
    ) -> Result<(), SandboxError> {
        let waited = begin.elapsed();
        let events = match &found.pod {
            Some(pod) if waited > EVENTS_AFTER => self.events(pod).await?,
            _ => Vec::new(),
        };
        let obstacle = match (&found.pod, &found.sandbox) {
            (Some(pod), _) => Obstacle::of_pod(pod, &events),
            (None, Some(sandbox)) => Obstacle::of_sandbox(sandbox),
            (None, None) => None,
        };
        if let Some(error) = obstacle.as_ref().and_then(|it| it.give_up(waited)) {
            return Err(error);
        }
        if let Some(obstacle) = &obstacle {
            launch.progress.report(&obstacle.detail());
        } else if let Some(text) = progress(&events) {
            launch.progress.report(text);
        }
        if waited < self.config.start_limit {
            return Ok(());
        }
        Err(SandboxError::unavailable(obstacle.map_or_else(
            || "its pod does not run: the operator has to look at it".to_owned(),
            |it| it.detail(),
        )))
    }

    /// The events of a pod. They only explain, so a service without the right to read them has none.
    async fn events(&self, pod: &Pod) -> Answer<Vec<Event>> {
        let Some(uid) = &pod.metadata.uid else {
            return Ok(Vec::new());
        };
        let of_pod = ListParams::default().fields(&format!("involvedObject.uid={uid}"));
        let events = self.cluster.call("reading the pod's events", || {
            self.cluster.events.list(&of_pod)
        });
        match events.await {
            Ok(list) => Ok(list.items),
            Err(error) if error.kind == ErrorKind::Forbidden => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// Makes what is missing: the claim first, by which a list finds all others. Returns what there is now; another process may
    /// have been faster.
    async fn create(&self, launch: &SandboxLaunch, found: &Found) -> Result<Found, SandboxError> {
        let spec = self.spec(&launch.spec)?;
        let api_version = self
            .cluster
            .resource()
            .await?
            .map(|it| it.api_version.as_str());
        let mut manifest = SandboxManifest {
            api_version: api_version.unwrap_or_default(),
            ..self.manifest(launch, spec)
        };
        let name = self.cluster.names.of(&launch.id);
        let claim = if found.claim.is_some() {
            let new = manifest.annotations();
            let new = new
                .iter()
                .map(|(key, value)| (key.as_str(), Some(value.as_str())));
            let all: Vec<_> = new.chain([(names::POD_UID, None)]).collect();
            self.cluster.annotate(&name, &all).await?
        } else {
            let claim = manifest.claim();
            let claims = &self.cluster.claims;
            let created = self.cluster.create("creating the claim", claims, &claim);
            match created.await.map_err(ClusterError::start_failed)? {
                Some(created) => created,
                None => return self.look_at(&launch.id).await,
            }
        };
        manifest.claim = claim.metadata.uid.as_deref().unwrap_or_default();
        manifest.authority = authority_of(self.config.egress.as_ref(), &launch.id)?;
        manifest.host_addresses = proxy::host_addresses(&self.config, &launch.webhook_url).await?;
        self.write_secret(&manifest, &name).await?;
        match self.create_pod(&manifest).await? {
            Some(made) => Ok(Found {
                claim: Some(claim),
                ..made
            }),
            None => self.look_at(&launch.id).await,
        }
    }

    /// Creates the pod, or the `Sandbox` for which the controller creates it. Returns it, unless it exists.
    async fn create_pod(
        &self,
        manifest: &SandboxManifest<'_>,
    ) -> Result<Option<Found>, SandboxError> {
        let engine = self.cluster.engine().await?;
        let made = match (engine, self.cluster.sandboxes().await?) {
            (PodEngine::AgentSandbox, Some(sandboxes)) => {
                let sandbox = manifest.sandbox();
                let created = self
                    .cluster
                    .create("creating the Sandbox", &sandboxes, &sandbox);
                created.await.map(|created| {
                    created.map(|sandbox| Found {
                        sandbox: Some(sandbox),
                        ..Found::default()
                    })
                })
            }
            (PodEngine::AgentSandbox, None) => {
                return Err(SandboxError::unavailable(
                    "the cluster does not serve Sandbox resources: the operator has to install agent-sandbox 0.5.4 or newer, or to \
                     set kubernetes.engine to pods",
                ));
            }
            (PodEngine::Pods, _) => {
                let pod = manifest.pod();
                let created = self
                    .cluster
                    .create("creating the pod", &self.cluster.pods, &pod);
                created.await.map(|created| {
                    created.map(|pod| Found {
                        pod: Some(pod),
                        ..Found::default()
                    })
                })
            }
        };
        made.map_err(ClusterError::start_failed)
    }

    async fn write_secret(
        &self,
        manifest: &SandboxManifest<'_>,
        name: &str,
    ) -> Result<(), SandboxError> {
        let secret = manifest.secret();
        let written =
            self.cluster
                .apply("writing the Secret", &self.cluster.secrets, name, &secret);
        let written = written.await;
        written.map_err(|error| error.without_message().start_failed())
    }

    /// Lets the controller make a pod for a suspended `Sandbox`. Returns what there is now.
    async fn resume(&self, launch: &SandboxLaunch, found: &Found) -> Result<Found, SandboxError> {
        let name = self.cluster.names.of(&launch.id);
        let claim = found.claim.as_ref().map(|it| &it.metadata);
        let former = claim.and_then(|it| names::text(it, names::PROXY));
        let mut proxy = former.map(str::to_owned);
        // Without its template, the variables of its creation stay.
        if let (Ok(spec), Some(claim)) = (self.spec(&launch.spec), claim) {
            let mut manifest = SandboxManifest {
                claim: claim.uid.as_deref().unwrap_or_default(),
                ..self.manifest(launch, spec)
            };
            // Its pods are made as they were at its creation: without one, nothing writes the certificates.
            manifest.proxy = manifest
                .proxy
                .filter(|_| former.is_some_and(|it| !it.is_empty()));
            self.write_secret(&manifest, &name).await?;
            proxy = manifest.proxy;
        }
        let change = [
            (names::DESIRED, Some(DESIRED_RUNNING)),
            (names::POD_UID, None),
            (names::PROXY, proxy.as_deref()),
        ];
        let claim = self.cluster.annotate(&name, &change).await?;
        match self.set_mode(&name, found, RUNNING).await? {
            Some(sandbox) => Ok(Found {
                claim: Some(claim),
                sandbox: Some(sandbox),
                pod: found.pod.clone(),
            }),
            None => self.look_at(&launch.id).await,
        }
    }

    /// Changes the mode of the `Sandbox` that was found, and returns it. `None` if it has changed: the next look tells.
    pub(crate) async fn set_mode(
        &self,
        name: &str,
        found: &Found,
        mode: &str,
    ) -> Result<Option<DynamicObject>, SandboxError> {
        let (Some(sandboxes), Some(sandbox)) = (self.cluster.sandboxes().await?, &found.sandbox)
        else {
            return Ok(None);
        };
        let change = json!({
            "metadata": {"resourceVersion": sandbox.metadata.resource_version},
            "spec": {"operatingMode": mode},
        });
        let changed = self
            .cluster
            .merge("changing the Sandbox", &sandboxes, name, &change);
        let changed = match changed.await {
            Err(error) if matches!(error.kind, ErrorKind::Conflict | ErrorKind::NotFound) => {
                return Ok(None);
            }
            other => other?,
        };
        if crate::state::mode(&changed) == mode {
            return Ok(Some(changed));
        }
        Err(SandboxError::unavailable(
            "the cluster drops spec.operatingMode of Sandbox resources: the operator has to install the resource definitions of \
             agent-sandbox 0.5.4 or newer",
        ))
    }

    /// Records the pod that runs, so that another one in its place is noticed.
    pub(crate) async fn remember(
        &self,
        name: &str,
        found: &Found,
        pod: &Pod,
    ) -> Result<(), SandboxError> {
        let uid = pod.metadata.uid.as_deref();
        if let Some(uid) = uid {
            self.running_pods.insert(name.to_owned(), uid.to_owned());
        }
        let known = found
            .claim
            .as_ref()
            .and_then(|it| names::text(&it.metadata, names::POD_UID));
        if known == uid {
            return Ok(());
        }
        let change = [(names::POD_UID, uid), (names::POD_IP, address(pod))];
        self.cluster.annotate(name, &change).await?;
        Ok(())
    }

    /// Looks at a sandbox, and refuses foreign objects of its name.
    pub(crate) async fn look_at(&self, id: &SandboxId) -> Result<Found, SandboxError> {
        let name = self.cluster.names.of(id);
        self.check_owner(id, self.cluster.look(&name).await?)
    }

    fn check_owner(&self, id: &SandboxId, found: Found) -> Result<Found, SandboxError> {
        if self.is_ours(id, &found) {
            return Ok(found);
        }
        let name = self.cluster.names.of(id);
        Err(SandboxError::start_failed(format!(
            "the cluster has an object named {name} that does not belong to this installation: the operator has to remove it"
        )))
    }

    /// Whether all of these objects are of this installation.
    pub(crate) fn is_ours(&self, id: &SandboxId, found: &Found) -> bool {
        let all = [
            found.claim.as_ref().map(|it| &it.metadata),
            found.sandbox.as_ref().map(|it| &it.metadata),
            found.pod.as_ref().map(|it| &it.metadata),
        ];
        let own = |meta| self.cluster.names.sandbox(meta).as_ref() == Some(id);
        all.into_iter().flatten().all(own)
    }

    /// Why the process of a sandbox ended, with the end of its log.
    pub(crate) async fn describe(&self, found: &Found) -> String {
        let Some(pod) = &found.pod else {
            return "the agent server ended".to_owned();
        };
        let end = describe_end(pod);
        if !has_run(pod) {
            return format!("the agent server {end}");
        }
        let quoted = self.quote_log(pod).await;
        let text = sandbox_provider::describe_exit(&end, &quoted);
        match advice(pod, &quoted) {
            Some(advice) => format!("{text}\n{advice}"),
            None => text,
        }
    }

    /// What a sandbox needs. Its claim, the version of `Sandbox` resources and its authority may be unknown.
    pub(crate) fn manifest<'a>(
        &'a self,
        launch: &'a SandboxLaunch,
        spec: &'a KubernetesSpec,
    ) -> SandboxManifest<'a> {
        SandboxManifest {
            config: &self.config,
            names: &self.cluster.names,
            spec,
            launch,
            api_version: "",
            claim: "",
            proxy: proxy::address(&self.config, spec, launch),
            host_addresses: Vec::new(),
            authority: String::new(),
        }
    }
}
