//! The real binary, in a data directory of its own, on a port of its own.

mod builder;
mod sandboxes;

use std::fs::File;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::net::TcpSocket;

pub use builder::{Builder, Sandboxing};
pub use sandboxes::Trace;

use crate::client::Client;
use crate::proxy::Proxy;
use crate::wait::wait_for;

/// Until the service answers. Generous: machines that build beside the suites are slow.
const START_DEADLINE: Duration = Duration::from_secs(30);
/// Until a service that was asked to end has ended.
const STOP_DEADLINE: Duration = Duration::from_secs(40);
/// How much of the log a failed test shows.
const SHOWN_LINES: usize = 250;
/// The variable by which programs are told whose certificates to trust.
pub const TRUSTED: &str = "SSL_CERT_FILE";

/// A running (or just killed) service. Dropping it kills it with everything that its sandboxes started.
pub struct Service {
    builder: Builder,
    dir: TempDir,
    address: SocketAddr,
    /// Bound and not listening: the system gives the port to nobody else, also while the service is down.
    _port: TcpSocket,
    /// What clients talk to instead.
    front: Option<Proxy>,
    child: Option<Child>,
    /// How long the last start took until the first answer.
    start_time: Duration,
}

impl Service {
    /// Defaults: process sandboxes, an agent-server command that must be set by the test that starts sandboxes.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// With nothing special.
    pub async fn start() -> Self {
        Self::builder().start().await
    }

    async fn launch(mut builder: Builder) -> Self {
        let socket = TcpSocket::new_v4().expect("a socket can be made");
        socket.set_reuseaddr(true).expect("reuse can be allowed");
        socket
            .bind(SocketAddr::from(([127, 0, 0, 1], 0)))
            .expect("a loopback port is free");
        let address = socket.local_addr().expect("a bound socket has an address");
        let dir = tempfile::Builder::new()
            .prefix("aw-")
            .tempdir()
            .expect("a temporary directory can be made");
        std::fs::create_dir(dir.path().join("home")).expect("the directory is writable");
        let front = match builder.front() {
            None => None,
            Some(kind) => {
                let proxy = Proxy::reserve_front(kind);
                builder.set("WORKSPACE_HTTP__PUBLIC_URL", &proxy.url(""));
                builder.set("WORKSPACE_HTTP__TRUSTED_PROXIES", "127.0.0.1");
                Some(proxy.start(address, "").await)
            }
        };
        let mut service = Self {
            builder,
            dir,
            address,
            _port: socket,
            front,
            child: None,
            start_time: Duration::ZERO,
        };
        service.restart().await;
        service
    }

    /// Starts the service again on the same directory and port; kills the present one first if there is one.
    ///
    /// # Panics
    /// When it does not answer in time, or ends.
    pub async fn restart(&mut self) {
        let ended = self.try_restart().await;
        assert!(
            ended.is_none(),
            "the service ended while starting: {ended:?}"
        );
    }

    /// The same for a service that may end while it starts; how it ended then.
    ///
    /// # Panics
    /// When it neither answers in time nor ends.
    pub async fn try_restart(&mut self) -> Option<ExitStatus> {
        self.kill9();
        let log = self.open_log();
        let started = Instant::now();
        let child = self
            .command()
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a file can be shared"))
            .stderr(log)
            .spawn()
            .expect("the service can be started");
        self.child = Some(child);
        let http = crate::client::http();
        let url = format!("http://{}/alive", self.address);
        loop {
            let answer = http.get(&url).timeout(Duration::from_secs(2)).send().await;
            if answer.is_ok_and(|answer| answer.status().is_success()) {
                break;
            }
            if let Some(status) = self.ended() {
                return Some(status);
            }
            let waited = started.elapsed();
            assert!(
                waited < START_DEADLINE,
                "the service does not answer at {url}"
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        self.start_time = started.elapsed();
        None
    }

    /// `kill -9`: nothing is tidied up.
    pub fn kill9(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// SIGTERM, and waits for the end.
    ///
    /// # Panics
    /// When it does not end in time, or not with success.
    pub async fn stop(&mut self) {
        let Some(mut child) = self.child.take() else {
            return;
        };
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.expect("a child has a pid"), Signal::TERM).expect("it runs");
        let status: ExitStatus = wait_for("the service's end after SIGTERM", STOP_DEADLINE, || {
            let ended = child.try_wait().ok().flatten();
            async move { ended }
        })
        .await;
        assert!(status.success(), "the service ended with {status}");
    }

    /// Whether it ended by itself, and how.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child
            .as_mut()
            .and_then(|c| c.try_wait().ok().flatten())
    }

    /// Process id.
    ///
    /// # Panics
    /// When it is not running.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("the service runs").id()
    }

