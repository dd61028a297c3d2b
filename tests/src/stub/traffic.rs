//! What clients have of an agent server through the service: files of any size, an answer that does not end, a socket that
//! repeats what it hears.

use std::io::Error;
use std::sync::LazyLock;

use actix_web::{HttpRequest, HttpResponse, web};
use futures::{StreamExt as _, stream};
use serde_json::json;

use super::server::{Stub, refusal};

/// What files consist of, again and again: no power of two long, so that a piece that is lost or told twice shows.
const PATTERN: usize = 251;
/// Bytes that are sent at once.
const PIECE: usize = 64 * 1024;
/// The key of the example in RFC 6455, section 1.3, which tests send, and its answer.
pub const SOCKET_KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPTED: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

/// Registers the routes.
pub(super) fn register(config: &mut web::ServiceConfig) {
    config
        .route("/api/file/upload", web::post().to(upload))
        .route("/api/file/download/bytes/{size}", web::get().to(download))
        .route("/api/bash/slow", web::get().to(slow))
        .route("/sockets/events/{id}", web::get().to(socket));
}

/// Enough of the pattern for a piece from any place in it.
static BLOCK: LazyLock<web::Bytes> = LazyLock::new(|| {
    // It fits: the pattern is shorter.
    let byte = |at: usize| u8::try_from(at % PATTERN).unwrap_or_default();
    (0..PATTERN + PIECE).map(byte).collect::<Vec<_>>().into()
});

/// What a file has from this place on: so many bytes, or a piece if that is less.
#[must_use]
pub fn piece(from: u64, size: u64) -> web::Bytes {
    let at = usize::try_from(from % PATTERN as u64).unwrap_or_default();
    let length = usize::try_from(size).unwrap_or(PIECE).min(PIECE);
    BLOCK.slice(at..at + length)
}

/// Whether this is what a file has from this place on.
#[must_use]
pub fn is_intact(mut from: u64, bytes: &[u8]) -> bool {
    bytes.chunks(PIECE).all(|chunk| {
        let expected = piece(from, chunk.len() as u64);
        from += chunk.len() as u64;
        *expected == *chunk
    })
}

/// Takes a file of any size and keeps nothing of it.
async fn upload(
    stub: web::Data<Stub>,
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
    stub: web::Data<Stub>,
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

/// Says one line, and no more.
async fn slow(stub: web::Data<Stub>, request: HttpRequest) -> HttpResponse {
    if let Some(refused) = refusal(&stub, &request) {
        return refused;
    }
    let begun = stream::iter([Ok::<_, Error>(web::Bytes::from_static(b"begun\n"))]);
    HttpResponse::Ok().streaming(begun.chain(stream::pending()))
}

async fn socket(stub: web::Data<Stub>, request: HttpRequest, body: web::Payload) -> HttpResponse {
    if let Some(refused) = refusal(&stub, &request) {
        return refused;
    }
    let sent = request.headers().get("sec-websocket-key");
    if sent.is_none_or(|key| key != SOCKET_KEY) {
        return HttpResponse::BadRequest().finish();
    }
    HttpResponse::SwitchingProtocols()
        .upgrade("websocket")
        .insert_header(("sec-websocket-accept", ACCEPTED))
        .streaming(body)
}
