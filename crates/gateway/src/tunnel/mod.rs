//! Upgraded connections: bytes in both directions. The gateway parses only the boundaries of WebSocket frames.
//!
//! Towards the client a tunnel is the response body, which actix polls as fast as the client reads. Towards the upstream a
//! small task copies the bytes as fast as the upstream reads. A buffer exists only while it holds data, so thousands of
//! silent tunnels need little memory.

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
use futures::StreamExt;
use hyper::body::Incoming;
use hyper::{Response, StatusCode};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use crate::download::MeteredSlot;
use crate::limits::TrafficKind;
use crate::tasks::BodyTask;
use crate::tunnel::frames::{CloseReason, FrameTracker};
use crate::tunnel::unauthenticated::Admission;
use crate::upstream::ConnectionLease;
use crate::upstream::replay_stream::ReplayStream;
use crate::{ForwardError, ForwardTarget, Revocation, SharedGateway, forward, headers};

/// Bytes that are read from the upstream at once.
const READ_BUFFER_BYTES: usize = 8 * 1024;
/// Bytes of a refused upgrade's response that reach the client. The connection is not reused, so the response is read
/// first.
const MAX_REFUSAL_BYTES: usize = 64 * 1024;
/// Longest time to read that response.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(10);

/// The stream of an accepted upgrade, and the bytes that were read beyond the response's head.
async fn upgraded_stream(
    answer: &mut Response<Incoming>,
) -> Result<(TcpStream, Bytes), ForwardError> {
    let broken = |error: Box<dyn Error + Send + Sync>| ForwardError::Broken(error);
    let upgraded = hyper::upgrade::on(answer).await;
    let upgraded = upgraded.map_err(|error| broken(error.into()))?;
    let parts = upgraded
        .downcast::<ReplayStream>()
        .map_err(|_| broken("the upgraded connection has an unexpected type".into()))?;
    let (io, unseen) = parts.io.into_parts();
    if !unseen.is_empty() {
        return Err(broken(
            "received bytes were not replayed before the upgrade".into(),
        ));
    }
    Ok((io, parts.read_buf))
}

/// Makes a tunnel of a response that accepts the upgrade; passes on any other response.
pub(crate) async fn open(
    (mut answer, lease): (Response<Incoming>, ConnectionLease),
    payload: Payload,
    target: &ForwardTarget,
    slot: MeteredSlot,
    end: Revocation,
    admission: Option<Admission>,
) -> Result<HttpResponse<BoxBody>, ForwardError> {
    // The response to a refused upgrade may have no defined end, so its connection is not reused either.
    lease.discard();
    let status = answer.status();
    let mut builder = HttpResponse::build(forward::status(status));
    headers::copy_response_headers(&mut builder, answer.headers(), target, false);
    if status != StatusCode::SWITCHING_PROTOCOLS {
        slot.shared.meter.record_answered(TrafficKind::Request);
        return refusal(answer.into_body(), builder).await;
    }
    let upgrade = answer.headers().get("upgrade");
    let protocol = upgrade.and_then(|protocol| protocol.to_str().ok());
    let is_websocket_value = protocol.is_none_or(|it| it.eq_ignore_ascii_case("websocket"));
    builder.upgrade(protocol.unwrap_or("websocket"));
    let (io, early) = upgraded_stream(&mut answer).await?;
    let (from, to) = io.into_split();
    slot.shared.meter.record_answered(TrafficKind::Tunnel);
    let ended = Rc::new(Cell::new(None));
    let (shared, why) = (slot.shared.clone(), Rc::clone(&ended));
    let progress = admission.is_some().then(Rc::<AuthProgress>::default);
    let (seen, owner, sandbox) = (
        progress.clone(),
        target.owner.clone(),
        target.sandbox.clone(),
    );
    // In the task rather than in `poll_next`: a client that does not read must not delay the end.
    let up = async move {
        let rejection = async {
            match (admission, &seen) {
                (Some(admission), Some(seen)) => {
                    rejection(admission, seen, &shared, (&owner, &sandbox)).await
                }
                _ => pending().await,
            }
        };
        tokio::select! {
            biased;
            () = end => why.set(Some(CloseReason::PolicyViolation)),
            () = shared.stopping.cancelled() => why.set(Some(CloseReason::ServiceRestart)),
            reason = rejection => why.set(Some(reason)),
            () = copy_to_server(payload, to, &shared, seen.as_deref()) => {}
        }
    };
    Ok(builder.body(BoxBody::new(Tunnel {
        early: Some(early).filter(|early| !early.is_empty()),
        from,
        up: Some(BodyTask::spawn(up)),
        frames: is_websocket_value.then(FrameTracker::default),
        progress,
        ended,
        slot,
    })))
}

