//! What sandboxes write. Of this service; the reference has no such route.

use actix_web::http::header::CACHE_CONTROL;
use actix_web::{HttpResponse, get};
use application::sandboxes::SandboxLogReader;
use domain::id::SandboxId;

use crate::body_writer::{BodyEnd, BodyWriter, Disconnected, STREAM_WRITE_TIMEOUT};
use crate::dto::sandbox::record::LogsQuery;
use crate::extract::{AccessRecheck, Actor, ApiCall, Application, PathParam, Query};
use crate::problem::Problem;

/// Reads the log of a sandbox's agent server: its last lines, and with `follow` new lines until the sandbox stops. Works also
/// for a paused or failed sandbox. Keys are masked. A followed log also ends after 15 minutes without output, when the key
/// is revoked, and when the service stops; the client may reconnect.
#[utoipa::path(tag = "Sandboxes", params(LogsQuery), responses(
    (status = 200, body = String, content_type = "text/plain"),
    (status = 429, description = "The user reads too many logs at the same time"),
    (status = 501, description = "This kind of sandbox has no log"),
    (status = 502, description = "The log cannot be read"),
))]
#[get("/api/v1/sandboxes/{sandbox_id}/logs")]
pub(crate) async fn read(
    app: Application,
    ApiCall(actor, (PathParam(id), Query(query), recheck)): ApiCall<
        Actor,
        (PathParam<SandboxId>, Query<LogsQuery>, AccessRecheck),
    >,
) -> Result<HttpResponse, Problem> {
    let reading = app
        .sandbox_logs
        .open(&actor.owner, &id, query.into())
        .await?;
    let (body_writer, body) = BodyWriter::new(BodyEnd::Writer, STREAM_WRITE_TIMEOUT);
    app.spawn(async move {
        let written = write(reading, &body_writer);
        body_writer
            .until_closed(written, recheck.until_refused(actor))
            .await;
    });
    Ok(HttpResponse::Ok()
        .content_type("text/plain; charset=utf-8")
        .insert_header((CACHE_CONTROL, "no-store"))
        // The text is not trusted: no browser may interpret it as a page.
        .insert_header(("X-Content-Type-Options", "nosniff"))
        // Otherwise nginx buffers the response.
        .insert_header(("X-Accel-Buffering", "no"))
        .streaming(body))
}

async fn write(
    mut reading: SandboxLogReader,
    body_writer: &BodyWriter,
) -> Result<(), Disconnected> {
    while let Some(lines) = reading.next().await {
        body_writer.send(&lines).await?;
    }
    Ok(())
}
