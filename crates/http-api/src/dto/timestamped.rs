//! Serialized responses in which only the current time changes from request to request.

use actix_web::HttpResponse;
use actix_web::body::MessageBody;
use actix_web::http::header::HeaderValue;
use domain::clock::Timestamp;
use serde::Serialize;

use crate::problem::Problem;

/// Bytes of a timestamp; its format has a fixed width.
const TIMESTAMP_BYTES: usize = 27;

/// A JSON document and the offset of the current time in it, if it contains it.
pub(crate) struct TimestampedJson {
    bytes: Vec<u8>,
    timestamp_offset: Option<usize>,
}

impl AsRef<[u8]> for TimestampedJson {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl TimestampedJson {
    /// Serializes `answer` at the first and at the last possible time. The bytes that differ are the timestamp. (Both
    /// timestamps differ in their first byte.)
    pub(crate) fn of<T: Serialize>(answer: impl Fn(Timestamp) -> T) -> Result<Self, Problem> {
        let [first, last] = [i64::MIN, i64::MAX].map(Timestamp::from_micros);
        let write = |at| {
            let bytes = serde_json::to_vec(&answer(at));
            bytes.map_err(|_| Problem::internal("response cannot be serialized"))
        };
        let (bytes, expected) = (write(first)?, write(last)?);
        let timestamp_offset = bytes.iter().zip(&expected).position(|(a, b)| a != b);
        let json = Self {
            bytes,
            timestamp_offset,
        };
        if json.at(last) != expected {
            let text =
                "a cacheable response contains a value other than the timestamp that changes";
            return Err(Problem::internal(text));
        }
        Ok(json)
    }

    /// The document with this time.
    pub(crate) fn at(&self, now: Timestamp) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        let timestamp = self
            .timestamp_offset
            .and_then(|offset| bytes.get_mut(offset..offset + TIMESTAMP_BYTES));
        if let Some(timestamp) = timestamp {
            timestamp.copy_from_slice(now.to_string().as_bytes());
        }
        bytes
    }
}

/// A JSON response with these bytes.
pub(crate) fn json_response(bytes: impl MessageBody + 'static) -> HttpResponse {
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
        let answer = |now: Timestamp| json!({"said": first, "b": [1, now, "é\""]});
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
        assert!(TimestampedJson::of(|now| json!([now, now])).is_err());
    }
}