async fn refusal(
    body: Incoming,
    mut builder: HttpResponseBuilder,
) -> Result<HttpResponse<BoxBody>, ForwardError> {
    use hyper::body::Body as _;
    let mut whole = BytesMut::new();
    let read = async {
        let mut body = body;
        while whole.len() < MAX_REFUSAL_BYTES {
            let frame = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
            let Some(Ok(frame)) = frame else { break };
            if let Ok(piece) = frame.into_data() {
                let room = MAX_REFUSAL_BYTES - whole.len();
                whole.extend_from_slice(&piece[..piece.len().min(room)]);
            }
        }
    };
    timeout(REFUSAL_TIMEOUT, read)
        .await
        .map_err(|_| ForwardError::Silent)?;
    Ok(builder.force_close().body(whole.freeze()))
}

/// The progress of a client that authenticates to the upstream. The upstream does not confirm the authentication; it
/// refuses at once, before it sends anything else.
#[derive(Default)]
struct AuthProgress {
    /// The client has sent a complete frame.
    client_spoke: Notify,
    /// The upstream has sent a complete frame or a close frame.
    server_answered: Notify,
    is_refused: Cell<bool>,
}

/// Completes when an unauthenticated client must be disconnected: it sent nothing in time, the upstream refused it, or it
/// was evicted. Never completes once the client is accepted; it then holds slots of the owner and the sandbox.
async fn rejection(
    admission: Admission,
    seen: &AuthProgress,
    shared: &SharedGateway,
    (owner, sandbox): (&Arc<str>, &Arc<str>),
) -> CloseReason {
    let limits = &shared.limits;
    let not_refused = async {
        let spoke = seen.client_spoke.notified();
        if timeout(limits.authentication_timeout, spoke).await.is_err() {
            return Err(CloseReason::PolicyViolation);
        }
        admission.mark_spoken();
        sleep(limits.authentication_grace).await;
        Ok(())
    };
    let accepted = tokio::select! {
        biased;
        () = seen.server_answered.notified() => Ok(()),
        () = admission.evicted() => Err(CloseReason::TryAgainLater),
        accepted = not_refused => accepted,
    };
    if let Err(reason) = accepted {
        return reason;
    }
    if seen.is_refused.get() {
        // Give the client time to react to the refusal.
        let _ = timeout(limits.authentication_grace, admission.evicted()).await;
        return CloseReason::PolicyViolation;
    }
    drop(admission);
    match shared.slots.take_shares(owner, sandbox) {
        Ok(_slot) => pending().await,
        Err(_) => CloseReason::TryAgainLater,
    }
}

/// Copies what the client sends, then shuts down the write side.
async fn copy_to_server(
    mut payload: Payload,
    mut to: OwnedWriteHalf,
    shared: &SharedGateway,
    seen: Option<&AuthProgress>,
) {
    let mut first = seen.map(|seen| (seen, FrameTracker::default()));
    while let Some(Ok(piece)) = payload.next().await {
        if to.write_all(&piece).await.is_err() {
            return;
        }
        if let Some((seen, frames)) = &mut first {
            frames.pass(&piece);
            if frames.has_seen_message() {
                seen.client_spoke.notify_one();
                first = None;
            }
        }
        shared.meter.add_bytes_up(piece.len());
    }
    let _ = to.shutdown().await;
    // The rest of the upstream's data may arrive, within the time-out.
    tokio::time::sleep(shared.limits.half_open_timeout).await;
}

