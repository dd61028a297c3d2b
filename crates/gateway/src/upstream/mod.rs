//! Pooled connections to upstreams.
//!
//! A pool belongs to one worker: it needs no locks, and the tasks of its connections run on the same thread. There is no
//! queue: a request without an idle connection opens one, up to the limit of concurrent requests.
//!
//! There are two kinds of connections: those of the [`fast_path`](crate::upstream::fast_path), without a task, and hyper's. A
//! fast-path connection becomes a hyper connection with the first response that does not qualify, and stays one.

pub(crate) mod fast_path;
pub(crate) mod replay_stream;

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
use crate::upstream::fast_path::{CompleteResponse, ExchangeOutcome, FastPathConnection};
use crate::upstream::replay_stream::ReplayStream;

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
    idle: IdleConnections<SendRequest<UploadBody>>,
    fast_path: IdleConnections<FastPathConnection>,
    is_sweeping: Cell<bool>,
}

/// Idle connections of one kind by sandbox, host and port, the most recently used last.
struct IdleConnections<T>(RefCell<HashMap<Rc<str>, Vec<IdleConnection<T>>>>);

struct IdleConnection<T> {
    connection: T,
    server: Rc<str>,
    since: Instant,
}

/// The response of a pooled request.
pub(crate) enum PooledResponse {
    /// The whole response.
    Complete(CompleteResponse),
    /// The head; the body follows.
    Streaming(Response<Incoming>, ConnectionLease),
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
            fast_path: IdleConnections::default(),
            is_sweeping: Cell::new(false),
        }))
    }

    /// Sends a GET without a body and waits for the response or its head. `head` is the request for the fast path,
    /// `request` the same for hyper.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub(crate) async fn get(
        &self,
        server: &str,
        head: Vec<u8>,
        request: impl FnOnce() -> Result<Request<UploadBody>, ForwardError>,
    ) -> Result<PooledResponse, ForwardError> {
        let (name, fast_path) = match self.0.take_idle_fast_path(server) {
            Some(idle) => idle,
            None if self.0.idle.has(server) => {
                let (response, lease) = self.send(server, request()?).await?;
                return Ok(PooledResponse::Streaming(response, lease));
            }
            None => {
                let io = self.connect(server).await?;
                (server.into(), FastPathConnection::new(io.into_inner()))
            }
        };
        match fast_path.exchange(&head).await {
            Ok(ExchangeOutcome::Complete(whole, fast_path)) => {
                self.0.put_fast_path(name, fast_path);
                Ok(PooledResponse::Complete(whole))
            }
            Ok(ExchangeOutcome::Handoff(io, early)) => {
                let mut sender = self
                    .handshake(ReplayStream::with_sent_request(io, early))
                    .await?;
                let response = sender.send_request(request()?).await;
                let response = response.map_err(|error| ForwardError::Broken(error.into()))?;
                Ok(PooledResponse::Streaming(
                    response,
                    self.lease(name, sender),
                ))
            }
            Err(failure) => {
                // The other idle connections of this server are likely closed too.
                self.0.fast_path.remove(server);
                Err(failure)
            }
        }
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
        let mut sender = self.handshake(ReplayStream::new(io)).await?;
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
                && let Ok(Ok(())) = timeout(READY_TIMEOUT, idle.connection.ready()).await
            {
                return Some(self.lease(idle.server, idle.connection));
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

    async fn handshake(&self, io: ReplayStream) -> Result<SendRequest<UploadBody>, ForwardError> {
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

impl PoolInner {
    /// An idle fast-path connection that is still open.
    fn take_idle_fast_path(&self, server: &str) -> Option<(Rc<str>, FastPathConnection)> {
        loop {
            let idle = self.fast_path.take(server)?;
            if idle.since.elapsed() < self.idle_timeout && idle.connection.is_quiet() {
                return Some((idle.server, idle.connection));
            }
        }
    }

    fn put(&self, server: Rc<str>, sender: SendRequest<UploadBody>) {
        let in_use = self.fast_path.count(&server);
        let max = self.max_idle_per_server.saturating_sub(in_use);
        self.idle.put(server, sender, max);
    }

    fn put_fast_path(&self, server: Rc<str>, fast_path: FastPathConnection) {
        let in_use = self.idle.count(&server);
        let max = self.max_idle_per_server.saturating_sub(in_use);
        self.fast_path.put(server, fast_path, max);
    }

    /// Closes connections that were idle for too long or that the upstream has closed.
    fn sweep(&self) {
        self.idle
            .retain(self.idle_timeout, |sender| !sender.is_closed());
        self.fast_path
            .retain(self.idle_timeout, FastPathConnection::is_quiet);
    }
}

impl<T> Default for IdleConnections<T> {
    fn default() -> Self {
        Self(RefCell::default())
    }
}

impl<T> IdleConnections<T> {
    fn count(&self, server: &str) -> usize {
        self.0.borrow().get(server).map_or(0, Vec::len)
    }

    fn has(&self, server: &str) -> bool {
        self.count(server) > 0
    }

    fn take(&self, server: &str) -> Option<IdleConnection<T>> {
        self.0.borrow_mut().get_mut(server)?.pop()
    }

    /// Stores a connection, or closes it if the server has `max` already.
    fn put(&self, server: Rc<str>, connection: T, max: usize) {
        let mut all = self.0.borrow_mut();
        let of_server = match all.get_mut(&server) {
            Some(of_server) => of_server,
            None => all.entry(Rc::clone(&server)).or_default(),
        };
        if of_server.len() < max {
            of_server.push(IdleConnection {
                connection,
                server,
                since: Instant::now(),
            });
        }
    }

    fn remove(&self, server: &str) {
        self.0.borrow_mut().remove(server);
    }

    /// Closes connections that were idle for too long or that are not usable.
    fn retain(&self, idle_timeout: Duration, is_usable: impl Fn(&T) -> bool) {
        self.0.borrow_mut().retain(|_, of_server| {
            of_server
                .retain(|idle| is_usable(&idle.connection) && idle.since.elapsed() < idle_timeout);
            !of_server.is_empty()
        });
    }
}

/// Runs as long as the pool exists.
async fn sweep(pool: Weak<PoolInner>, interval: Duration) {
    loop {
        sleep(interval).await;
        let Some(pool) = pool.upgrade() else { return };
        pool.sweep();
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
            pool.put(Rc::clone(&self.server), sender);
        }
    }
}
