//! Stops and removes sandboxes. Each operation looks, makes one step, and looks again.

use std::time::Duration;

use domain::id::SandboxId;
use domain::sandbox::SandboxError;
use k8s_openapi::api::core::v1::Pod;
use tokio::time::Instant;

use crate::backend::KubernetesInner;
use crate::manifest::{DESIRED_STOPPED, SUSPENDED};
use crate::names;
use crate::state::{condition, leaves, mode};

/// For the deletion of objects without a process.
const REMOVAL_LIMIT: Duration = Duration::from_secs(60);
/// Time between two looks that no change caused: the first, and the longest. Claims report no changes.
const FIRST_LOOK: Duration = Duration::from_millis(100);
const LAST_LOOK: Duration = Duration::from_secs(5);

/// The time until the next look: longer, the longer an operation lasts.
fn look_after(begin: Instant) -> Duration {
    begin.elapsed().clamp(FIRST_LOOK, LAST_LOOK)
}

impl KubernetesInner {
    /// The caller holds the lock of this sandbox.
    pub(crate) async fn stop(&self, id: &SandboxId) -> Result<(), SandboxError> {
        let name = self.cluster.names.of(id);
        let mut changes = self.changes.subscribe();
        let begin = Instant::now();
        let deadline = begin + self.config.grace + REMOVAL_LIMIT;
        let mut is_first = true;
        loop {
            let found = self.look_at(id).await?;
            let claim = found.claim.as_ref().ok_or(SandboxError::NotFound)?;
            if std::mem::take(&mut is_first) {
                let change = [
                    (names::DESIRED, Some(DESIRED_STOPPED)),
                    (names::POD_UID, None),
                ];
                let is_done = names::text(&claim.metadata, names::DESIRED) == Some(DESIRED_STOPPED);
                if !is_done {
                    self.cluster.annotate(&name, &change).await?;
                }
            }
            match &found.sandbox {
                Some(sandbox) if leaves(&sandbox.metadata) => {}
                Some(sandbox) if mode(sandbox) != SUSPENDED => {
                    self.set_mode(&name, &found, SUSPENDED).await?;
                }
                Some(sandbox) => {
                    let is_suspended =
                        condition(sandbox, "Suspended").is_some_and(|(status, _)| status == "True");
                    if is_suspended && found.pod.is_none() {
                        return Ok(());
                    }
                }
                None => match &found.pod {
                    Some(pod) if !leaves(&pod.metadata) => self.delete_pod(&name, pod).await?,
                    Some(_) => {}
                    None => return Ok(()),
                },
            }
            if Instant::now() >= deadline {
                return Err(SandboxError::unavailable(
                    "its pod does not end, so its node does not answer: the operator has to repair the node, or to remove it from \
                     the cluster",
                ));
            }
            changes.next(&name, look_after(begin)).await;
        }
    }

    async fn delete_pod(&self, name: &str, pod: &Pod) -> Result<(), SandboxError> {
        let uid = pod.metadata.uid.as_deref();
        let deleted = self
            .cluster
            .delete("deleting the pod", &self.cluster.pods, name, uid);
        Ok(deleted.await?)
    }

    /// The caller holds the lock of this sandbox. The claim is deleted last, because lists find the others by it.
    pub(crate) async fn remove(&self, id: &SandboxId) -> Result<(), SandboxError> {
        let name = self.cluster.names.of(id);
        let mut changes = self.changes.subscribe();
        let begin = Instant::now();
        let deadline = begin + self.config.grace + REMOVAL_LIMIT;
        let mut has_secret = true;
        loop {
            let found = self.cluster.look(&name).await?;
            if !self.is_ours(id, &found) {
                return Ok(());
            }
            match (&found.sandbox, &found.pod, &found.claim) {
                (Some(sandbox), ..) => {
                    if let (false, Some(sandboxes)) =
                        (leaves(&sandbox.metadata), self.cluster.sandboxes().await?)
                    {
                        let uid = sandbox.metadata.uid.as_deref();
                        self.cluster
                            .delete("deleting the Sandbox", &sandboxes, &name, uid)
                            .await?;
                    }
                }
                (None, Some(pod), _) => {
                    if !leaves(&pod.metadata) {
                        self.delete_pod(&name, pod).await?;
                    }
                }
                (None, None, claim) => {
                    if std::mem::take(&mut has_secret) {
                        let secrets = &self.cluster.secrets;
                        self.cluster
                            .delete("deleting the Secret", secrets, &name, None)
                            .await?;
                    }
                    let Some(claim) = claim else {
                        return Ok(());
                    };
                    if !leaves(&claim.metadata) {
                        let uid = claim.metadata.uid.as_deref();
                        self.cluster
                            .delete("deleting the claim", &self.cluster.claims, &name, uid)
                            .await?;
                    }
                }
            }
            if Instant::now() >= deadline {
                return Err(SandboxError::unavailable(
                    "its objects in the cluster are not deleted in time: the service tries again",
                ));
            }
            changes.next(&name, look_after(begin)).await;
        }
    }
}
