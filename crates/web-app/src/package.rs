//! The pinned package.

use url::Url;

/// A version of a package in an npm registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Package {
    /// Its name with its scope.
    pub name: &'static str,
    /// Its exact version.
    pub version: &'static str,
    /// The SHA-512 digest of its archive in base64, as registries show it after `sha512-`.
    pub sha512: &'static str,
}

impl Package {
    /// The version that this service serves.
    pub const PINNED: Self = Self {
        name: "@openhands/agent-canvas",
        version: "1.20.0",
        sha512: "uq28bmdMapsDN0ltp5ZHYm9xfuk7cHktNkd0NY38w/UTq25wJTqSKSPya+2+ky0+HpGX2vmn0uF3mHuNCoOb2w==",
    };

    /// The address of the archive in a registry; `None` if the registry's URL cannot have further segments.
    #[must_use]
    pub fn archive_url(&self, registry: &Url) -> Option<Url> {
        let mut url = registry.clone();
        let file = self.name.rsplit('/').next().unwrap_or(self.name);
        url.path_segments_mut()
            .ok()?
            .pop_if_empty()
            .extend(self.name.split('/'))
            .extend(["-", &format!("{file}-{}.tgz", self.version)]);
        Some(url)
    }

    /// The name of the directory of an installation. Another archive gets another one.
    pub(crate) fn directory_name(&self) -> String {
        let digest = self.sha512.chars().filter(char::is_ascii_alphanumeric);
        let digest: String = digest.take(8).collect();
        format!("{}-{digest}", self.version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_archive_is_below_the_registry() {
        for (registry, expected) in [
            (
                "https://registry.example/",
                "https://registry.example/@openhands/agent-canvas/-/agent-canvas-1.20.0.tgz",
            ),
            (
                "https://mirror.example/npm",
                "https://mirror.example/npm/@openhands/agent-canvas/-/agent-canvas-1.20.0.tgz",
            ),
        ] {
            let url = Package::PINNED.archive_url(&registry.parse().unwrap());
            assert_eq!(url.unwrap().as_str(), expected);
        }
        assert_eq!(Package::PINNED.directory_name(), "1.20.0-uq28bmdM");
    }
}
