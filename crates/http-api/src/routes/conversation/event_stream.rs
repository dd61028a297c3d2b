//! Streams the events of a conversation as they arrive: Server-Sent Events.

use std::fmt::Write as _;
use std::time::Duration;

use actix_web::http::header::CACHE_CONTROL;
use actix_web::{HttpResponse, get};
use application::AppError;
use application::event_streams::{EventStream, StreamEndReason, StreamItem, StreamPosition};
use domain::audit::AuditActor;
use domain::error::{Classify, ErrorClass};
use domain::event::SequencedEvent;
use domain::id::ConversationId;
use futures::FutureExt as _;
use tokio::time::sleep;

use crate::body_writer::{BodyEnd, BodyWriter, Disconnected, STREAM_WRITE_TIMEOUT};
use crate::decode::{FieldError, Path};
use crate::dto::conversation::event::EventStreamQuery;
use crate::extract::{
    AccessRecheck, Actor, ApiCall, Application, LastEventId, PathParam, Query, State,
};
use crate::problem::Problem;
use crate::unsent_bytes::{self, MIN_COUNTED_BYTES, UnsentBytes, UnsentShare};

/// Milliseconds after which a client reconnects when its stream has ended.
const RETRY_FIELD: &str = "retry: 1000\n";
/// Time between the halves of a keep-alive. A peer that is gone answers the first half with a reset, so that the second one
/// fails: without sending, a lost peer is not noticed.
const KEEP_ALIVE_SPLIT_INTERVAL: Duration = Duration::from_millis(200);
/// Time for a client whose key was revoked to read the remaining bytes and the reason of the end.
const END_GRACE: Duration = Duration::from_secs(1);

/// Streams the events of a conversation as they arrive (Server-Sent Events). Each event has its number as `id` and its
/// document as `data`; `Last-Event-ID` continues after one. A finished stream sends `event: end` with a `reason`: `deleted`,
/// `unauthorized` (the key was revoked or has expired), `shutdown` or `failed` (reconnect).
#[utoipa::path(
    tag = "Events",
    params(EventStreamQuery, ("Last-Event-ID" = Option<i64>, Header, description = "The `id` of the last received event; browsers send it when they reconnect")),
    responses(
        (status = 200, body = String, content_type = "text/event-stream"),
        (status = 429, description = "The user has too many open streams"),
    )
)]
#[get("/api/v1/conversation/{conversation_id}/events/stream")]
pub(crate) async fn follow(
    app: Application,
    state: State,
    call: FollowCall,
) -> Result<HttpResponse, Problem> {
    let ApiCall(actor, (PathParam(id), Query(query), LastEventId(header), recheck)) = call;
    let (begin, kind) = query.into_parts(header);
    let opened = app.event_streams.open(&actor.owner, id, begin, kind).await;
    let following = opened.map_err(|error| refused(error, header.is_some()))?;
    let first = match begin {
        // A client that reconnects before the first event continues at this position.
        StreamPosition::Now => format!("{RETRY_FIELD}id: {}\n\n", following.last_sequence()),
        StreamPosition::First | StreamPosition::After(_) => format!("{RETRY_FIELD}\n"),
    };
    let (body_writer, body) = BodyWriter::new(BodyEnd::Writer, STREAM_WRITE_TIMEOUT);
    let unsent = StreamBudget {
        unsent: state.unsent.clone(),
        caller: unsent_bytes::UnsentOwner::Known(AuditActor::User(actor.user.clone())),
    };
    app.spawn(async move {
        let refused = recheck.until_refused(actor).boxed().shared();
        let cut = refused.clone().then(|()| sleep(END_GRACE));
        let writing = write_events(following, refused, first, (&body_writer, unsent));
        body_writer.until_closed(writing, cut).await;
    });
    Ok(HttpResponse::Ok()
        .content_type("text/event-stream; charset=utf-8")
        .insert_header((CACHE_CONTROL, "no-store"))
        // Otherwise nginx buffers the response.
        .insert_header(("X-Accel-Buffering", "no"))
        .streaming(body))
}

type FollowCall = ApiCall<
    Actor,
    (
        PathParam<ConversationId>,
        Query<EventStreamQuery>,
        LastEventId,
        AccessRecheck,
    ),
>;

/// Reports an unknown event number as an error of the header or query parameter.
fn refused(error: AppError, in_header: bool) -> Problem {
    if error.class() != ErrorClass::Unprocessable {
        return error.into();
    }
    let fault = FieldError::value_error(error.public());
    if in_header {
        Problem::unprocessable(&Path::header().key(LastEventId::NAME), fault)
    } else {
        Problem::unprocessable(&Path::query().key("last_event_id"), fault)
    }
}

async fn write_events(
    mut following: EventStream,
    mut refused: impl Future<Output = ()> + Unpin,
    first: String,
    (body_writer, unsent): (&BodyWriter, StreamBudget),
) -> Result<(), Disconnected> {
    body_writer.send(first.as_bytes()).await?;
    loop {
        tokio::select! {
            biased;
            () = &mut refused => return body_writer.send(end_event("unauthorized").as_bytes()).await,
            news = following.next() => match news {
                StreamItem::Events(events) => {
                    let text = format_events(events);
                    let Ok(_until_it_is_sent) = unsent.try_take(text.len()) else {
                        // The client reconnects at this position, and may have read the rest by then.
                        return body_writer.send(end_event(reason(StreamEndReason::Failed)).as_bytes()).await;
                    };
                    body_writer.send(text.as_bytes()).await?;
                }
                StreamItem::Idle => {
                    body_writer.send(b": keep-alive").await?;
                    sleep(KEEP_ALIVE_SPLIT_INTERVAL).await;
                    body_writer.send(b"\n\n").await?;
                }
                StreamItem::End(why) => return body_writer.send(end_event(reason(why)).as_bytes()).await,
            }
        }
    }
}

/// Counts what the stream has written and the client has not read, together with the user's other unsent bytes.
struct StreamBudget {
    unsent: UnsentBytes,
    caller: unsent_bytes::UnsentOwner,
}

impl StreamBudget {
    fn try_take(&self, bytes: usize) -> Result<Option<UnsentShare>, Problem> {
        if bytes <= MIN_COUNTED_BYTES {
            return Ok(None);
        }
        self.unsent.try_take(self.caller.clone(), bytes).map(Some)
    }
}

const fn reason(end: StreamEndReason) -> &'static str {
    match end {
        StreamEndReason::Deleted => "deleted",
        StreamEndReason::Shutdown => "shutdown",
        StreamEndReason::Failed => "failed",
    }
}

fn end_event(reason: &str) -> String {
    format!("event: end\ndata: {{\"reason\":\"{reason}\"}}\n\n")
}

/// Formats events. Serialized JSON contains no line breaks: within strings they are escaped.
fn format_events(events: Vec<SequencedEvent>) -> String {
    let mut text = String::new();
    for SequencedEvent { seq, event } in events {
        // Writing to a `String` does not fail.
        let _ = write!(text, "id: {seq}\ndata: {}\n\n", event.body);
    }
    text
}
