//! What was answered, to whom.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

/// An answer as somebody received it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Answer {
    /// The key that it was asked with.
    pub key: String,
    /// `METHOD path?query`.
    pub asked: String,
    /// Headers in a line, then the body.
    pub text: String,
}

/// Answers, each once. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Record(Arc<Mutex<BTreeSet<Answer>>>);

impl Record {
    pub(super) fn keep(&self, key: &str, asked: String, text: String) {
        let key = key.to_owned();
        let answer = Answer { key, asked, text };
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(answer);
    }

    /// All of them.
    #[must_use]
    pub fn answers(&self) -> Vec<Answer> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().cloned().collect()
    }
}

/// Keeps what a typed client is answered.
pub(super) struct Recorder {
    pub(super) key: String,
    pub(super) record: Record,
}

impl ::client::Observer for Recorder {
    fn on_response(&self, answer: &::client::ObservedResponse<'_>) {
        let asked = format!("{} {}", answer.method, answer.asked);
        let body = String::from_utf8_lossy(answer.body);
        let text = format!("{:?}\n{body}", answer.headers);
        self.record.keep(&self.key, asked, text);
    }
}
