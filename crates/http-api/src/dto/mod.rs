//! Wire shapes. This module has those that several resources share; each resource has its own file.

pub(crate) mod account;
pub(crate) mod configuration;
pub(crate) mod conversation;
pub(crate) mod enums;
pub(crate) mod git;
pub(crate) mod legacy;
pub(crate) mod page;
pub(crate) mod sandbox;
pub(crate) mod secret_text;
pub(crate) mod timestamped;

use actix_web::http::StatusCode;
use domain::page::Page;
use serde::Serialize;

use crate::decode::model;
use crate::problem::Problem;

/// One page of a search.
#[model(response)]
pub(crate) struct PageDto<T> {
    /// The items, in the order of the search.
    pub items: Vec<T>,
    pub next_page_id: Option<String>,
}

impl<T> PageDto<T> {
    pub(crate) fn of<D>(page: Page<D>, convert: impl FnMut(D) -> T) -> Self {
        let page = page.map(convert);
        Self {
            items: page.items,
            next_page_id: page.next.map(|token| token.0),
        }
    }
}

/// Converts each item of a list.
pub(crate) fn each<S, T: From<S>>(list: Vec<S>) -> Vec<T> {
    list.into_iter().map(T::from).collect()
}

/// The response of commands without a result.
#[model(response)]
pub(crate) struct Success {
    #[schema(example = true)]
    pub success: bool,
}

impl Success {
    pub(crate) const DONE: Self = Self { success: true };
}

/// The response of commands with a text (`Settings stored`).
#[model(response)]
pub(crate) struct Message {
    /// What was done.
    pub message: String,
}

impl Message {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
        }
    }
}

/// Largest sum of documents in the response to a batch read, in bytes.
pub(crate) const MAX_BATCH_BYTES: usize = 32 * 1024 * 1024;
/// Documents that a batch read loads at a time: this many of the largest ones fit into memory.
pub(crate) const BATCH_READ_DOCUMENTS: usize = 8;

/// The bytes in the response of a batch read so far.
#[derive(Debug, Default)]
pub(crate) struct BatchBytes(usize);

impl BatchBytes {
    /// Counts a document. 413 if the response becomes too large (`what`: `events`).
    pub(crate) fn add(&mut self, document: &impl Serialize, what: &str) -> Result<(), Problem> {
        // A document that cannot be serialized fails when it is sent.
        let _ = serde_json::to_writer(&mut *self, document);
        if self.0 <= MAX_BATCH_BYTES {
            return Ok(());
        }
        Err(Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("The {what} are too large for one response: request fewer"),
        ))
    }
}

/// Counts without a copy.
impl std::io::Write for BatchBytes {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 = self.0.saturating_add(bytes.len());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Ids in one batch read.
pub(crate) const MAX_BATCH_READ_IDS: usize = 100;

/// Refuses a batch read of more than 100 ids (`what`: `sandboxes`) with 400 and the reference's text.
pub(crate) fn check_batch<T>(ids: &[T], what: &str) -> Result<(), Problem> {
    let asked = ids.len();
    if asked <= MAX_BATCH_READ_IDS {
        return Ok(());
    }
    Err(Problem::bad_request(format!(
        "Cannot request more than {MAX_BATCH_READ_IDS} {what} at once, got {asked}"
    )))
}

#[cfg(test)]
mod tests {
    use domain::page::PageToken;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_page_always_names_its_next() {
        let page = |next| {
            PageDto::of(
                Page {
                    items: vec![1, 2],
                    next,
                },
                |n| n * 10,
            )
        };
        assert_eq!(
            json!(page(None)),
            json!({"items": [10, 20], "next_page_id": null})
        );
        let next = Some(PageToken("t".into()));
        assert_eq!(
            json!(page(next)),
            json!({"items": [10, 20], "next_page_id": "t"})
        );
    }

    #[test]
    fn a_batch_has_a_bound() {
        assert!(check_batch(&[0; 100], "events").is_ok());
        let refused = check_batch(&[0; 101], "events").unwrap_err();
        assert_eq!(
            refused.body(),
            &json!({"detail": "Cannot request more than 100 events at once, got 101"})
        );
    }
}
