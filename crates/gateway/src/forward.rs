//! Forwards one request, up to the head of its response.

use std::pin::{Pin, pin};
use std::sync::Arc;

use actix_web::body::{BodySize, BoxBody};
use actix_web::dev::Payload;
use actix_web::http::Method as OurMethod;
use actix_web::http::header::{HeaderMap, HeaderValue as OurValue};
use actix_web::web::Bytes;
use actix_web::{HttpRequest, HttpResponse};
use futures::{FutureExt, StreamExt};
use http_body_util::BodyDataStream;
use hyper::body::{Body as _, Incoming};
use hyper::{Method, Request, Response, StatusCode, Uri};
use tokio::time::{Duration, timeout};

use crate::download::{DownloadBody, DownloadTask, PendingUpload};
use crate::error::ForwardError;
use crate::limits::{ForwardSlot, TrafficKind};
use crate::revocation::Revocation;
use crate::shared::SharedGateway;
use crate::target::ForwardTarget;
use crate::tunnel::unauthenticated::Admission;
use crate::upload::{UploadBody, channel, copy_body};
use crate::upstream::UpstreamClient;
use crate::{headers, tunnel};

/// Time before the first access recheck: most responses arrive earlier.
const FAST_RESPONSE_GRACE: Duration = Duration::from_secs(1);

/// Forwards requests. Each worker has its own, because connections belong to the worker's thread.
#[derive(Clone)]
pub struct Gateway {
    shared: SharedGateway,
    upstreams: UpstreamClient,
}

impl Gateway {
    /// A gateway without connections.
    pub fn new(shared: SharedGateway) -> Self {
        let upstreams = UpstreamClient::new(&shared.limits, Arc::clone(&shared.guard));
        Self { shared, upstreams }
    }

    /// Forwards the request and returns the response. Both bodies may still be in transit when this returns. A request to
    /// upgrade becomes a tunnel if the upstream agrees.
    ///
    /// All of that ends when `end` completes: a tunnel is closed, a response in transit is truncated, and a request without
    /// a response fails.
    ///
    /// # Errors
    /// [`ForwardError`] if there is no response; the caller renders it.
    pub async fn forward(
        &self,
        req: &HttpRequest,
        payload: Payload,
        target: &ForwardTarget,
        end: Revocation,
    ) -> Result<HttpResponse<BoxBody>, ForwardError> {
        let head = RequestHead {
            method: req.method(),
            headers: req.headers(),
        };
        let result = match BodyKind::of(head) {
            Ok(body_kind) => {
                self.try_forward(head, (body_kind, payload), target, end)
                    .await
            }
            Err(failure) => Err(failure),
        };
        self.record(result)
    }

    /// Forwards a request that is in memory as a whole: it came inside another one. Its headers announce no body and no
    /// upgrade: the body's own length counts. Otherwise like [`Self::forward`].
    ///
    /// # Errors
    /// [`ForwardError`] if there is no response; the caller renders it.
    pub async fn forward_enveloped(
        &self,
        request: EnvelopedRequest,
        target: &ForwardTarget,
        end: Revocation,
    ) -> Result<HttpResponse<BoxBody>, ForwardError> {
        let head = RequestHead {
            method: &request.method,
            headers: &request.headers,
        };
        let body_kind = match request.body.len() {
            0 => BodyKind::Empty,
            length => BodyKind::Sized(length as u64),
        };
        let chunk = futures::stream::iter([Ok(request.body)]);
        let payload = Payload::Stream {
            payload: chunk.boxed_local(),
        };
        let result = self
            .try_forward(head, (body_kind, payload), target, end)
            .await;
        self.record(result)
    }

    fn record<T>(&self, result: Result<T, ForwardError>) -> Result<T, ForwardError> {
        result.inspect_err(|failure| self.shared.meter.record_failure(failure))
    }

    async fn try_forward(
        &self,
        head: RequestHead<'_>,
        (body_kind, payload): (BodyKind, Payload),
        target: &ForwardTarget,
        mut end: Revocation,
    ) -> Result<HttpResponse<BoxBody>, ForwardError> {
        let kind = match body_kind {
            BodyKind::Upgrade => TrafficKind::Tunnel,
            _ => TrafficKind::Request,
        };
        let slot = self.shared.slots.take(kind, target)?;
        if let (BodyKind::Sized(length), Some(max)) =
            (body_kind, self.shared.limits.max_upload_bytes)
            && length > max
        {
            return Err(ForwardError::TooLarge(max));
        }
        let request = UpstreamRequest {
            gateway: self,
            head,
            target,
        };
        let (response, rest) = match body_kind {
            BodyKind::Upgrade => {
                let admission = target.unauthenticated;
                let admission = admission
                    .map(|address| self.shared.unauthenticated.admit(&target.sandbox, address));
                let exchange = request.send_once(true, &mut end);
                let response = match &admission {
                    Some(admission) => {
                        self.before_authentication_timeout(admission, exchange)
                            .await?
                    }
                    None => exchange.await?,
                };
                let opened = (response, payload, slot, end);
                return tunnel::open(&self.shared, target, opened, admission).await;
            }
            BodyKind::Empty => (request.send_with_retry(&mut end).await?, None),
            BodyKind::Sized(length) => {
                request
                    .send_with_body(Some(length), payload, &mut end)
                    .await?
            }
            BodyKind::Chunked => request.send_with_body(None, payload, &mut end).await?,
        };
        request.stream_response(response, rest, slot, end)
    }

