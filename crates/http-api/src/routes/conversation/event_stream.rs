//! The events of a conversation as they arrive: Server-Sent Events.

use std::fmt::Write as _;
use std::time::Duration;

use actix_web::http::header::CACHE_CONTROL;
use actix_web::{HttpResponse, get};
use application::AppError;
use application::event_streams::{StreamPosition, StreamEndReason, EventStream, StreamItem};
use domain::audit::AuditActor;
use domain::error::{Classify, ErrorClass};
use domain::event::SequencedEvent;
use domain::id::ConversationId;
use futures::FutureExt as _;
use tokio::time::sleep;

use crate::body_writer::{Disconnected, BodyWriter};
use crate::decode::{FieldError, Path};
use crate::dto::conversation::event::EventStreamQuery;
use crate::extract::{
    AccessRecheck, Actor, Application, Call, LastEventId, PathParam, Query, State,
};
use crate::problem::{Detail, Problem};
use crate::unsent_bytes::{self, MIN_COUNTED_BYTES, UnsentBytes, UnsentShare};

/// After how many milliseconds a client comes back whose stream has ended.
const RETRY_FIELD: &str = "retry: 1000\n";
/// Between the halves of a keep-alive. A peer that is gone answers the first one with a reset, and the second one fails:
/// while nothing is sent, nobody learns that it is gone.
const KEEP_ALIVE_SPLIT_INTERVAL: Duration = Duration::from_millis(200);
/// For a client whose key was revoked to take what it was sent, and the reason of the end.
const END_GRACE: Duration = Duration::from_secs(1);

/// Streams the events of a conversation as they arrive (Server-Sent Events). Each has its number as `id` and its document
/// as `data`; `Last-Event-ID` goes on after one. A stream that will bring nothing more says `event: end` with a `reason`:
/// `deleted`, `unauthorized` (the key was revoked or has expired), `shutdown` or `failed` (come back).
#[utoipa::path(
    tag = "Events",
    params(
        ("conversation_id" = Uuid, Path),
        EventStreamQuery,
        ("Last-Event-ID" = Option<i64>, Header, description = "The `id` of the last event that was seen; browsers send it when they come back"),
    ),
    responses(
        (status = 200, description = "The stream", body = String, content_type = "text/event-stream"),
        (status = 429, description = "Too many streams of this user are open", body = Detail),
    )
)]
#[get("/api/v1/conversation/{conversation_id}/events/stream")]
pub(crate) async fn follow(
    app: Application,
    state: State,
    call: FollowCall,
) -> Result<HttpResponse, Problem> {
    let Call(actor, (PathParam(id), Query(query), LastEventId(header), recheck)) = call;
    let (begin, kind) = query.into_parts(header);
    let opened = app.follow.open(&actor.user, id, begin, kind).await;
    let following = opened.map_err(|error| refused(error, header.is_some()))?;
    let first = match begin {
        // So that who comes back before anything was said comes back to this place.
        StreamPosition::Now => format!("{RETRY_FIELD}id: {}\n\n", following.at()),
        StreamPosition::First | StreamPosition::After(_) => format!("{RETRY_FIELD}\n"),
    };
    let (body_writer, body) = BodyWriter::new();
    let unsent = StreamBudget {
        unsent: state.unsent().clone(),
        caller: unsent_bytes::UnsentOwner::Known(AuditActor::User(actor.user.clone())),
    };
    app.follow.spawn(async move {
        let refused = recheck.refused(actor).boxed().shared();
        let cut = refused.clone().then(|()| sleep(END_GRACE));
        let said = write_events(following, refused, first, (&body_writer, unsent));
        body_writer.until_closed(said, cut).await;
    });
    Ok(HttpResponse::Ok()
        .content_type("text/event-stream; charset=utf-8")
        .insert_header((CACHE_CONTROL, "no-store"))
        // Else nginx collects before it sends.
        .insert_header(("X-Accel-Buffering", "no"))
        .streaming(body))
}

type FollowCall = Call<
    Actor,
    (
        PathParam<ConversationId>,
        Query<EventStreamQuery>,
        LastEventId,
        AccessRecheck,
    ),
>;

/// A number that was never given out is a fault of where it stands.
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
            () = &mut refused => return body_writer.send(end("unauthorized").as_bytes()).await,
            news = following.next() => match news {
                StreamItem::Events(events) => {
                    let text = written(events);
                    let Ok(_until_it_is_sent) = unsent.try_take(text.len()) else {
                        // The client comes back to this place, and may have read the rest by then.
                        return body_writer.send(end(reason(StreamEndReason::Failed)).as_bytes()).await;
                    };
                    body_writer.send(text.as_bytes()).await?;
                }
                StreamItem::Idle => {
                    body_writer.send(b": keep-alive").await?;
                    sleep(KEEP_ALIVE_SPLIT_INTERVAL).await;
                    body_writer.send(b"\n\n").await?;
                }
                StreamItem::End(why) => return body_writer.send(end(reason(why)).as_bytes()).await,
            }
        }
    }
}

/// What a stream has written and its client has not taken, counted with the rest of what the user leaves unread.
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

fn end(reason: &str) -> String {
    format!("event: end\ndata: {{\"reason\":\"{reason}\"}}\n\n")
}

/// JSON has no line breaks but in its texts, where they are escaped.
fn written(events: Vec<SequencedEvent>) -> String {
    let mut text = String::new();
    for SequencedEvent { seq, event } in events {
        // Writing to a text does not fail.
        let _ = write!(text, "id: {seq}\ndata: {}\n\n", event.body);
    }
    text
}
