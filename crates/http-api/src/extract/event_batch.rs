//! Batches of events from a sandbox. Each event is read on its own, so that an unreadable or oversized one is skipped
//! alone. The agent server would send a refused batch again and then lose it.

use std::collections::VecDeque;
use std::ops::Range;

use actix_web::web::Bytes;
use domain::json::estimate_memory_bytes;
use serde_json::Value;

use super::body::{decode_body, is_json};
use super::parse_budget::{self, MAX_DOCUMENT_WEIGHT_BYTES, ParseBudget, ParsePermit};
use super::request_part::{RequestInput, RequestPart};
use crate::decode::{FieldError, Path, Sensitive};
use crate::problem::Problem;
use crate::state::state_of;

/// Events taken from one batch; agent servers send at most a few hundred.
const MAX_BATCH_EVENTS: usize = 10_000;
/// Largest event, in bytes.
const MAX_EVENT_BYTES: usize = 8 * 1024 * 1024;
/// Largest invalid batch, in bytes, whose errors are located.
const MAX_EXPLAINED_BATCH_BYTES: usize = 64 * 1024;
/// Memory of the events in one chunk, unless a single event takes more.
const MAX_CHUNK_WEIGHT_BYTES: usize = 8 * 1024 * 1024;

/// A batch that is decoded only to report its errors. The content may be secret: tools print anything.
type UnquotedBatch = Sensitive<Vec<Value>>;

/// A received batch of events that is not parsed yet.
#[derive(Debug)]
pub struct EventBatch {
    bytes: Bytes,
    events: VecDeque<(usize, Range<usize>)>,
    budget: ParseBudget,
}

impl RequestPart for EventBatch {
    async fn extract(input: &mut RequestInput<'_>) -> Result<Option<Self>, Problem> {
        let bytes = input.read_body(|limits| limits.webhook_body).await?;
        let Some((events, left_out)) =
            split(&bytes).filter(|_| is_json(input.req, input.error_format))
        else {
            if bytes.len() <= MAX_EXPLAINED_BATCH_BYTES {
                decode_body::<UnquotedBatch>(input, bytes).await?;
            }
            if input.errors.is_empty() {
                input
                    .errors
                    .push_silent(&Path::body(false), FieldError::list_type());
            }
            return Ok(None);
        };
        if left_out > 0 {
            tracing::warn!(
                left_out,
                "events skipped: the batch has more than {MAX_BATCH_EVENTS}"
            );
        }
        Ok(Some(Self {
            bytes,
            events: events.into_iter().enumerate().collect(),
            budget: state_of(input.req)?.parse_budget.clone(),
        }))
    }
}

/// Some events of a batch. Holds its share of the memory budget until it is dropped.
#[derive(Debug)]
pub struct EventChunk {
    /// The readable events, in order.
    pub events: Vec<Value>,
    pub(crate) permit: ParsePermit,
}

impl EventBatch {
    /// The next events, as many as may be in memory at the same time. Returns at least one chunk, which may be empty.
    pub async fn first_chunk(&mut self) -> Result<EventChunk, Problem> {
        let (mut taken, mut heavy) = (Vec::new(), 0);
        while let Some((index, range)) = self.events.front() {
            let weight = estimate_memory_bytes(&self.bytes[range.clone()]);
            if range.len() > MAX_EVENT_BYTES || weight > MAX_DOCUMENT_WEIGHT_BYTES {
                tracing::warn!(index, bytes = range.len(), "event skipped: too large");
                self.events.pop_front();
                continue;
            }
            if !taken.is_empty() && heavy + weight > MAX_CHUNK_WEIGHT_BYTES {
                break;
            }
            heavy += weight;
            taken.extend(self.events.pop_front());
        }
        let (permit, bytes) = (self.budget.permit(heavy).await?, self.bytes.clone());
        let read = move || {
            let events = taken.into_iter().filter_map(|(index, range)| {
                let event = serde_json::from_slice(&bytes[range]);
                if event.is_err() {
                    // The reason would quote the event's content.
                    tracing::warn!(index, "event skipped: invalid JSON");
                }
                event.ok()
            });
            events.collect()
        };
        let (events, permit) = parse_budget::run_off_thread(permit, heavy, read).await?;
        Ok(EventChunk { events, permit })
    }

    /// The following chunk; `None` after the last one.
    pub async fn next_chunk(&mut self) -> Result<Option<EventChunk>, Problem> {
        if self.events.is_empty() {
            return Ok(None);
        }
        self.first_chunk().await.map(Some)
    }
}

