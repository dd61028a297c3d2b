//! The HTTP server of one listener. It assembles what `actix_web::HttpServer` does, but over connections that can be closed
//! ([`crate::listeners::closable_stream`]).

use std::future::Future;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use actix_http::{HttpService, Protocol, Response};
use actix_server::{Server, ServerHandle};
use actix_service::{
    IntoServiceFactory as _, Service as _, ServiceFactoryExt as _, apply_fn_factory, map_config,
};
use actix_web::dev::AppConfig;
use anyhow::Context as _;
use application::{App, BackgroundTasks};
use domain::error::chain;
use http_api::{HttpState, Listener};
use tokio::net::{TcpSocket, TcpStream};

use crate::config::HttpSettings;
use crate::listeners::closable_stream::ClosableStream;
use crate::listeners::connections::{ConnectionPolicy, REQUEST_HEAD_TIMEOUT};
use crate::listeners::malformed_log::MalformedLog;

const LISTEN_BACKLOG: u32 = 4096;
/// How long to read from a client before its connection is closed, so that the client receives the last response.
const LINGER_TIMEOUT: Duration = Duration::from_secs(1);

/// Opens the listening socket of a listener.
pub(crate) fn listen(kind: Listener, address: SocketAddr) -> anyhow::Result<TcpListener> {
    let (purpose, variable) = match kind {
        Listener::Public | Listener::Callback => ("", "WORKSPACE_HTTP__BIND"),
        Listener::Automations => (
            " for the automations service",
            "WORKSPACE_AUTOMATIONS__BIND",
        ),
        Listener::Metrics => (" for /metrics", "WORKSPACE_METRICS__BIND"),
    };
    open(address).with_context(|| {
        format!("cannot listen on {address}{purpose}; set {variable} to another address or port")
    })
}

fn open(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()
    } else {
        TcpSocket::new_v6()
    }?;
    // A restart must not wait for connections of the previous process (TIME_WAIT).
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(LISTEN_BACKLOG)?.into_std()
}

/// Starts a listener beside the public one. It runs with the background tasks until its handle stops it.
pub(crate) fn spawn_http_server(
    config: &HttpSettings,
    kind: Listener,
    listener: TcpListener,
    surface: (HttpState, App),
    tasks: &BackgroundTasks,
) -> anyhow::Result<ServerHandle> {
    let address = listener.local_addr()?;
    let purpose = match kind {
        Listener::Metrics => "metrics scrapes",
        Listener::Public | Listener::Callback => "reports of sandboxes",
        Listener::Automations => "the automations service",
    };
    let (server, handle) = http_server(config, kind, listener, surface)?;
    tasks.spawn(async move {
        if let Err(error) = server.await {
            tracing::error!(
                error = %chain(&error),
                "the listener for {purpose} failed; restart the service to restore it"
            );
        }
    });
    tracing::info!(%address, "listening for {purpose}");
    Ok(handle)
}

/// A server that its handle stops.
pub(crate) fn http_server(
    config: &HttpSettings,
    kind: Listener,
    listener: TcpListener,
    (state, app): (HttpState, App),
) -> anyhow::Result<(
    impl Future<Output = std::io::Result<()>> + Send + 'static,
    ServerHandle,
)> {
    let workers = match kind {
        Listener::Public => config.workers,
        // Callbacks and scrapes need little work.
        Listener::Callback | Listener::Metrics | Listener::Automations => 1,
    };
    http_api::prepare(kind, &state);
    let policy = ConnectionPolicy::new(config, kind);
    let malformed = Arc::new(MalformedLog::new());
    let builder = Server::build()
        .workers(workers)
        .max_concurrent_connections(policy.max_per_worker)
        .shutdown_timeout(config.drain.as_secs().max(1))
        // The service handles signals itself, so that background work ends after requests.
        .disable_signals();
    let stopping = builder.graceful_shutdown_signal();
    // Called once in each worker.
    let serve = move || {
        let (stopping, policy) = (stopping.clone(), policy.clone());
        let (at_connect, malformed) = (policy.clone(), Arc::clone(&malformed));
        let routes = http_api::app_on_listener(kind, state.clone(), app.clone())
            .into_factory()
            .map_err(|error: actix_web::Error| Response::from(error.error_response()));
        let http = HttpService::build()
            .graceful_shutdown_signal(move || {
                let signal = stopping.clone();
                async move { signal.notified().await }
            })
            .keep_alive(policy.keep_alive)
            .client_request_timeout(REQUEST_HEAD_TIMEOUT)
            // `StreamRemainder::linger` does this. Actix computes the deadline from a clock that lags behind on a busy
            // machine: a timer that is over when it is set never wakes the connection, which then stays open.
            .client_disconnect_timeout(Duration::ZERO)
            .on_connect_ext(move |io: &ClosableStream, data| at_connect.on_connect(io, data))
            // The application does not use actix's host: requests and the configuration name it.
            .finish(map_config(routes, |()| AppConfig::default()));
        apply_fn_factory(http, move |io: TcpStream, http| {
            let peer = io.peer_addr().ok();
            let (io, remainder) = ClosableStream::new(io);
            let served = http.call((io, Protocol::Http1, peer));
            let malformed = Arc::clone(&malformed);
            async move {
                let served = served.await;
                if let Err(error) = &served {
                    malformed.note(peer, error);
                }
                // The request may have unread bytes: closing now resets the connection, which may overtake the response.
                Box::pin(remainder.linger(LINGER_TIMEOUT)).await;
                served
            }
        })
    };
    let server = builder
        .listen("http", listener, serve)
        .context("cannot start the HTTP server")?
        .run();
    let handle = server.handle();
    Ok((server, handle))
}
