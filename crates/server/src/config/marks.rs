//! What differs between two readings of the configuration.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::LazyLock;

use super::layers::Layers;

/// Of this process only, so that a mark says nothing about a secret.
static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// The templates, which are no keys.
const TEMPLATES: &str = "docker.templates";

/// A mark for every value: enough to see a change, and no second copy of a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Marks(BTreeMap<String, u64>);

impl Marks {
    pub(super) fn of(layers: &Layers) -> Self {
        let leaves = layers.leaves.iter();
        let mut marks: BTreeMap<_, _> = leaves
            .map(|(key, leaf)| (key.clone(), HASHER.hash_one(&leaf.value)))
            .collect();
        let templates = layers.templates.iter().map(|template| {
            let leaves = template.leaves.iter();
            leaves
                .map(|(key, leaf)| (key, &leaf.value))
                .collect::<Vec<_>>()
        });
        let templates: Vec<_> = templates.collect();
        marks.insert(TEMPLATES.to_owned(), HASHER.hash_one(templates));
        Self(marks)
    }

    /// Keys with another value there than here.
    pub(super) fn changes(&self, there: &Self) -> Vec<String> {
        let here = self.0.iter();
        here.filter(|(key, mark)| there.0.get(*key) != Some(mark))
            .map(|(key, _)| key.clone())
            .collect()
    }
}
