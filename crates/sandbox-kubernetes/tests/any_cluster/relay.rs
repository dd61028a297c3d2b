//! A way to the API server that a test can cut.

use std::net::SocketAddr;

use kube::config::Kubeconfig;
use tempfile::NamedTempFile;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;
use url::Url;

const BACKLOG: u32 = 64;

/// Passes connections on, until it is cut.
pub(crate) struct Relay {
    address: SocketAddr,
    target: String,
    connections: JoinSet<()>,
}

impl Relay {
    /// A relay to the host and port of a URL.
    pub(crate) fn to(server: &Url) -> Self {
        let host = server.host_str().unwrap();
        let port = server.port_or_known_default().unwrap();
        let mut relay = Self {
            address: ([127, 0, 0, 1], 0).into(),
            target: format!("{host}:{port}"),
            connections: JoinSet::new(),
        };
        relay.restore();
        relay
    }

    /// The URL by which a client uses the relay.
    pub(crate) fn url(&self, server: &Url) -> Url {
        let mut url = server.clone();
        url.set_ip_host(self.address.ip()).unwrap();
        url.set_port(Some(self.address.port())).unwrap();
        url
    }

    /// The environment's configuration, by way of a relay.
    pub(crate) fn of_environment() -> (Self, NamedTempFile) {
        let mut config = Kubeconfig::read().expect("a kubeconfig");
        let current = config.current_context.clone().expect("a current context");
        let context = config.contexts.iter().find(|it| it.name == current);
        let context = context.and_then(|it| it.context.as_ref());
        let name = context.expect("the current context").cluster.clone();
        let cluster = config.clusters.iter_mut().find(|it| it.name == name);
        let cluster = cluster.and_then(|it| it.cluster.as_mut());
        let cluster = cluster.expect("the cluster of the context");
        let server: Url = cluster.server.as_deref().unwrap().parse().unwrap();
        let relay = Self::to(&server);
        cluster.server = Some(relay.url(&server).to_string());
        // The certificate is that of the server.
        let name = cluster.tls_server_name.take();
        cluster.tls_server_name = name.or_else(|| server.host_str().map(str::to_owned));
        let file = NamedTempFile::new().unwrap();
        std::fs::write(&file, serde_json::to_string(&config).unwrap()).unwrap();
        (relay, file)
    }

    /// Ends all connections, and refuses new ones.
    pub(crate) async fn cut(&mut self) {
        self.connections.shutdown().await;
    }

    /// Accepts connections at the same address as before.
    pub(crate) fn restore(&mut self) {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind(self.address).unwrap();
        let listener = socket.listen(BACKLOG).unwrap();
        self.address = listener.local_addr().unwrap();
        self.connections
            .spawn(pass_on(listener, self.target.clone()));
    }
}

async fn pass_on(listener: TcpListener, target: String) {
    let mut connections = JoinSet::new();
    loop {
        let (mut near, _) = listener.accept().await.unwrap();
        let target = target.clone();
        connections.spawn(async move {
            // A connection that breaks is the client's to notice.
            if let Ok(mut far) = TcpStream::connect(target).await {
                let _ = copy_bidirectional(&mut near, &mut far).await;
            }
        });
    }
}
