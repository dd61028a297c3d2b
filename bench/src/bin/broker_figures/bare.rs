//! A bare proxy: hyper's server and client, and nothing else. It is a process of its own, as the service is.

use std::io::{BufRead as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};

use anyhow::Context as _;
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HOST, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;

/// The argument of the process, which the address of the upstream server follows.
pub(crate) const ROLE_ARGUMENT: &str = "--bare-proxy";

/// The process. Dropping it ends it.
pub(crate) struct BareProxy {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl BareProxy {
    pub(crate) fn start(upstream: SocketAddr) -> anyhow::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args([ROLE_ARGUMENT, &upstream.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = child.stdout.take().context("its output is a pipe")?;
        let mut line = String::new();
        std::io::BufReader::new(output).read_line(&mut line)?;
        let address = line.trim().parse().context("its address")?;
        Ok(Self { child, address })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for BareProxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Serves until the process ends.
pub(crate) fn serve(upstream: &str) -> anyhow::Result<()> {
    let upstream: SocketAddr = upstream.parse()?;
    // As many threads as the service has workers on two cores.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(async move {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        writeln!(std::io::stdout(), "{}", listener.local_addr()?)?;
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new()).build(connector);
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let client = client.clone();
            tokio::spawn(async move {
                let service = service_fn(|request| forward(client.clone(), upstream, request));
                let http = hyper::server::conn::http1::Builder::new();
                // An error is one of the connection.
                let _ = http.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    })
}

async fn forward(
    client: Client<HttpConnector, Incoming>,
    upstream: SocketAddr,
    mut request: Request<Incoming>,
) -> anyhow::Result<Response<Incoming>> {
    let path = request.uri().path_and_query().context("a path")?;
    *request.uri_mut() = format!("http://{upstream}{path}").parse::<Uri>()?;
    request.headers_mut().remove(CONNECTION);
    request
        .headers_mut()
        .insert(HOST, HeaderValue::try_from(upstream.to_string())?);
    let answer = client.request(request).await?;
    anyhow::ensure!(answer.status() == StatusCode::OK, "{}", answer.status());
    Ok(answer)
}