/// The ranges of a list's items, and the number of items beyond the limit. `None` if it is not a complete list. The
/// items themselves are not checked.
fn split(bytes: &[u8]) -> Option<(Vec<Range<usize>>, usize)> {
    let start = if bytes.starts_with(b"\xef\xbb\xbf") {
        3
    } else {
        0
    };
    let start = start + bytes[start..].iter().position(|byte| !is_blank(*byte))?;
    (bytes[start] == b'[').then_some(())?;
    let (mut items, mut left_out) = (Vec::new(), 0);
    let (mut depth, mut quoted, mut escaped, mut from) = (0_usize, false, false, start + 1);
    for (at, byte) in bytes.iter().enumerate().skip(start + 1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b'[' | b'{' => depth += 1,
            b']' | b'}' if depth > 0 => depth -= 1,
            b',' | b']' if depth == 0 => {
                let ends = *byte == b']';
                let is_empty = bytes[from..at].iter().all(|byte| is_blank(*byte));
                if items.len() == MAX_BATCH_EVENTS {
                    left_out += 1;
                } else if !(ends && is_empty) {
                    items.push(from..at);
                }
                from = at + 1;
                if ends {
                    let rest = bytes[from..].iter().all(|byte| is_blank(*byte));
                    return rest.then_some((items, left_out));
                }
            }
            b'}' => return None,
            _ => {}
        }
    }
    None
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn batch(text: impl Into<Vec<u8>>) -> Option<EventBatch> {
        let bytes = Bytes::from(text.into());
        let (events, _) = split(&bytes)?;
        Some(EventBatch {
            bytes,
            events: events.into_iter().enumerate().collect(),
            budget: ParseBudget::new(),
        })
    }

    async fn all(text: impl Into<Vec<u8>>) -> Vec<Value> {
        let mut batch = batch(text).unwrap();
        let mut all = batch.first_chunk().await.unwrap().events;
        while let Some(part) = batch.next_chunk().await.unwrap() {
            all.extend(part.events);
        }
        all
    }

    #[actix_web::test]
    async fn unreadable_events_are_skipped_alone() {
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        for bad in [
            r#"{"id": "\ud800"}"#,
            r#"{"id": 1e999}"#,
            "NaN",
            r#"{"id": -Infinity}"#,
            deep.as_str(),
            "",
            "{]",
            "nope",
        ] {
            let text = format!(" [{{\"id\": \"a,]\\\"\"}}, {bad} ,{{\"id\": \"b\"}}]\n");
            let expected = [json!({"id": "a,]\""}), json!({"id": "b"})];
            assert_eq!(all(text).await, expected, "{bad}");
        }
        let invalid = b"[1, \"\xff\", 2]".to_vec();
        assert_eq!(all(invalid).await, [1, 2]);
        assert_eq!(all("[]").await, [Value::Null; 0]);
        assert_eq!(all("\u{feff}[ 7 ]").await, [7]);
    }

    #[test]
    fn only_a_whole_list_is_a_batch() {
        for text in [
            "", " ", "{}", "5", "[1", "[1]]", "[1],", "[\"a]", "[}]", "x[1]", "[[1]",
        ] {
            assert!(batch(text).is_none(), "{text}");
        }
    }

    #[actix_web::test]
    async fn numbers_and_sizes_of_events_are_bounded() {
        let (items, left_out) =
            split(format!("[{}0]", "0,".repeat(16_000_000)).as_bytes()).unwrap();
        assert_eq!((items.len(), left_out), (MAX_BATCH_EVENTS, 15_990_001));
        let long = "x".repeat(MAX_EVENT_BYTES);
        let bomb = "0,".repeat(1024 * 1024);
        assert_eq!(all(format!("[1,\"{long}\",[{bomb}0],2]")).await, [1, 2]);
    }

    #[actix_web::test]
    async fn a_heavy_batch_comes_in_parts() {
        let big = format!("\"{}\"", "x".repeat(5 * 1024 * 1024));
        let mut batch = batch(format!("[{big},{big},1]")).unwrap();
        assert_eq!(batch.first_chunk().await.unwrap().events.len(), 1);
        assert_eq!(batch.next_chunk().await.unwrap().unwrap().events.len(), 2);
        assert!(batch.next_chunk().await.unwrap().is_none());
    }
}
