//! The metrics listener, for `/metrics` at an address of its own (`metrics.bind`).

use std::net::{SocketAddr, TcpListener};

use actix_web::dev::ServerHandle;
use anyhow::Context as _;
use application::BackgroundTasks;
use domain::error::chain;
use http_api::Listener;

use crate::compose::Service;
use crate::config::Config;
use crate::lifecycle::serve;
use crate::listeners::http_server::http_server;

/// Binds the configured address, before the service starts anything else.
pub(crate) fn listen(config: &Config) -> anyhow::Result<Option<TcpListener>> {
    config.metrics.bind.map(listen_at).transpose()
}

/// Binds an address for `/metrics`.
pub(crate) fn listen_at(address: SocketAddr) -> anyhow::Result<TcpListener> {
    serve::open(address).with_context(|| {
        format!(
            "cannot listen on {address} for /metrics; set WORKSPACE_METRICS__BIND to another address or port"
        )
    })
}

/// Serves `/metrics` until the handle stops the server.
pub(crate) fn start(
    listener: Option<TcpListener>,
    config: &Config,
    service: &Service,
    tasks: &BackgroundTasks,
) -> anyhow::Result<Option<ServerHandle>> {
    let Some(listener) = listener else {
        return Ok(None);
    };
    let address = listener.local_addr()?;
    let (state, app) = (service.http.clone(), service.app.clone());
    let (server, handle) = http_server(&config.http, Listener::Metrics, listener, state, app)?;
    tasks.spawn(async move {
        if let Err(error) = server.await {
            tracing::error!(
                error = chain(&error),
                "the listener for metrics failed; restart the service to restore it"
            );
        }
    });
    tracing::info!(%address, "listening for metrics scrapes");
    Ok(Some(handle))
}
