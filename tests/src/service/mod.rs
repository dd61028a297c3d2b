//! The real binary with its own data directory and port.

mod access;
mod builder;
mod database;
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

use builder::BOOTSTRAP_KEY;
pub use builder::{Builder, Sandboxing};
pub use sandboxes::Trace;

use crate::agent_server::Version;
use crate::client::Client;
use crate::proxy::Proxy;
use crate::wait::wait_for;

/// Until the service responds, or exits. Generous for machines that build beside the suites.
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// Until the service exits after SIGTERM.
const STOP_TIMEOUT: Duration = Duration::from_secs(40);
/// Lines of the log that a failed test prints.
const MAX_SHOWN_LINES: usize = 250;
/// The variable with the file of trusted certificates.
pub const CERTIFICATES_VARIABLE: &str = "SSL_CERT_FILE";

/// A running or killed service. Dropping it kills it and all processes of its sandboxes.
pub struct Service {
    builder: Builder,
    dir: TempDir,
    address: SocketAddr,
    /// Bound and not listening, so that the system gives the port to no other program while the service is down.
    _reserved_port: TcpSocket,
    /// The proxy that clients use.
    front: Option<Proxy>,
    child: Option<Child>,
    /// From the last start to the first response.
    startup_time: Duration,
}

impl Service {
    /// A builder with process sandboxes and without an agent server.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// Starts a service with the defaults.
    pub async fn start() -> Self {
        Self::builder().start().await
    }

    async fn launch(mut builder: Builder) -> Self {
        let socket = TcpSocket::new_v4().expect("cannot create a socket");
        socket.set_reuseaddr(true).expect("cannot set SO_REUSEADDR");
        socket
            .bind(SocketAddr::from(([127, 0, 0, 1], 0)))
            .expect("cannot bind a loopback port");
        let address = socket
            .local_addr()
            .expect("the bound socket has no address");
        let dir = tempfile::Builder::new()
            .prefix("aw-")
            .tempdir_in(&builder.parent)
            .expect("cannot create a temporary directory");
        std::fs::create_dir(dir.path().join("home")).expect("cannot write to the directory");
        builder.fill_port(address.port());
        let front = match builder.front_kind() {
            None => None,
            Some(kind) => {
                let proxy = Proxy::reserve_front(kind);
                builder.set_variable("WORKSPACE_HTTP__PUBLIC_URL", &proxy.url(""));
                builder.set_variable("WORKSPACE_HTTP__TRUSTED_PROXIES", "127.0.0.1");
                Some(proxy.start(address, "").await)
            }
        };
        let mut service = Self {
            builder,
            dir,
            address,
            _reserved_port: socket,
            front,
            child: None,
            startup_time: Duration::ZERO,
        };
        service.builder.install(&service.data_dir());
        service.restart().await;
        service
    }

    /// Starts the service again with the same directory and port, and kills a running one first.
    ///
    /// # Panics
    /// When it does not respond in time, or exits.
    pub async fn restart(&mut self) {
        let ended = self.try_restart().await;
        assert!(
            ended.is_none(),
            "the service ended while starting: {ended:?}"
        );
    }

    /// Starts a service that may exit during its start; returns its exit status then.
    ///
    /// # Panics
    /// When it neither responds in time nor exits.
    pub async fn try_restart(&mut self) -> Option<ExitStatus> {
        self.kill9();
        let log = self.open_log();
        let started = Instant::now();
        let child = self
            .command()
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("cannot duplicate the log file"))
            .stderr(log)
            .spawn()
            .expect("cannot start the service");
        self.child = Some(child);
        let http = crate::client::http();
        let url = format!("http://{}/alive", self.address);
        loop {
            let answer = http.get(&url).timeout(Duration::from_secs(2)).send().await;
            if answer.is_ok_and(|answer| answer.status().is_success()) {
                break;
            }
            if let Some(status) = self.exit_status() {
                return Some(status);
            }
            let waited = started.elapsed();
            assert!(
                waited < START_TIMEOUT,
                "the service does not respond at {url}"
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        self.startup_time = started.elapsed();
        None
    }

    /// Kills the service with SIGKILL.
    pub fn kill9(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Sends SIGTERM and waits for the exit.
    ///
    /// # Panics
    /// When it does not exit in time, or not with success.
    pub async fn stop(&mut self) {
        let Some(mut child) = self.child.take() else {
            return;
        };
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.expect("the service has no process id"), Signal::TERM)
            .expect("the service does not run");
        let status: ExitStatus = wait_for(
            "the exit of the service after SIGTERM",
            STOP_TIMEOUT,
            || {
                let ended = child.try_wait().ok().flatten();
                async move { ended }
            },
        )
        .await;
        assert!(status.success(), "the service ended with {status}");
    }

    /// Its exit status, if it has exited by itself.
    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        self.child
            .as_mut()
            .and_then(|c| c.try_wait().ok().flatten())
    }

