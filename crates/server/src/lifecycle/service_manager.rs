//! Notifies the service manager by systemd's protocol, `sd_notify(3)`. Does nothing without a manager.

use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use domain::error::chain;
use settings::variable;

use settings::EnvVariables;

/// Names the manager's socket.
const VARIABLE: &str = "NOTIFY_SOCKET";
/// A manager that does not read must not block the service.
const SEND_TIMEOUT: Duration = Duration::from_secs(1);

/// The service manager that started this process.
pub(crate) struct ServiceManager(Option<(UnixDatagram, SocketAddr)>);

impl ServiceManager {
    /// The manager that the variables name, if any.
    pub(crate) fn of(variables: &EnvVariables) -> Self {
        let connected = variable(variables, VARIABLE).map(|name| connect(name.as_bytes()));
        Self(connected.and_then(|result| {
            result
                .inspect_err(|error| {
                    tracing::warn!(error = %chain(&error), "cannot notify the service manager: \
             the variable {VARIABLE} names no usable socket");
                })
                .ok()
        }))
    }

    pub(crate) fn ready(&self) {
        self.notify("READY=1\nSTATUS=Serving");
    }

    /// A reload has started; [`Self::ready`] ends it.
    pub(crate) fn reloading(&self) {
        self.notify("RELOADING=1\nSTATUS=Reading the configuration again");
    }

    /// The shutdown has started and takes at most `max_duration`. This extends the unit's time-out, which need not match the
    /// configuration.
    pub(crate) fn stopping(&self, max_duration: Duration) {
        let micros = max_duration.as_micros();
        self.notify(&format!(
            "STOPPING=1\nEXTEND_TIMEOUT_USEC={micros}\nSTATUS=Stopping; sandboxes go on running"
        ));
    }

    fn notify(&self, message: &str) {
        let Some((socket, manager)) = &self.0 else {
            return;
        };
        if let Err(error) = socket.send_to_addr(message.as_bytes(), manager) {
            tracing::warn!(error = %chain(&error), "cannot notify the service manager at the socket in {VARIABLE}");
        }
    }
}

/// Connects to a path, or with `@` to an abstract socket.
fn connect(name: &[u8]) -> io::Result<(UnixDatagram, SocketAddr)> {
    let manager = match name.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(name)),
    }?;
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(SEND_TIMEOUT))?;
    Ok((socket, manager))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manager(name: &str) -> ServiceManager {
        ServiceManager::of(&[(VARIABLE.into(), name.into())])
    }

    fn receive(socket: &UnixDatagram) -> String {
        socket
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        let mut message = [0; 256];
        let length = socket.recv(&mut message).unwrap();
        String::from_utf8_lossy(&message[..length]).into_owned()
    }

    #[test]
    fn each_state_reaches_the_manager_on_both_kinds_of_sockets() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let abstract_name = format!("agent-workspace-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&abstract_name).unwrap();
        for (socket, name) in [
            (UnixDatagram::bind(&path), path.display().to_string()),
            (
                UnixDatagram::bind_addr(&address),
                format!("@{abstract_name}"),
            ),
        ] {
            let (socket, manager) = (socket.unwrap(), manager(&name));
            manager.ready();
            assert!(receive(&socket).starts_with("READY=1\n"));
            manager.reloading();
            assert!(receive(&socket).starts_with("RELOADING=1\n"));
            manager.stopping(Duration::from_millis(1500));
            let message = receive(&socket);
            let expected = "STOPPING=1\nEXTEND_TIMEOUT_USEC=1500000\n";
            assert!(message.starts_with(expected), "{message}");
        }
    }

    #[test]
    fn without_a_manager_nothing_happens() {
        ServiceManager::of(&[]).ready();
        for name in ["", "/no/such/socket", "@"] {
            manager(name).ready();
        }
    }
}
