//! A request's place on its connection: whether it is served when there are too many, and that the connection counts as busy
//! until the answer is written.

use std::pin::Pin;
use std::task::{Context, Poll};

use actix_web::HttpResponse;
use actix_web::ResponseError as _;
use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::StatusCode;
use actix_web::web::Bytes;

use crate::connections::{Connection, UnderWay};
use crate::problem::Problem;

/// What the service lives by: whoever watches over it, and sandboxes that report.
const VITAL: [&str; 4] = ["/alive", "/ready", "/health", "/metrics"];
const REPORTS: &str = "/api/v1/webhooks/";

/// Of one request.
pub(super) struct Seat {
    under_way: Option<UnderWay>,
    /// Whether the connection is one too many.
    pub(super) is_last: bool,
    is_refused: bool,
}

impl Seat {
    /// Without a connection (tests in memory) every request has one.
    pub(super) fn of(req: &ServiceRequest) -> Self {
        let Some(connection) = req.conn_data::<Connection>() else {
            return Self {
                under_way: None,
                is_last: false,
                is_refused: false,
            };
        };
        let under_way = connection.enter(is_vital(req.path()));
        Self {
            is_refused: under_way.is_none(),
            is_last: connection.is_surplus(),
            under_way,
        }
    }

    /// The answer, if the request is not to be served.
    pub(super) fn refusal(&self) -> Option<HttpResponse> {
        let problem = || Problem::new(StatusCode::SERVICE_UNAVAILABLE, "Too many connections");
        self.is_refused.then(|| problem().error_response())
    }

    /// An answer that goes on keeps the seat until its end. One that is whole is as good as written.
    pub(super) fn kept_by(self, answer: ServiceResponse<BoxBody>) -> ServiceResponse<BoxBody> {
        let Some(under_way) = self.under_way else {
            return answer;
        };
        answer.map_body(|_, body| match body.try_into_bytes() {
            Ok(bytes) => BoxBody::new(bytes),
            Err(body) => BoxBody::new(Kept {
                body,
                _under_way: under_way,
            }),
        })
    }
}

fn is_vital(path: &str) -> bool {
    VITAL.contains(&path) || path.starts_with(REPORTS)
}

struct Kept {
    body: BoxBody,
    _under_way: UnderWay,
}

impl MessageBody for Kept {
    type Error = Box<dyn std::error::Error>;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Self::Error>>> {
        Pin::new(&mut self.body).poll_next(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vital_is_what_nobody_can_flood_with_a_users_key() {
        for (path, expected) in [
            ("/alive", true),
            ("/ready", true),
            ("/metrics", true),
            ("/api/v1/webhooks/events/1", true),
            ("/api/v1/settings", false),
            ("/alive/x", false),
            ("/", false),
        ] {
            assert_eq!(is_vital(path), expected, "{path}");
        }
    }
}
