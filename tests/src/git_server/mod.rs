//! A git host of one private repository: smart HTTP over TLS with a certificate authority of its own.
//!
//! git itself serves (`git http-backend`); this is the TLS and the door in front of it. The only user is whoever has the
//! token, by Basic authentication, as providers want it.

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

/// What the host shares with its connections.
struct Host {
    root: PathBuf,
    token: String,
    packs: AtomicU64,
    arrivals: AtomicU64,
    holds: AtomicBool,
    /// Where whoever was let in is sent.
    sends_to: Mutex<Option<String>>,
    released: tokio::sync::Notify,
}

/// A running git host. Dropping it closes every connection.
pub struct GitServer {
    dir: TempDir,
    address: SocketAddr,
    host: Arc<Host>,
    task: JoinHandle<()>,
}

impl Drop for GitServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl GitServer {
    /// Listens on this address (with port 0 the system picks one) and serves `acme/tools` to whoever has `token`.
    ///
    /// # Panics
    /// When git is missing, or no port can be had.
    pub async fn start(address: [u8; 4], token: &str) -> Self {
        let dir = tempfile::Builder::new().prefix("aw-git-").tempdir();
        let dir = dir.expect("a temporary directory can be made");
        let root = dir.path().join("repositories");
        repository::make(&root.join("acme/tools.git"));
        let acceptor = certified(address, &dir).expect("a certificate can be made");
        let listener = TcpListener::bind(SocketAddr::from((address, 0))).await;
        let listener = listener.expect("a port is free");
        let address = listener
            .local_addr()
            .expect("a bound socket has an address");
        let host = Arc::new(Host {
            root,
            token: token.to_owned(),
            packs: AtomicU64::new(0),
            arrivals: AtomicU64::new(0),
            holds: AtomicBool::new(false),
            sends_to: Mutex::new(None),
            released: tokio::sync::Notify::new(),
        });
        let serving = http::serve(listener, acceptor, Arc::clone(&host));
        #[expect(
            clippy::disallowed_methods,
            reason = "test equipment; the handle owns the task"
        )]
        let task = tokio::spawn(serving);
        Self {
            dir,
            address,
            host,
            task,
        }
    }

    /// What a user stores as the provider's host.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// The certificate of its authority, as a file.
    #[must_use]
    pub fn authority(&self) -> PathBuf {
        self.dir.path().join("authority.pem")
    }

    /// How often somebody was let in and asked for the repository's content.
    #[must_use]
    pub fn packs(&self) -> u64 {
        self.host.packs.load(Ordering::SeqCst)
    }

    /// How often somebody connected, let in or not.
    #[must_use]
    pub fn arrivals(&self) -> u64 {
        self.host.arrivals.load(Ordering::SeqCst)
    }

    /// Sends everybody who is let in to the same path at another host, or to none any more.
    ///
    /// # Panics
    /// When an earlier call did.
    pub fn send_to(&self, other: Option<&Self>) {
        let mut place = self.host.sends_to.lock().expect("no panic before");
        *place = other.map(Self::url);
    }

    /// Content is not delivered, until [`Self::release`].
    pub fn hold(&self) {
        self.host.holds.store(true, Ordering::SeqCst);
    }

    /// Delivers what is being waited for, and everything later.
    pub fn release(&self) {
        self.host.holds.store(false, Ordering::SeqCst);
        self.host.released.notify_waiters();
    }
}

/// An authority, and a certificate of it for this address.
fn certified(address: [u8; 4], dir: &TempDir) -> Result<TlsAcceptor, Box<dyn std::error::Error>> {
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
