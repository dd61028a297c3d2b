//! The listener for whoever watches over the service, where `/metrics` has an address of its own (`metrics.bind`).

use std::net::{SocketAddr, TcpListener};

use actix_web::dev::ServerHandle;
use anyhow::Context as _;
use application::BackgroundTasks;
use domain::error::chain;
use http_api::Listener;

use crate::compose::Service;
use crate::config::Config;
use crate::listeners::http_server::http_server;
use crate::lifecycle::serve;

/// Takes the address, before anything else is begun.
pub(crate) fn listen(config: &Config) -> anyhow::Result<Option<TcpListener>> {
    config.metrics.bind.map(listen_at).transpose()
}

/// Takes an address for `/metrics`.
pub(crate) fn listen_at(address: SocketAddr) -> anyhow::Result<TcpListener> {
    serve::open(address).with_context(|| {
        format!(
            "cannot listen on {address} for /metrics; set WORKSPACE_METRICS__BIND to another address or port"
        )
    })
}

/// Serves `/metrics` there, until the handle is told to stop.
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
                "the listener for metrics failed; restart the service to have it again"
            );
        }
    });
    tracing::info!(%address, "listening for readers of metrics");
    Ok(Some(handle))
}
