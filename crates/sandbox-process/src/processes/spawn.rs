//! Starts the process of a sandbox.

use std::ffi::OsString;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Stdio;

use secrecy::ExposeSecret;
use tokio::net::TcpSocket;
use tokio::process::{Child, Command};

use crate::processes::proc::{self, ProcessKey};
use sandbox_provider::SandboxVariables;

/// Reserves a port until the agent server listens on it.
///
/// The socket is bound with `SO_REUSEADDR` and never listens. Linux then lets another socket with that option bind and
/// listen (Python's servers set it), and does not assign the port to a process that asks for *any* port. So no other
/// process gets the port by chance. A process can still take it on purpose, which `endpoint` detects.
#[derive(Debug)]
pub(crate) struct PortReservation {
    _socket: TcpSocket,
    pub(crate) port: u16,
}

impl PortReservation {
    /// Reserves `preferred` if it is free, otherwise any free port.
    pub(crate) fn new(preferred: Option<u16>) -> io::Result<Self> {
        preferred
            .filter(|port| *port != 0)
            .and_then(|port| Self::bind(port).ok())
            .map_or_else(|| Self::bind(0), Ok)
    }

    fn bind(port: u16) -> io::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
        let port = socket.local_addr()?.port();
        Ok(Self {
            _socket: socket,
            port,
        })
    }
}

/// Spawns `command` with exactly these variables, this standard input, and its output in `log_file`.
pub(crate) fn spawn(
    command: &[OsString],
    variables: &SandboxVariables,
    dir: &Path,
    stdin: Stdio,
    log_file: std::fs::File,
) -> io::Result<(Child, ProcessKey)> {
    let (program, arguments) = command.split_first().ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            "sandbox.agent_server_command is empty",
        )
    })?;
    let child = Command::new(program)
        .args(arguments)
        .env_clear()
        .envs(
            variables
                .iter()
                .map(|(name, value)| (name, value.expose_secret())),
        )
        .current_dir(dir)
        .stdin(stdin)
        .stdout(log_file.try_clone()?)
        .stderr(log_file)
        .spawn()?;
    // The child is not reaped yet, so its pid is not reused even if it has exited.
    let key = child
        .id()
        .and_then(|pid| i32::try_from(pid).ok())
        .and_then(proc::stat)
        .map(|stat| stat.key)
        .ok_or_else(|| io::Error::other("the new process is not visible in /proc"))?;
    Ok((child, key))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_reserved_port_accepts_a_listener_and_is_not_assigned_to_others() {
        let reserved = PortReservation::new(None).unwrap();
        for _ in 0..200 {
            let other = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            assert_ne!(other.local_addr().unwrap().port(), reserved.port);
        }
        // The standard library sets SO_REUSEADDR on listeners, as Python does.
        let _listener = TcpListener::bind((Ipv4Addr::LOCALHOST, reserved.port)).unwrap();
        // Another process listens, so another port is taken.
        assert_ne!(
            PortReservation::new(Some(reserved.port)).unwrap().port,
            reserved.port
        );
    }

    #[tokio::test]
    async fn a_free_preferred_port_is_reserved() {
        let first = PortReservation::new(None).unwrap();
        let port = first.port;
        drop(first);
        assert_eq!(PortReservation::new(Some(port)).unwrap().port, port);
    }
}
