//! The kinds of objects.

use serde_json::Value;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Pod,
    Claim,
    Secret,
    Event,
    Sandbox,
}

impl Kind {
    /// With their names in addresses and in objects.
    const ALL: [(Kind, &'static str, &'static str); 5] = [
        (Kind::Pod, "pods", "Pod"),
        (
            Kind::Claim,
            "persistentvolumeclaims",
            "PersistentVolumeClaim",
        ),
        (Kind::Secret, "secrets", "Secret"),
        (Kind::Event, "events", "Event"),
        (Kind::Sandbox, "sandboxes", "Sandbox"),
    ];

    pub(crate) fn of_plural(plural: &str) -> Option<Self> {
        let found = Self::ALL.iter().find(|(_, name, _)| *name == plural);
        found.map(|(kind, ..)| *kind)
    }

    pub(crate) fn of_name(name: &Value) -> Option<Self> {
        let found = Self::ALL.iter().find(|(.., it)| name == it);
        found.map(|(kind, ..)| *kind)
    }

    pub(crate) fn plural(self) -> &'static str {
        let found = Self::ALL.iter().find(|(kind, ..)| *kind == self);
        found.map_or("", |(_, name, _)| *name)
    }
}
