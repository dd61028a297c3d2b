//! The controller of `Sandbox` resources, the node, and the garbage collector. A step looks at one object.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::kind::Kind;
use crate::store::{FOREGROUND, ObjectKey, Store, now};
use crate::{ClusterState, Shared};

/// What new pods do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PodBehavior {
    /// They run.
    #[default]
    Run,
    /// No node has room for them.
    Unschedulable,
    /// Their image cannot be pulled, and its name is not valid.
    InvalidImage,
    /// Their process ends at once with this exit code.
    End(i32),
}

/// Acts until the cluster is dropped.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut revision = shared.subscribe();
    loop {
        while shared.control() {}
        if revision.changed().await.is_err() {
            return;
        }
    }
}

impl Shared {
    /// Looks at what has changed. Returns whether that made further changes; only they wake others.
    fn control(&self) -> bool {
        let has_changed = {
            let mut state = self.state();
            let before = state.store.revision;
            for key in state.store.take_to_control() {
                step(&mut state, &key);
            }
            before != state.store.revision
        };
        if has_changed {
            self.change(|_| ());
        }
        has_changed
    }
}

fn step(state: &mut ClusterState, key: &ObjectKey) {
    let (kind, name) = key;
    let Some(object) = state.store.get(*kind, name).cloned() else {
        return;
    };
    // The garbage collector.
    if !state.store.has_owner(&object) && !leaves(&object) {
        return delete(&mut state.store, *kind, name, true);
    }
    match kind {
        Kind::Sandbox => control_sandbox(state, &object),
        Kind::Pod => run_pod(state, object),
        Kind::Claim => {
            let is_used = state
                .store
                .dependents(key)
                .any(|(kind, _)| *kind == Kind::Pod);
            if leaves(&object) && !is_used {
                state.store.remove(Kind::Claim, name);
            }
        }
        Kind::Secret | Kind::Event => {}
    }
}

