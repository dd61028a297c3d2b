//! A git host with one private repository: smart HTTP over TLS with its own certificate authority.
//!
//! `git http-backend` serves the repository; this module adds TLS and Basic authentication with one token, as providers do.

mod http;
mod repository;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

pub use repository::{BRANCH, ENDLESS, SKILL};

/// Shared by all connections.
struct GitHost {
    root: PathBuf,
    token: String,
    pack_requests: AtomicU64,
    connections: AtomicU64,
    is_holding: AtomicBool,
    /// The host that authenticated requests are redirected to.
    redirect_to: Mutex<Option<String>>,
    released: tokio::sync::Notify,
}

/// A running git host. Dropping it closes every connection.
pub struct GitServer {
    dir: TempDir,
    address: SocketAddr,
    host: Arc<GitHost>,
    task: JoinHandle<()>,
}

impl Drop for GitServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl GitServer {
    /// Listens on a free port of this address and serves `acme/tools` to clients with `token`.
    ///
    /// # Panics
    /// When git is missing, or no port is free.
    pub async fn start(address: [u8; 4], token: &str) -> Self {
        let dir = tempfile::Builder::new().prefix("aw-git-").tempdir();
        let dir = dir.expect("cannot create a temporary directory");
        let root = dir.path().join("repositories");
        repository::create(&root.join("acme/tools.git"));
        let acceptor = tls_acceptor(address, &dir).expect("cannot create a certificate");
        let listener = TcpListener::bind(SocketAddr::from((address, 0))).await;
        let listener = listener.expect("cannot bind a free port");
        let address = listener
            .local_addr()
            .expect("the bound socket has no address");
        let host = Arc::new(GitHost {
            root,
            token: token.to_owned(),
            pack_requests: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            is_holding: AtomicBool::new(false),
            redirect_to: Mutex::new(None),
            released: tokio::sync::Notify::new(),
        });
        let serving = http::serve(listener, acceptor, Arc::clone(&host));
        #[expect(clippy::disallowed_methods, reason = "the handle owns the task")]
        let task = tokio::spawn(serving);
        Self {
            dir,
            address,
            host,
            task,
        }
    }

    /// The URL to store as the provider's host.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// The file with the certificate of its authority.
    #[must_use]
    pub fn authority(&self) -> PathBuf {
        self.dir.path().join("authority.pem")
    }

    /// Authenticated requests for the repository's content so far.
    #[must_use]
    pub fn count_content_requests(&self) -> u64 {
        self.host.pack_requests.load(Ordering::SeqCst)
    }

    /// Whether the repository has this branch.
    #[must_use]
    pub fn has_branch(&self, name: &str) -> bool {
        repository::has_branch(&self.host.root.join("acme/tools.git"), name)
    }

    /// Connections with TLS so far, authenticated or not.
    #[must_use]
    pub fn count_connections(&self) -> u64 {
        self.host.connections.load(Ordering::SeqCst)
    }

    /// Redirects authenticated requests to the same path of another host, or no longer.
    ///
    /// # Panics
    /// When the lock is poisoned.
    pub fn redirect_to(&self, other: Option<&Self>) {
        let mut redirect = self.host.redirect_to.lock().expect("the lock is poisoned");
        *redirect = other.map(Self::url);
    }

    /// Holds back content until [`Self::release`].
    pub fn hold(&self) {
        self.host.is_holding.store(true, Ordering::SeqCst);
    }

    /// Delivers held back and later content.
    pub fn release(&self) {
        self.host.is_holding.store(false, Ordering::SeqCst);
        self.host.released.notify_waiters();
    }
}

/// Creates an authority and a certificate for this address.
fn tls_acceptor(
    address: [u8; 4],
    dir: &TempDir,
) -> Result<TlsAcceptor, Box<dyn std::error::Error>> {
    let authority_key = KeyPair::generate()?;
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let root = authority.self_signed(&authority_key)?;
    std::fs::write(dir.path().join("authority.pem"), root.pem())?;
    let issuer = Issuer::new(authority, authority_key);
    let key = KeyPair::generate()?;
    let name = address.map(|part| part.to_string()).join(".");
    let certificate = CertificateParams::new([name])?.signed_by(&key, &issuer)?;
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(
        tokio_rustls::rustls::crypto::ring::default_provider(),
    ))
    .with_safe_default_protocol_versions()?
    .with_no_client_auth()
    .with_single_cert(vec![certificate.der().clone()], key)
    .map_err(io::Error::other)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}
