//! The events of a conversation as they arrive: Server-Sent Events.

use std::fmt::Write as _;
use std::time::Duration;

use actix_web::http::header::CACHE_CONTROL;
use actix_web::{HttpResponse, get};
use application::AppError;
use application::follow::{Begin, End, Following, News};
use domain::error::{Classify, ErrorClass};
use domain::event::Arrived;
use domain::id::ConversationId;
use tokio::time::sleep;

use super::outlet::{Caller, Gone, Outlet};
use crate::decode::{Fault, Path};
use crate::dto::event::EventStreamQuery;
use crate::extract::{Actor, Application, Call, LastEventId, PathParam, Query, Standing, State};
use crate::problem::{Detail, Problem};

/// After how many milliseconds a client comes back whose stream has ended.
const RETRY: &str = "retry: 1000\n";
/// Between the halves of a keep-alive. A peer that is gone answers the first one with a reset, and the second one fails:
/// while nothing is sent, nobody learns that it is gone.
const HALVES: Duration = Duration::from_millis(200);

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
pub(super) async fn follow(
    app: Application,
    state: State,
    call: StreamCall,
) -> Result<HttpResponse, Problem> {
    let Call(actor, (PathParam(id), Query(query), LastEventId(header), standing)) = call;
    let (begin, kind) = query.into_parts(header);
    let opened = app.follow.open(&actor.user, id, begin, kind).await;
    let following = opened.map_err(|error| refused(error, header.is_some()))?;
    let first = match begin {
        // So that who comes back before anything was said comes back to this place.
        Begin::Now => format!("{RETRY}id: {}\n\n", following.at()),
        Begin::First | Begin::After(_) => format!("{RETRY}\n"),
    };
    let (outlet, body) = Outlet::new();
    let caller = Caller {
        actor,
        standing,
        ask_again: state.limits().ask_again,
    };
    app.follow.spawn(async move {
        let said = say(following, caller, first, &outlet);
        outlet.until_closed(said).await;
    });
    Ok(HttpResponse::Ok()
        .content_type("text/event-stream; charset=utf-8")
        .insert_header((CACHE_CONTROL, "no-store"))
        // Else nginx collects before it sends.
        .insert_header(("X-Accel-Buffering", "no"))
        .streaming(body))
}

type StreamCall = Call<
    Actor,
    (
        PathParam<ConversationId>,
        Query<EventStreamQuery>,
        LastEventId,
        Standing,
    ),
>;

/// A number that was never given out is a fault of where it stands.
fn refused(error: AppError, in_header: bool) -> Problem {
    if error.class() != ErrorClass::Unprocessable {
        return error.into();
    }
    let fault = Fault::value_error(error.public());
    if in_header {
        Problem::unprocessable(&Path::header().key(LastEventId::NAME), fault)
    } else {
        Problem::unprocessable(&Path::query().key("last_event_id"), fault)
    }
}

async fn say(
    mut following: Following,
    caller: Caller,
    first: String,
    outlet: &Outlet,
) -> Result<(), Gone> {
    outlet.send(first.as_bytes()).await?;
    let mut ask = caller.times_to_ask();
    loop {
        tokio::select! {
            biased;
            _ = ask.tick() => {
                if caller.is_refused().await {
                    return outlet.send(end("unauthorized").as_bytes()).await;
                }
            }
            news = following.next() => match news {
                News::Arrived(events) => {
                    let text = written(events);
                    outlet.send(text.as_bytes()).await?;
                }
                News::Idle => {
                    outlet.send(b": keep-alive").await?;
                    sleep(HALVES).await;
                    outlet.send(b"\n\n").await?;
                }
                News::End(why) => return outlet.send(end(reason(why)).as_bytes()).await,
            }
        }
    }
}

const fn reason(end: End) -> &'static str {
    match end {
        End::Deleted => "deleted",
        End::Shutdown => "shutdown",
        End::Failed => "failed",
    }
}

fn end(reason: &str) -> String {
    format!("event: end\ndata: {{\"reason\":\"{reason}\"}}\n\n")
}

/// JSON has no line breaks but in its texts, where they are escaped.
fn written(events: Vec<Arrived>) -> String {
    let mut text = String::new();
    for Arrived { seq, event } in events {
        // Writing to a text does not fail.
        let _ = write!(text, "id: {seq}\ndata: {}\n\n", event.body);
    }
    text
}