fn control_sandbox(state: &mut ClusterState, sandbox: &Value) {
    let (name, uid) = (name(sandbox), &sandbox["metadata"]["uid"]);
    let pod = state.store.get(Kind::Pod, name).cloned();
    let own = pod.filter(|pod| pod["metadata"]["ownerReferences"][0]["uid"] == *uid);
    if leaves(sandbox) {
        match own {
            Some(pod) => delete_pod(&mut state.store, &pod),
            None => state.store.remove(Kind::Sandbox, name),
        }
        return;
    }
    let is_suspended = sandbox["spec"]["operatingMode"] == "Suspended";
    let mut ready = ("False", "DependenciesNotReady", String::new());
    match &own {
        Some(pod) if is_suspended => delete_pod(&mut state.store, pod),
        Some(pod) if pod["status"]["phase"] == "Running" => {
            ready = ("True", "DependenciesReady", String::new());
        }
        Some(pod) if pod["status"]["phase"] == "Failed" => ready.1 = "PodFailed",
        Some(_) => {}
        None if is_suspended => ready.1 = "SandboxSuspended",
        None => match &state.quota {
            Some(text) => ready = ("False", "ReconcilerError", text.clone()),
            None => create_pod(state, sandbox),
        },
    }
    let suspended = match (is_suspended, &own) {
        (true, None) => ("True", "PodTerminated"),
        (true, Some(_)) => ("False", "PodTerminating"),
        (false, _) => ("False", "NotSuspended"),
    };
    let generation = &sandbox["metadata"]["generation"];
    let condition = |name: &str, status: &str, reason: &str, message: &str| {
        json!({
            "type": name, "status": status, "reason": reason, "message": message, "observedGeneration": generation,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    };
    let mut changed = sandbox.clone();
    changed["status"] = json!({"conditions": [
        condition("Ready", ready.0, ready.1, &ready.2),
        condition("Suspended", suspended.0, suspended.1, ""),
    ]});
    state.store.replace(Kind::Sandbox, changed);
}

fn create_pod(state: &mut ClusterState, sandbox: &Value) {
    let template = &sandbox["spec"]["podTemplate"];
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": template["metadata"], "spec": template["spec"],
    });
    pod["metadata"]["name"] = json!(name(sandbox));
    pod["metadata"]["namespace"] = sandbox["metadata"]["namespace"].clone();
    pod["metadata"]["ownerReferences"] = json!([{
        "apiVersion": sandbox["apiVersion"], "kind": "Sandbox", "name": name(sandbox),
        "uid": sandbox["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true,
    }]);
    // A foreign pod of the name stays.
    let _ = state.store.create(Kind::Pod, pod);
}

fn run_pod(state: &mut ClusterState, mut pod: Value) {
    if leaves(&pod) {
        if state.has_node {
            // The node tells when its process has ended.
        } else if pod["status"]["phase"] == "Running" {
            end(&mut pod, 143);
            state.store.replace(Kind::Pod, pod);
        } else {
            state.store.remove(Kind::Pod, name(&pod));
        }
        return;
    }
    if pod["status"]["phase"] != "Pending" {
        return;
    }
    let claim = &pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"];
    let has_claim = claim
        .as_str()
        .is_none_or(|it| state.store.get(Kind::Claim, it).is_some());
    let unschedulable = |message: &str| {
        json!({"phase": "Pending", "conditions": [{
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message,
        }]})
    };
    match state.behavior {
        _ if !has_claim => pod["status"] = unschedulable("persistentvolumeclaim not found"),
        PodBehavior::Unschedulable => pod["status"] = unschedulable("0/3 nodes are available"),
        PodBehavior::InvalidImage => {
            let waiting = json!({"waiting": {"reason": "InvalidImageName", "message": "couldn't parse image name"}});
            pod["status"] =
                json!({"phase": "Pending", "containerStatuses": container_statuses(&waiting)});
        }
        PodBehavior::Run if state.has_node => return,
        PodBehavior::Run | PodBehavior::End(_) if pod["status"]["podIP"].is_null() => {
            let (address, running) = (
                state.next_address(),
                json!({"running": {"startedAt": now()}}),
            );
            pod["status"] = json!({
                "phase": "Running", "podIP": address,
                "containerStatuses": container_statuses(&running),
            });
            if let PodBehavior::End(code) = state.behavior {
                end(&mut pod, code);
            }
        }
        _ => return,
    }
    state.store.replace(Kind::Pod, pod);
}

/// Marks a pod as leaving; the node ends and removes it.
pub(crate) fn delete_pod(store: &mut Store, pod: &Value) {
    store.mark_deleted(Kind::Pod, name(pod), None);
}

pub(crate) fn end_process(state: &mut ClusterState, sandbox: &str, exit_code: i32) {
    let mut pod = pod_of(&state.store, sandbox).expect("the sandbox has a pod");
    end(&mut pod, exit_code);
    state.store.replace(Kind::Pod, pod);
}

/// The status of the one container.
pub(crate) fn container_statuses(state: &Value) -> Value {
    json!([{
        "name": "agent-server", "ready": false, "restartCount": 0, "image": "", "imageID": "", "state": state,
    }])
}

pub(crate) fn end(pod: &mut Value, exit_code: i32) {
    pod["status"]["phase"] = json!(if exit_code == 0 {
        "Succeeded"
    } else {
        "Failed"
    });
    let state = &mut pod["status"]["containerStatuses"][0]["state"];
    *state = json!({"terminated": {"exitCode": exit_code, "reason": "Error"}});
}

pub(crate) fn pod_of(store: &Store, sandbox: &str) -> Option<Value> {
    let annotation = "agent-workspace/sandbox";
    let mut pods = store.of_kind(Kind::Pod);
    pods.find(|pod| pod["metadata"]["annotations"][annotation] == sandbox)
        .cloned()
}

/// Deletes an object as a request asks.
pub(crate) fn delete(store: &mut Store, kind: Kind, name: &str, is_foreground: bool) {
    match kind {
        Kind::Pod | Kind::Claim => store.mark_deleted(kind, name, None),
        Kind::Sandbox if is_foreground => store.mark_deleted(kind, name, Some(FOREGROUND)),
        Kind::Sandbox | Kind::Secret | Kind::Event => store.remove(kind, name),
    }
}

pub(crate) fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

pub(crate) fn leaves(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}
