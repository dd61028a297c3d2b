//! A container engine, asked with Docker's own program: a second opinion beside the driver of the service.
//!
//! It knows the labels by which the service tells what is its own.

mod private;

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::{Command, Output};

pub use private::PrivateEngine;

use crate::agent_server::{Version, configured_command, variable_of};

/// The label with the installation (the content of `host.id` in its data directory).
pub const INSTANCE: &str = "agent-workspace.instance";
/// The label with the sandbox.
pub const SANDBOX: &str = "agent-workspace.sandbox";
/// No call of a suite takes longer, in seconds.
const CALL_TIMEOUT_SECONDS: &str = "120";

/// An engine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Engine {
    socket: Option<String>,
}

/// A container, running or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    /// The engine's id, in full.
    pub id: String,
    /// Its name.
    pub name: String,
    /// `created`, `running`, `paused`, `restarting`, `removing`, `exited` or `dead`.
    pub state: String,
    /// The sandbox that its label names; empty if none.
    pub sandbox: String,
}

impl Container {
    /// Whether its processes are there.
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
    /// The sandbox that its label names; empty if none.
    pub sandbox: String,
}

impl Engine {
    /// The one that the suites use: that of `DOCKER_HOST`, or the usual one.
    #[must_use]
    pub fn shared() -> Self {
        let socket = variable_of("DOCKER_HOST");
        Self { socket }
    }

    /// The one at this address, e.g. `unix:///run/docker.sock`.
    #[must_use]
    pub fn at(socket: &str) -> Self {
        let socket = Some(socket.to_owned());
        Self { socket }
    }

    /// Its address, if it is not the usual one.
    #[must_use]
    pub fn socket(&self) -> Option<&str> {
        self.socket.as_deref()
    }

    /// `docker …` on this engine.
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

    /// Runs `docker …`.
    ///
    /// # Panics
    /// When the program is not there.
    #[must_use]
    pub fn try_docker(&self, arguments: &[&str]) -> Output {
        let output = self.command(arguments).output();
        output.expect("docker can be run: `cargo xtask prepare` installs it on Debian")
    }

    /// Runs `docker …` and returns what it prints.
    ///
    /// # Panics
    /// When it fails.
    pub fn docker(&self, arguments: &[&str]) -> String {
        let output = self.try_docker(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "docker {arguments:?}: {}, {:?}: {}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            said.trim()
        );
        String::from_utf8_lossy(&output.stdout)
            .trim_end()
            .to_owned()
    }

    /// The host, where its containers reach it by `host-gateway`.
    ///
    /// # Panics
    /// When the engine's default network has no IPv4.
    pub fn gateway(&self) -> Ipv4Addr {
        let format = "{{with index .IPAM.Config 0}}{{.Gateway}} {{.Subnet}}{{end}}";
        let answer = self.docker(&["network", "inspect", "bridge", "--format", format]);
        gateway_in(&answer).unwrap_or_else(|| panic!("no address of the host in {answer:?}"))
    }

    /// Whether it answers.
    #[must_use]
    pub fn answers(&self) -> bool {
        self.try_docker(&["version"]).status.success()
    }

    /// The containers of an installation.
    ///
    /// # Panics
    /// When the engine does not answer.
    #[must_use]
    pub fn containers_of(&self, instance: &str) -> Vec<Container> {
        let format =
            format!("{{{{.ID}}}}\t{{{{.Names}}}}\t{{{{.State}}}}\t{{{{.Label {SANDBOX:?}}}}}");
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
    /// When the engine does not answer.
    #[must_use]
    pub fn volumes_of(&self, instance: &str) -> Vec<Volume> {
        let format = format!("{{{{.Name}}}}\t{{{{.Label {SANDBOX:?}}}}}");
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
    /// When the engine does not answer.
    #[must_use]
    pub fn networks_of(&self, instance: &str) -> Vec<String> {
        let label = filter(instance);
        let rows = self.docker(&["network", "ls", "--filter", &label, "--format", "{{.Name}}"]);
        rows.lines().map(str::to_owned).collect()
    }

    /// A file of a container, running or not; `None` if one of them is not there.
    ///
    /// # Panics
    /// When there is no place for a copy.
    #[must_use]
    pub fn file_in(&self, container: &str, path: &str) -> Option<String> {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
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
        let both = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&both).into_owned()
    }

    /// Removes everything of an installation, as far as the engine lets us: what was asked for by a service that has just
    /// been killed may still come into being, so more than once.
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
                    // Looked for again below.
                    let _ = self.try_docker(&[remove, &ids].concat());
                }
            }
            if found == 0 {
                break;
            }
        }
        forget_rules(instance);
    }
}

/// How each kind of thing is listed and removed, in the order in which they let go of each other.
const REMOVALS: [(&[&str], &[&str]); 3] = [
    (&["ps", "--all"], &["rm", "--force", "--volumes"]),
    (&["volume", "ls"], &["volume", "rm", "--force"]),
    (&["network", "ls"], &["network", "rm"]),
];

/// Takes away the packet filter's rules of an installation: it does so itself only with its last sandbox. Without rights
/// there are none.
fn forget_rules(instance: &str) {
    let script = format!(
        "iptables -w 10 -S DOCKER-USER 2>/dev/null | grep -F '{instance}' | sed 's/^-A/-D/' | \
         while read -r rule; do eval \"iptables -w 10 $rule\"; done"
    );
    let _ = Command::new("sh").args(["-c", &script]).output();
}

fn filter(instance: &str) -> String {
    format!("label={INSTANCE}={instance}")
}

fn fields<const N: usize>(row: &str) -> [String; N] {
    let mut fields = row.split('\t').map(str::to_owned);
    std::array::from_fn(|_| fields.next().unwrap_or_default())
}

/// The image of the stub.
///
/// # Panics
/// When it was not made.
#[must_use]
pub fn stub_image() -> String {
    image("stub")
}

/// The image of a real agent server.
///
/// # Panics
/// When it was not made.
#[must_use]
pub fn agent_server_image(version: Version) -> String {
    image(&format!("agent-server-{version}"))
}

fn image(name: &str) -> String {
    configured_command(&format!("{name}.image")).unwrap_or_else(|places: Vec<PathBuf>| {
        panic!(
            "there is no image of {name}: run `cargo xtask prepare`, which makes it (looked for its name in {places:?})"
        )
    })
}

/// From "gateway subnet". Engines leave the gateway out until the first restart after they chose it: it is the first address.
fn gateway_in(answer: &str) -> Option<Ipv4Addr> {
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
    fn a_gateway_that_is_not_told_is_the_first_address() {
        for (answer, expected) in [
            (
                "172.17.0.1 172.17.0.0/16",
                Some(Ipv4Addr::new(172, 17, 0, 1)),
            ),
            (" 172.17.0.0/16", Some(Ipv4Addr::new(172, 17, 0, 1))),
            ("<no value> 172.17.0.0/16", None),
            ("", None),
        ] {
            assert_eq!(gateway_in(answer), expected, "{answer}");
        }
    }
}
