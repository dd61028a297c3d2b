//! Recorded responses and their keys.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

/// A response as a client received it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordedResponse {
    /// The key of the request.
    pub key: String,
    /// The request: `METHOD path?query`.
    pub request: String,
    /// Headers in a line, then the body.
    pub text: String,
}

/// Distinct responses. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Record(Arc<Mutex<BTreeSet<RecordedResponse>>>);

impl Record {
    pub(super) fn add(&self, key: &str, request: String, text: String) {
        let key = key.to_owned();
        let answer = RecordedResponse { key, request, text };
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(answer);
    }

    /// All recorded responses.
    #[must_use]
    pub fn responses(&self) -> Vec<RecordedResponse> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().cloned().collect()
    }
}

/// Records the responses of a typed client.
pub(super) struct ResponseRecorder {
    pub(super) key: String,
    pub(super) record: Record,
}

impl ::client::Observer for ResponseRecorder {
    fn on_response(&self, answer: &::client::ObservedResponse<'_>) {
        let request = format!("{} {}", answer.method, answer.path_and_query);
        let body = String::from_utf8_lossy(answer.body);
        let text = format!("{:?}\n{body}", answer.headers);
        self.record.add(&self.key, request, text);
    }
}
