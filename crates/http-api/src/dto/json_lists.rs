//! Serializes long lists directly into one buffer, item by item.
//!
//! serde checks every character of every member name for escapes. For items with forty members this costs as much as the
//! values. The derive [`WriteJson`](derive@WriteJson) therefore writes
//! them as they are.

use actix_web::{HttpResponse, ResponseError as _};
use domain::page::Page;
pub use http_api_derive::WriteJson;
use serde::Serialize;

use crate::dto::timestamped;
use crate::problem::Problem;

/// Capacity of the buffer per item, in bytes; most items fit.
const ITEM_CAPACITY_BYTES: usize = 1024;

/// A type that serializes itself to the same bytes as serde.
pub trait WriteJson: Serialize {
    /// Appends the value to a document.
    fn write(&self, out: &mut Vec<u8>) -> serde_json::Result<()>;
}

/// The response with a page of items ([`PageDto`](crate::dto::PageDto)).
pub fn page_response<D, T: WriteJson>(page: Page<D>, convert: impl Fn(D) -> T) -> HttpResponse {
    let mut bytes = Vec::with_capacity((page.items.len() + 1) * ITEM_CAPACITY_BYTES);
    let written = write_page(&mut bytes, page, convert);
    answer(bytes, written)
}

fn write_page<D, T: WriteJson>(
    out: &mut Vec<u8>,
    page: Page<D>,
    convert: impl Fn(D) -> T,
) -> serde_json::Result<()> {
    out.extend_from_slice(br#"{"items":["#);
    for (at, item) in page.items.into_iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        convert(item).write(out)?;
    }
    out.extend_from_slice(br#"],"next_page_id":"#);
    serde_json::to_writer(&mut *out, &page.next.map(|token| token.0))?;
    out.push(b'}');
    Ok(())
}

/// The response with a list of this many items, serialized by serde.
pub fn list_response(answered: &impl Serialize, items: usize) -> HttpResponse {
    let mut bytes = Vec::with_capacity((items + 1) * ITEM_CAPACITY_BYTES);
    let written = serde_json::to_writer(&mut bytes, answered);
    answer(bytes, written)
}

fn answer(bytes: Vec<u8>, written: serde_json::Result<()>) -> HttpResponse {
    match written {
        Ok(()) => timestamped::json_response(bytes),
        Err(error) => {
            Problem::internal(format!("response cannot be serialized: {error}")).error_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use domain::page::PageToken;

    use super::*;
    use crate::dto::PageDto;

    #[derive(Serialize, WriteJson)]
    struct Pair {
        one: u8,
        two: Option<String>,
    }

    #[test]
    fn page_json_equals_serde() {
        let texts = [None, Some("a\"b\n".to_owned()), Some(String::new())];
        for count in 0..=3 {
            for next in [None, Some(PageToken("t".to_owned()))] {
                let items = texts.iter().take(count).cloned().collect();
                let page = Page { items, next };
                let pair = |two| Pair { one: 1, two };
                let mut written = Vec::new();
                write_page(&mut written, page.clone(), pair).unwrap();
                let expected = serde_json::to_string(&PageDto::of(page, pair)).unwrap();
                assert_eq!(String::from_utf8(written).unwrap(), expected);
            }
        }
    }
}
