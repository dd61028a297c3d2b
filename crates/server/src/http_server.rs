//! One listener's server: what `actix_web::HttpServer` puts together, but over connections that can be ended
//! ([`crate::stream`]).

use std::future::Future;
use std::net::TcpListener;
use std::time::Duration;

use actix_http::{HttpService, Protocol, Response};
use actix_server::{Server, ServerHandle};
use actix_service::{IntoServiceFactory as _, ServiceFactoryExt as _, fn_service, map_config};
use actix_web::dev::AppConfig;
use anyhow::Context as _;
use application::App;
use http_api::{Door, HttpState};
use tokio::net::TcpStream;

use crate::config::Http;
use crate::connections::{HEAD_LIMIT, Reception};
use crate::stream::Endable;

/// How long what a client still sends is read before its connection is closed: else it might lose the answer that says why.
const LINGER: Duration = Duration::from_secs(1);

/// A server that stops by its handle.
pub(crate) fn http_server(
    config: &Http,
    door: Door,
    listener: TcpListener,
    state: HttpState,
    app: App,
) -> anyhow::Result<(
    impl Future<Output = std::io::Result<()>> + Send + 'static,
    ServerHandle,
)> {
    let workers = match door {
        Door::Everybody => config.workers,
        // They report, or read numbers, and do nothing else.
        Door::Sandboxes | Door::Operators => 1,
    };
    http_api::prepare(door, &state);
    let reception = Reception::new(config, door);
    let builder = Server::build()
        .workers(workers)
        .max_concurrent_connections(reception.most_of_worker)
        .shutdown_timeout(config.drain.as_secs().max(1))
        // Ours, so that background work ends after requests.
        .disable_signals();
    let stopping = builder.graceful_shutdown_signal();
    // Called once in each worker.
    let serve = move || {
        let (stopping, reception) = (stopping.clone(), reception.clone());
        let at_connect = reception.clone();
        let routes = http_api::behind(door, state.clone(), app.clone())
            .into_factory()
            .map_err(|error: actix_web::Error| Response::from(error.error_response()));
        let http = HttpService::build()
            .graceful_shutdown_signal(move || {
                let signal = stopping.clone();
                async move { signal.notified().await }
            })
            .keep_alive(reception.keep_alive)
            .client_request_timeout(HEAD_LIMIT)
            .client_disconnect_timeout(LINGER)
            .on_connect_ext(move |io: &Endable, data| at_connect.receive(io, data))
            // Nobody asks it: hosts are what requests and the configuration say.
            .finish(map_config(routes, |()| AppConfig::default()));
        fn_service(|io: TcpStream| async move {
            let peer = io.peer_addr().ok();
            Ok((Endable::new(io), Protocol::Http1, peer))
        })
        .and_then(http)
    };
    let server = builder
        .listen("http", listener, serve)
        .context("cannot serve")?
        .run();
    let handle = server.handle();
    Ok((server, handle))
}
