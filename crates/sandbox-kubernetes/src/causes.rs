//! Why a pod does not run yet, in words for its owner, and when waiting for it is given up.

use std::time::Duration;

use domain::sandbox::SandboxError;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::DynamicObject;

use crate::state::{condition, containers, message};

/// An image name, a template or a policy that no time mends.
const AT_ONCE: Duration = Duration::ZERO;
/// A Secret that is being made, a runtime that restarts.
const SHORT: Duration = Duration::from_secs(30);
/// A registry or a disk that does not answer.
const MEDIUM: Duration = Duration::from_secs(2 * 60);
/// A cluster that makes room.
const LONG: Duration = Duration::from_secs(5 * 60);

/// An obstacle, and how long it may pass by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Obstacle {
    reason: String,
    message: String,
    wait_limit: Duration,
}

/// Reasons of a waiting container, and of events of a pod.
const REASONS: [(&str, Duration); 12] = [
    ("InvalidImageName", AT_ONCE),
    ("ErrImageNeverPull", AT_ONCE),
    ("CreateContainerConfigError", SHORT),
    ("CreateContainerError", SHORT),
    ("RunContainerError", SHORT),
    ("ErrImagePull", MEDIUM),
    ("ImagePullBackOff", MEDIUM),
    ("FailedMount", MEDIUM),
    ("FailedAttachVolume", MEDIUM),
    ("FailedCreatePodSandBox", MEDIUM),
    ("Unschedulable", LONG),
    ("SchedulingGated", LONG),
];

/// The cluster makes a node, which takes longer than to free one.
const SCALES_UP: &str = "TriggeredScaleUp";

impl Obstacle {
    fn new(reason: &str, message: &str) -> Option<Self> {
        let (_, wait_limit) = REASONS.iter().find(|(name, _)| *name == reason)?;
        Some(Self {
            reason: reason.to_owned(),
            message: message.trim().to_owned(),
            wait_limit: *wait_limit,
        })
    }

    /// What keeps a pod from running. The events are its own, in any order.
    pub(crate) fn of_pod(pod: &Pod, events: &[Event]) -> Option<Self> {
        let waiting = containers(pod).filter_map(|it| it.state.as_ref()?.waiting.as_ref());
        let mut obstacles = waiting.filter_map(|it| {
            let (reason, message) = (it.reason.as_deref()?, it.message.as_deref());
            // The back-off hides the cause, which is in an event.
            let cause = newest(events, &["Failed"]).filter(|_| reason == "ImagePullBackOff");
            Self::new(reason, cause.or(message).unwrap_or_default())
        });
        if let Some(found) = obstacles.next() {
            return Some(found);
        }
        let conditions = pod.status.as_ref().and_then(|it| it.conditions.as_ref());
        let scheduled = conditions.and_then(|all| {
            all.iter()
                .find(|it| it.type_ == "PodScheduled" && it.status == "False")
        });
        if let Some(scheduled) = scheduled {
            let reason = scheduled.reason.as_deref().unwrap_or_default();
            let message = scheduled.message.as_deref().unwrap_or_default();
            let mut found = Self::new(reason, message)?;
            if newest(events, &[SCALES_UP]).is_some() {
                found.wait_limit = LONG * 2;
            }
            return Some(found);
        }
        // Of volumes and networks, the cluster tells by events only.
        let of_events = [
            "FailedAttachVolume",
            "FailedMount",
            "FailedCreatePodSandBox",
        ];
        let reason = of_events
            .into_iter()
            .find(|it| newest(events, &[it]).is_some())?;
        Self::new(reason, newest(events, &[reason])?)
    }

    /// Why the controller makes no pod.
    pub(crate) fn of_sandbox(sandbox: &DynamicObject) -> Option<Self> {
        let (status, reason) = condition(sandbox, "Ready")?;
        let wait_limit = match reason {
            "InvalidConfiguration" => AT_ONCE,
            "ReconcilerError" => LONG,
            _ => return None,
        };
        (status == "False").then(|| Self {
            reason: reason.to_owned(),
            message: message(sandbox, "Ready").unwrap_or_default().to_owned(),
            wait_limit,
        })
    }