    /// Waits for the response to an upgrade whose client has not authenticated yet.
    async fn before_authentication_timeout(
        &self,
        admission: &Admission,
        exchange: impl Future<Output = Result<Response<Incoming>, ForwardError>>,
    ) -> Result<Response<Incoming>, ForwardError> {
        tokio::select! {
            biased;
            response = timeout(self.shared.limits.authentication_timeout, exchange) => {
                response.unwrap_or(Err(ForwardError::UpstreamTimedOut))
            }
            () = admission.evicted() => Err(ForwardError::SandboxFull),
        }
    }
}

/// A request that came inside another one.
#[derive(Debug)]
pub struct EnvelopedRequest {
    /// The method.
    pub method: OurMethod,
    /// The headers. The gateway removes the same ones as from a client's own request.
    pub headers: HeaderMap,
    /// The whole body; may be empty.
    pub body: Bytes,
}

/// The head of a request to forward.
#[derive(Clone, Copy)]
struct RequestHead<'a> {
    method: &'a OurMethod,
    headers: &'a HeaderMap,
}

/// The request to the upstream.
struct UpstreamRequest<'a> {
    gateway: &'a Gateway,
    head: RequestHead<'a>,
    target: &'a ForwardTarget,
}

impl UpstreamRequest<'_> {
    fn request(
        &self,
        is_upgrade: bool,
        body: UploadBody,
    ) -> Result<Request<UploadBody>, ForwardError> {
        let path = self.target.path_and_query.as_str();
        // The gateway speaks no TLS to upstreams. A key must not go over plain HTTP where TLS is required.
        if !path.starts_with('/') || self.target.base_url.scheme() != "http" {
            return Err(ForwardError::BadRequest);
        }
        let uri = Uri::builder()
            .scheme("http")
            .authority(self.target.pool_key())
            .path_and_query(path);
        let method = Method::from_bytes(self.head.method.as_str().as_bytes());
        let mut request = Request::new(body);
        *request.method_mut() = method.map_err(|_| ForwardError::BadRequest)?;
        *request.uri_mut() = uri.build().map_err(|_| ForwardError::BadRequest)?;
        *request.headers_mut() =
            headers::request_headers(self.head.headers, self.target, is_upgrade)?;
        Ok(request)
    }

    async fn send_once(
        &self,
        is_upgrade: bool,
        end: &mut Revocation,
    ) -> Result<Response<Incoming>, ForwardError> {
        let request = self.request(is_upgrade, UploadBody::Empty)?;
        let exchange = pin!(self.gateway.upstreams.send(request));
        self.await_response(exchange, end).await
    }

    /// Waits for the head of the response, once the whole request is sent.
    async fn await_response(
        &self,
        mut exchange: Pin<&mut impl Future<Output = Result<Response<Incoming>, ForwardError>>>,
        end: &mut Revocation,
    ) -> Result<Response<Incoming>, ForwardError> {
        let response_timeout = self.gateway.shared.limits.response_timeout;
        let grace = response_timeout.min(FAST_RESPONSE_GRACE);
        if let Ok(response) = timeout(grace, &mut exchange).await {
            return response;
        }
        let left = response_timeout.saturating_sub(grace);
        tokio::select! {
            biased;
            response = timeout(left, exchange) => response.unwrap_or(Err(ForwardError::UpstreamTimedOut)),
            () = end => Err(ForwardError::Ended),
        }
    }

    /// Sends a request without a body. A safe request is repeated once when a pooled connection turns out to be closed.
    async fn send_with_retry(
        &self,
        end: &mut Revocation,
    ) -> Result<Response<Incoming>, ForwardError> {
        match self.send_once(false, end).await {
            Err(ForwardError::UpstreamDisconnected(error)) if self.head.method.is_safe() => {
                tracing::debug!(%error, "repeating a forwarded request: its pooled connection was closed");
                self.send_once(false, end).await
            }
            result => result,
        }
    }

    /// Returns the response, and the rest of the upload if the response started first.
    async fn send_with_body(
        &self,
        length: Option<u64>,
        payload: Payload,
        end: &mut Revocation,
    ) -> Result<(Response<Incoming>, Option<PendingUpload>), ForwardError> {
        let shared = &self.gateway.shared;
        let (chunks, body) = channel(length, shared.limits.max_chunks);
        let mut exchange = pin!(self.gateway.upstreams.send(self.request(false, body)?));
        let upload = copy_body(payload, length.is_some(), chunks, shared.clone());
        let mut rest: PendingUpload = upload.boxed_local();
        tokio::select! {
            biased;
            response = &mut exchange => return Ok((response?, Some(rest))),
            result = &mut rest => result?,
            () = &mut *end => return Err(ForwardError::Ended),
        }
        // The response timeout starts here, because an upload may take long.
        Ok((self.await_response(exchange, end).await?, None))
    }

    fn stream_response(
        &self,
        response: Response<Incoming>,
        rest: Option<PendingUpload>,
        slot: ForwardSlot,
        end: Revocation,
    ) -> Result<HttpResponse<BoxBody>, ForwardError> {
        let shared = &self.gateway.shared;
        let (parts, body) = response.into_parts();
        if parts.status == StatusCode::SWITCHING_PROTOCOLS {
            return Err(ForwardError::UpstreamDisconnected(
                "the sandbox's server responded with 101, but the request asked for no upgrade"
                    .into(),
            ));
        }
        shared.meter.record_answered(TrafficKind::Request);
        let mut builder = HttpResponse::build(headers::status(parts.status));
        headers::copy_response_headers(&mut builder, &parts.headers, self.target);
        let announced = parts.headers.get("content-length");
        let announced = announced.and_then(|length| length.to_str().ok()?.parse().ok());
        let is_head = *self.head.method == OurMethod::HEAD;
        let size = match parts.status {
            StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED => BodySize::None,
            _ if is_head => announced.map_or(BodySize::None, BodySize::Sized),
            _ => (body.size_hint().exact()).map_or(BodySize::Stream, BodySize::Sized),
        };
        let mut body = BodyDataStream::new(body);
        // Send the head and the first chunk together; most responses have only one.
        let first = match (&size, &rest) {
            (BodySize::Sized(1..) | BodySize::Stream, None) if !is_head => {
                body.next().now_or_never().flatten().transpose()
            }
            _ => Ok(None),
        };
        let first = first.map_err(|error| ForwardError::UpstreamDisconnected(error.into()))?;
        let first_bytes = first.as_ref().map_or(0, Bytes::len);
        shared.meter.add_bytes_down(first_bytes);
        match (first, size) {
            (Some(whole), BodySize::Sized(length)) if first_bytes as u64 == length => {
                Ok(builder.body(whole))
            }
            (first, size) => {
                let task = DownloadTask {
                    shared: shared.clone(),
                    body,
                    rest,
                    _slot: slot,
                };
                Ok(builder.body(BoxBody::new(DownloadBody::new(first, size, task, end))))
            }
        }
    }
}

