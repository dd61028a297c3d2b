//! A real proxy on a port of its own, with the configuration that operators are given.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use acceptance::wait::wait_for;
use tempfile::TempDir;
use tokio::net::TcpSocket;

use crate::wire::{Authority, Connection};

/// The host name of the example configurations.
const NAME: &str = "agents.example.org";
/// Until a proxy listens.
const LIMIT: Duration = Duration::from_secs(60);

/// Which one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Nginx,
    HaProxy,
}

/// A proxy, or the place for one.
pub(crate) struct Proxy {
    kind: Kind,
    dir: TempDir,
    port: u16,
    authority: Authority,
    /// Bound and not listening: the system gives the port to nobody else.
    _held: TcpSocket,
    child: Option<Child>,
}

impl Proxy {
    /// A port for it.
    pub(crate) fn reserve(kind: Kind) -> Self {
        let held = TcpSocket::new_v4().unwrap();
        // Proxies allow it on their sides, too.
        held.set_reuseaddr(true).unwrap();
        held.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
            .unwrap();
        Self {
            kind,
            dir: tempfile::tempdir().unwrap(),
            port: held.local_addr().unwrap().port(),
            authority: Authority::of(NAME),
            _held: held,
            child: None,
        }
    }

    fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// What clients of the service use.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("https://{NAME}:{}{path}/", self.port)
    }

    /// Runs the proxy in front of the service.
    pub(crate) async fn start(mut self, service: SocketAddr, path: &str) -> Self {
        let service = service.to_string();
        let mut command = match self.kind {
            Kind::Nginx => self.nginx(&service, path),
            Kind::HaProxy => self.haproxy(&service),
        };
        let child = command
            .stdin(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| {
                panic!(
                    "{:?} cannot be run ({error}): `cargo xtask prepare` installs it",
                    self.kind
                )
            });
        self.child = Some(child);
        let address = self.address();
        wait_for("the proxy to listen", LIMIT, || async {
            tokio::net::TcpStream::connect(address).await.ok()
        })
        .await;
        self
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.dir.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    fn nginx(&self, service: &str, path: &str) -> Command {
        let certificate = self.file("cert.pem", &self.authority.certificate);
        let key = self.file("key.pem", &self.authority.key);
        let site = example(
            "nginx.conf",
            &[
                ("listen 443 ", &format!("listen {} ", self.address())),
                ("/etc/ssl/agent-workspace.crt", &certificate),
                ("/etc/ssl/agent-workspace.key", &key),
                ("server 127.0.0.1:3000", &format!("server {service}")),
                ("location / {", &format!("location {path}/ {{")),
            ],
        );
        let site = self.file("site.conf", &site);
        let dir = self.dir.path().display().to_string();
        let places = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
        let places = places.map(|it| format!("{it}_temp_path {dir}/{it};\n"));
        let main = format!(
            "daemon off;\nmaster_process off;\npid {dir}/pid;\nerror_log stderr;\nevents {{}}\nhttp {{\naccess_log off;\n\
             {}include {site};\n}}\n",
            places.concat()
        );
        let mut command = installed("nginx");
        command.args(["-p", &dir, "-c", &self.file("main.conf", &main)]);
        command
    }

    fn haproxy(&self, service: &str) -> Command {
        let both = format!("{}{}", self.authority.certificate, self.authority.key);
        let given = example(
            "haproxy.cfg",
            &[
                ("bind :443 ", &format!("bind {} ", self.address())),
                (
                    "/etc/ssl/agent-workspace.pem",
                    &self.file("both.pem", &both),
                ),
                (
                    "server one 127.0.0.1:3000",
                    &format!("server one {service}"),
                ),
            ],
        );
        let mut command = installed("haproxy");
        command.args(["-db", "-f", &self.file("haproxy.cfg", &given)]);
        command
    }

    /// A client's connection.
    pub(crate) async fn connect(&self) -> Connection {
        self.connect_from([127, 0, 0, 1]).await
    }

    /// The same from another address.
    pub(crate) async fn connect_from(&self, from: [u8; 4]) -> Connection {
        Connection::secure(&self.authority, from, self.address()).await
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A program that Debian keeps off the `PATH` of ordinary users.
fn installed(name: &str) -> Command {
    let path = Path::new("/usr/sbin").join(name);
    Command::new(if path.exists() { path } else { name.into() })
}

/// An example of ours with what an operator fills in. Everything that is to be filled in must be there.
fn example(name: &str, filled: &[(&str, &str)]) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config/proxies");
    let mut text = fs::read_to_string(path.join(name)).unwrap();
    for (from, to) in filled {
        assert!(text.contains(from), "{name} has no {from}");
        text = text.replace(from, to);
    }
    text
}
