//! A real proxy on a port of its own, with the configuration that operators are given (`config/proxies`).

pub mod ports;
pub mod relay;
pub mod wire;

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tokio::net::TcpSocket;

use crate::wait::wait_for;
use relay::Relay;
use wire::{Authority, Connection};

/// The host name of the example configurations.
const NAME: &str = "agents.example.org";
/// The host name in front of any suite: all clients find it without being told.
const FRONT: &str = "localhost";
const CERTIFICATE: &str = "cert.pem";
/// Until a proxy listens.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// Which one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// nginx.
    Nginx,
    /// `HAProxy`.
    HaProxy,
}

impl Kind {
    /// By the name of its program.
    ///
    /// # Panics
    /// When there is none of this name: who wishes for one gets it, or is told.
    #[must_use]
    pub fn named(name: &str) -> Self {
        match name {
            "nginx" => Self::Nginx,
            "haproxy" => Self::HaProxy,
            _ => panic!("{name} is neither nginx nor haproxy"),
        }
    }
}

/// A proxy, or the place for one.
pub struct Proxy {
    kind: Kind,
    dir: TempDir,
    /// Where it listens.
    bound: SocketAddr,
    /// Its host name.
    name: &'static str,
    /// For clients that speak no TLS.
    relay: Option<Relay>,
    /// Bound and not listening: the system gives the port to nobody else.
    _held: TcpSocket,
    child: Option<Child>,
}

impl Proxy {
    /// A port for one that speaks TLS.
    #[must_use]
    pub fn reserve(kind: Kind) -> Self {
        Self::at(kind, Ipv4Addr::LOCALHOST, NAME)
    }

    /// The same on every address of this machine, as in front of a service that others are to reach.
    #[must_use]
    pub fn reserve_everywhere(kind: Kind) -> Self {
        Self::at(kind, Ipv4Addr::UNSPECIFIED, NAME)
    }

    /// A port for one in front of a suite, which knows it by its URL only: with the name `localhost`, and a [`relay`].
    #[must_use]
    pub fn reserve_front(kind: Kind) -> Self {
        let mut front = Self::at(kind, Ipv4Addr::LOCALHOST, FRONT);
        front.relay = Some(Relay::start(front.address()));
        front
    }

    fn at(kind: Kind, address: Ipv4Addr, name: &'static str) -> Self {
        let held = TcpSocket::new_v4().expect("a socket can be made");
        // Proxies allow it on their sides, too.
        held.set_reuseaddr(true).expect("reuse can be allowed");
        held.bind(SocketAddr::from((address, 0)))
            .expect("a port is free");
        Self {
            kind,
            dir: tempfile::tempdir().expect("a temporary directory can be made"),
            bound: held.local_addr().expect("a bound socket has an address"),
            name,
            relay: None,
            _held: held,
            child: None,
        }
    }

    /// Its port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.bound.port()
    }

    /// Where this machine reaches it.
    fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port()))
    }

    /// What clients of the service use: the public URL, with a slash at its end.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("https://{}:{}{path}/", self.name, self.port())
    }

    /// Runs the proxy in front of the service.
    ///
    /// # Panics
    /// When it does not come up.
    #[must_use]
    pub async fn start(mut self, service: SocketAddr, path: &str) -> Self {
        self.file(CERTIFICATE, &Authority::of_this_process().certificate);
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
        wait_for("the proxy to listen", WAIT_TIMEOUT, || async {
            tokio::net::TcpStream::connect(address).await.ok()
        })
        .await;
        self
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.dir.path().join(name);
        fs::write(&path, text).expect("the directory is writable");
        path.display().to_string()
    }

    fn nginx(&self, service: &str, path: &str) -> Command {
        let site = self.file("site.conf", &self.nginx_site(service, path));
        let dir = self.dir.path().display().to_string();
        let places = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
        let places = places.map(|it| format!("{it}_temp_path {dir}/{it};\n"));
        let main = format!(
            "daemon off;\nmaster_process off;\npid {dir}/pid;\nerror_log stderr;\nevents {{ worker_connections 4096; }}\n\
             http {{\naccess_log off;\n{}include {site};\n}}\n",
            places.concat()
        );
        let mut command = installed("nginx");
        command.args(["-p", &dir, "-c", &self.file("main.conf", &main)]);
        command
    }

    fn nginx_site(&self, service: &str, path: &str) -> String {
        let authority = Authority::of_this_process();
        let filled = [
            ("server 127.0.0.1:3000", format!("server {service}")),
            ("location / {", format!("location {path}/ {{")),
            ("listen 443", format!("listen {}", self.bound)),
            (NAME, self.name.to_owned()),
            ("/etc/ssl/agent-workspace.crt", self.certificate()),
            (
                "/etc/ssl/agent-workspace.key",
                self.file("key.pem", &authority.key),
            ),
        ];
        example("nginx.conf", &filled)
    }

    /// The file that clients trust.
    #[must_use]
    pub fn certificate(&self) -> String {
        self.dir.path().join(CERTIFICATE).display().to_string()
    }

    fn haproxy(&self, service: &str) -> Command {
        let authority = Authority::of_this_process();
        let both = format!("{}{}", authority.certificate, authority.key);
        let filled = [
            ("server one 127.0.0.1:3000", format!("server one {service}")),
            ("bind :443 ", format!("bind {} ", self.bound)),
            (NAME, self.name.to_owned()),
            ("/etc/ssl/agent-workspace.pem", self.file("both.pem", &both)),
        ];
        let given = example("haproxy.cfg", &filled);
        let mut command = installed("haproxy");
        command.args(["-db", "-f", &self.file("haproxy.cfg", &given)]);
        command
    }

    /// A client's connection.
    pub async fn connect(&self) -> Connection {
        self.connect_from([127, 0, 0, 1]).await
    }

    /// The same from another address.
    ///
    /// # Panics
    /// When the proxy does not take it.
    pub async fn connect_from(&self, from: [u8; 4]) -> Connection {
        Connection::secure(self.name, from, self.address()).await
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
fn example(name: &str, filled: &[(&str, String)]) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config/proxies");
    let text = fs::read_to_string(path.join(name));
    let mut text = text.unwrap_or_else(|error| panic!("{name}: {error}"));
    for (from, to) in filled {
        assert!(text.contains(from), "{name} has no {from}");
        text = text.replace(from, to);
    }
    text
}