    /// Where it listens, also if there is a proxy in front.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where clients reach it: `http://…`, without a slash at the end. Behind the proxy of `ACCEPTANCE_BEHIND` that is the
    /// proxy's, `https://localhost:…`.
    #[must_use]
    pub fn url(&self) -> String {
        let own = || format!("http://{}", self.address);
        let front = self.front.as_ref();
        front.map_or_else(own, |it| it.url("").trim_end_matches('/').to_owned())
    }

    /// The file with the certificate of the proxy in front, if there is one.
    #[must_use]
    pub fn trusted(&self) -> Option<String> {
        self.front.as_ref().map(Proxy::certificate)
    }

    /// From the start of the process to its first answer.
    #[must_use]
    pub fn start_time(&self) -> Duration {
        self.start_time
    }

    /// The data directory.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// Everything that the service has printed in all of its lives.
    #[must_use]
    pub fn log(&self) -> String {
        let bytes = std::fs::read(self.log_file()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The first user, with the key that the service generated.
    ///
    /// # Panics
    /// When there is no key.
    #[must_use]
    pub fn admin(&self) -> Client {
        let file = self.data().join("bootstrap.key");
        let key = std::fs::read_to_string(&file)
            .unwrap_or_else(|error| panic!("no first key in {}: {error}", file.display()));
        Client::new(self.url(), key.trim())
    }

    /// A further user, made with the command line while the service runs.
    ///
    /// # Panics
    /// When no key comes out.
    #[must_use]
    pub fn user(&self, name: &str) -> Client {
        let output = self.run(&["keys", "create", "--user", name]);
        let key = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        assert!(
            output.status.success() && key.starts_with("aw_"),
            "keys create: {} {}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        Client::new(self.url(), &key)
    }

    /// Runs a subcommand with the service's configuration.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn run(&self, arguments: &[&str]) -> Output {
        self.program(arguments)
            .output()
            .expect("the binary can be run")
    }

    /// The binary with the service's configuration and these arguments, not yet run.
    #[must_use]
    pub fn program(&self, arguments: &[&str]) -> Command {
        let mut command = self.command();
        if let Some(front) = &self.front {
            // The command line is a client, too. The service itself has to trust what it installs from.
            command.env(TRUSTED, front.certificate());
        }
        command.args(arguments);
        command
    }

    fn command(&self) -> Command {
        let mut command = self.builder.command();
        command
            .env("HOME", self.dir.path().join("home"))
            .env("WORKSPACE_DATA_DIR", self.data());
        if self.builder.sets("WORKSPACE_HTTP__BIND").is_none() {
            command.env("WORKSPACE_HTTP__BIND", self.address.to_string());
        }
        command
    }

    /// Sets a variable for the next start.
    pub fn set(&mut self, name: &str, value: &str) {
        self.builder.set(name, value);
    }

    fn log_file(&self) -> PathBuf {
        self.dir.path().join("service.log")
    }

    fn open_log(&self) -> File {
        let mut log = File::options()
            .create(true)
            .append(true)
            .open(self.log_file())
            .expect("the log can be written");
        writeln!(log, "---- start ----").expect("the log can be written");
        log
    }

    /// The directory that holds everything of this service.
    #[must_use]
    pub fn root(&self) -> &Path {
        self.dir.path()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if std::thread::panicking() {
            show(&self.log());
            self.show_sandboxes();
        }
        self.kill9();
        self.end_sandboxes();
    }
}

fn show(log: &str) {
    let lines: Vec<&str> = log.lines().collect();
    let tail = &lines[lines.len().saturating_sub(SHOWN_LINES)..];
    crate::print_line(&format!("---- log ----\n{}", tail.join("\n")));
}
