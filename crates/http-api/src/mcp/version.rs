//! Versions of the protocol.

use strum::{EnumString, IntoStaticStr};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, EnumString, IntoStaticStr)]
pub(crate) enum ProtocolVersion {
    #[strum(serialize = "2024-11-05")]
    V2024_11_05,
    #[strum(serialize = "2025-03-26")]
    V2025_03_26,
    #[default]
    #[strum(serialize = "2025-06-18")]
    V2025_06_18,
}

impl ProtocolVersion {
    /// The version in a request's `MCP-Protocol-Version`. Clients without the header use the version before it was introduced.
    /// `None` for an unsupported version.
    pub(crate) fn of_header(text: Option<&str>) -> Option<Self> {
        text.map_or(Some(Self::V2025_03_26), |text| text.parse().ok())
    }

    /// Only one version has batches.
    pub(crate) fn has_batches(self) -> bool {
        self == Self::V2025_03_26
    }
}
