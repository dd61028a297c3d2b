//! Finds the differences between two versions of the configuration.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::LazyLock;

use crate::layers::SettingLayers;
use crate::setting::Setting;

/// Random per process, so that a fingerprint reveals nothing about a secret.
static FINGERPRINT_HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// A fingerprint of every value: enough to see a change, without a second copy of a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigFingerprints(BTreeMap<String, u64>);

impl ConfigFingerprints {
    /// Fingerprints of the current values.
    pub fn of(layers: &SettingLayers) -> Self {
        let hash = |leaf: &Setting| FINGERPRINT_HASHER.hash_one(leaf.value.to_string());
        let leaves = layers.leaves.iter();
        let mut fingerprints: BTreeMap<_, _> = leaves
            .map(|(key, leaf)| (key.clone(), hash(leaf)))
            .collect();
        // The templates of a section count as one key.
        for keys in layers.sections.iter().filter_map(|it| it.templates) {
            let templates = layers.templates_of(keys.section);
            let templates = templates.map(|template| {
                let leaves = template.leaves.iter();
                leaves.map(|(key, leaf)| (key, hash(leaf))).collect()
            });
            let templates: Vec<Vec<_>> = templates.collect();
            fingerprints.insert(
                keys.table.to_owned(),
                FINGERPRINT_HASHER.hash_one(templates),
            );
        }
        Self(fingerprints)
    }

    /// Keys whose values differ.
    pub fn changed_keys(&self, other: &Self) -> Vec<String> {
        let own = self.0.iter();
        own.filter(|(key, fingerprint)| other.0.get(*key) != Some(fingerprint))
            .map(|(key, _)| key.clone())
            .collect()
    }
}