    /// Process id.
    ///
    /// # Panics
    /// When it does not run.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("the service does not run").id()
    }

    /// The address that the service itself listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its URL for clients, without a slash at the end. With a proxy in front, that of the proxy: `https://localhost:…`.
    #[must_use]
    pub fn url(&self) -> String {
        let own_url = || format!("http://{}", self.address);
        let front = self.front.as_ref();
        front.map_or_else(own_url, |it| it.url("").trim_end_matches('/').to_owned())
    }

    /// The file with the certificate of the proxy in front.
    #[must_use]
    pub fn front_certificate_file(&self) -> Option<String> {
        self.front.as_ref().map(Proxy::certificate)
    }

    /// From the start of the process to its first response.
    #[must_use]
    pub fn startup_time(&self) -> Duration {
        self.startup_time
    }

    /// The data directory.
    #[must_use]
    pub fn data_dir(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// The output of the service since its first start.
    #[must_use]
    pub fn log(&self) -> String {
        let bytes = std::fs::read(self.log_file()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The first user, with the key that the service generated.
    ///
    /// # Panics
    /// When the key file cannot be read.
    #[must_use]
    pub fn admin(&self) -> Client {
        if let Some(key) = self.builder.variable(BOOTSTRAP_KEY) {
            return Client::new(self.url(), key);
        }
        let file = self.data_dir().join("bootstrap.key");
        let key = std::fs::read_to_string(&file)
            .unwrap_or_else(|error| panic!("no first key in {}: {error}", file.display()));
        Client::new(self.url(), key.trim())
    }

    /// Creates a user with the command line.
    ///
    /// # Panics
    /// When the command fails.
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
    /// When the binary cannot be run.
    #[must_use]
    pub fn run(&self, arguments: &[&str]) -> Output {
        self.cli_command(arguments)
            .output()
            .expect("cannot run the agent-workspace binary")
    }

    /// The binary with the service's configuration and these arguments, not yet run.
    #[must_use]
    pub fn cli_command(&self, arguments: &[&str]) -> Command {
        let mut command = self.command();
        if let Some(front) = &self.front {
            // Only for the command line, which is a client. The service must trust its package index instead.
            command.env(CERTIFICATES_VARIABLE, front.certificate());
        }
        command.args(arguments);
        command
    }

    fn command(&self) -> Command {
        let mut command = self.builder.command();
        command
            .env("HOME", self.dir.path().join("home"))
            .env("WORKSPACE_DATA_DIR", self.data_dir());
        if self.builder.variable("WORKSPACE_HTTP__BIND").is_none() {
            command.env("WORKSPACE_HTTP__BIND", self.address.to_string());
        }
        command
    }

    /// Sets a variable for the next start.
    pub fn set_variable(&mut self, name: &str, value: &str) {
        self.builder.set_variable(name, value);
    }

    /// Sets the release of the real agent server for the next start.
    pub fn set_agent_server(&mut self, version: Version) {
        self.builder.set_agent_server(version);
    }

    fn log_file(&self) -> PathBuf {
        self.dir.path().join("service.log")
    }

    fn open_log(&self) -> File {
        let mut log = File::options()
            .create(true)
            .append(true)
            .open(self.log_file())
            .expect("cannot write to the log");
        writeln!(log, "---- start ----").expect("cannot write to the log");
        log
    }

    /// The directory of all files of this service.
    #[must_use]
    pub fn root(&self) -> &Path {
        self.dir.path()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if std::thread::panicking() {
            print_log(&self.log());
            self.print_sandbox_logs();
        }
        self.kill9();
        self.remove_sandboxes();
    }
}

/// Prints the last lines, without successful requests: a story that polls makes hundreds of them.
fn print_log(log: &str) {
    let lines: Vec<&str> = log
        .lines()
        .filter(|line| !line.contains(": answered http.status=2"))
        .collect();
    let tail = &lines[lines.len().saturating_sub(MAX_SHOWN_LINES)..];
    crate::print_line(&format!("---- log ----\n{}", tail.join("\n")));
}
