//! Serialized responses in which only the current time changes from request to request.

use actix_web::HttpResponse;
use actix_web::body::MessageBody;
use actix_web::http::header::HeaderValue;
use domain::clock::Timestamp;
use serde::Serialize;

use crate::problem::Problem;

/// Bytes of a timestamp; its format has a fixed width.
const TIMESTAMP_BYTES: usize = 27;

/// A JSON document and the offsets of the current time in it.
pub struct TimestampedJson {
    bytes: Vec<u8>,
    timestamp_offsets: Vec<usize>,
}

impl AsRef<[u8]> for TimestampedJson {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl TimestampedJson {
    /// Serializes `answer` at the first and at the last possible time. The bytes that differ are the timestamps.
    pub fn of<T: Serialize>(answer: impl Fn(Timestamp) -> T) -> Result<Self, Problem> {
        let times = [i64::MIN, i64::MAX].map(Timestamp::from_micros);
        let [first, last] = times.map(|at| serde_json::to_vec(&answer(at)));
        let (Ok(bytes), Ok(other)) = (first, last) else {
            return Err(Problem::internal("response cannot be serialized"));
        };
        let texts = times.map(|at| at.to_string());
        timestamp_offsets(&bytes, &other, &texts)
            .map(|timestamp_offsets| Self {
                bytes,
                timestamp_offsets,
            })
            .ok_or_else(|| Problem::internal("a cached response depends on more than the time"))
    }

    /// The document with this time.
    pub fn at(&self, now: Timestamp) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        if !self.timestamp_offsets.is_empty() {
            let now = now.to_string();
            for place in &self.timestamp_offsets {
                bytes[*place..][..TIMESTAMP_BYTES].copy_from_slice(now.as_bytes());
            }
        }
        bytes
    }
}

/// The offsets at which the documents have the two timestamps; `None` if they differ in anything else. (The timestamps differ
/// in their first byte.)
fn timestamp_offsets(one: &[u8], other: &[u8], texts: &[String; 2]) -> Option<Vec<usize>> {
    let mut timestamp_offsets = Vec::new();
    let mut at = 0;
    if one.len() != other.len() {
        return None;
    }
    while let Some(same) = one[at..].iter().zip(&other[at..]).position(|(a, b)| a != b) {
        let place = at + same;
        let end = place + TIMESTAMP_BYTES;
        if one.get(place..end)? != texts[0].as_bytes()
            || other.get(place..end)? != texts[1].as_bytes()
        {
            return None;
        }
        timestamp_offsets.push(place);
        at = end;
    }
    Some(timestamp_offsets)
}

/// A JSON response with these bytes.
pub fn json_response(bytes: impl MessageBody + 'static) -> HttpResponse {
    HttpResponse::Ok()
        // The typed header would be formatted and copied.
        .content_type(HeaderValue::from_static("application/json"))
        .body(bytes)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn only_the_timestamp_is_replaced() {
        // A document may contain any timestamp.
        let first = Timestamp::from_micros(i64::MIN).to_string();
        let answer = |now: Timestamp| json!({"a": now, "said": first, "b": [1, now, "é\""]});
        let timestamped_json = TimestampedJson::of(answer).unwrap();
        for micros in [0, 1_795_251_552_215_877, i64::MIN, i64::MAX] {
            let now = Timestamp::from_micros(micros);
            let shown: Value = serde_json::from_slice(&timestamped_json.at(now)).unwrap();
            assert_eq!(shown, answer(now));
        }
    }

    #[test]
    fn documents_without_a_timestamp_stay_unchanged() {
        let timestamped_json = TimestampedJson::of(|_| json!({"a": 1})).unwrap();
        assert_eq!(
            timestamped_json.at(Timestamp::from_micros(0)),
            br#"{"a":1}"#
        );
    }

    #[test]
    fn documents_that_depend_otherwise_on_the_time_are_refused() {
        assert!(TimestampedJson::of(|now| json!({"micros": now.micros()})).is_err());
        assert!(TimestampedJson::of(|now| json!(now.micros() < 0)).is_err());
        assert!(TimestampedJson::of(|now| json!(now.to_string()[..10])).is_err());
    }
}