/// The response body that actix polls.
struct Tunnel {
    /// Bytes that arrived right behind the response head.
    early: Option<Bytes>,
    from: OwnedReadHalf,
    /// The task of the other direction, until it has ended.
    up: Option<BodyTask>,
    /// Frame boundaries of a WebSocket; `None` once nothing may follow.
    frames: Option<FrameTracker>,
    /// Set until the client has authenticated.
    progress: Option<Rc<AuthProgress>>,
    /// Why the tunnel was closed; nothing passes in either direction afterwards.
    ended: Rc<Cell<Option<CloseReason>>>,
    slot: MeteredSlot,
}

impl Tunnel {
    fn passed(&mut self, piece: &Bytes) {
        self.slot.shared.meter.add_bytes_down(piece.len());
        if let Some(frames) = &mut self.frames {
            frames.pass(piece);
            let has_answered = frames.has_seen_message() || frames.has_seen_close();
            if let Some(seen) = self.progress.take_if(|_| has_answered) {
                seen.is_refused.set(frames.has_seen_close());
                seen.server_answered.notify_one();
            }
        }
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        if let Some(early) = self.early.take() {
            return Poll::Ready(Some(Ok(early)));
        }
        loop {
            if let Err(error) = ready!(self.from.as_ref().poll_read_ready(cx)) {
                return Poll::Ready(Some(Err(error)));
            }
            let mut buffer = BytesMut::with_capacity(READ_BUFFER_BYTES);
            match self.from.try_read_buf(&mut buffer) {
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
        // Poll this first: an upstream that never pauses must not keep the tunnel open. Polling also registers the waker.
        if this
            .up
            .as_mut()
            .is_some_and(|up| up.poll_finished(cx).is_ready())
        {
            this.up = None;
        }
        if let Some(why) = this.ended.get() {
            // No close frame fits in the middle of a frame; the client sees the connection end.
            let may_say = this
                .frames
                .take()
                .is_some_and(|frames| frames.is_at_boundary());
            return Poll::Ready(may_say.then(|| Ok(why.frame())));
        }
        if let Poll::Ready(piece) = this.poll_read(cx) {
            return Poll::Ready(piece.map(|piece| {
                let piece = piece.inspect(|piece| this.passed(piece));
                piece.map_err(Into::into)
            }));
        }
        if this.up.is_none() {
            return Poll::Ready(None);
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use endpoint_guard::Unguarded;

    use super::*;
    use crate::GatewayLimits;

    /// What happens to a client within an hour after `see`, and whether it then holds the sandbox's only slot.
    async fn after_an_hour(
        see: impl FnOnce(&AuthProgress, &SharedGateway),
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
        let seen = AuthProgress::default();
        see(&seen, &shared);
        let rejection = rejection(admission, &seen, &shared, (&owner, &sandbox));
        let mut rejection = std::pin::pin!(rejection);
        let hour = Duration::from_secs(3600);
        let reason = timeout(hour, rejection.as_mut()).await.ok();
        (reason, shared.slots.take_shares(&owner, &sandbox).is_err())
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_client_that_authenticates_is_accepted() {
        let silent = after_an_hour(|_, _| ()).await;
        assert_eq!(silent, (Some(CloseReason::PolicyViolation), false));
        // The agent server has not sent a frame of its own yet.
        let unanswered = after_an_hour(|seen, _| seen.client_spoke.notify_one()).await;
        assert_eq!(unanswered, (None, true));
        let answered = after_an_hour(|seen, _| seen.server_answered.notify_one()).await;
        assert_eq!(answered, (None, true));
        let refused = after_an_hour(|seen, _| {
            seen.client_spoke.notify_one();
            seen.is_refused.set(true);
            seen.server_answered.notify_one();
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
