//! Routes for tests of the gateway: files of any size, an endless response, and a WebSocket that echoes.

use std::io::Error;
use std::sync::LazyLock;

use actix_web::{HttpRequest, HttpResponse, web};
use futures::{StreamExt as _, stream};
use serde_json::json;

use super::server::{StubServer, refusal};

/// Files repeat a pattern of this length. It is not a power of two, so that lost and repeated chunks are detected.
const PATTERN_BYTES: usize = 251;
/// The size of a chunk.
const MAX_CHUNK_BYTES: usize = 64 * 1024;
/// The example key of RFC 6455, section 1.3.
pub const SOCKET_KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const SOCKET_ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

pub(super) fn register(config: &mut web::ServiceConfig) {
    config
        .route("/api/file/upload", web::post().to(upload))
        .route("/api/file/bytes/{size}", web::get().to(download))
        .route("/api/bash/slow", web::get().to(endless_response))
        .route("/sockets/events/{id}", web::get().to(socket));
}

/// The pattern, repeated for a chunk from any offset.
static PATTERN_BLOCK: LazyLock<web::Bytes> = LazyLock::new(|| {
    // The pattern is shorter than 256 bytes.
    let byte = |at: usize| u8::try_from(at % PATTERN_BYTES).unwrap_or_default();
    (0..PATTERN_BYTES + MAX_CHUNK_BYTES)
        .map(byte)
        .collect::<Vec<_>>()
        .into()
});

/// The bytes of a file from this offset, up to `size` and one chunk.
#[must_use]
pub fn chunk(offset: u64, size: u64) -> web::Bytes {
    let start = usize::try_from(offset % PATTERN_BYTES as u64).unwrap_or_default();
    let length = usize::try_from(size)
        .unwrap_or(MAX_CHUNK_BYTES)
        .min(MAX_CHUNK_BYTES);
    PATTERN_BLOCK.slice(start..start + length)
}

/// Whether these are the bytes of a file from this offset.
#[must_use]
pub fn is_intact(mut offset: u64, bytes: &[u8]) -> bool {
    bytes.chunks(MAX_CHUNK_BYTES).all(|sent| {
        let expected = chunk(offset, sent.len() as u64);
        offset += sent.len() as u64;
        *expected == *sent
    })
}

/// Reads a file of any size and checks its bytes.
async fn upload(
    stub: web::Data<StubServer>,
    request: HttpRequest,
    mut body: web::Payload,
) -> HttpResponse {
    if let Some(refused) = refusal(&stub, &request) {
        return refused;
    }
    let (mut size, mut is_intact_so_far) = (0_u64, true);
    while let Some(received) = body.next().await {
        let Ok(received) = received else {
            return HttpResponse::BadRequest().json(json!({"detail": "the body is truncated"}));
        };
        is_intact_so_far &= is_intact(size, &received);
        size += received.len() as u64;
    }
    HttpResponse::Ok().json(json!({"size": size, "is_intact": is_intact_so_far}))
}

async fn download(
    stub: web::Data<StubServer>,
    request: HttpRequest,
    size: web::Path<u64>,
) -> HttpResponse {
    if let Some(refused) = refusal(&stub, &request) {
        return refused;
    }
    let size = size.into_inner();
    let chunks = stream::unfold(0_u64, move |offset| async move {
        let next = chunk(offset, size - offset);
        let end = offset + next.len() as u64;
        (!next.is_empty()).then_some((Ok::<_, Error>(next), end))
    });
    HttpResponse::Ok().no_chunking(size).streaming(chunks)
}

/// Sends one line and keeps the response open.
async fn endless_response(stub: web::Data<StubServer>, request: HttpRequest) -> HttpResponse {
    if let Some(refused) = refusal(&stub, &request) {
        return refused;
    }
    let first_line = stream::iter([Ok::<_, Error>(web::Bytes::from_static(b"begun\n"))]);
    HttpResponse::Ok().streaming(first_line.chain(stream::pending()))
}

async fn socket(
    stub: web::Data<StubServer>,
    request: HttpRequest,
    body: web::Payload,
) -> HttpResponse {
    if let Some(refused) = refusal(&stub, &request) {
        return refused;
    }
    let sent = request.headers().get("sec-websocket-key");
    if sent.is_none_or(|key| key != SOCKET_KEY) {
        return HttpResponse::BadRequest().finish();
    }
    HttpResponse::SwitchingProtocols()
        .upgrade("websocket")
        .insert_header(("sec-websocket-accept", SOCKET_ACCEPT))
        .streaming(body)
}
