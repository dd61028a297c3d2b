//! Downloads a conversation as an archive that is written while it is read. Reading and writing wait for each other by at most
//! one page, and only the archive's directory is kept until the end.

use std::sync::Arc;

use actix_web::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use actix_web::{HttpResponse, get};
use application::AppError;
use application::export::Export;
use domain::clock::Timestamp;
use domain::error::chain;
use domain::id::ConversationId;
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::body_writer::{BodyEnd, BodyWriter, Disconnected};
use crate::dto::conversation::record::ConversationDto;
use crate::extract::{AccessRecheck, Actor, ApiCall, Application, PathParam, State};
use crate::problem::Problem;
use crate::zip::{ZipWriter, safe_name};

/// Largest indented event, in bytes: indentation makes deeply nested lists over a hundred times as long.
const MAX_INDENTED_EVENT_BYTES: usize = 16 * 1024 * 1024;
/// Fields that are valid only at this moment, such as the sandbox's key, and are not archived.
const TRANSIENT_FIELDS: [&str; 4] = [
    "sandbox_status",
    "execution_status",
    "conversation_url",
    "session_api_key",
];

/// Downloads a conversation as a zip archive: `meta.json`, and its events in files of their own, oldest first.
#[utoipa::path(tag = "Conversations", responses(
    (status = 200, body = ArchiveDocument, content_type = "application/zip"),
    (status = 409, description = "The user is already downloading it"),
))]
#[get("/api/v1/app-conversations/{conversation_id}/download")]
pub(crate) async fn download(
    app: Application,
    state: State,
    ApiCall(actor, (PathParam(id), recheck)): ApiCall<
        Actor,
        (PathParam<ConversationId>, AccessRecheck),
    >,
) -> Result<HttpResponse, Problem> {
    let export = app.exports.begin(&actor.owner, id).await?;
    let view = export.conversation.clone();
    let changed = view.conversation.updated_at;
    let meta = meta(&ConversationDto::of(view, &app.sandboxes, &state.addresses))
        .map_err(Problem::internal)?;
    let (client, body) = BodyWriter::new(BodyEnd::Finish, state.limits.stalled_deadline);
    let archive_permits = Arc::clone(&state.archive_permits);
    app.spawn(async move {
        let written = tokio::select! {
            written = write(export, (meta, changed), &archive_permits, &client) => written,
            () = recheck.until_refused(actor) => Err(DownloadError::Refused),
        };
        match written {
            Ok(()) => {}
            Err(DownloadError::Disconnected(Disconnected::Closed)) => {
                tracing::debug!(conversation.id = %id, "client abandoned a download");
            }
            Err(reason) => {
                tracing::warn!(conversation.id = %id, error = %chain(&reason), "the download of a conversation was aborted");
            }
        }
    });
    let name = format!("attachment; filename=\"conversation_{}.zip\"", id.dashed());
    Ok(HttpResponse::Ok()
        .insert_header((CONTENT_TYPE, "application/zip"))
        .insert_header((CONTENT_DISPOSITION, name))
        .streaming(body))
}

/// A zip archive.
#[derive(utoipa::ToSchema)]
#[schema(as = ConversationArchive, value_type = String, format = Binary)]
#[expect(dead_code, reason = "for the document only")]
pub(crate) struct ArchiveDocument(Vec<u8>);

/// Why a download was not completed.
#[derive(Debug, thiserror::Error)]
enum DownloadError {
    #[error(transparent)]
    Disconnected(#[from] Disconnected),
    #[error("the key of the request is no longer valid")]
    Refused,
    #[error(transparent)]
    Read(#[from] AppError),
    #[error(transparent)]
    Write(#[from] std::io::Error),
    #[error(transparent)]
    EventPacker(#[from] tokio::task::JoinError),
}

/// The archived form of the conversation.
fn meta(conversation: &ConversationDto) -> Result<Vec<u8>, serde_json::Error> {
    let mut document = serde_json::to_value(conversation)?;
    if let Value::Object(members) = &mut document {
        members.retain(|name, _| !TRANSIENT_FIELDS.contains(&name.as_str()));
    }
    serde_json::to_vec_pretty(&document)
}

/// Reads page by page, packs each page on a blocking thread, and sends it.
async fn write(
    mut export: Export,
    (meta, changed): (Vec<u8>, Timestamp),
    archive_permits: &Arc<Semaphore>,
    client: &BodyWriter,
) -> Result<(), DownloadError> {
    let mut event_packer = EventPacker {
        archive: ZipWriter::new(),
        count: 0,
    };
    let mut bytes = Vec::new();
    event_packer
        .archive
        .add("meta.json", changed, &meta, &mut bytes)?;
    client.send(&bytes).await?;
    loop {
        // The permit covers reading: a page that waits to be packed takes memory. It is not held while the client reads.
        let turn = Arc::clone(archive_permits).acquire_owned().await;
        let Some(events) = export.next_page().await? else {
            break;
        };
        let pack = move || {
            let _turn = turn;
            event_packer
                .pack(&events)
                .map(|bytes| (event_packer, bytes))
        };
        let (filled, bytes) = tokio::task::spawn_blocking(pack).await??;
        event_packer = filled;
        client.send(&bytes).await?;
    }
    let mut ending = event_packer.archive.finish()?;
    while let Some(part) = ending.next_part()? {
        client.send(&part).await?;
    }
    Ok(client.finish().await?)
}

/// The archive and the number of its events.
struct EventPacker {
    archive: ZipWriter,
    count: u64,
}

impl EventPacker {
    fn pack(&mut self, events: &[domain::event::Event]) -> std::io::Result<Vec<u8>> {
        let (mut packed, mut text) = (Vec::new(), Vec::new());
        for event in events {
            let name = format!(
                "event_{:06}_{}.json",
                self.count,
                safe_name(event.id.as_str())
            );
            write_event(&event.body, &mut text)?;
            self.archive
                .add(&name, event.timestamp, &text, &mut packed)?;
            self.count += 1;
        }
        Ok(packed)
    }
}

/// Writes an event indented, or without indentation where that would take much memory.
fn write_event(body: &Value, text: &mut Vec<u8>) -> std::io::Result<()> {
    text.clear();
    let room = BoundedBuffer(text);
    if serde_json::to_writer_pretty(room, body).is_err() {
        text.clear();
        serde_json::to_writer(text, body)?;
    }
    Ok(())
}

/// A buffer of at most [`MAX_INDENTED_EVENT_BYTES`] bytes.
struct BoundedBuffer<'a>(&'a mut Vec<u8>);

impl std::io::Write for BoundedBuffer<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.0.len() + bytes.len() > MAX_INDENTED_EVENT_BYTES {
            return Err(std::io::ErrorKind::FileTooLarge.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_events_are_not_indented() {
        let mut text = Vec::new();
        let short = serde_json::json!({"a": [1]});
        write_event(&short, &mut text).unwrap();
        assert_eq!(text, b"{\n  \"a\": [\n    1\n  ]\n}");
        let mut deep = Value::from(vec![1; 200_000]);
        for _ in 0..100 {
            deep = Value::Array(vec![deep]);
        }
        write_event(&deep, &mut text).unwrap();
        assert_eq!(text, deep.to_string().as_bytes());
        assert!(text.capacity() <= 2 * MAX_INDENTED_EVENT_BYTES);
    }
}
