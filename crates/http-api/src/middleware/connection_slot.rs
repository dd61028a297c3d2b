//! The slot of a request on its connection: whether it is served when there are too many connections, and that the
//! connection counts as busy until the response is written.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use actix_web::HttpResponse;
use actix_web::ResponseError as _;
use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::StatusCode;
use actix_web::web::Bytes;

use super::body::with_guard;
use crate::body_writer::CHUNK_BYTES;
use crate::connections::{ClientConnection, InFlightRequest};
use crate::problem::Problem;

/// Paths that are served even when there are too many connections: monitoring, and webhook reports.
const ESSENTIAL_PATHS: [&str; 4] = ["/alive", "/ready", "/health", "/metrics"];
const REPORT_PREFIX: &str = "/api/v1/webhooks/";

pub(super) struct ConnectionSlot {
    in_flight: Option<InFlightRequest>,
    /// Whether the connection is over the limit.
    pub(super) is_surplus: bool,
    is_refused: bool,
}

impl ConnectionSlot {
    /// Without a connection (tests in memory) every request gets a slot.
    pub(super) fn of(req: &ServiceRequest) -> Self {
        let Some(connection) = req.conn_data::<Arc<ClientConnection>>() else {
            return Self {
                in_flight: None,
                is_surplus: false,
                is_refused: false,
            };
        };
        let in_flight = connection.begin_request(is_essential(req.path()));
        Self {
            is_refused: in_flight.is_none(),
            is_surplus: connection.is_surplus(),
            in_flight,
        }
    }

    /// The response, if the request must not be served.
    pub(super) fn refusal(&self) -> Option<HttpResponse> {
        let problem = || {
            Problem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "The service has too many connections. Try again.",
            )
        };
        self.is_refused.then(|| problem().error_response())
    }

    /// Makes a streamed response hold the slot until its end. A short and complete one counts as written.
    pub(super) fn attach_to(self, answer: ServiceResponse<BoxBody>) -> ServiceResponse<BoxBody> {
        let Some(in_flight) = self.in_flight else {
            return answer;
        };
        answer.map_body(|_, body| {
            if matches!(body.size(), BodySize::None) {
                // An empty body instead of none would announce a length of 0, which is wrong for a response to HEAD.
                return body;
            }
            let body = match body.try_into_bytes() {
                Ok(bytes) if bytes.len() <= CHUNK_BYTES => return BoxBody::new(bytes),
                Ok(bytes) => BoxBody::new(ChunkedBody::of(bytes)),
                Err(body) => body,
            };
            with_guard(body, in_flight)
        })
    }
}

/// A complete body, handed over in chunks as fast as the client reads. Actix takes a chunk of any size immediately, however slow
/// the client, and asks for the next one when most of it is sent.
pub(super) struct ChunkedBody {
    length: u64,
    rest: Bytes,
}

impl ChunkedBody {
    pub(super) fn of(rest: Bytes) -> Self {
        let length = rest.len() as u64;
        Self { length, rest }
    }
}

impl MessageBody for ChunkedBody {
    type Error = Infallible;

    fn size(&self) -> BodySize {
        BodySize::Sized(self.length)
    }

    fn poll_next(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Self::Error>>> {
        let next = self.rest.len().min(CHUNK_BYTES);
        Poll::Ready((next > 0).then(|| Ok(self.rest.split_to(next))))
    }
}

fn is_essential(path: &str) -> bool {
    ESSENTIAL_PATHS.contains(&path) || path.starts_with(REPORT_PREFIX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use actix_web::body::to_bytes;
    use actix_web::test::TestRequest;

    use super::*;
    use crate::connections::{ConnectionLimits, Connections};

    /// The body of a response on this connection.
    fn kept(connection: &ClientConnection, body: BoxBody) -> BoxBody {
        let connection_slot = ConnectionSlot {
            in_flight: connection.begin_request(false),
            is_surplus: false,
            is_refused: false,
        };
        let answer = HttpResponse::Ok().body(body);
        let answer = ServiceResponse::new(TestRequest::get().to_http_request(), answer);
        connection_slot.attach_to(answer).into_parts().1.into_body()
    }

    fn one_connection() -> (Connections, ClientConnection) {
        let connections = Connections::new(ConnectionLimits {
            max_connections: 1,
            max_per_address: 0,
            idle_timeout: Duration::from_secs(85),
            trusted_proxies: Vec::new(),
        });
        let connection = connections.accept([127, 0, 0, 1].into(), || {});
        (connections, connection)
    }

    #[actix_web::test]
    async fn a_large_response_keeps_its_connection_busy_until_it_is_read() {
        let (connections, connection) = one_connection();
        let whole = vec![7; 3 * CHUNK_BYTES + 1];
        let mut body = Some(kept(&connection, BoxBody::new(whole.clone())));
        assert_eq!(
            body.as_ref().map(MessageBody::size),
            Some(BodySize::Sized(whole.len() as u64))
        );
        let mut taken = Vec::new();
        while let Some(some) = body.as_mut() {
            let next = std::future::poll_fn(|cx| Pin::new(&mut *some).poll_next(cx)).await;
            match next {
                Some(piece) => taken.extend_from_slice(&piece.unwrap()),
                None => body = None,
            }
            // Long enough to count as idle, were it not busy.
            tokio::time::sleep(Duration::from_millis(60)).await;
            let other = connections.accept([127, 0, 0, 1].into(), || {});
            assert_eq!(other.is_surplus(), body.is_some(), "{}", taken.len());
        }
        assert_eq!(taken, whole);
    }

    #[actix_web::test]
    async fn a_missing_body_stays_missing() {
        let (_all, connection) = one_connection();
        let none = BoxBody::new(actix_web::body::None::new());
        assert_eq!(kept(&connection, none).size(), BodySize::None);
        let short = kept(&connection, BoxBody::new("short"));
        assert_eq!(short.size(), BodySize::Sized(5));
        assert_eq!(to_bytes(short).await.unwrap(), "short");
    }

    #[test]
    fn essential_paths_need_no_user_key() {
        for (path, expected) in [
            ("/alive", true),
            ("/ready", true),
            ("/metrics", true),
            ("/api/v1/webhooks/events/1", true),
            ("/api/v1/settings", false),
            ("/alive/x", false),
            ("/", false),
        ] {
            assert_eq!(is_essential(path), expected, "{path}");
        }
    }
}
