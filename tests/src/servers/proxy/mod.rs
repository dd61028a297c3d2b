//! Real proxies with the configurations for operators (`config/proxies`).

pub mod authority;
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
use authority::Authority;
use relay::Relay;
use wire::Connection;

/// The host name in the example configurations.
const EXAMPLE_HOST: &str = "agents.example.org";
/// The host name of a proxy in front of a suite, which all clients resolve.
const FRONT_HOST: &str = "localhost";
const CERTIFICATE_FILE: &str = "cert.pem";
/// Until a proxy listens.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// A kind of proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyKind {
    /// nginx.
    Nginx,
    /// `HAProxy`.
    HaProxy,
}

impl ProxyKind {
    /// The kind with this program name.
    ///
    /// # Panics
    /// When the name is unknown.
    #[must_use]
    pub fn named(name: &str) -> Self {
        match name {
            "nginx" => Self::Nginx,
            "haproxy" => Self::HaProxy,
            _ => panic!("{name} is neither nginx nor haproxy"),
        }
    }
}

/// A proxy, or a reserved port for one. Dropping it stops the proxy.
pub struct Proxy {
    kind: ProxyKind,
    dir: TempDir,
    listen_address: SocketAddr,
    name: &'static str,
    /// For clients without TLS.
    relay: Option<Relay>,
    /// Bound and not listening, so that the system gives the port to no other program.
    _reserved_socket: TcpSocket,
    child: Option<Child>,
}

impl Proxy {
    /// Reserves a loopback port for a proxy.
    #[must_use]
    pub fn reserve(kind: ProxyKind) -> Self {
        Self::at(kind, Ipv4Addr::LOCALHOST, EXAMPLE_HOST)
    }

    /// Reserves a port on every address of this machine.
    #[must_use]
    pub fn reserve_everywhere(kind: ProxyKind) -> Self {
        Self::at(kind, Ipv4Addr::UNSPECIFIED, EXAMPLE_HOST)
    }

    /// Reserves a port for a proxy in front of a suite, which knows only its URL: with the name `localhost` and a [`relay`].
    #[must_use]
    pub fn reserve_front(kind: ProxyKind) -> Self {
        let mut front = Self::at(kind, Ipv4Addr::LOCALHOST, FRONT_HOST);
        front.relay = Some(Relay::start(front.address()));
        front
    }

    fn at(kind: ProxyKind, address: Ipv4Addr, name: &'static str) -> Self {
        let socket = TcpSocket::new_v4().expect("cannot create a socket");
        // Proxies set it, too, so they can bind the reserved port.
        socket.set_reuseaddr(true).expect("cannot set SO_REUSEADDR");
        socket
            .bind(SocketAddr::from((address, 0)))
            .expect("cannot bind a free port");
        Self {
            kind,
            dir: tempfile::tempdir().expect("cannot create a temporary directory"),
            listen_address: socket
                .local_addr()
                .expect("the bound socket has no address"),
            name,
            relay: None,
            _reserved_socket: socket,
            child: None,
        }
    }

    /// Its port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.listen_address.port()
    }

    fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port()))
    }

    /// The public URL of the service, with a slash at its end.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("https://{}:{}{path}/", self.name, self.port())
    }

    /// Runs the proxy in front of the service.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub async fn start(mut self, service: SocketAddr, path: &str) -> Self {
        self.write_file(CERTIFICATE_FILE, &Authority::of_this_process().certificate);
        let service = service.to_string();
        let mut command = match self.kind {
            ProxyKind::Nginx => self.nginx(&service, path),
            ProxyKind::HaProxy => self.haproxy(&service),
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
        wait_for("the proxy to listen", START_TIMEOUT, || async {
            tokio::net::TcpStream::connect(address).await.ok()
        })
        .await;
        self
    }

    fn write_file(&self, name: &str, text: &str) -> String {
        let path = self.dir.path().join(name);
        fs::write(&path, text).expect("cannot write to the directory");
        path.display().to_string()
    }

    fn nginx(&self, service: &str, path: &str) -> Command {
        let site = self.write_file("site.conf", &self.nginx_site(service, path));
        let dir = self.dir.path().display().to_string();
        let temp_paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
        let temp_paths = temp_paths.map(|it| format!("{it}_temp_path {dir}/{it};\n"));
        let main = format!(
            "daemon off;\nmaster_process off;\npid {dir}/pid;\nerror_log stderr crit;\nevents {{ worker_connections 4096; }}\n\
             http {{\naccess_log off;\n{}include {site};\n}}\n",
            temp_paths.concat()
        );
        let mut command = proxy_program("nginx");
        command.args(["-p", &dir, "-c", &self.write_file("main.conf", &main)]);
        command
    }

    fn nginx_site(&self, service: &str, path: &str) -> String {
        let authority = Authority::of_this_process();
        let replacements = [
            ("server 127.0.0.1:3000", format!("server {service}")),
            ("location / {", format!("location {path}/ {{")),
            ("listen 443", format!("listen {}", self.listen_address)),
            (EXAMPLE_HOST, self.name.to_owned()),
            ("/etc/ssl/agent-workspace.crt", self.certificate()),
            (
                "/etc/ssl/agent-workspace.key",
                self.write_file("key.pem", &authority.key),
            ),
        ];
        example_config("nginx.conf", &replacements)
    }

    /// The file with its certificate.
    #[must_use]
    pub fn certificate(&self) -> String {
        self.dir.path().join(CERTIFICATE_FILE).display().to_string()
    }

    fn haproxy(&self, service: &str) -> Command {
        let authority = Authority::of_this_process();
        let certificate_and_key = format!("{}{}", authority.certificate, authority.key);
        let replacements = [
            ("server one 127.0.0.1:3000", format!("server one {service}")),
            ("bind :443 ", format!("bind {} ", self.listen_address)),
            (EXAMPLE_HOST, self.name.to_owned()),
            (
                "/etc/ssl/agent-workspace.pem",
                self.write_file("both.pem", &certificate_and_key),
            ),
        ];
        let config = example_config("haproxy.cfg", &replacements);
        let mut command = proxy_program("haproxy");
        command.args(["-db", "-f", &self.write_file("haproxy.cfg", &config)]);
        command
    }

    /// Connects to the proxy.
    pub async fn connect(&self) -> Connection {
        self.connect_from([127, 0, 0, 1]).await
    }

    /// Connects to the proxy from this address.
    ///
    /// # Panics
    /// When the proxy refuses the connection.
    pub async fn connect_from(&self, from: [u8; 4]) -> Connection {
        Connection::connect_tls(self.name, from, self.address()).await
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

/// The command of a proxy, also where Debian keeps it off the `PATH`.
fn proxy_program(name: &str) -> Command {
    let path = Path::new("/usr/sbin").join(name);
    Command::new(if path.exists() { path } else { name.into() })
}

/// An example configuration with replacements, all of which must apply.
fn example_config(name: &str, replacements: &[(&str, String)]) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config/proxies");
    let text = fs::read_to_string(path.join(name));
    let mut text = text.unwrap_or_else(|error| panic!("{name}: {error}"));
    for (from, to) in replacements {
        assert!(text.contains(from), "{name} does not contain {from}");
        text = text.replace(from, to);
    }
    text
}
