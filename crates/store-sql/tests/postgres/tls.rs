//! TLS as the parameters of the URL require.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use store_sql::{OpenError, SqlStore, StoreConfig};
use tempfile::TempDir;
use tokio::net::TcpSocket;
use tokio::runtime::Handle;

use crate::cluster::Cluster;

/// Creates a key and a self-signed certificate for `localhost`.
fn certificate(dir: &Path, name: &str) -> (PathBuf, PathBuf) {
    let (key, cert) = (
        dir.join(format!("{name}.key")),
        dir.join(format!("{name}.crt")),
    );
    let output = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-nodes", "-days", "2"])
        .args(["-pkeyopt", "ec_paramgen_curve:prime256v1"])
        .args([
            "-subj",
            "/CN=localhost",
            "-addext",
            "subjectAltName=DNS:localhost",
        ])
        .arg("-keyout")
        .arg(&key)
        .arg("-out")
        .arg(&cert)
        .output()
        .expect("run `openssl`: apt-get install openssl");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "openssl: {stderr}");
    (key, cert)
}

async fn open(url: &str) -> Result<(), OpenError> {
    let opened = SqlStore::open(StoreConfig::new(url), Handle::current()).await?;
    opened.ping().await.expect("a response");
    Ok(())
}

/// Waits until the URL can be opened, or cannot. The server rereads its configuration after a while.
async fn wait_until_opens(url: &str, opens: bool) {
    let started = Instant::now();
    loop {
        match open(url).await {
            Ok(()) if opens => return,
            Err(OpenError::Connect(_)) if !opens => return,
            other => assert!(started.elapsed().as_secs() < 30, "{url}: {other:?}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A server with a certificate for `localhost`.
struct TlsServer {
    dir: TempDir,
    port: u16,
    cluster: Cluster,
    /// Reserves the port: it is bound with reuse allowed, and does not listen.
    _reservation: TcpSocket,
}

impl TlsServer {
    fn start() -> Self {
        let dir = TempDir::new().unwrap();
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(dir.path(), permissions).unwrap();
        let (key, cert) = certificate(dir.path(), "server");
        certificate(dir.path(), "other");
        Cluster::make_private(&key);
        let reservation = TcpSocket::new_v4().unwrap();
        reservation.set_reuseaddr(true).unwrap();
        reservation
            .bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
            .unwrap();
        let port = reservation.local_addr().unwrap().port();
        let options = format!("-c listen_addresses=localhost -c port={port}");
        let server = Self {
            dir,
            port,
            cluster: Cluster::private(&options),
            _reservation: reservation,
        };
        server.set(&[
            &format!("ssl_key_file = '{}'", key.display()),
            &format!("ssl_cert_file = '{}'", cert.display()),
            "ssl = on",
        ]);
        server
    }

    /// Changes settings, over the Unix socket, which does not use TLS.
    fn set(&self, settings: &[&str]) {
        let socket = format!("{}?port={}", self.cluster.url("postgres"), self.port);
        let mut admin = PgConnection::establish(&socket).unwrap();
        for setting in settings {
            let statement = format!("ALTER SYSTEM SET {setting}");
            admin.batch_execute(&statement).unwrap();
        }
        admin.batch_execute("SELECT pg_reload_conf()").unwrap();
    }

    fn url(&self, host: &str, mode: &str) -> String {
        let port = self.port;
        format!("postgres://postgres@{host}:{port}/postgres?connect_timeout=10&sslmode={mode}")
    }

    /// The URL of a client that verifies the server by this certificate.
    fn verifying_url(&self, host: &str, name: &str) -> String {
        let root = self.dir.path().join(format!("{name}.crt"));
        let url = self.url(host, "verify-full");
        format!("{url}&sslrootcert={}", root.display())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_url_determines_how_the_server_is_verified() {
    let server = TlsServer::start();
    let require = server.url("localhost", "require");
    wait_until_opens(&require, true).await;
    for url in [&require, &server.verifying_url("localhost", "server")] {
        let opened = open(url).await;
        assert!(opened.is_ok(), "{url}: {opened:?}");
        let mut raw = PgConnection::establish(url).unwrap();
        let encrypted: bool = diesel::dsl::sql::<diesel::sql_types::Bool>(
            "(SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid())",
        )
        .get_result(&mut raw)
        .unwrap();
        assert!(encrypted, "{url}");
    }
    let mismatches = [("localhost", "other"), ("127.0.0.1", "server")];
    for (host, root) in mismatches {
        let refused = open(&server.verifying_url(host, root)).await;
        assert!(
            matches!(refused, Err(OpenError::Connect(_))),
            "{host}, {root}: {refused:?}"
        );
    }
    // `sslmode=require` does not fall back to a connection without TLS.
    server.set(&["ssl = off"]);
    wait_until_opens(&require, false).await;
    open(&server.url("localhost", "disable")).await.unwrap();
}
