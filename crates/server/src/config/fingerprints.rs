//! Finds the differences between two versions of the configuration.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::LazyLock;

use super::layers::SettingLayers;

/// Random per process, so that a fingerprint reveals nothing about a secret.
static FINGERPRINT_HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// The templates count as one key.
const TEMPLATES: &str = "docker.templates";

/// A fingerprint of every value: enough to see a change, without a second copy of a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ConfigFingerprints(BTreeMap<String, u64>);

impl ConfigFingerprints {
    pub(super) fn of(layers: &SettingLayers) -> Self {
        let leaves = layers.leaves.iter();
        let mut fingerprints: BTreeMap<_, _> = leaves
            .map(|(key, leaf)| {
                (
                    key.clone(),
                    FINGERPRINT_HASHER.hash_one(leaf.value.to_string()),
                )
            })
            .collect();
        let templates = layers.templates.iter().map(|template| {
            let leaves = template.leaves.iter();
            leaves
                .map(|(key, leaf)| (key, leaf.value.to_string()))
                .collect::<Vec<_>>()
        });
        let templates: Vec<_> = templates.collect();
        fingerprints.insert(TEMPLATES.to_owned(), FINGERPRINT_HASHER.hash_one(templates));
        Self(fingerprints)
    }

    /// Keys whose values differ.
    pub(super) fn changes(&self, other: &Self) -> Vec<String> {
        let own = self.0.iter();
        own.filter(|(key, fingerprint)| other.0.get(*key) != Some(fingerprint))
            .map(|(key, _)| key.clone())
            .collect()
    }
}
