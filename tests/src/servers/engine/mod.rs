//! A container engine, controlled with Docker's own program, independently of the service's driver.
//!
//! It knows the labels of the service's containers, volumes and networks.

mod private;

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::{Command, Output};

pub use private::PrivateEngine;

use crate::agent_server::{Version, configured_command, variable_of};

/// The label with the installation: the content of `host.id` in its data directory.
pub const INSTANCE_LABEL: &str = "agent-workspace.instance";
/// The label with the sandbox.
pub const SANDBOX_LABEL: &str = "agent-workspace.sandbox";
const CALL_TIMEOUT_SECONDS: &str = "120";

/// An engine at an address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Engine {
    socket: Option<String>,
}

/// A container, running or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    /// The full id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// `created`, `running`, `paused`, `restarting`, `removing`, `exited` or `dead`.
    pub state: String,
    /// The sandbox in its label; empty without a label.
    pub sandbox: String,
}

impl Container {
    /// Whether its processes exist.
    #[must_use]
    pub fn is_up(&self) -> bool {
        matches!(self.state.as_str(), "running" | "paused" | "restarting")
    }
}

/// A volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// Its name.
    pub name: String,
    /// The sandbox in its label; empty without a label.
    pub sandbox: String,
}

impl Engine {
    /// The engine that the suites share: that of `DOCKER_HOST`, or the default one.
    #[must_use]
    pub fn shared() -> Self {
        let socket = variable_of("DOCKER_HOST");
        Self { socket }
    }

    /// The engine at this address, for example `unix:///run/docker.sock`.
    #[must_use]
    pub fn at(socket: &str) -> Self {
        let socket = Some(socket.to_owned());
        Self { socket }
    }

    /// Its address, unless it is the default one.
    #[must_use]
    pub fn socket(&self) -> Option<&str> {
        self.socket.as_deref()
    }

    /// A `docker` command for this engine, not yet run.
    #[must_use]
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command.args([CALL_TIMEOUT_SECONDS, "docker"]);
        if let Some(socket) = &self.socket {
            command.args(["--host", socket]);
        }
        command.args(arguments);
        command
    }

    /// Runs a `docker` command.
    ///
    /// # Panics
    /// When docker is not installed.
    #[must_use]
    pub fn try_docker(&self, arguments: &[&str]) -> Output {
        let output = self.command(arguments).output();
        output.expect("cannot run docker: `cargo xtask prepare` installs it on Debian")
    }

    /// Runs a `docker` command, which must succeed; returns its output.
    ///
    /// # Panics
    /// When it fails.
    pub fn docker(&self, arguments: &[&str]) -> String {
        let output = self.try_docker(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "docker {arguments:?}: {}, {:?}: {}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            stderr.trim()
        );
        String::from_utf8_lossy(&output.stdout)
            .trim_end()
            .to_owned()
    }

    /// The address of the host that containers reach as `host-gateway`.
    ///
    /// # Panics
    /// When the engine's default network has no IPv4 address.
    pub fn gateway(&self) -> Ipv4Addr {
        let format = "{{with index .IPAM.Config 0}}{{.Gateway}} {{.Subnet}}{{end}}";
        let answer = self.docker(&["network", "inspect", "bridge", "--format", format]);
        parse_gateway(&answer).unwrap_or_else(|| panic!("no address of the host in {answer:?}"))
    }

    /// Whether it responds.
    #[must_use]
    pub fn is_responding(&self) -> bool {
        self.try_docker(&["version"]).status.success()
    }

    /// The containers of an installation.
    ///
    /// # Panics
    /// When the engine does not respond.
    #[must_use]
    pub fn containers_of(&self, instance: &str) -> Vec<Container> {
        let format = format!(
            "{{{{.ID}}}}\t{{{{.Names}}}}\t{{{{.State}}}}\t{{{{.Label {SANDBOX_LABEL:?}}}}}"
        );
        let label = filter(instance);
        let rows = self.docker(&[
            "ps",
            "--all",
            "--no-trunc",
            "--filter",
            &label,
            "--format",
            &format,
        ]);
        let rows = rows.lines().map(fields);
        rows.map(|[id, name, state, sandbox]| Container {
            id,
            name,
            state,
            sandbox,
        })
        .collect()
    }

    /// The volumes of an installation.
    ///
    /// # Panics
    /// When the engine does not respond.
    #[must_use]
    pub fn volumes_of(&self, instance: &str) -> Vec<Volume> {
        let format = format!("{{{{.Name}}}}\t{{{{.Label {SANDBOX_LABEL:?}}}}}");
        let rows = self.docker(&[
            "volume",
            "ls",
            "--filter",
            &filter(instance),
            "--format",
            &format,
        ]);
        let rows = rows.lines().map(fields);
        rows.map(|[name, sandbox]| Volume { name, sandbox })
            .collect()
    }

    /// The names of the networks of an installation.
    ///
    /// # Panics
    /// When the engine does not respond.
    #[must_use]
    pub fn networks_of(&self, instance: &str) -> Vec<String> {
        let label = filter(instance);
        let rows = self.docker(&["network", "ls", "--filter", &label, "--format", "{{.Name}}"]);
        rows.lines().map(str::to_owned).collect()
    }

    /// A file of a container, running or not; `None` if the container or the file does not exist.
    ///
    /// # Panics
    /// When no temporary directory can be created.
    #[must_use]
    pub fn file_in(&self, container: &str, path: &str) -> Option<String> {
        let dir = tempfile::tempdir().expect("cannot create a temporary directory");
        let copy = dir.path().join("copy");
        let (from, to) = (format!("{container}:{path}"), copy.to_string_lossy());
        let copied = self.try_docker(&["cp", "--follow-link", &from, &to]);
        copied
            .status
            .success()
            .then(|| std::fs::read_to_string(&copy).ok())?
    }

    /// The last lines that a container printed.
    #[must_use]
    pub fn log_of(&self, container: &str, lines: usize) -> String {
        let output = self.try_docker(&["logs", "--tail", &lines.to_string(), container]);
        let output = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&output).into_owned()
    }

    /// Removes all objects of an installation. Repeats it, because the engine may still create objects that a killed service has
    /// requested.
    pub fn remove_all_of(&self, instance: &str) {
        let label = filter(instance);
        for _ in 0..20 {
            let mut found = 0;
            for (list, remove) in REMOVALS {
                let listed =
                    self.try_docker(&[list, &["--filter", label.as_str(), "--quiet"]].concat());
                let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
                let ids: Vec<&str> = listed.split_whitespace().collect();
                if !ids.is_empty() {
                    found += ids.len();
                    // The next round retries.
                    let _ = self.try_docker(&[remove, &ids].concat());
                }
            }
            if found == 0 {
                break;
            }
        }
        remove_firewall_rules(instance);
    }
}

