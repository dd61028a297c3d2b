//! Pooled connections to upstreams.
//!
//! A pool belongs to one worker: it needs no locks, and the tasks of its connections run on the same thread. There is no
//! queue: a request without an idle connection opens one, up to the limit of concurrent requests.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use endpoint_guard::{Connector, EndpointGuard};
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper::{Request, Response};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::{Duration, Instant, sleep, timeout};

use crate::error::ForwardError;
use crate::limits::GatewayLimits;
use crate::tasks::spawn_connection_task;
use crate::upload::UploadBody;

/// Unanswered keep-alive probes before a connection is closed.
const KEEP_ALIVE_TRIES: u32 = 4;
/// Longest wait until a connection is ready for the next request. Its task is about to report that, or that the connection
/// has ended.
const READY_TIMEOUT: Duration = Duration::from_millis(50);

/// The connections of one worker.
#[derive(Clone)]
pub(crate) struct Pool(Rc<PoolInner>);

struct PoolInner {
    connector: Connector,
    idle_timeout: Duration,
    max_idle_per_server: usize,
    read_buffer: usize,
    idle: IdleConnections,
    is_sweeping: Cell<bool>,
}

/// Idle connections by sandbox, host and port, the most recently used last.
#[derive(Default)]
struct IdleConnections(RefCell<HashMap<Rc<str>, Vec<IdleConnection>>>);

struct IdleConnection {
    sender: SendRequest<UploadBody>,
    server: Rc<str>,
    since: Instant,
}

/// A connection in use by one request. It returns to the pool once its response is read.
pub(crate) struct ConnectionLease {
    pool: Weak<PoolInner>,
    server: Rc<str>,
    sender: Option<SendRequest<UploadBody>>,
}

impl Pool {
    pub(crate) fn new(limits: &GatewayLimits, guard: Arc<dyn EndpointGuard>) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(limits.tcp_keep_alive));
        tcp.set_keepalive_interval(Some(limits.tcp_keep_alive));
        tcp.set_keepalive_retries(Some(KEEP_ALIVE_TRIES));
        let connector = Connector::new(tcp, limits.connect_timeout, guard);
        Self(Rc::new(PoolInner {
            connector,
            idle_timeout: limits.pool_idle_timeout,
            max_idle_per_server: limits.max_idle_connections,
            read_buffer: limits.read_buffer_bytes,
            idle: IdleConnections::default(),
            is_sweeping: Cell::new(false),
        }))
    }

    /// Sends a request over an idle connection, or a new one, and waits for the head of the response. A request that a
    /// connection did not start to send goes over another one.
    ///
    /// # Errors
    /// [`ForwardError::Unreachable`] without a connection, [`ForwardError::Broken`] if it ended before the response.
    pub(crate) async fn send(
        &self,
        server: &str,
        mut request: Request<UploadBody>,
    ) -> Result<(Response<Incoming>, ConnectionLease), ForwardError> {
        while let Some(mut lease) = self.take_idle(server).await {
            let Some(sender) = &mut lease.sender else {
                continue;
            };
            match sender.try_send_request(request).await {
                Ok(response) => return Ok((response, lease)),
                Err(mut error) => match error.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(ForwardError::Broken(error.into_error().into())),
                },
            }
        }
        let io = self.connect(server).await?;
        let mut sender = self.handshake(io).await?;
        let response = sender.send_request(request).await;
        let response = response.map_err(|error| ForwardError::Broken(error.into()))?;
        Ok((response, self.lease(server.into(), sender)))
    }

    fn lease(&self, server: Rc<str>, sender: SendRequest<UploadBody>) -> ConnectionLease {
        ConnectionLease {
            pool: Rc::downgrade(&self.0),
            server,
            sender: Some(sender),
        }
    }

    /// Takes an idle connection that is ready for a request.
    async fn take_idle(&self, server: &str) -> Option<ConnectionLease> {
        loop {
            let mut idle = self.0.idle.take(server)?;
            if idle.since.elapsed() < self.0.idle_timeout
                && let Ok(Ok(())) = timeout(READY_TIMEOUT, idle.sender.ready()).await
            {
                return Some(self.lease(idle.server, idle.sender));
            }
        }
    }

    async fn connect(&self, server: &str) -> Result<TokioIo<TcpStream>, ForwardError> {
        let io = self.0.connector.connect(server).await;
        let io = io.map_err(|error| ForwardError::Unreachable(error.into()))?;
        if !self.0.is_sweeping.replace(true) {
            spawn_connection_task(sweep(Rc::downgrade(&self.0), self.0.idle_timeout));
        }
        Ok(io)
    }

    async fn handshake(
        &self,
        io: TokioIo<TcpStream>,
    ) -> Result<SendRequest<UploadBody>, ForwardError> {
        let mut builder = Builder::new();
        let handshake = builder.max_buf_size(self.0.read_buffer).handshake(io).await;
        let (sender, connection) = handshake.map_err(|error| ForwardError::Broken(error.into()))?;
        spawn_connection_task(async move {
            if let Err(error) = connection.with_upgrades().await {
                tracing::debug!(%error, "a connection to a sandbox's server ended with an error");
            }
        });
        Ok(sender)
    }
}

impl IdleConnections {
    fn take(&self, server: &str) -> Option<IdleConnection> {
        self.0.borrow_mut().get_mut(server)?.pop()
    }

    /// Stores a connection, or closes it if the server has `max` already.
    fn put(&self, server: Rc<str>, sender: SendRequest<UploadBody>, max: usize) {
        let mut all = self.0.borrow_mut();
        let of_server = all.entry(Rc::clone(&server)).or_default();
        if of_server.len() < max {
            of_server.push(IdleConnection {
                sender,
                server,
                since: Instant::now(),
            });
        }
    }

    /// Closes connections that were idle for too long or that the upstream has closed.
    fn sweep(&self, idle_timeout: Duration) {
        self.0.borrow_mut().retain(|_, of_server| {
            of_server
                .retain(|idle| !idle.sender.is_closed() && idle.since.elapsed() < idle_timeout);
            !of_server.is_empty()
        });
    }
}

/// Runs as long as the pool exists.
async fn sweep(pool: Weak<PoolInner>, interval: Duration) {
    loop {
        sleep(interval).await;
        let Some(pool) = pool.upgrade() else { return };
        pool.idle.sweep(pool.idle_timeout);
    }
}

impl ConnectionLease {
    /// Keeps the connection out of the pool: its protocol has changed.
    pub(crate) fn discard(mut self) {
        self.sender = None;
    }
}

impl Drop for ConnectionLease {
    fn drop(&mut self) {
        let Some(sender) = self.sender.take() else {
            return;
        };
        // A connection whose response was not read to its end is never ready again; the next user of the pool finds out.
        if let Some(pool) = self.pool.upgrade().filter(|_| !sender.is_closed()) {
            let server = Rc::clone(&self.server);
            pool.idle.put(server, sender, pool.max_idle_per_server);
        }
    }
}
