//! Upgraded connections: bytes in both directions. The gateway parses only the boundaries of WebSocket frames.
//!
//! Towards the client a tunnel is the response body, which actix polls as fast as the client reads. Towards the
//! upstream a small task copies the bytes as fast as the upstream reads. A buffer exists only while it holds data, so
//! thousands of silent tunnels need little memory.

pub(crate) mod frames;
pub(crate) mod unauthenticated;

use std::cell::Cell;
use std::error::Error;
use std::future::pending;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::dev::Payload;
use actix_web::web::{Bytes, BytesMut};
use actix_web::{HttpResponse, HttpResponseBuilder};
use futures::{FutureExt, StreamExt};
use http_body_util::BodyDataStream;
use hyper::body::Incoming;
use hyper::{Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use crate::error::ForwardError;
use crate::headers;
use crate::limits::{ForwardSlot, TrafficKind};
use crate::revocation::Revocation;
use crate::shared::SharedGateway;
use crate::target::ForwardTarget;
use crate::tasks::spawn_body_task;
use crate::tunnel::frames::{CloseReason, FrameTracker};
use crate::tunnel::unauthenticated::Admission;

/// Bytes of one read from the upstream.
const READ_BUFFER_BYTES: usize = 8 * 1024;
/// Maximum number of bytes of a refused upgrade's response that reach the client.
const MAX_REFUSAL_BYTES: usize = 64 * 1024;
/// Longest time to read that response.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(10);

/// The stream of an accepted upgrade, and the bytes that were read beyond the response's head.
async fn upgraded_stream(
    response: &mut Response<Incoming>,
) -> Result<(TcpStream, Bytes), ForwardError> {
    let broken = |error: Box<dyn Error + Send + Sync>| ForwardError::UpstreamDisconnected(error);
    let upgraded = hyper::upgrade::on(response).await;
    let upgraded = upgraded.map_err(|error| broken(error.into()))?;
    let parts = upgraded
        .downcast::<TokioIo<TcpStream>>()
        .map_err(|_| broken("the upgraded connection has an unexpected type".into()))?;
    Ok((parts.io.into_inner(), parts.read_buf))
}

/// Opens a tunnel if the response accepts the upgrade; forwards any other response.
pub(crate) async fn open(
    shared: &SharedGateway,
    target: &ForwardTarget,
    (mut response, payload, slot, revoked): (Response<Incoming>, Payload, ForwardSlot, Revocation),
    admission: Option<Admission>,
) -> Result<HttpResponse<BoxBody>, ForwardError> {
    let status = response.status();
    let mut builder = HttpResponse::build(headers::status(status));
    headers::copy_response_headers(&mut builder, response.headers(), target);
    if status != StatusCode::SWITCHING_PROTOCOLS {
        shared.meter.record_answered(TrafficKind::Request);
        return forward_refusal_response(response.into_body(), builder).await;
    }
    let upgrade = response.headers().get("upgrade");
    let protocol = upgrade.and_then(|protocol| protocol.to_str().ok());
    let is_websocket = protocol.is_none_or(|name| name.eq_ignore_ascii_case("websocket"));
    builder.upgrade(protocol.unwrap_or("websocket"));
    let (io, read_ahead) = upgraded_stream(&mut response).await?;
    let (upstream_reader, upstream_writer) = io.into_split();
    shared.meter.record_answered(TrafficKind::Tunnel);
    let close_reason = Rc::new(Cell::new(None));
    let (task_shared, reason) = (shared.clone(), Rc::clone(&close_reason));
    let progress = admission.is_some().then(Rc::<AuthProgress>::default);
    let (upload_progress, owner, sandbox) = (
        progress.clone(),
        target.owner.clone(),
        target.sandbox.clone(),
    );
    // The task, not `poll_next`, waits for the revocation: a client that does not read must not delay it.
    let upload = async move {
        let rejection = async {
            match (admission, &upload_progress) {
                (Some(admission), Some(progress)) => {
                    wait_for_rejection(admission, progress, &task_shared, (&owner, &sandbox)).await
                }
                _ => pending().await,
            }
        };
        tokio::select! {
            biased;
            () = revoked => reason.set(Some(CloseReason::PolicyViolation)),
            () = task_shared.stopping.cancelled() => reason.set(Some(CloseReason::ServiceRestart)),
            rejected = rejection => reason.set(Some(rejected)),
            () = copy_to_upstream(payload, upstream_writer, &task_shared, upload_progress.as_deref()) => {}
        }
    };
    Ok(builder.body(BoxBody::new(Tunnel {
        read_ahead: Some(read_ahead).filter(|read_ahead| !read_ahead.is_empty()),
        upstream_reader,
        upload: Some(spawn_body_task(upload)),
        frames: is_websocket.then(FrameTracker::default),
        progress,
        close_reason,
        shared: shared.clone(),
        _slot: slot,
    })))
}

/// Reads the response to a refused upgrade, up to [`MAX_REFUSAL_BYTES`].
async fn forward_refusal_response(
    body: Incoming,
    mut builder: HttpResponseBuilder,
) -> Result<HttpResponse<BoxBody>, ForwardError> {
    let mut body = BodyDataStream::new(body);
    let mut collected = BytesMut::new();
    let read = async {
        while collected.len() < MAX_REFUSAL_BYTES
            && let Some(Ok(piece)) = body.next().await
        {
            let room = MAX_REFUSAL_BYTES - collected.len();
            collected.extend_from_slice(&piece[..piece.len().min(room)]);
        }
    };
    timeout(REFUSAL_TIMEOUT, read)
        .await
        .map_err(|_| ForwardError::UpstreamTimedOut)?;
    Ok(builder.force_close().body(collected.freeze()))
}

/// The progress of a client that authenticates to the upstream. The upstream does not confirm the authentication. It
/// sends a refusal immediately, before anything else.
#[derive(Default)]
struct AuthProgress {
    /// The client has sent a complete frame.
    client_frame_received: Notify,
    /// The upstream has sent a complete frame or a close frame.
    upstream_frame_received: Notify,
    is_refused: Cell<bool>,
}

/// Completes when an unauthenticated client must be disconnected: it sent nothing in time, the upstream refused it, or
/// it was evicted. Never completes once the client is accepted; it then holds slots of the owner and the sandbox.
async fn wait_for_rejection(
    admission: Admission,
    progress: &AuthProgress,
    shared: &SharedGateway,
    (owner, sandbox): (&Arc<str>, &Arc<str>),
) -> CloseReason {
    let limits = &shared.limits;
    let not_refused = async {
        let client_frame = progress.client_frame_received.notified();
        let received = timeout(limits.authentication_timeout, client_frame).await;
        if received.is_err() {
            return Err(CloseReason::PolicyViolation);
        }
        admission.record_first_frame();
        sleep(limits.authentication_grace).await;
        Ok(())
    };
    let accepted = tokio::select! {
        biased;
        () = progress.upstream_frame_received.notified() => Ok(()),
        () = admission.evicted() => Err(CloseReason::TryAgainLater),
        result = not_refused => result,
    };
    if let Err(reason) = accepted {
        return reason;
    }
    if progress.is_refused.get() {
        // Give the client time to react to the refusal.
        let _ = timeout(limits.authentication_grace, admission.evicted()).await;
        return CloseReason::PolicyViolation;
    }
    drop(admission);
    match shared.slots.take_owner_and_sandbox_slots(owner, sandbox) {
        Ok(_slot) => pending().await,
        Err(_) => CloseReason::TryAgainLater,
    }
}

/// Copies the client's bytes to the upstream, then shuts down the write side.
async fn copy_to_upstream(
    mut payload: Payload,
    mut upstream_writer: OwnedWriteHalf,
    shared: &SharedGateway,
    progress: Option<&AuthProgress>,
) {
    let mut until_first_frame = progress.map(|progress| (progress, FrameTracker::default()));
    while let Some(Ok(piece)) = payload.next().await {
        if upstream_writer.write_all(&piece).await.is_err() {
            return;
        }
        if let Some((progress, frames)) = &mut until_first_frame {
            frames.pass(&piece);
            if frames.has_seen_message() {
                progress.client_frame_received.notify_one();
                until_first_frame = None;
            }
        }
        shared.meter.add_bytes_up(piece.len());
    }
    let _ = upstream_writer.shutdown().await;
    // The rest of the upstream's data may arrive, within the timeout.
    tokio::time::sleep(shared.limits.half_open_timeout).await;
}

/// The response body that actix polls.
struct Tunnel {
    /// Bytes that arrived right behind the response head.
    read_ahead: Option<Bytes>,
    upstream_reader: OwnedReadHalf,
    /// The task of the other direction, until it has ended.
    upload: Option<AbortOnDropHandle<()>>,
    /// Frame boundaries of a WebSocket. `None` for other protocols, and after the close frame.
    frames: Option<FrameTracker>,
    /// Set until the client has authenticated.
    progress: Option<Rc<AuthProgress>>,
    /// Set when the gateway closes the tunnel. Nothing passes in either direction afterwards.
    close_reason: Rc<Cell<Option<CloseReason>>>,
    shared: SharedGateway,
    _slot: ForwardSlot,
}

impl Tunnel {
    /// Counts a chunk for the client and follows its frames.
    fn record_piece(&mut self, piece: &Bytes) {
        self.shared.meter.add_bytes_down(piece.len());
        if let Some(frames) = &mut self.frames {
            frames.pass(piece);
            let has_answered = frames.has_seen_message() || frames.has_seen_close();
            if let Some(progress) = self.progress.take_if(|_| has_answered) {
                progress.is_refused.set(frames.has_seen_close());
                progress.upstream_frame_received.notify_one();
            }
        }
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        if let Some(read_ahead) = self.read_ahead.take() {
            return Poll::Ready(Some(Ok(read_ahead)));
        }
        loop {
            if let Err(error) = ready!(self.upstream_reader.as_ref().poll_read_ready(cx)) {
                return Poll::Ready(Some(Err(error)));
            }
            let mut buffer = BytesMut::with_capacity(READ_BUFFER_BYTES);
            match self.upstream_reader.try_read_buf(&mut buffer) {
                Ok(0) => return Poll::Ready(None),
                Ok(_) => return Poll::Ready(Some(Ok(buffer.freeze()))),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
        }
    }
}

impl MessageBody for Tunnel {
    type Error = Box<dyn Error>;

    fn size(&self) -> BodySize {
        BodySize::Stream
    }

    fn poll_next(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Self::Error>>> {
        let this = &mut *self;
        // Poll this first: an upstream that never pauses must not keep the tunnel open. Polling also registers the
        // waker.
        let upload = this.upload.as_mut();
        if upload.is_some_and(|upload| upload.poll_unpin(cx).is_ready()) {
            this.upload = None;
        }
        if let Some(reason) = this.close_reason.get() {
            // A close frame inside another frame would be invalid. In that case the connection ends without one.
            let can_send_frame = this
                .frames
                .take()
                .is_some_and(|frames| frames.is_at_boundary());
            return Poll::Ready(can_send_frame.then(|| Ok(reason.frame())));
        }
        if let Poll::Ready(piece) = this.poll_read(cx) {
            return Poll::Ready(piece.map(|piece| {
                let piece = piece.inspect(|piece| this.record_piece(piece));
                piece.map_err(Into::into)
            }));
        }
        if this.upload.is_none() {
            return Poll::Ready(None);
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use endpoint_guard::Unguarded;

    use super::*;
    use crate::limits::GatewayLimits;

    /// The rejection of a client within an hour after `act`, if any, and whether it then holds the sandbox's only slot.
    async fn after_an_hour(
        act: impl FnOnce(&AuthProgress, &SharedGateway),
    ) -> (Option<CloseReason>, bool) {
        let limits = GatewayLimits {
            max_tunnels_per_sandbox: 1,
            max_unauthenticated_per_sandbox: 1,
            ..GatewayLimits::default()
        };
        let shared = SharedGateway::new(limits, Arc::new(Unguarded));
        let (owner, sandbox) = ("ada".into(), "a".into());
        let admission = shared
            .unauthenticated
            .admit(&sandbox, [192, 0, 2, 1].into());
        let progress = AuthProgress::default();
        act(&progress, &shared);
        let rejection = wait_for_rejection(admission, &progress, &shared, (&owner, &sandbox));
        let mut rejection = std::pin::pin!(rejection);
        let hour = Duration::from_secs(3600);
        let reason = timeout(hour, rejection.as_mut()).await.ok();
        (
            reason,
            shared
                .slots
                .take_owner_and_sandbox_slots(&owner, &sandbox)
                .is_err(),
        )
    }

    #[tokio::test(start_paused = true)]
    async fn only_authenticated_clients_are_accepted() {
        let silent = after_an_hour(|_, _| ()).await;
        assert_eq!(silent, (Some(CloseReason::PolicyViolation), false));
        // The agent server has not sent a frame of its own yet.
        let unanswered =
            after_an_hour(|progress, _| progress.client_frame_received.notify_one()).await;
        assert_eq!(unanswered, (None, true));
        let answered =
            after_an_hour(|progress, _| progress.upstream_frame_received.notify_one()).await;
        assert_eq!(answered, (None, true));
        let refused = after_an_hour(|progress, _| {
            progress.client_frame_received.notify_one();
            progress.is_refused.set(true);
            progress.upstream_frame_received.notify_one();
        });
        assert_eq!(refused.await, (Some(CloseReason::PolicyViolation), false));
        let evicted = after_an_hour(|_, shared| {
            let sandbox = "a".into();
            drop(
                shared
                    .unauthenticated
                    .admit(&sandbox, [192, 0, 2, 1].into()),
            );
        });
        assert_eq!(evicted.await, (Some(CloseReason::TryAgainLater), false));
    }
}
