//! TLS for clients without TLS: enabling it in reqwest would enable it for every crate of the workspace, also for the service.
//! The relay forwards bytes over a TLS connection that checks the proxy's certificate. [`client_builder_for`] selects it by the
//! scheme `https`.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use tokio::io::copy_bidirectional;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio_rustls::rustls::pki_types::ServerName;

use super::FRONT_HOST;
use super::authority::Authority;

/// A loopback address for relays only, each on the port of its proxy.
const RELAY_ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 9);

/// Listens until it is dropped.
#[derive(Debug)]
pub(super) struct Relay {
    _stop: oneshot::Sender<()>,
}

impl Relay {
    /// Starts a relay to this proxy, in its own thread because tests block theirs.
    pub(super) fn start(proxy: SocketAddr) -> Self {
        let listener = TcpListener::bind((RELAY_ADDRESS, proxy.port()));
        let listener = listener.expect("cannot bind the relay's port");
        let (stop, stopped) = oneshot::channel::<()>();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.expect("cannot create a runtime").block_on(async {
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
        .expect("cannot make the listener non-blocking");
    let listener =
        tokio::net::TcpListener::from_std(listener).expect("cannot register the listener");
    let connector = Authority::of_this_process().connector();
    let mut open = JoinSet::new();
    while let Ok((mut client, _)) = listener.accept().await {
        let connector = connector.clone();
        while open.try_join_next().is_some() {}
        open.spawn(async move {
            let upstream = TcpStream::connect(proxy).await?;
            for stream in [&client, &upstream] {
                stream.set_nodelay(true)?;
            }
            let name = ServerName::try_from(FRONT_HOST).map_err(std::io::Error::other)?;
            let mut upstream = connector.connect(name, upstream).await?;
            // An error of one side closes both, so that a client sees a cut connection. An end of one direction is forwarded.
            copy_bidirectional(&mut client, &mut upstream).await
        });
    }
}

/// A client for this URL, and the URL to request through it: a relay's for a proxy in front of a suite, else the same.
pub fn client_builder_for(url: &str) -> (reqwest::ClientBuilder, String) {
    let client = reqwest::Client::builder().no_proxy();
    let Some(rest) = url.strip_prefix("https://") else {
        return (client, url.to_owned());
    };
    // reqwest uses the port of the URL.
    let client = client.resolve(FRONT_HOST, SocketAddr::from((RELAY_ADDRESS, 0)));
    (client, format!("http://{rest}"))
}