    /// The end of a start after this wait. `None`: it may still come up.
    pub(crate) fn give_up(&self, waited: Duration) -> Option<SandboxError> {
        if waited < self.wait_limit {
            return None;
        }
        let detail = self.detail();
        // What only the operator can mend is not tried again at once.
        Some(if self.wait_limit == AT_ONCE {
            SandboxError::start_failed(detail)
        } else {
            SandboxError::unavailable(detail)
        })
    }

    /// What keeps the sandbox from starting, and what to do about it.
    pub(crate) fn detail(&self) -> String {
        let Self {
            reason, message, ..
        } = self;
        let advice = match reason.as_str() {
            "InvalidImageName" | "ErrImageNeverPull" => {
                "the operator has to correct kubernetes.image of its template"
            }
            "ErrImagePull" | "ImagePullBackOff" => {
                "the operator has to check kubernetes.image of its template, and kubernetes.pull_secrets"
            }
            "Unschedulable" => {
                "no node of the cluster has room: the operator has to add nodes, or to lower what its template reserves"
            }
            "FailedAttachVolume" | "FailedMount" => {
                "its volume cannot be mounted: if it is still attached to another node, it becomes free in some minutes"
            }
            "FailedCreatePodSandBox" => {
                "the node cannot run it: the operator has to check kubernetes.runtime_class of its template"
            }
            _ => "the operator has to look at its pod",
        };
        format!("its pod does not run ({reason}: {message}): {advice}")
    }
}

/// The text of the newest event with one of these reasons.
fn newest<'a>(events: &'a [Event], reasons: &[&str]) -> Option<&'a str> {
    let found = events.iter().filter(|event| {
        event
            .reason
            .as_deref()
            .is_some_and(|reason| reasons.contains(&reason))
    });
    let newest = found.max_by_key(|event| event.last_timestamp.clone().map(|time| time.0));
    newest.map(|event| event.message.as_deref().unwrap_or_default())
}

/// What happens to a pod now, for its owner: the text of its newest event.
pub(crate) fn progress(events: &[Event]) -> Option<&str> {
    newest(
        events,
        &[
            "Scheduled",
            "Pulling",
            "Pulled",
            "TriggeredScaleUp",
            "Started",
        ],
    )
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(status: &Value) -> Pod {
        serde_json::from_value(json!({"metadata": {}, "status": status})).unwrap()
    }

    fn event(reason: &str, message: &str) -> Event {
        serde_json::from_value(json!({
            "metadata": {}, "involvedObject": {}, "reason": reason, "message": message,
            "lastTimestamp": "2026-01-01T00:00:00Z",
        }))
        .unwrap()
    }

    fn waits(reason: &str) -> Pod {
        let state = json!({"waiting": {"reason": reason, "message": "why"}});
        pod(&json!({"containerStatuses": [{
            "name": "a", "ready": false, "restartCount": 0, "image": "", "imageID": "", "state": state,
        }]}))
    }

    #[test]
    fn each_obstacle_has_its_time_and_a_text() {
        let unschedulable = json!({"conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"},
        ]});
        let mount = event("FailedMount", "timed out");
        let cases = [
            (waits("InvalidImageName"), vec![], 0, "image"),
            (waits("CreateContainerConfigError"), vec![], 30, "why"),
            (waits("ErrImagePull"), vec![], 120, "why"),
            (
                waits("ImagePullBackOff"),
                vec![event("Failed", "denied")],
                120,
                "denied",
            ),
            (pod(&unschedulable), vec![], 300, "0/3 nodes"),
            (
                pod(&unschedulable),
                vec![event(SCALES_UP, "up")],
                600,
                "0/3 nodes",
            ),
            (pod(&json!({})), vec![mount], 120, "timed out"),
        ];
        for (pod, events, seconds, text) in cases {
            let found = Obstacle::of_pod(&pod, &events).unwrap();
            let limit = Duration::from_secs(seconds);
            if seconds > 0 {
                let before = found.give_up(Duration::from_secs(seconds - 1));
                assert!(before.is_none(), "{found:?}");
            }
            let error = found.give_up(limit).expect("it is given up").to_string();
            assert!(error.contains(text), "{error}");
        }
        for pod in [waits("ContainerCreating"), pod(&json!({}))] {
            assert_eq!(Obstacle::of_pod(&pod, &[]), None);
        }
    }
}