/// How a request announces its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BodyKind {
    Empty,
    Sized(u64),
    Chunked,
    /// The connection becomes a tunnel.
    Upgrade,
}

impl BodyKind {
    fn of(head: RequestHead<'_>) -> Result<Self, ForwardError> {
        let received = head.headers;
        let length = received.get("content-length").map(|length| {
            let text = length.to_str().map_err(|_| ForwardError::BadRequest)?;
            text.parse::<u64>().map_err(|_| ForwardError::BadRequest)
        });
        let length = length.transpose()?;
        let is_chunked = received.contains_key("transfer-encoding");
        let is_upgrade = received.get_all("upgrade").any(is_websocket_value);
        let has_option = |name, option| {
            let values = received.get_all(name).map(OurValue::as_bytes);
            headers::list_items(values).any(|item| item == option)
        };
        if !is_upgrade && has_option("upgrade", "websocket") {
            // Actix would parse the following bytes as further requests. A proxy in front that passes on this 101 treats
            // them as the tunnel's: these requests would be unchecked.
            return Err(ForwardError::BadUpgrade);
        }
        if is_upgrade {
            // Actix treats everything behind such a head as the tunnel's, so the head must be unambiguous.
            let is_unambiguous = *head.method == OurMethod::GET
                && !is_chunked
                && length.unwrap_or(0) == 0
                && has_option("connection", "upgrade");
            return if is_unambiguous {
                Ok(Self::Upgrade)
            } else {
                Err(ForwardError::BadUpgrade)
            };
        }
        match (is_chunked, length) {
            // Request smuggling: peers that honour the other length see another request.
            (true, Some(_)) => Err(ForwardError::BadRequest),
            (true, None) => Ok(Self::Chunked),
            (false, None | Some(0)) => Ok(Self::Empty),
            (false, Some(length)) => Ok(Self::Sized(length)),
        }
    }
}

/// Exactly what actix treats as an upgrade (actix-http, `h1/decoder.rs`).
fn is_websocket_value(value: &OurValue) -> bool {
    let text = value.to_str().map(str::trim);
    text.is_ok_and(|text| text.eq_ignore_ascii_case("websocket"))
}

/// Whether a request asks for a WebSocket in the form that can be forwarded.
pub fn is_websocket_upgrade(req: &HttpRequest) -> bool {
    req.method() == OurMethod::GET && req.headers().get_all("upgrade").any(is_websocket_value)
}
