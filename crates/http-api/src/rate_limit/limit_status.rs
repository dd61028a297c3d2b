//! The rate limit headers of responses.
//!
//! They have the form of version 6 of the IETF draft (`draft-ietf-httpapi-ratelimit-headers`): one header per number. API
//! gateways send it and clients read it; few clients read the later form with one header for all.

use std::time::Duration;

use actix_web::HttpMessage;
use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue};

use super::token_buckets::DrawOutcome;
use super::too_many_requests;
use crate::problem::Problem;

const LIMIT: HeaderName = HeaderName::from_static("ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("ratelimit-reset");
const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
/// Headers that pages of other origins may read.
pub(crate) const EXPOSED_HEADERS: &str = "RateLimit-Limit, RateLimit-Remaining, RateLimit-Reset, RateLimit-Policy, Retry-After, X-Request-Id";

/// The rate limit of a request's sender after the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RateLimitStatus {
    /// Requests per second.
    limit: u64,
    drawn: DrawOutcome,
}

impl RateLimitStatus {
    pub(super) fn new(limit: u64, drawn: DrawOutcome) -> Self {
        Self { limit, drawn }
    }

    /// # Errors
    /// 429 with `Retry-After` if the request exceeds the limit.
    pub(crate) fn admit(self) -> Result<(), Problem> {
        if self.drawn.is_admitted {
            return Ok(());
        }
        Err(too_many_requests("Too many requests"))
    }

    pub(crate) fn attach_to(self, req: &impl HttpMessage) {
        req.extensions_mut().insert(self);
    }

    /// The status of a request that was counted.
    pub(crate) fn of(req: &impl HttpMessage) -> Option<Self> {
        req.extensions().get::<Self>().copied()
    }

    pub(crate) fn write_headers(self, headers: &mut HeaderMap) {
        let full_after_micros = Duration::from_micros(self.drawn.full_after_micros);
        let seconds = full_after_micros.as_secs() + u64::from(full_after_micros.subsec_nanos() > 0);
        headers.insert(LIMIT, self.limit.into());
        headers.insert(REMAINING, self.drawn.left.into());
        headers.insert(RESET, seconds.into());
        let policy = HeaderValue::try_from(format!("{};w=1", self.limit));
        if let Ok(policy) = policy {
            headers.insert(POLICY, policy);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_whole_and_seconds_are_rounded_up() {
        let drawn = DrawOutcome {
            is_admitted: true,
            left: 7,
            full_after_micros: 3_000,
        };
        let mut headers = HeaderMap::new();
        RateLimitStatus::new(10, drawn).write_headers(&mut headers);
        for (name, value) in [
            (LIMIT, "10"),
            (REMAINING, "7"),
            (RESET, "1"),
            (POLICY, "10;w=1"),
        ] {
            assert_eq!(headers.get(&name).unwrap(), value, "{name}");
            let is_exposed = EXPOSED_HEADERS
                .split(", ")
                .any(|known| known.eq_ignore_ascii_case(name.as_str()));
            assert!(is_exposed, "{name}");
        }
    }
}
