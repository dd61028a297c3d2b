//! Connections that were upgraded: bytes both ways, nothing of them read but where frames of web sockets end.
//!
//! Towards the client they are the body of the answer, which actix asks for as fast as the client takes it; towards the
//! server behind a small task copies them as fast as that one takes them. A buffer exists only while there is something in
//! it, so that thousands of silent tunnels cost little.

use std::cell::Cell;
use std::error::Error;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
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
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::timeout;

use crate::beside::Beside;
use crate::download::Counted;
use crate::frames::{Frames, Reason};
use crate::limits::Kind;
use crate::pool::Lease;
use crate::replay::Replay;
use crate::{Failure, Shared, Target, Until, forward, headers};

/// Most that is read of the server behind at once.
const BUFFER: usize = 8 * 1024;
/// Most that is shown of an answer which refuses the upgrade. Its connection is not used again, so it is read to its end first.
const REFUSAL: usize = 64 * 1024;
/// Longest wait for that.
const REFUSAL_WITHIN: Duration = Duration::from_secs(10);

/// Makes a tunnel of an answer that agrees to the upgrade; hands on any other.
pub(crate) async fn open(
    (mut answer, lease): (Response<Incoming>, Lease),
    payload: Payload,
    target: &Target,
    counted: Counted,
    end: Until,
) -> Result<HttpResponse<BoxBody>, Failure> {
    // What refuses an upgrade may have no end of its own: its connection is not used again either.
    lease.give_up();
    let status = answer.status();
    let mut builder = HttpResponse::build(forward::status(status));
    headers::back(&mut builder, answer.headers(), target, false);
    if status != StatusCode::SWITCHING_PROTOCOLS {
        counted.shared.meter.answered(Kind::Request);
        return refusal(answer.into_body(), builder).await;
    }
    let upgrade = answer.headers().get("upgrade");
    let protocol = upgrade.and_then(|protocol| protocol.to_str().ok());
    let is_socket = protocol.is_none_or(|it| it.eq_ignore_ascii_case("websocket"));
    builder.upgrade(protocol.unwrap_or("websocket"));
    let broken = |error: Box<dyn Error + Send + Sync>| Failure::Broken(error);
    let upgraded = hyper::upgrade::on(&mut answer).await;
    let upgraded = upgraded.map_err(|error| broken(error.into()))?;
    let parts = upgraded
        .downcast::<Replay>()
        .map_err(|_| broken("the connection is of another kind".into()))?;
    let (io, unseen) = parts.io.into_parts();
    if !unseen.is_empty() {
        return Err(broken("what came before is not read yet".into()));
    }
    let (from, to) = io.into_split();
    counted.shared.meter.answered(Kind::Tunnel);
    let ended = Rc::new(Cell::new(None));
    let (shared, why) = (counted.shared.clone(), Rc::clone(&ended));
    // In the task, and not where actix asks for more: a client that reads nothing does not hold it up.
    let up = async move {
        tokio::select! {
            biased;
            () = end => why.set(Some(Reason::Refused)),
            () = shared.stopping.cancelled() => why.set(Some(Reason::Restart)),
            () = upwards(payload, to, &shared) => {}
        }
    };
    Ok(builder.body(BoxBody::new(Tunnel {
        early: Some(parts.read_buf).filter(|early| !early.is_empty()),
        from,
        up: Some(Beside::spawn(up)),
        frames: is_socket.then(Frames::default),
        ended,
        counted,
    })))
}

async fn refusal(
    body: Incoming,
    mut builder: HttpResponseBuilder,
) -> Result<HttpResponse<BoxBody>, Failure> {
    use hyper::body::Body as _;
    let mut whole = BytesMut::new();
    let read = async {
        let mut body = body;
        while whole.len() < REFUSAL {
            let frame = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
            let Some(Ok(frame)) = frame else { break };
            if let Ok(piece) = frame.into_data() {
                let room = REFUSAL - whole.len();
                whole.extend_from_slice(&piece[..piece.len().min(room)]);
            }
        }
    };
    timeout(REFUSAL_WITHIN, read)
        .await
        .map_err(|_| Failure::Silent)?;
    Ok(builder.force_close().body(whole.freeze()))
}

/// Copies what the client sends; then tells the server behind that there is no more.
async fn upwards(mut payload: Payload, mut to: OwnedWriteHalf, shared: &Shared) {
    while let Some(Ok(piece)) = payload.next().await {
        if to.write_all(&piece).await.is_err() {
            return;
        }
        shared.meter.up(piece.len());
    }
    let _ = to.shutdown().await;
    // What the server behind still says may arrive; for ever it may not.
    tokio::time::sleep(shared.limits.half_open).await;
}

/// What actix reads.
struct Tunnel {
    /// What came right behind the head of the answer.
    early: Option<Bytes>,
    from: OwnedReadHalf,
    /// The other direction, until it is over.
    up: Option<Beside>,
    /// Where frames end, if there are any; none once nothing more may follow.
    frames: Option<Frames>,
    /// Why it is over, when nothing may pass any more, in either direction.
    ended: Rc<Cell<Option<Reason>>>,
    counted: Counted,
}

impl Tunnel {
    fn passed(&mut self, piece: &Bytes) {
        self.counted.shared.meter.down(piece.len());
        if let Some(frames) = &mut self.frames {
            frames.pass(piece);
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
            let mut buffer = BytesMut::with_capacity(BUFFER);
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
        // First: a server that never pauses does not keep it open. And asked, so that it wakes us.
        if this
            .up
            .as_mut()
            .is_some_and(|up| up.poll_over(cx).is_ready())
        {
            this.up = None;
        }
        if let Some(why) = this.ended.get() {
            // In the middle of a frame nothing can be said: the client sees the connection end.
            let may_say = this.frames.take().is_some_and(|frames| frames.may_end());
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
