//! What a client is told of its limit.
//!
//! Of the forms that the IETF's draft has had (`draft-ietf-httpapi-ratelimit-headers`), the one of its version 6, with a
//! header for each number, is what gateways send and clients read; the later one, with all of them in one header, has few
//! that read it.

use std::time::Duration;

use actix_web::HttpMessage;
use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue};

use super::bucket::DrawOutcome;
use super::too_many_requests;
use crate::problem::Problem;

const LIMIT: HeaderName = HeaderName::from_static("ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("ratelimit-reset");
const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
/// For pages of other origins, which see no header that they are not told of.
pub(crate) const EXPOSED_HEADERS: &str = "RateLimit-Limit, RateLimit-Remaining, RateLimit-Reset, RateLimit-Policy, Retry-After, X-Request-Id";

/// What is left to whoever sent a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RateLimitStatus {
    /// Requests in a second.
    limit: u64,
    drawn: DrawOutcome,
}

impl RateLimitStatus {
    pub(super) fn new(limit: u64, drawn: DrawOutcome) -> Self {
        Self { limit, drawn }
    }

    /// # Errors
    /// 429 with `Retry-After`: it was one too many.
    pub(crate) fn admit(self) -> Result<(), Problem> {
        if self.drawn.is_admitted {
            return Ok(());
        }
        Err(too_many_requests("Too many requests"))
    }

    /// Keeps it with the request until that is answered.
    pub(crate) fn note(self, req: &impl HttpMessage) {
        req.extensions_mut().insert(self);
    }

    /// Of a request that was counted.
    pub(crate) fn of(req: &impl HttpMessage) -> Option<Self> {
        req.extensions().get::<Self>().copied()
    }

    /// Tells the client.
    pub(crate) fn tell(self, headers: &mut HeaderMap) {
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
        RateLimitStatus::new(10, drawn).tell(&mut headers);
        for (name, value) in [
            (LIMIT, "10"),
            (REMAINING, "7"),
            (RESET, "1"),
            (POLICY, "10;w=1"),
        ] {
            assert_eq!(headers.get(&name).unwrap(), value, "{name}");
            let is_exposed = EXPOSED_HEADERS
                .split(", ")
                .any(|it| it.eq_ignore_ascii_case(name.as_str()));
            assert!(is_exposed, "{name}");
        }
    }
}
