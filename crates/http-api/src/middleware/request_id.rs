//! One id per request, generated or sent by the client, in every log line and in the response.

use actix_web::http::header::HeaderValue;
use domain::id::IdGenerator;

const MAX_REQUEST_ID_BYTES: usize = 128;

/// The id that the client sent, if it is safe to log; otherwise a new one.
pub(super) fn of(sent: Option<&HeaderValue>, ids: &dyn IdGenerator) -> HeaderValue {
    match sent {
        Some(id) if is_loggable(id.as_bytes()) => id.clone(),
        _ => HeaderValue::from_bytes(ids.uuid().simple().encode_lower(&mut [0; 32]).as_bytes())
            .unwrap_or_else(|_| HeaderValue::from_static("unknown")),
    }
}

fn is_loggable(id: &[u8]) -> bool {
    (1..=MAX_REQUEST_ID_BYTES).contains(&id.len())
        && id.iter().all(|b| {
            b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b':' | b'/' | b'+' | b'=')
        })
}

#[cfg(test)]
mod tests {
    use super::is_loggable;

    #[test]
    fn ids_that_could_forge_a_log_line_are_replaced() {
        for good in [
            "a",
            "req-1.2_3",
            "1-67891233-abcdef012345678912345678",
            "a/b+c==",
        ] {
            assert!(is_loggable(good.as_bytes()), "{good}");
        }
        for bad in [
            "",
            "a b",
            "a\tb",
            "{\"a\":1}",
            "é",
            "a\"b",
            &"x".repeat(129),
        ] {
            assert!(!is_loggable(bad.as_bytes()), "{bad}");
        }
    }
}
