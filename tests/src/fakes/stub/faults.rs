//! The faults that a test has set.

use std::path::{Path, PathBuf};

/// The file with the fault words.
pub(super) const FAULTS_FILE: &str = "faults";

/// Reads the file at each use.
#[derive(Debug, Clone)]
pub(super) struct Faults(PathBuf);

impl Faults {
    pub(super) fn new(dir: &Path) -> Self {
        Self(dir.join(FAULTS_FILE))
    }

    fn words(&self) -> Vec<String> {
        let text = std::fs::read_to_string(&self.0).unwrap_or_default();
        text.split_whitespace().map(str::to_owned).collect()
    }

    pub(super) fn has(&self, word: &str) -> bool {
        self.words().iter().any(|known| known == word)
    }

    /// Whether the start with this number (from 1) exits at once.
    pub(super) fn exits_at_start(&self, number: usize) -> bool {
        self.words().iter().any(|word| {
            let rest = word.strip_prefix("exit-at-start");
            rest.is_some_and(|rest| match rest.strip_prefix('-') {
                Some(limit) => limit.parse::<usize>().is_ok_and(|limit| number <= limit),
                None => rest.is_empty(),
            })
        })
    }
}
