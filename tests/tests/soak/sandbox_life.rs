//! A model of the state that a sandbox may have.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use reqwest::Method;
use serde_json::Value;

/// What an owner wants of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DesiredState {
    Running,
    Paused,
    Deleted,
}

impl DesiredState {
    /// The request for this state.
    pub(crate) fn request(self, id: &str) -> (Method, String) {
        match self {
            Self::Running => (Method::POST, format!("/api/v1/sandboxes/{id}/resume")),
            Self::Paused => (Method::POST, format!("/api/v1/sandboxes/{id}/pause")),
            Self::Deleted => (
                Method::DELETE,
                format!("/api/v1/sandboxes/{id}?sandbox_id={id}"),
            ),
        }
    }
}

/// A sandbox from the view of its user.
pub(crate) struct SandboxLife {
    pub(crate) id: String,
    /// The owner's API key.
    pub(crate) key: String,
    /// The possible desired states: one after an acknowledgement, several after requests without a response.
    possible: BTreeSet<DesiredState>,
    /// Seen RUNNING.
    pub(crate) has_run: bool,
    /// Remaining steps.
    pub(crate) steps: usize,
    history: Vec<String>,
}

impl SandboxLife {
    pub(crate) fn new(id: &str, key: &str, steps: usize) -> Self {
        Self {
            id: id.to_owned(),
            key: key.to_owned(),
            possible: BTreeSet::from([DesiredState::Running]),
            has_run: false,
            steps,
            history: Vec::new(),
        }
    }

    pub(crate) fn note(&mut self, at: Duration, what: impl std::fmt::Display) {
        self.history
            .push(format!("{:8.3} s  {what}", at.as_secs_f64()));
    }

    /// Records an acknowledged change.
    pub(crate) fn acknowledge(&mut self, state: DesiredState) {
        self.possible = BTreeSet::from([state]);
    }

    /// Records a change that may have been executed.
    pub(crate) fn add_possible(&mut self, state: DesiredState) {
        self.possible.insert(state);
    }

    pub(crate) fn can_be(&self, state: DesiredState) -> bool {
        self.possible.contains(&state)
    }

    /// Whether the sandbox is certainly deleted.
    pub(crate) fn is_over(&self) -> bool {
        self.possible.len() == 1 && self.can_be(DesiredState::Deleted)
    }

    /// Whether the service may respond with this document, or with `null`, at the moment.
    pub(crate) fn fits(&mut self, seen: &Value) -> bool {
        if seen.is_null() {
            return self.can_be(DesiredState::Deleted);
        }
        if self.possible.remove(&DesiredState::Deleted) && self.possible.is_empty() {
            // The deletion was acknowledged, and the sandbox still exists.
            self.possible.insert(DesiredState::Deleted);
            return false;
        }
        let status = seen["status"].as_str().unwrap_or_default();
        self.has_run |= status == "RUNNING";
        match status {
            // Before a pause that may have been requested.
            "STARTING" | "RUNNING" => self.can_be(DesiredState::Running),
            "PAUSED" => self.can_be(DesiredState::Paused),
            "MISSING" => self.can_be(DesiredState::Paused) && self.was_paused_before_start(seen),
            _ => false,
        }
    }

    /// Whether the sandbox was paused before it had a container.
    fn was_paused_before_start(&self, seen: &Value) -> bool {
        let detail = seen["status_detail"].as_str().unwrap_or_default();
        !self.has_run
            && detail.starts_with(
                "the sandbox was removed outside of the service before it could be paused",
            )
    }

    /// Describes a failure with the history of the sandbox.
    pub(crate) fn failure(&self, what: impl std::fmt::Display) -> String {
        let mut text = format!(
            "{what}\nsandbox {} may have the desired states {:?}; its history:\n",
            self.id, self.possible
        );
        for line in &self.history {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "  {line}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_model_rejects_lost_changes() {
        let seen = |status: &str| json!({"status": status, "status_detail": null});
        let mut life = SandboxLife::new("s", "k", 0);
        assert!(life.fits(&seen("STARTING")) && life.fits(&seen("RUNNING")));
        for invalid in [seen("PAUSED"), seen("ERROR"), seen("MISSING"), Value::Null] {
            assert!(!life.fits(&invalid), "{invalid}");
        }
        life.add_possible(DesiredState::Paused);
        assert!(life.fits(&seen("PAUSED")) && life.fits(&seen("RUNNING")));
        life.acknowledge(DesiredState::Paused);
        assert!(!life.fits(&seen("RUNNING")) && life.fits(&seen("PAUSED")));
        life.add_possible(DesiredState::Deleted);
        assert!(life.fits(&Value::Null));
        assert!(life.fits(&seen("PAUSED")), "the request was lost");
        assert!(!life.fits(&Value::Null), "the sandbox existed a moment ago");
        life.acknowledge(DesiredState::Deleted);
        assert!(life.is_over() && life.fits(&Value::Null));
        assert!(!life.fits(&seen("PAUSED")) && !life.fits(&seen("PAUSED")));
    }
}
