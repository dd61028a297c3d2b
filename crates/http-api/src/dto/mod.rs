//! Wire shapes. This module has those that several resources share; each resource has its own file.

pub mod account;
pub mod configuration;
pub mod conversation;
pub mod enums;
pub mod git;
pub mod legacy;
pub mod page;
pub mod sandbox;
pub mod secret_text;
pub mod timestamped;

use actix_web::http::StatusCode;
use domain::page::Page;
use serde::Serialize;

use crate::decode::model;
use crate::problem::Problem;

/// One page of a search.
#[model(response)]
pub struct PageDto<T> {
    /// The items, in the order of the search.
    pub items: Vec<T>,
    /// Send it as `page_id` for the next page; `null` on the last one.
    pub next_page_id: Option<String>,
}

impl<T> PageDto<T> {
    /// Converts a page and its items.
    pub fn of<D>(page: Page<D>, convert: impl FnMut(D) -> T) -> Self {
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
pub struct Success {
    /// Always `true`.
    #[schema(example = true)]
    pub success: bool,
}

impl Success {
    /// The only value.
    pub const DONE: Self = Self { success: true };
}

/// The response of commands with a text (`Settings stored`).
#[model(response)]
pub struct Message {
    /// What was done.
    pub message: String,
}

impl Message {
    /// A response with this text.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
        }
    }
}

/// Largest sum of documents in the response to a batch read, in bytes.
pub const MAX_BATCH_BYTES: usize = 32 * 1024 * 1024;
/// Documents that a batch read loads at a time: this many of the largest ones fit into memory.
pub const BATCH_READ_DOCUMENTS: usize = 8;

/// The bytes in the response of a batch read so far.
#[derive(Debug, Default)]
pub struct BatchBytes(usize);

impl BatchBytes {
    /// Counts a document. 413 if the response becomes too large (`what`: `events`).
    pub fn add(&mut self, document: &impl Serialize, what: &str) -> Result<(), Problem> {
        // A document that cannot be serialized fails when it is sent.
        let length = serde_json::to_vec(document).map_or(0, |bytes| bytes.len());
        self.0 = self.0.saturating_add(length);
        if self.0 <= MAX_BATCH_BYTES {
            return Ok(());
        }
        Err(Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("The {what} are too large for one response: request fewer"),
        ))
    }
}

/// Ids in one batch read.
pub const MAX_BATCH_READ_IDS: usize = 100;

/// Refuses a batch read of more than 100 ids (`what`: `sandboxes`) with 400 and the reference's text.
pub fn check_batch<T>(ids: &[T], what: &str) -> Result<(), Problem> {
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
