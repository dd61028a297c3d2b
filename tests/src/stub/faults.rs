//! Which faults are on.

use std::path::{Path, PathBuf};

/// Name of the file with the words.
pub(super) const FILE: &str = "faults";

/// Looks the words up anew each time.
#[derive(Debug, Clone)]
pub(super) struct Faults(PathBuf);

impl Faults {
    pub(super) fn new(dir: &Path) -> Self {
        Self(dir.join(FILE))
    }

    fn words(&self) -> Vec<String> {
        let text = std::fs::read_to_string(&self.0).unwrap_or_default();
        text.split_whitespace().map(str::to_owned).collect()
    }

    pub(super) fn has(&self, word: &str) -> bool {
        self.words().iter().any(|known| known == word)
    }

    /// Whether the start with this number (from 1) ends at once.
    pub(super) fn exits_at_start(&self, number: usize) -> bool {
        self.words().iter().any(|word| {
            let rest = word.strip_prefix("exit-at-start");
            rest.is_some_and(|rest| match rest.strip_prefix('-') {
                Some(most) => most.parse::<usize>().is_ok_and(|most| number <= most),
                None => rest.is_empty(),
            })
        })
    }
}
