//! Section `egress`.

use sandbox_provider::EgressPolicy;
use settings::SettingReader;

/// What sandboxes reach. `compose/egress.rs` interprets the hosts.
#[derive(Debug, Clone)]
pub(crate) struct EgressSettings {
    pub(crate) policy: EgressPolicy,
    /// Hosts of the allow list, and presets.
    pub(crate) hosts: Vec<String>,
    /// Whether owners of sandboxes may approve other hosts.
    pub(crate) approvals: bool,
}

impl EgressSettings {
    pub(in crate::config) fn read(reader: &SettingReader<'_>) -> Self {
        Self {
            policy: EgressPolicy::read(reader),
            hosts: reader.list("egress.allow"),
            approvals: reader.switch("egress.approvals"),
        }
    }
}
