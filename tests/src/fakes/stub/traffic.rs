//! Routes for tests of the gateway: files of any size, an endless response, and a WebSocket that echoes.

use std::io::Error;
use std::sync::LazyLock;

use actix_web::{HttpRequest, HttpResponse, web};
use futures::{StreamExt as _, stream};
use serde_json::json;

use super::server::{StubServer, refusal};

/// Files repeat a pattern of this length. It is not a power of two, so that lost and repeated pieces are detected.
const PATTERN_BYTES: usize = 251;
/// The size of a piece.
const MAX_PIECE_BYTES: usize = 64 * 1024;
/// The example key of RFC 6455, section 1.3.
pub const SOCKET_KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const SOCKET_ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

pub(super) fn register(config: &mut web::ServiceConfig) {
    config
        .route("/api/file/upload", web::post().to(upload))
        .route("/api/file/download/bytes/{size}", web::get().to(download))
        .route("/api/bash/slow", web::get().to(endless_response))
        .route("/sockets/events/{id}", web::get().to(socket));
}

/// The pattern, repeated for a piece from any offset.
static PATTERN_BLOCK: LazyLock<web::Bytes> = LazyLock::new(|| {
    // The pattern is shorter than 256 bytes.
    let byte = |at: usize| u8::try_from(at % PATTERN_BYTES).unwrap_or_default();
    (0..PATTERN_BYTES + MAX_PIECE_BYTES)
        .map(byte)
        .collect::<Vec<_>>()
        .into()
});

/// The bytes of a file from this offset, up to `size` and one piece.
#[must_use]
pub fn piece(from: u64, size: u64) -> web::Bytes {
    let at = usize::try_from(from % PATTERN_BYTES as u64).unwrap_or_default();
    let length = usize::try_from(size)
        .unwrap_or(MAX_PIECE_BYTES)
        .min(MAX_PIECE_BYTES);
    PATTERN_BLOCK.slice(at..at + length)
}

/// Whether these are the bytes of a file from this offset.
#[must_use]
pub fn is_intact(mut from: u64, bytes: &[u8]) -> bool {
    bytes.chunks(MAX_PIECE_BYTES).all(|chunk| {
        let expected = piece(from, chunk.len() as u64);
        from += chunk.len() as u64;
        *expected == *chunk
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
    let (mut size, mut is_whole) = (0_u64, true);
    while let Some(piece) = body.next().await {
        let Ok(piece) = piece else {
            return HttpResponse::BadRequest().json(json!({"detail": "cut"}));
        };
        is_whole &= is_intact(size, &piece);
        size += piece.len() as u64;
    }
    HttpResponse::Ok().json(json!({"size": size, "is_intact": is_whole}))
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
    let pieces = stream::unfold(0_u64, move |from| async move {
        let piece = piece(from, size - from);
        let end = from + piece.len() as u64;
        (!piece.is_empty()).then_some((Ok::<_, Error>(piece), end))
    });
    HttpResponse::Ok().no_chunking(size).streaming(pieces)
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
