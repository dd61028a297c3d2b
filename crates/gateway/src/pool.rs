//! Connections to the servers behind, kept for the next request.
//!
//! A pool belongs to one worker: nothing in it is locked, and what works on a connection is a task of the same thread. There is
//! nothing to wait in line for: whoever finds no idle connection makes one, as many as requests may be under way.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::{Rc, Weak};

use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper::{Request, Response, Uri};
use hyper_util::client::legacy::connect::HttpConnector;
use tokio::time::{Duration, Instant, sleep, timeout};
use tower_service::Service as _;

use crate::beside::apart;
use crate::upload::Upload;
use crate::{Failure, Limits};

/// How often a silent connection is asked in vain before it is given up.
const KEEP_ALIVE_TRIES: u32 = 4;
/// Longest wait for a connection whose last answer was taken to be ready for the next request: its task is about to say so, or
/// that it is over.
const SETTLE: Duration = Duration::from_millis(50);

/// The connections of one worker.
#[derive(Clone)]
pub(crate) struct Pool(Rc<Inner>);

struct Inner {
    connector: HttpConnector,
    /// For how long one may be idle, and how many of one server.
    longest: Duration,
    most: usize,
    read_buffer: usize,
    /// By host and port; the one that was used last is the last.
    idle: RefCell<HashMap<Rc<str>, Vec<Idle>>>,
    is_swept: Cell<bool>,
}

struct Idle {
    sender: SendRequest<Upload>,
    since: Instant,
}

/// A connection that a request has, until its answer is taken. Then the next one may have it.
pub(crate) struct Lease {
    pool: Weak<Inner>,
    server: Rc<str>,
    sender: Option<SendRequest<Upload>>,
}

impl Pool {
    pub(crate) fn new(limits: &Limits) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(limits.connect));
        connector.set_nodelay(true);
        connector.set_keepalive(Some(limits.tcp_keep_alive));
        connector.set_keepalive_interval(Some(limits.tcp_keep_alive));
        connector.set_keepalive_retries(Some(KEEP_ALIVE_TRIES));
        Self(Rc::new(Inner {
            connector,
            longest: limits.idle_connection,
            most: limits.idle_connections,
            read_buffer: limits.read_buffer,
            idle: RefCell::default(),
            is_swept: Cell::new(false),
        }))
    }

    /// Sends a request to the server at this host and port, over an idle connection if there is one, and waits for the head of
    /// its answer. A request that a connection did not begin to send is sent over another one.
    ///
    /// # Errors
    /// [`Failure::Unreachable`] without a connection, [`Failure::Broken`] if it ended before the answer.
    pub(crate) async fn send(
        &self,
        server: &str,
        mut request: Request<Upload>,
    ) -> Result<(Response<Incoming>, Lease), Failure> {
        while let Some(mut lease) = self.idle(server).await {
            let Some(sender) = &mut lease.sender else {
                continue;
            };
            match sender.try_send_request(request).await {
                Ok(answer) => return Ok((answer, lease)),
                Err(mut error) => match error.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(Failure::Broken(error.into_error().into())),
                },
            }
        }
        let mut sender = self.connect(server).await?;
        let answer = sender.send_request(request).await;
        let answer = answer.map_err(|error| Failure::Broken(error.into()))?;
        Ok((answer, self.lease(server.into(), sender)))
    }

    fn lease(&self, server: Rc<str>, sender: SendRequest<Upload>) -> Lease {
        Lease {
            pool: Rc::downgrade(&self.0),
            server,
            sender: Some(sender),
        }
    }

    /// An idle connection that is ready.
    async fn idle(&self, server: &str) -> Option<Lease> {
        loop {
            let (name, mut idle) = self.0.take(server)?;
            if idle.since.elapsed() < self.0.longest
                && let Ok(Ok(())) = timeout(SETTLE, idle.sender.ready()).await
            {
                return Some(self.lease(name, idle.sender));
            }
        }
    }

    async fn connect(&self, server: &str) -> Result<SendRequest<Upload>, Failure> {
        let uri: Uri = format!("http://{server}/")
            .parse()
            .map_err(|_| Failure::BadRequest)?;
        let mut connector = self.0.connector.clone();
        let io = connector.call(uri).await;
        let io = io.map_err(|error| Failure::Unreachable(error.into()))?;
        let mut builder = Builder::new();
        let opened = builder.max_buf_size(self.0.read_buffer).handshake(io).await;
        let (sender, connection) = opened.map_err(|error| Failure::Broken(error.into()))?;
        apart(async move {
            if let Err(error) = connection.with_upgrades().await {
                tracing::debug!(%error, "a connection to a server behind has ended");
            }
        });
        if !self.0.is_swept.replace(true) {
            apart(sweep(Rc::downgrade(&self.0), self.0.longest));
        }
        Ok(sender)
    }
}

impl Inner {
    fn take(&self, server: &str) -> Option<(Rc<str>, Idle)> {
        let mut idle = self.idle.borrow_mut();
        let name = Rc::clone(idle.get_key_value(server)?.0);
        let found = idle.get_mut(server)?.pop()?;
        Some((name, found))
    }

    fn put(&self, server: &Rc<str>, sender: SendRequest<Upload>) {
        let mut idle = self.idle.borrow_mut();
        let of_server = match idle.get_mut(server) {
            Some(of_server) => of_server,
            None => idle.entry(Rc::clone(server)).or_default(),
        };
        if of_server.len() < self.most {
            let since = Instant::now();
            of_server.push(Idle { sender, since });
        }
    }

    /// Closes what was idle for too long; the other side may have closed it already.
    fn sweep(&self) {
        self.idle.borrow_mut().retain(|_, of_server| {
            of_server.retain(|it| !it.sender.is_closed() && it.since.elapsed() < self.longest);
            !of_server.is_empty()
        });
    }
}

/// As long as there is the pool.
async fn sweep(pool: Weak<Inner>, every: Duration) {
    loop {
        sleep(every).await;
        let Some(pool) = pool.upgrade() else { return };
        pool.sweep();
    }
}

impl Lease {
    /// The connection has become something else.
    pub(crate) fn give_up(mut self) {
        self.sender = None;
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(sender) = self.sender.take() else {
            return;
        };
        // One whose answer was not taken to its end is not ready again; whoever wants it next finds that out.
        if let Some(pool) = self.pool.upgrade().filter(|_| !sender.is_closed()) {
            pool.put(&self.server, sender);
        }
    }
}
