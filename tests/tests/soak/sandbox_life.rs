//! What one sandbox must be: a model beside the service.

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
    /// The request that says it.
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

/// One sandbox, as its user knows it.
pub(crate) struct SandboxLife {
    pub(crate) id: String,
    /// Its owner's.
    pub(crate) key: String,
    /// Everything that may be wanted now: one wish after an acknowledgement, more after requests that were cut off.
    wishes: BTreeSet<DesiredState>,
    /// Seen RUNNING.
    pub(crate) has_run: bool,
    /// How many things are still done with it.
    pub(crate) steps: usize,
    history: Vec<String>,
}

impl SandboxLife {
    pub(crate) fn new(id: &str, key: &str, steps: usize) -> Self {
        Self {
            id: id.to_owned(),
            key: key.to_owned(),
            wishes: BTreeSet::from([DesiredState::Running]),
            has_run: false,
            steps,
            history: Vec::new(),
        }
    }

    pub(crate) fn note(&mut self, at: Duration, what: impl std::fmt::Display) {
        self.history
            .push(format!("{:8.3} s  {what}", at.as_secs_f64()));
    }

    /// Acknowledged.
    pub(crate) fn is(&mut self, wish: DesiredState) {
        self.wishes = BTreeSet::from([wish]);
    }

    /// Perhaps carried out.
    pub(crate) fn may_be(&mut self, wish: DesiredState) {
        self.wishes.insert(wish);
    }

    pub(crate) fn can_be(&self, wish: DesiredState) -> bool {
        self.wishes.contains(&wish)
    }

    /// Known to be gone.
    pub(crate) fn is_over(&self) -> bool {
        self.wishes.len() == 1 && self.can_be(DesiredState::Deleted)
    }

    /// Whether the service may say this of it right now: the document, or `null`.
    pub(crate) fn fits(&mut self, seen: &Value) -> bool {
        if seen.is_null() {
            return self.can_be(DesiredState::Deleted);
        }
        if self.wishes.remove(&DesiredState::Deleted) && self.wishes.is_empty() {
            // Acknowledged, and still to be seen.
            self.wishes.insert(DesiredState::Deleted);
            return false;
        }
        let status = seen["status"].as_str().unwrap_or_default();
        self.has_run |= status == "RUNNING";
        match status {
            // Seen before the pause that may have been asked for.
            "STARTING" | "RUNNING" => self.can_be(DesiredState::Running),
            "PAUSED" => self.can_be(DesiredState::Paused),
            "MISSING" => self.can_be(DesiredState::Paused) && self.never_began(seen),
            _ => false,
        }
    }

    /// Paused before there was anything to pause.
    fn never_began(&self, seen: &Value) -> bool {
        let detail = seen["status_detail"].as_str().unwrap_or_default();
        !self.has_run
            && detail.starts_with("nothing was left of the sandbox when it was to be paused")
    }

    /// What is wrong, with everything that was done to it.
    pub(crate) fn wrong(&self, what: impl std::fmt::Display) -> String {
        let mut text = format!(
            "{what}\nsandbox {} may be wanted {:?}; its history:\n",
            self.id, self.wishes
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
    fn the_model_finds_what_was_lost() {
        let seen = |status: &str| json!({"status": status, "status_detail": null});
        let mut life = SandboxLife::new("s", "k", 0);
        assert!(life.fits(&seen("STARTING")) && life.fits(&seen("RUNNING")));
        for wrong in [seen("PAUSED"), seen("ERROR"), seen("MISSING"), Value::Null] {
            assert!(!life.fits(&wrong), "{wrong}");
        }
        life.may_be(DesiredState::Paused);
        assert!(life.fits(&seen("PAUSED")) && life.fits(&seen("RUNNING")));
        life.is(DesiredState::Paused);
        assert!(!life.fits(&seen("RUNNING")) && life.fits(&seen("PAUSED")));
        life.may_be(DesiredState::Deleted);
        assert!(life.fits(&Value::Null));
        assert!(life.fits(&seen("PAUSED")), "the request was lost");
        assert!(!life.fits(&Value::Null), "it was there a moment ago");
        life.is(DesiredState::Deleted);
        assert!(life.is_over() && life.fits(&Value::Null));
        assert!(!life.fits(&seen("PAUSED")) && !life.fits(&seen("PAUSED")));
    }
}
