//! Versions of the protocol.

/// A supported version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum ProtocolVersion {
    V2024_11_05,
    V2025_03_26,
    #[default]
    V2025_06_18,
}

impl ProtocolVersion {
    const ALL: [Self; 3] = [Self::V2024_11_05, Self::V2025_03_26, Self::V2025_06_18];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::V2024_11_05 => "2024-11-05",
            Self::V2025_03_26 => "2025-03-26",
            Self::V2025_06_18 => "2025-06-18",
        }
    }

    pub(crate) fn read(text: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|version| version.as_str() == text)
    }

    /// The version in a request's `MCP-Protocol-Version`. Clients without the header use the version before it was introduced.
    /// `None` for an unsupported version.
    pub(crate) fn of_header(text: Option<&str>) -> Option<Self> {
        text.map_or(Some(Self::V2025_03_26), Self::read)
    }

    /// Only one version has batches.
    pub(crate) fn has_batches(self) -> bool {
        self == Self::V2025_03_26
    }
}
