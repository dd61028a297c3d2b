//! TLS for clients that speak none. (The client library of the suites, reqwest, would have it for every crate of the
//! workspace at once, the service's own calls too.) What they send goes on, byte by byte, over a connection of its own that
//! checks the proxy's certificate; a URL of `https` is enough to find the way.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use tokio::io::copy_bidirectional;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio_rustls::rustls::pki_types::ServerName;

use super::FRONT;
use super::wire::Authority;

/// An address of this machine that nothing else uses: the port is the proxy's.
const ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 9);

/// Listens until it is dropped.
#[derive(Debug)]
pub(super) struct Relay {
    _stop: oneshot::Sender<()>,
}

impl Relay {
    /// In front of the proxy that is to listen here. In a thread of its own: tests block theirs.
    pub(super) fn start(proxy: SocketAddr) -> Self {
        let listener = TcpListener::bind((ADDRESS, proxy.port()));
        let listener = listener.expect("the port is free at this address, too");
        let (stop, stopped) = oneshot::channel::<()>();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.expect("a runtime can be made").block_on(async {
                tokio::select! {
                    () = serve(listener, proxy) => {}
                    _ = stopped => {}
                }
            });
        });
        Self { _stop: stop }
    }
}

async fn serve(listener: TcpListener, proxy: SocketAddr) {
    listener
        .set_nonblocking(true)
        .expect("a listener need not block");
    let listener = tokio::net::TcpListener::from_std(listener).expect("it listens");
    let connector = Authority::of_this_process().connector();
    let mut open = JoinSet::new();
    // Whoever comes is one of this process's own clients.
    while let Ok((mut client, _)) = listener.accept().await {
        let connector = connector.clone();
        while open.try_join_next().is_some() {}
        open.spawn(async move {
            let onwards = TcpStream::connect(proxy).await?;
            for stream in [&client, &onwards] {
                stream.set_nodelay(true)?;
            }
            let name = ServerName::try_from(FRONT).map_err(std::io::Error::other)?;
            let mut onwards = connector.connect(name, onwards).await?;
            // An error of either ends both: a client sees a connection that is cut. An end is passed on, and the other way goes on.
            copy_bidirectional(&mut client, &mut onwards).await
        });
    }
}

/// A client, and what it has to ask for in place of this URL: the same, unless it leads to a proxy in front of a suite.
pub fn way_to(url: &str) -> (reqwest::ClientBuilder, String) {
    let client = reqwest::Client::builder().no_proxy();
    let Some(rest) = url.strip_prefix("https://") else {
        return (client, url.to_owned());
    };
    // The port of the URL counts.
    let client = client.resolve(FRONT, SocketAddr::from((ADDRESS, 0)));
    (client, format!("http://{rest}"))
}
