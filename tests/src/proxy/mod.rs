//! A real proxy on a port of its own, with the configuration that operators are given (`config/proxies`).

pub mod ports;
pub mod wire;

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tokio::net::TcpSocket;

use crate::wait::wait_for;
use wire::{Authority, Connection};

/// The host name of the example configurations.
const NAME: &str = "agents.example.org";
/// Until a proxy listens.
const LIMIT: Duration = Duration::from_secs(60);

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
    /// Its certificate; `None`: without TLS.
    authority: Option<Authority>,
    /// Bound and not listening: the system gives the port to nobody else.
    _held: TcpSocket,
    child: Option<Child>,
}

impl Proxy {
    /// A port for one that speaks TLS.
    #[must_use]
    pub fn reserve(kind: Kind) -> Self {
        Self::at(kind, Ipv4Addr::LOCALHOST, Some(Authority::of(NAME)))
    }

    /// The same on every address of this machine, as in front of a service that others are to reach.
    #[must_use]
    pub fn reserve_everywhere(kind: Kind) -> Self {
        Self::at(kind, Ipv4Addr::UNSPECIFIED, Some(Authority::of(NAME)))
    }

    /// A port for one without TLS, which takes its clients' word for `127.0.0.1` as the host name.
    #[must_use]
    pub fn reserve_plain(kind: Kind) -> Self {
        Self::at(kind, Ipv4Addr::LOCALHOST, None)
    }

    fn at(kind: Kind, address: Ipv4Addr, authority: Option<Authority>) -> Self {
        let held = TcpSocket::new_v4().expect("a socket can be made");
        // Proxies allow it on their sides, too.
        held.set_reuseaddr(true).expect("reuse can be allowed");
        held.bind(SocketAddr::from((address, 0)))
            .expect("a port is free");
        Self {
            kind,
            dir: tempfile::tempdir().expect("a temporary directory can be made"),
            bound: held.local_addr().expect("a bound socket has an address"),
            authority,
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
        match self.authority {
            Some(_) => format!("https://{NAME}:{}{path}/", self.port()),
            None => format!("http://{}{path}/", self.address()),
        }
    }

    /// Runs the proxy in front of the service.
    ///
    /// # Panics
    /// When it does not come up.
    #[must_use]
    pub async fn start(mut self, service: SocketAddr, path: &str) -> Self {
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
        fs::write(&path, text).expect("the directory is writable");
        path.display().to_string()
    }

    fn nginx(&self, service: &str, path: &str) -> Command {
        let site = self.file("site.conf", &self.nginx_site(service, path));
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

    fn nginx_site(&self, service: &str, path: &str) -> String {
        let listen = format!("listen {}", self.bound);
        let name = format!("server_name {};", Ipv4Addr::LOCALHOST);
        let mut filled = vec![
            ("server 127.0.0.1:3000", format!("server {service}")),
            ("location / {", format!("location {path}/ {{")),
        ];
        if let Some(authority) = &self.authority {
            let certificate = self.file("cert.pem", &authority.certificate);
            let key = self.file("key.pem", &authority.key);
            filled.extend([
                ("listen 443", listen),
                ("/etc/ssl/agent-workspace.crt", certificate),
                ("/etc/ssl/agent-workspace.key", key),
            ]);
        } else {
            filled.extend([
                ("listen 443 ssl", listen),
                (
                    "ssl_certificate     /etc/ssl/agent-workspace.crt;",
                    String::new(),
                ),
                (
                    "ssl_certificate_key /etc/ssl/agent-workspace.key;",
                    String::new(),
                ),
                ("ssl_reject_handshake on;", String::new()),
                ("server_name agents.example.org;", name),
            ]);
        }
        example("nginx.conf", &filled)
    }

    fn haproxy(&self, service: &str) -> Command {
        let service = format!("server one {service}");
        let mut filled = vec![("server one 127.0.0.1:3000", service)];
        if let Some(authority) = &self.authority {
            let both = format!("{}{}", authority.certificate, authority.key);
            filled.extend([
                ("bind :443 ", format!("bind {} ", self.bound)),
                ("/etc/ssl/agent-workspace.pem", self.file("both.pem", &both)),
            ]);
        } else {
            filled.extend([
                (
                    "bind :443 ssl crt /etc/ssl/agent-workspace.pem alpn http/1.1",
                    format!("bind {}", self.bound),
                ),
                (
                    "host_only -i agents.example.org",
                    format!("host_only {}", Ipv4Addr::LOCALHOST),
                ),
                (
                    "X-Forwarded-Proto https",
                    "X-Forwarded-Proto http".to_owned(),
                ),
            ]);
        }
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
        match &self.authority {
            Some(authority) => Connection::secure(authority, from, self.address()).await,
            None => Connection::plain(from, self.address()).await,
        }
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
