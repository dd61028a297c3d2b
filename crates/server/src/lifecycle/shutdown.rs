//! Waits for a signal and shuts down in order: `/ready` fails so that proxies send requests elsewhere, listeners stop
//! accepting, requests finish, and leases of starts are released. A second signal stops at once.

use std::future::Future;
use std::io::IsTerminal as _;
use std::time::Duration;

use actix_web::dev::ServerHandle;
use anyhow::Context as _;
use application::App;
use futures::FutureExt as _;
use http_api::HttpState;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::config::HttpSettings;
use crate::lifecycle::reload::ConfigReloader;
use crate::lifecycle::service_manager::ServiceManager;
use crate::listeners::callback::CallbackListener;

/// Time to release the leases: one write per start in progress.
const HANDOVER_TIMEOUT: Duration = Duration::from_secs(5);

/// Time for the servers to stop when requests are not awaited.
const FORCED_STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// Time for all that follows the last request: background work, the audit log, and blocking work.
const BACKGROUND_STOP_TIMEOUT: Duration = Duration::from_secs(15);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SignalRequest {
    /// Stop. SIGINT comes from a person at a terminal and skips the drain delay.
    Stop {
        name: &'static str,
        is_graceful: bool,
    },
    Reload,
}

pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    at_terminal: bool,
}

impl Signals {
    pub(crate) fn new() -> anyhow::Result<Self> {
        let listen = |kind| {
            signal(kind).context("cannot install the handlers of SIGTERM, SIGINT and SIGHUP")
        };
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hangup: listen(SignalKind::hangup())?,
            at_terminal: std::io::stderr().is_terminal(),
        })
    }

    async fn next(&mut self) -> SignalRequest {
        let stop = |name, is_graceful| SignalRequest::Stop { name, is_graceful };
        tokio::select! {
            _ = self.terminate.recv() => stop("SIGTERM", true),
            _ = self.interrupt.recv() => stop("SIGINT", false),
            // A closed terminal is not a terminal any more.
            _ = self.hangup.recv() => {
                if self.at_terminal && !std::io::stderr().is_terminal() {
                    stop("SIGHUP", false)
                } else {
                    SignalRequest::Reload
                }
            }
        }
    }

    /// The next signal to stop. During the shutdown the configuration is not reloaded.
    async fn next_stop(&mut self) -> (&'static str, bool) {
        loop {
            if let SignalRequest::Stop { name, is_graceful } = self.next().await {
                return (name, is_graceful);
            }
        }
    }
}

pub(crate) struct RunningListeners {
    pub(crate) main: ServerHandle,
    pub(crate) callbacks: Option<CallbackListener>,
    pub(crate) metrics: Option<ServerHandle>,
    pub(crate) app: App,
    pub(crate) http: HttpState,
}

impl RunningListeners {
    async fn stop(&self, graceful: bool) {
        // Streams and WebSockets of agent servers end only on request.
        self.app.event_streams.end_all();
        self.http.gateway().end_tunnels();
        let requests = async {
            let callbacks = async {
                if let Some(callbacks) = &self.callbacks {
                    callbacks.stop(graceful).await;
                }
            };
            tokio::join!(self.main.stop(graceful), callbacks);
            // Last, so that metrics show the shutdown. An interrupted scrape does no harm.
            if let Some(metrics) = &self.metrics {
                metrics.stop(false).await;
            }
        };
        let requests = async {
            if graceful {
                requests.await;
            } else {
                // A server that stops gracefully ignores a second stop; its threads end with the process.
                let _ = tokio::time::timeout(FORCED_STOP_TIMEOUT, requests).await;
            }
        };
        let hand_over = async {
            if !self.app.hand_over(HANDOVER_TIMEOUT).await {
                tracing::warn!(
                    "some start tasks were not handed over: they continue when their leases have expired"
                );
            }
        };
        tokio::join!(requests, hand_over);
    }
}

/// Serves until a signal to stop, then shuts down.
pub(crate) async fn serve_until_stopped(
    server: impl Future<Output = std::io::Result<()>>,
    listeners: &RunningListeners,
    signals: &mut Signals,
    (http, manager): (&HttpSettings, &ServiceManager),
    reloader: &mut ConfigReloader<'_>,
) -> anyhow::Result<()> {
    let mut server = std::pin::pin!(server.fuse());
    let (name, is_graceful) = loop {
        tokio::select! {
            ended = &mut server => {
                ended.context("the HTTP server failed")?;
                anyhow::bail!("the HTTP server stopped without a signal");
            }
            request = signals.next() => match request {
                SignalRequest::Stop { name, is_graceful } => break (name, is_graceful),
                SignalRequest::Reload => {
                    manager.reloading();
                    reloader.reload();
                    manager.ready();
                }
            },
        }
    };
    let delay = if is_graceful {
        http.drain_delay
    } else {
        Duration::ZERO
    };
    manager.stopping(delay + http.drain + BACKGROUND_STOP_TIMEOUT);
    listeners.http.begin_draining();
    let in_order = async { tokio::join!(&mut server, stop(name, delay, listeners)).0 };
    tokio::select! {
        ended = in_order => return ended.context("the HTTP server failed"),
        (name, _) = signals.next_stop() => tracing::info!(signal = name, "second signal: stopping without waiting for requests"),
    }
    // The server handles the stop only while it is polled.
    let running = server.then(|_| std::future::pending::<()>());
    tokio::select! {
        () = listeners.stop(false) => {}
        () = running => {}
    }
    Ok(())
}

async fn stop(name: &str, delay: Duration, listeners: &RunningListeners) {
    if !delay.is_zero() {
        let seconds = delay.as_secs_f64();
        tracing::info!(
            signal = name,
            "stopping in {seconds} s: /ready fails, so that proxies send requests elsewhere"
        );
        tokio::time::sleep(delay).await;
    }
    tracing::info!(signal = name, "stopping: waiting for requests in progress");
    listeners.stop(true).await;
}