/// Commands to list and to remove each kind of object, users of an object before the object.
const REMOVALS: [(&[&str], &[&str]); 3] = [
    (&["ps", "--all"], &["rm", "--force", "--volumes"]),
    (&["volume", "ls"], &["volume", "rm", "--force"]),
    (&["network", "ls"], &["network", "rm"]),
];

/// Removes the packet filter's rules of an installation, which a killed service leaves behind. A service without root has made
/// none.
fn remove_firewall_rules(instance: &str) {
    let script = format!(
        "iptables -w 10 -S DOCKER-USER 2>/dev/null | grep -F '{instance}' | sed 's/^-A/-D/' | \
         while read -r rule; do eval \"iptables -w 10 $rule\"; done"
    );
    let _ = Command::new("sh").args(["-c", &script]).output();
}

fn filter(instance: &str) -> String {
    format!("label={INSTANCE_LABEL}={instance}")
}

fn fields<const N: usize>(row: &str) -> [String; N] {
    let mut fields = row.split('\t').map(str::to_owned);
    std::array::from_fn(|_| fields.next().unwrap_or_default())
}

/// The image of the stub.
///
/// # Panics
/// When it was not built.
#[must_use]
pub fn stub_image() -> String {
    configured_image("stub")
}

/// The image of a real agent server.
///
/// # Panics
/// When it was not built.
#[must_use]
pub fn agent_server_image(version: Version) -> String {
    configured_image(&format!("agent-server-{version}"))
}

fn configured_image(name: &str) -> String {
    configured_command(&format!("{name}.image")).unwrap_or_else(|paths: Vec<PathBuf>| {
        panic!(
            "there is no image of {name}: run `cargo xtask prepare`, which makes it (looked for its name in {paths:?})"
        )
    })
}

/// Parses "gateway subnet". Before its first restart an engine does not name the gateway that it chose, the first address.
fn parse_gateway(answer: &str) -> Option<Ipv4Addr> {
    let mut words = answer.split_whitespace();
    let first = words.next()?;
    let Some((subnet, _)) = first.split_once('/') else {
        return first.parse().ok();
    };
    let subnet: Ipv4Addr = subnet.parse().ok()?;
    Some(Ipv4Addr::from_bits(subnet.to_bits() + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_gateway_is_the_first_address() {
        for (answer, expected) in [
            (
                "172.17.0.1 172.17.0.0/16",
                Some(Ipv4Addr::new(172, 17, 0, 1)),
            ),
            (" 172.17.0.0/16", Some(Ipv4Addr::new(172, 17, 0, 1))),
            ("<no value> 172.17.0.0/16", None),
            ("", None),
        ] {
            assert_eq!(parse_gateway(answer), expected, "{answer}");
        }
    }
}
