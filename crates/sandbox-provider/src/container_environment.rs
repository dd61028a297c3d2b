//! The environment that sandboxes of an image have in common.
//!
//! Knows: the variables of the agent server (`OH_*`, releases 1.34 to 1.58).

use std::collections::BTreeMap;

use domain::sandbox::AGENT_SERVER;
use secrecy::SecretString;

use crate::container_settings::ExposedPort;
use crate::{AGENT_SERVER_PORT, FIXED_VARIABLES, SandboxVariables};

/// The port of the VS Code server. Without the port, the server would only waste memory.
const VSCODE: &str = "VSCODE";

/// Of containers only; see [`FIXED_VARIABLES`] for the others.
const CONTAINER_VARIABLES: [(&str, &str); 3] = [
    // A volume has one owner: a lease would only lock a restarted server out of its own conversations.
    ("OH_LEASE_TTL_SECONDS", "0"),
    ("OH_ENABLE_VNC", "0"),
    // Preloading costs processor time and memory at each start and saves little at the first conversation.
    ("OH_PRELOAD_TOOLS", "0"),
];

/// The variables of a container that the API shows: those of a template that are not secret, and the fixed ones.
pub fn shown_variables(
    env: &BTreeMap<String, String>,
    secret_env: &BTreeMap<String, SecretString>,
) -> BTreeMap<String, String> {
    let mut shown = env.clone();
    // The same precedence as in the container: secret variables override others, and the service's own override both.
    shown.retain(|name, _| !secret_env.contains_key(name));
    let fixed = FIXED_VARIABLES.into_iter().chain(CONTAINER_VARIABLES);
    shown.extend(fixed.map(|(name, value)| (name.to_owned(), value.to_owned())));
    shown
}

/// Sets the variables of a container that its template decides. They replace what the template sets by name.
pub fn add_container_variables(
    all: &mut SandboxVariables,
    ports: &[ExposedPort],
    working_dir: &str,
    volume: &str,
) {
    let mut set = |name: &str, value: &str| all.insert(name.to_owned(), value.into());
    for (name, value) in CONTAINER_VARIABLES {
        set(name, value);
    }
    set("OH_WORKSPACE_PATH", working_dir);
    set("OH_BASH_EVENTS_DIR", &format!("{volume}/bash_events"));
    let has_vscode = ports.iter().any(|port| port.name == VSCODE);
    set("OH_ENABLE_VSCODE", if has_vscode { "1" } else { "0" });
    for port in ports {
        let name = match port.name.as_str() {
            AGENT_SERVER => AGENT_SERVER_PORT,
            VSCODE => "OH_VSCODE_PORT",
            name => name,
        };
        set(name, &port.port.to_string());
    }
}
