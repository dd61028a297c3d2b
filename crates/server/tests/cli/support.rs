//! Runs the binary and sends requests to it.

use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

/// The binary with a clean environment.
pub(crate) fn service(data_dir: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_agent-workspace"));
    command
        .args(arguments)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("WORKSPACE_DATA_DIR", data_dir)
        .env("WORKSPACE_HTTP__BIND", "127.0.0.1:0")
        // Tests install no agent server and pull no image.
        .env("WORKSPACE_SANDBOX__BACKEND", "process")
        .env("WORKSPACE_SANDBOX__AGENT_SERVER_COMMAND", "/bin/true")
        // Nor the web application.
        .env("WORKSPACE_WEB__ENABLED", "off")
        // Nor what confines a sandbox.
        .env("WORKSPACE_PROCESS__ISOLATION", "none")
        .env("WORKSPACE_PROCESS__ALLOW_MULTIPLE_USERS", "true")
        .envs(variables.iter().copied());
    command
}

pub(crate) fn run(data_dir: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    service(data_dir, arguments, variables).output().unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// A running service; killed at the end of the test.
pub(crate) struct RunningService {
    pub(crate) child: Child,
    pub(crate) address: String,
    pub(crate) log: BufReader<Box<dyn Read + Send + Sync>>,
}

impl RunningService {
    pub(crate) fn start(data_dir: &Path, variables: &[(&str, &str)]) -> Self {
        let mut child = service(data_dir, &[], variables)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log: Box<dyn Read + Send + Sync> = Box::new(child.stderr.take().unwrap());
        let mut log = BufReader::new(log);
        let mut line = String::new();
        let address = loop {
            line.clear();
            assert_ne!(
                log.read_line(&mut line).unwrap(),
                0,
                "the service ended before it listened"
            );
            if let Some((_, rest)) = line.split_once("listening address=") {
                break rest.split_whitespace().next().unwrap().to_owned();
            }
        };
        Self {
            child,
            address,
            log,
        }
    }

    /// The status line of the response to a request.
    pub(crate) fn status(&self, path: &str, header: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{header}\r\n"
        )
        .unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// The response to a request with a JSON body.
    pub(crate) fn send(&self, method: &str, path: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        response
    }

    /// Discards the log from here on: a full pipe would block a service that logs much.
    pub(crate) fn drain(&mut self) {
        let nothing: Box<dyn Read + Send + Sync> = Box::new(std::io::empty());
        let mut log = std::mem::replace(&mut self.log, BufReader::new(nothing));
        std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
    }

    /// Sends SIGTERM, and waits until the process has ended.
    pub(crate) fn stop(mut self) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-TERM", &pid]).status().unwrap();
        assert!(sent.success());
        // A full pipe would block the process.
        let mut rest = String::new();
        self.log.read_to_string(&mut rest).unwrap();
        assert!(self.child.wait().unwrap().success(), "{rest}");
    }
}

impl Drop for RunningService {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
