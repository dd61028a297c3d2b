//! A provider of models that answers at once: with one document, or with a stream of chunks.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::thread;

use actix_web::rt::System;
use actix_web::{App, HttpResponse, HttpServer, web};
use futures::stream;
use serde_json::{Value, json};

/// Chunks of a stream, and bytes of the text in each.
pub(crate) const CHUNKS: usize = 200;
const TEXT_BYTES: usize = 40;

/// Serves until the program ends. Returns the address.
pub(crate) fn serve() -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    let server = move || {
        let server = HttpServer::new(|| App::new().default_service(web::to(answer)));
        let server = server.workers(1).disable_signals().listen(listener)?;
        System::new().block_on(server.run())
    };
    thread::spawn(server);
    Ok(address)
}

async fn answer(request: web::Json<Value>) -> HttpResponse {
    let usage = json!({"prompt_tokens": 1_000, "completion_tokens": 200, "total_tokens": 1_200});
    if request["stream"] != true {
        let message = json!({"role": "assistant", "content": "x".repeat(CHUNKS)});
        let choice = json!({"index": 0, "finish_reason": "stop", "message": message});
        let whole = json!({"id": "chat", "object": "chat.completion", "model": "m", "choices": [choice], "usage": usage});
        return HttpResponse::Ok().json(whole);
    }
    let delta = json!({"content": "x".repeat(TEXT_BYTES)});
    let choice = json!({"index": 0, "finish_reason": null, "delta": delta});
    let chunk =
        json!({"id": "chat", "object": "chat.completion.chunk", "model": "m", "choices": [choice]});
    let last = json!({"id": "chat", "object": "chat.completion.chunk", "model": "m", "choices": [], "usage": usage});
    let chunk = web::Bytes::from(format!("data: {chunk}\n\n"));
    let end = web::Bytes::from(format!("data: {last}\n\ndata: [DONE]\n\n"));
    let chunks = std::iter::repeat_n(chunk, CHUNKS).chain([end]);
    // Each chunk is sent by itself, as providers send it.
    let chunks = stream::unfold(chunks, |mut chunks| async {
        tokio::task::yield_now().await;
        Some((Ok::<_, Infallible>(chunks.next()?), chunks))
    });
    HttpResponse::Ok()
        .content_type("text/event-stream")
        .streaming(chunks)
}
