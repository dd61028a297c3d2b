//! TLS as the URL asks for it.

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

/// A key and a certificate for `localhost` that it signs itself.
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
        .expect("the program `openssl`: apt-get install openssl");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "openssl: {said}");
    (key, cert)
}

async fn open(url: &str) -> Result<(), OpenError> {
    let opened = SqlStore::open(StoreConfig::new(url), Handle::current()).await?;
    opened.ping().await.expect("an answer");
    Ok(())
}

/// The server takes its time to read its configuration anew.
async fn until(url: &str, opens: bool) {
    let began = Instant::now();
    loop {
        match open(url).await {
            Ok(()) if opens => return,
            Err(OpenError::Connect(_)) if !opens => return,
            other => assert!(began.elapsed().as_secs() < 30, "{url}: {other:?}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A server that has a certificate for `localhost`.
struct Secured {
    dir: TempDir,
    port: u16,
    cluster: Cluster,
    /// Keeps the port from everybody else, who allow no reuse. It does not listen.
    _held: TcpSocket,
}

impl Secured {
    fn start() -> Self {
        let dir = TempDir::new().unwrap();
        let rights = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(dir.path(), rights).unwrap();
        let (key, cert) = certificate(dir.path(), "server");
        certificate(dir.path(), "other");
        Cluster::give(&key);
        let held = TcpSocket::new_v4().unwrap();
        held.set_reuseaddr(true).unwrap();
        held.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
            .unwrap();
        let port = held.local_addr().unwrap().port();
        let options = format!("-c listen_addresses=localhost -c port={port}");
        let secured = Self {
            dir,
            port,
            cluster: Cluster::private(&options),
            _held: held,
        };
        secured.set(&[
            &format!("ssl_key_file = '{}'", key.display()),
            &format!("ssl_cert_file = '{}'", cert.display()),
            "ssl = on",
        ]);
        secured
    }

    /// Over the socket, which knows no TLS.
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

    /// The server must prove who it is, by this certificate.
    fn trusting(&self, host: &str, name: &str) -> String {
        let root = self.dir.path().join(format!("{name}.crt"));
        let url = self.url(host, "verify-full");
        format!("{url}&sslrootcert={}", root.display())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_url_says_how_far_the_server_is_trusted() {
    let server = Secured::start();
    let require = server.url("localhost", "require");
    until(&require, true).await;
    for url in [&require, &server.trusting("localhost", "server")] {
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
    let strangers = [("localhost", "other"), ("127.0.0.1", "server")];
    for (host, root) in strangers {
        let refused = open(&server.trusting(host, root)).await;
        assert!(
            matches!(refused, Err(OpenError::Connect(_))),
            "{host}, {root}: {refused:?}"
        );
    }
    // There is no falling back to doing without.
    server.set(&["ssl = off"]);
    until(&require, false).await;
    open(&server.url("localhost", "disable")).await.unwrap();
}
